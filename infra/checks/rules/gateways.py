"""Gateway nodes, and the links that need them: backups and WireGuard tunnels."""

from collections.abc import Iterator
from typing import ClassVar

from infra.checks.problem import Problem, Severity, nearest, show
from infra.checks.rules.base import links, pools
from infra.checks.rules.network import free_network
from infra.planning.addresses import block_size, gateway_vip
from infra.spec import ClusterSpec, RegionSpec, WanLinkSpec

SMALLEST_SHARED_PREFIX = 26
"""The smallest range whose block 0 holds the router's address and the gateways' common one."""


def _without_gateways(spec: ClusterSpec, link: WanLinkSpec) -> list[RegionSpec]:
    """The regions at a link's ends that have no gateway node."""
    ends = [region for region in spec.regions if region.name in (link.a, link.b)]
    return [region for region in ends if not any(pool.role == "gateway" for pool in region.pools)]


class BackupsStandIn:
    """A backup takes over from one link, between the same two regions."""

    id: ClassVar[str] = "link-backup"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Backups of no link, of themselves, of another backup, or of a link between other regions."""
        by_name = {link.name: link for link in spec.wan_links}
        for path, link in links(spec):
            if link.backup_of is None:
                continue
            path, found = f"{path}.backup_of", show(link.backup_of)
            primary = by_name.get(link.backup_of)
            same = [other.name for other in spec.wan_links if self._may_stand_in(link, other)]
            allowed, meant = ", ".join(same), same[0] if len(same) == 1 else None
            if primary is None:
                suggestion = nearest(link.backup_of, same) or meant
                yield Problem(path, f"{found} is not a declared WAN link", found, allowed, suggestion)
            elif primary.name == link.name:
                yield Problem(path, f"{found} is the link itself", found, allowed, meant)
            elif primary.backup_of is not None:
                message = f"{found} is itself a backup, of {primary.backup_of}"
                yield Problem(path, message, found, allowed, meant)
            elif {primary.a, primary.b} != {link.a, link.b}:
                message = f"{found} joins {primary.a} and {primary.b}, not {link.a} and {link.b}"
                yield Problem(path, message, found, allowed, meant)

    @staticmethod
    def _may_stand_in(link: WanLinkSpec, other: WanLinkSpec) -> bool:
        joins_the_same = {link.a, link.b} == {other.a, other.b}
        return joins_the_same and other.backup_of is None and other.name != link.name


class BackupsTakeOver:
    """Gateway nodes notice that a link is down; the routers of local regions do not."""

    id: ClassVar[str] = "link-backup-gateways"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Backups that end in a local region without gateway nodes."""
        for path, link in links(spec):
            lacking = [r.name for r in _without_gateways(spec, link) if r.provider.kind == "local"]
            if link.backup_of is not None and lacking:
                message = f"nothing in {' and '.join(lacking)} moves traffic to a backup"
                hint = "add a pool of role gateway there"
                yield Problem(f"{path}.backup_of", message, hint=hint)


class TunnelsEndInGateways:
    """The WireGuard tunnel of a `vpn` is made by the nodes at its ends."""

    id: ClassVar[str] = "link-vpn-gateways"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Links of kind `vpn` that end in a region without gateway nodes."""
        for path, link in links(spec):
            lacking = [region.name for region in _without_gateways(spec, link)]
            if link.kind == "vpn" and lacking:
                message = f"a vpn needs gateway nodes at both ends; there is none in {' and '.join(lacking)}"
                hint = "add there for example {name: edge, role: gateway, count: 1}"
                yield Problem(f"{path}.kind", message, show(link.kind), "dedicated_fiber, sdwan", hint=hint)


class GatewaysShareAnAddress:
    """Several gateways of a region answer at its second address, whichever of them is up (VRRP)."""

    id: ClassVar[str] = "gateway-address"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Regions with several gateways whose second address is a node's."""
        for index, region in enumerate(spec.regions):
            count = sum(pool.count for pool in region.pools if pool.role == "gateway")
            if count > 1 and region.provider.kind == "local" and block_size(region.cidr) in (1, 2):
                message = f"{region.cidr} is too small for the address that {count} gateways share"
                others = [other.cidr for other in spec.regions if other is not region]
                free = free_network(SMALLEST_SHARED_PREFIX, region.cidr, others)
                allowed = f"/{SMALLEST_SHARED_PREFIX} or larger"
                yield Problem(f"regions[{index}].cidr", message, str(region.cidr), allowed, free)
        yield from self._taken(spec)

    @staticmethod
    def _taken(spec: ClusterSpec) -> Iterator[Problem]:
        for path, region, _, pool in pools(spec):
            count = sum(each.count for each in region.pools if each.role == "gateway")
            if count < 2 or region.cidr.prefixlen > 30:
                continue
            shared = gateway_vip(region.cidr)
            for number, host in enumerate(pool.hosts):
                if host.address == shared:
                    message = f"{shared} is the address that {region.name}'s {count} gateways share"
                    yield Problem(f"{path}.hosts[{number}].address", message, str(shared))
