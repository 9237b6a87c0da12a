"""Service discovery: servers in every region, and a datacenter for each."""

from collections.abc import Iterator
from typing import ClassVar

from infra.capabilities.discovery.servers import SERVER_COUNTS, control_nodes, datacenter
from infra.declaration import ClusterSpec, DiscoverySpec
from infra.ground.problem import Problem, Severity, listing, nearest, show
from infra.ground.rules.names import LABEL


class ServersCanAgree:
    """More than half of the servers decide, so an even number tolerates no more failures than one less."""

    id: ClassVar[str] = "discovery-servers"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Numbers of servers that are even or too large."""
        servers = spec.discovery.servers if spec.discovery else None
        if servers is not None and servers not in SERVER_COUNTS:
            near = [count for count in SERVER_COUNTS if count < servers] or [SERVER_COUNTS[0]]
            allowed = listing(SERVER_COUNTS)
            message = f"{show(servers)} is not one of {allowed}"
            if servers in (2, 4):
                message += f": {servers} servers tolerate no more failures than {servers - 1}"
            yield Problem("discovery.servers", message, show(servers), allowed, str(near[-1]))


class ServersHaveNodes:
    """Every region answers for itself when it is cut off, so each has its servers, on control nodes."""

    id: ClassVar[str] = "discovery-nodes"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Regions with fewer control nodes than servers, or none."""
        if spec.discovery is None:
            return
        for index, region in enumerate(spec.regions):
            wanted, found = spec.discovery.servers or 1, control_nodes(region)
            if found < wanted:
                message = f"{region.name} has {found} of the {wanted} control nodes that discovery needs"
                hint = "add control nodes there, or declare fewer servers"
                yield Problem(f"regions[{index}].pools", message, hint=hint)


class DatacentersAreRegions:
    """Servers of one datacenter agree on every write, and need 50 ms or less between them: no WAN link."""

    id: ClassVar[str] = "discovery-datacenters"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Datacenters of several regions, names that are no label, and regions that are not declared."""
        if spec.discovery is not None:
            yield from self._datacenters(spec, spec.discovery)
            yield from self._primary(spec, spec.discovery)
            yield from self._shared(spec, spec.discovery)

    @staticmethod
    def _datacenters(spec: ClusterSpec, discovery: DiscoverySpec) -> Iterator[Problem]:
        for region, name in discovery.datacenters.items():
            path = f"discovery.datacenters.{region}"
            if region not in _names(spec):
                yield _not_declared(path, region, spec)
            elif not LABEL.fullmatch(name):
                yield Problem(path, f"{show(name)} is not a DNS label", show(name), suggestion=region)

    @staticmethod
    def _primary(spec: ClusterSpec, discovery: DiscoverySpec) -> Iterator[Problem]:
        path, primary = "discovery.primary", discovery.primary
        if primary is not None and primary not in _names(spec):
            yield _not_declared(path, primary, spec)
        elif primary is not None and primary not in (first := spec.rollout()[0]):
            message = (
                f"{show(primary)} is not in the first wave: the regions before it would have no rights yet"
            )
            yield Problem(path, message, show(primary), ", ".join(first), next(iter(first), None))

    @staticmethod
    def _shared(spec: ClusterSpec, discovery: DiscoverySpec) -> Iterator[Problem]:
        owners: dict[str, str] = {}
        for region in _names(spec):
            name = datacenter(discovery, region)
            owner = owners.setdefault(name, region)
            if owner != region:
                message = f"{show(name)} is the datacenter of {owner}, and none spans a WAN link: "
                message += "its servers would wait for each other at every write"
                hint = "leave it out: every region is a datacenter of its own, and they are joined"
                yield Problem(f"discovery.datacenters.{region}", message, show(name), hint=hint)


def _names(spec: ClusterSpec) -> list[str]:
    return [region.name for region in spec.regions]


def _not_declared(path: str, region: str, spec: ClusterSpec) -> Problem:
    names = _names(spec)
    allowed = ", ".join(names)
    message = f"{show(region)} is not a declared region ({allowed})"
    return Problem(path, message, show(region), allowed, nearest(region, names))
