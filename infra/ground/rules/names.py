"""Names: what a name may look like, and that no two things share one."""

import re
from collections.abc import Iterable, Iterator
from typing import ClassVar

from infra.declaration import ClusterSpec
from infra.ground.addresses import host_name, number_of
from infra.ground.problem import Problem, Severity, show
from infra.ground.rule import pools

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
LONGEST_LABEL = 63
"""RFC 1035, section 2.3.4; Linux allows one more."""
NOT_NAMES = re.compile(
    r"localhost|all|ungrouped|0x[0-9a-f]*|[0-9]+(e[0-9]+)?|true|false|yes|no|on|off|null|y|n"
)
"""What the resolver takes for an address, Ansible for a group, or YAML for a value."""


def is_host_name(text: str) -> bool:
    """Whether a machine that is called so can be declared with that name."""
    return bool(LABEL.fullmatch(text)) and len(text) <= LONGEST_LABEL and not NOT_NAMES.fullmatch(text)


def _names(spec: ClusterSpec) -> Iterator[tuple[str, str]]:
    """Every declared name with its path."""
    yield "name", spec.name
    for index, region in enumerate(spec.regions):
        yield f"regions[{index}].name", region.name
    for path, _, _, pool in pools(spec):
        yield f"{path}.name", pool.name
        for number, host in enumerate(pool.hosts):
            if host.name is not None:
                yield f"{path}.hosts[{number}].name", host.name
    for index, link in enumerate(spec.wan_links):
        yield f"wan_links[{index}].name", link.name


class NamesAreLabels:
    """Names end up in host names, so each is a DNS label (RFC 1123)."""

    id: ClassVar[str] = "name-form"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Every name that is no lower-case DNS label."""
        allowed = "a-z, 0-9 and - inside"
        for path, name in _names(spec):
            if not LABEL.fullmatch(name):
                label = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:LONGEST_LABEL].strip("-")
                message = f"{show(name)} is not a DNS label ({allowed})"
                yield Problem(path, message, show(name), allowed, label or None)
            elif len(name) > LONGEST_LABEL:
                message = f"{show(name)} has {len(name)} characters; a DNS label has {LONGEST_LABEL} at most"
                yield Problem(path, message, show(name), f"{LONGEST_LABEL} characters")


class HostNamesAreNames:
    """A machine called `all` would be all machines to Ansible, and `10` is an address to the resolver."""

    id: ClassVar[str] = "host-name-meaning"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Names of machines that mean something else."""
        for path, _, _, pool in pools(spec):
            for number, host in enumerate(pool.hosts):
                if host.name is not None and NOT_NAMES.fullmatch(host.name):
                    message = f"{show(host.name)} means something else to the resolver, Ansible or YAML"
                    hint = "take name out: the machine then gets one of its region and pool"
                    yield Problem(f"{path}.hosts[{number}].name", message, show(host.name), hint=hint)


class HostNamesFit:
    """A host without a name is called `<region>-<pool>-<number>`, which has to be one DNS label."""

    id: ClassVar[str] = "host-name-length"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Pools whose longest host name is too long."""
        for path, region, _, pool in pools(spec):
            last = max(pool.count - 1, 0)
            if pool.hosts:
                last = next((n for n, host in reversed([*enumerate(pool.hosts)]) if host.name is None), -1)
            longest = host_name(region, pool, last) if last >= 0 else ""
            if len(longest) > LONGEST_LABEL and max(len(region.name), len(pool.name)) <= LONGEST_LABEL:
                message = (
                    f"the host name {longest} has {len(longest)} characters; "
                    f"a DNS label has {LONGEST_LABEL} at most"
                )
                hint = f"shorten the pool's or the region's name by {len(longest) - LONGEST_LABEL}"
                yield Problem(
                    f"{path}.name", message, show(pool.name), f"{LONGEST_LABEL} characters", hint=hint
                )


class NamesAreUnique:
    """Regions, links, and the pools of one region each have a name of their own."""

    id: ClassVar[str] = "name-unique"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Every name that an earlier object of the same kind has already."""
        yield from self._repeated("regions", "region", (region.name for region in spec.regions))
        for index, region in enumerate(spec.regions):
            path = f"regions[{index}].pools"
            yield from self._repeated(path, f"pool of {region.name}", (pool.name for pool in region.pools))
        yield from self._repeated("wan_links", "WAN link", (link.name for link in spec.wan_links))

    @staticmethod
    def _repeated(path: str, what: str, names: Iterable[str]) -> Iterator[Problem]:
        first: dict[str, int] = {}
        for index, name in enumerate(names):
            earlier = first.setdefault(name, index)
            if earlier != index:
                message = f"{show(name)} is already the name of {path}[{earlier}]: every {what} has its own"
                yield Problem(f"{path}[{index}].name", message, show(name))


class HostNamesAreUnique:
    """A name is one node's. Region `a-b` with pool `c` and `a` with `b-c` would both make `a-b-c-0`."""

    id: ClassVar[str] = "host-name-unique"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Pools of different regions whose host names come out the same, and names that others have."""
        first: dict[str, tuple[str, str]] = {}
        for path, region, _, pool in pools(spec):
            stem = f"{region.name}-{pool.name}"
            earlier, owner = first.setdefault(stem, (path, region.name))
            if owner != region.name:
                message = f"its hosts would be called {stem}-0 and so on, like those of {earlier}"
                yield Problem(f"{path}.name", message, show(pool.name), hint="rename one of the two pools")
        yield from self._declared(spec)

    @staticmethod
    def _declared(spec: ClusterSpec) -> Iterator[Problem]:
        """Names of machines that an earlier one is declared to have, or another one gets by its number."""
        first: dict[str, str] = {}
        stems = {f"{region.name}-{pool.name}": (path, region, pool) for path, region, _, pool in pools(spec)}
        for path, _, _, pool in pools(spec):
            for index, host in enumerate(pool.hosts):
                if host.name is None:
                    continue
                place, taken = f"{path}.hosts[{index}]", "is already the name of"
                owner = first.setdefault(host.name, place)
                if owner == place and (found := stems.get(host.name.rpartition("-")[0])):
                    number = number_of(found[1], found[2], host.name)
                    owner = place if number is None else f"{found[0]}.hosts[{number}]"
                    taken = "is the name that its number gives to"
                if owner != place:
                    hint = "give one of the two machines another name"
                    yield Problem(
                        f"{place}.name", f"{show(host.name)} {taken} {owner}", show(host.name), hint=hint
                    )
