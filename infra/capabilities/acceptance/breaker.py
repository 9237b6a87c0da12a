"""How many nodes may be out by machine: never more than a declared share of any failure domain. Pure.

A leaf switch or a power feed that fails looks like many nodes that fail: whoever takes them all out, one by
one, takes the cluster down. What the breaker holds back is for people to look at.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Domain = tuple[str, str]
"""(kind, name): `("leaf", "tokyo-leaf-3")`."""
KINDS = ("leaf", "rack", "pool", "region")


@dataclass(frozen=True)
class Wish:
    """A node that is to be taken out, and since when (s since 1970)."""

    node: str
    since: float


@dataclass(frozen=True)
class Held:
    """A node that stays although it is bad, for one of its domains has as many out as it may."""

    node: str
    domain: Domain
    out: int
    most: int
    nodes: int


@dataclass(frozen=True)
class Ruling:
    """Which nodes may be taken out, in the order of their wishes, and which are held back."""

    allowed: tuple[str, ...]
    held: tuple[Held, ...]


def most_out(nodes: int, pct: int) -> int:
    """How many of a domain's nodes may be out: its share, and of a small one a single node."""
    return max(nodes * pct // 100, 1)


def ruled(
    wishes: Sequence[Wish],
    gone: Sequence[str],
    domains: Mapping[str, Sequence[Domain]],
    shares: Mapping[str, int],
) -> Ruling:
    """Grant wishes, the oldest first, as long as no domain of the node has too many out.

    `gone` are out without anybody's doing (they do not answer, or never joined): they count, and ask nobody.
    `domains` has all nodes with their domains, `shares` the per cent of each kind.
    """
    sizes: dict[Domain, int] = {}
    out: dict[Domain, int] = {}
    for node, its in domains.items():
        for domain in set(its):
            sizes[domain] = sizes.get(domain, 0) + 1
            out[domain] = out.get(domain, 0) + (node in gone)
    allowed, held = [], []
    for wish in sorted(wishes, key=lambda wish: (wish.since, wish.node)):
        its = sorted(set(domains[wish.node]))
        full = [each for each in its if out[each] >= most_out(sizes[each], shares[each[0]])]
        if full:
            most = most_out(sizes[full[0]], shares[full[0][0]])
            held.append(Held(wish.node, full[0], out[full[0]], most, sizes[full[0]]))
            continue
        allowed.append(wish.node)
        for domain in its:
            out[domain] += 1
    return Ruling(tuple(allowed), tuple(held))
