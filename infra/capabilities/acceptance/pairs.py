"""Who is to blame when nodes together are slow: nobody is, before another peer was tried. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Tried:
    """Nodes that were tried together, and whether they reached the floor."""

    nodes: frozenset[str]
    passed: bool


@dataclass(frozen=True)
class Judgement:
    """Each node is in one of the first three at most."""

    cleared: tuple[str, ...]
    """They passed with somebody."""
    blamed: tuple[str, ...]
    """They passed with nobody, and failed with two peers of whom each passed with somebody else."""
    suspects: tuple[str, ...]
    """They failed, and it may be the peer's fault."""
    next: tuple[tuple[str, ...], ...]
    """Who is to be tried with whom."""
    paths: tuple[tuple[str, ...], ...]
    """Failed together, and each passed with another: what lies between them, not they."""


def groups(nodes: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """Nodes in groups of a size, neighbours together; the last ones make theirs full with those before."""
    if len(nodes) < size:
        return []
    found = [tuple(nodes[start : start + size]) for start in range(0, len(nodes) - size + 1, size)]
    return found if len(nodes) % size == 0 else [*found, tuple(nodes[-size:])]


def judged(tried: Iterable[Tried]) -> Judgement:
    """What the runs of one size tell, and which to make next."""
    runs = list(tried)
    known = sorted({node for run in runs for node in run.nodes})
    cleared = {node for run in runs if run.passed for node in run.nodes}
    failed = [run.nodes for run in runs if not run.passed]
    blamed = {node for node in known if node not in cleared and _is_alone_to_blame(node, failed, cleared)}
    suspects = [node for node in known if node not in cleared | blamed]
    paths = sorted({tuple(sorted(nodes)) for nodes in failed if nodes <= cleared})
    return Judgement(
        tuple(sorted(cleared)),
        tuple(sorted(blamed)),
        tuple(suspects),
        tuple(_next(suspects, sorted(cleared), [run.nodes for run in runs], known)),
        tuple(paths),
    )


def _is_alone_to_blame(node: str, failed: list[frozenset[str]], cleared: set[str]) -> bool:
    """It failed with two different sets of peers that are all cleared."""
    peers = {nodes - {node} for nodes in failed if node in nodes and nodes - {node} <= cleared}
    return len(peers) > 1


def _next(
    suspects: list[str], cleared: list[str], tried: list[frozenset[str]], known: list[str]
) -> Iterable[tuple[str, ...]]:
    """Every suspect with a peer that it was not tried with: one that passed, else one not known."""
    used = set[str]()
    for node in suspects:
        met = {other for nodes in tried if node in nodes for other in nodes}
        others = [*cleared, *(other for other in known if other not in cleared)]
        free = (other for other in others if other not in met | used and other != node)
        peer = next(free, None)
        if peer is not None and node not in used:
            used |= {node, peer}
            yield (node, peer)
