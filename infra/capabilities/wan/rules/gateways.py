"""Gateway nodes, and the links that need them: backups and WireGuard tunnels."""

from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import ClassVar

from infra.declaration import ClusterSpec, LinkEndSpec, RegionSpec, WanLinkSpec
from infra.ground.addresses import TUNNEL_NETWORK, UPLINK_NETWORK, block_size, host_name
from infra.ground.problem import Problem, Severity, nearest, show
from infra.ground.rule import links, pools
from infra.ground.rules.regions import SPECIAL, free_network

LINK_LOCAL = {what: network for what, network in SPECIAL.items() if network.is_link_local}
NO_ENDS = {what: network for what, network in SPECIAL.items() if what not in LINK_LOCAL} | {
    f"the tunnels' own range ({TUNNEL_NETWORK})": TUNNEL_NETWORK,
    f"the regions' uplinks ({UPLINK_NETWORK})": UPLINK_NETWORK,
}
"""Ranges of which no carrier hands an address over."""
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
            lacking = [r.name for r in _without_gateways(spec, link) if r.provider.owns_router]
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
    """Several gateways of a region answer at one address, whichever of them is up (VRRP), and nobody else."""

    id: ClassVar[str] = "gateway-address"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Regions with several gateways that share no address, or one that is not free."""
        for index, region in enumerate(spec.regions):
            count = _gateways(region)
            if count > 1 and region.provider.makes_nodes and block_size(region.cidr) in (1, 2):
                message = f"{region.cidr} is too small for the address that {count} gateways share"
                others = [other.cidr for other in spec.regions if other is not region]
                free = free_network(SMALLEST_SHARED_PREFIX, region.cidr, others)
                allowed = f"/{SMALLEST_SHARED_PREFIX} or larger"
                yield Problem(f"regions[{index}].cidr", message, str(region.cidr), allowed, free)
        yield from self._taken(spec)

    @staticmethod
    def _taken(spec: ClusterSpec) -> Iterator[Problem]:
        for index, region in enumerate(spec.regions):
            if region.provider.makes_nodes:
                continue
            count = _gateways(region)
            declared, path = region.shared_gateway_address(), f"regions[{index}].provider"
            if declared is None and count > 1:
                message = f"{region.name} has {count} gateways, and says not which address they share"
                hint = (
                    f"declare gateway_address: a free one in {region.cidr} that no router and no machine has"
                )
                yield Problem(path, message, hint=hint)
            elif declared is not None and declared not in region.cidr:
                message = f"{declared} is outside region {region.name}'s {region.cidr}"
                yield Problem(f"{path}.gateway_address", message, str(declared), str(region.cidr))
            elif declared is not None and not _is_a_machines(declared, region):
                message = f"{declared} is no machine's address in {region.cidr}"
                yield Problem(f"{path}.gateway_address", message, str(declared))
        for path, region, _, pool in pools(spec):
            count, shared = _gateways(region), region.shared_gateway_address()
            for number, host in enumerate(pool.hosts):
                if count > 1 and host.address == shared:
                    message = f"{shared} is the address that {region.name}'s {count} gateways share"
                    hint = "declare a free one as gateway_address of the region's provider"
                    yield Problem(f"{path}.hosts[{number}].address", message, str(shared), hint=hint)


def _gateways(region: RegionSpec) -> int:
    return sum(pool.count for pool in region.pools if pool.role == "gateway")


def _is_a_machines(address: IPv4Address, region: RegionSpec) -> bool:
    """Whether an address of the region's range can be a machine's: not the network's, nor broadcast."""
    edges = (region.cidr.network_address, region.cidr.broadcast_address)
    return region.cidr.prefixlen > 30 or address not in edges


def _ends(spec: ClusterSpec) -> Iterator[tuple[str, WanLinkSpec, RegionSpec, LinkEndSpec]]:
    """Every declared end of a link between declared regions: (path, the link, the end's region, the end)."""
    regions = {region.name: region for region in spec.regions}
    for path, link in links(spec):
        for side, name, end in (("a", link.a, link.a_end), ("b", link.b, link.b_end)):
            if end is not None and {link.a, link.b} <= regions.keys():
                yield f"{path}.{side}_end", link, regions[name], end


class EndsAreHandedOver:
    """Gateways you have can use a link only where they know both of its ends, and the carrier makes those."""

    id: ClassVar[str] = "link-handover"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Ends in local regions, one end alone, ends at no gateway, ends that cannot reach each other."""
        providers = {region.name: region.provider for region in spec.regions}
        for path, link, region, end in _ends(spec):
            made = next((name for name in (link.a, link.b) if providers[name].makes_links), None)
            if made:
                message = f"{made} is {providers[made].kind}, and no carrier hands a link over there"
                yield Problem(path, message, hint="take a_end and b_end out")
            elif link.a_end is None or link.b_end is None:
                other = "b_end" if link.a_end else "a_end"
                yield Problem(path, f"the link's other end is not declared: {other}")
            yield from self._gateway(path, region, end)
            if end.public_address is not None and link.kind != "vpn":
                message = f"a {link.kind} is not translated: {end.public_address} would be used by a vpn only"
                yield Problem(f"{path}.public_address", message, str(end.public_address))
        seen: dict[frozenset[IPv4Address], str] = {}
        for path, link in links(spec):
            yield from self._usable(path, link)
            yield from self._apart(path, link, spec)
            if link.a_end and link.b_end:
                both = frozenset((link.a_end.address.ip, link.b_end.address.ip))
                if (other := seen.setdefault(both, link.name)) != link.name:
                    message = f"{link.a_end.address.ip} and {link.b_end.address.ip} are the ends of {other}"
                    yield Problem(f"{path}.b_end.address", message, str(link.b_end.address))

    @staticmethod
    def _usable(path: str, link: WanLinkSpec) -> Iterator[Problem]:
        """Addresses that no interface can have, or that are ours."""
        for side, end in (("a_end", link.a_end), ("b_end", link.b_end)):
            if end is None:
                continue
            address, network = end.address.ip, end.address.network
            edges = (network.network_address, network.broadcast_address)
            if network.prefixlen < 31 and address in edges:
                message = f"{address} is no interface's: {network} begins or ends with it"
                yield Problem(f"{path}.{side}.address", message, str(end.address))
            for key, given in (("address", address), ("public_address", end.public_address)):
                # Carriers do hand lines over with link-local addresses; nobody is reached there from afar.
                known = NO_ENDS | (LINK_LOCAL if key == "public_address" else {})
                what = next((what for what, one in known.items() if given and given in one), None)
                if what is not None:
                    yield Problem(f"{path}.{side}.{key}", f"{given} is in {what}", str(given))

    @staticmethod
    def _gateway(path: str, region: RegionSpec, end: LinkEndSpec) -> Iterator[Problem]:
        gateways = [pool for pool in region.pools if pool.role == "gateway"]
        names = [host_name(region, pool, number) for pool in gateways for number in range(max(pool.count, 0))]
        if end.gateway is not None and end.gateway not in names:
            message = f"{show(end.gateway)} is not a gateway of {region.name}"
            meant = nearest(end.gateway, names) or (names[0] if len(names) == 1 else None)
            yield Problem(f"{path}.gateway", message, show(end.gateway), ", ".join(names), meant)

    @staticmethod
    def _apart(path: str, link: WanLinkSpec, spec: ClusterSpec) -> Iterator[Problem]:
        a, b = link.a_end, link.b_end
        if a is None or b is None:
            return
        if a.address.ip == b.address.ip:
            message = f"{b.address.ip} is the address of both ends"
            yield Problem(f"{path}.b_end.address", message, str(b.address))
        elif link.kind != "vpn" and a.address.network != b.address.network:
            message = f"{b.address} is not in the network of the other end, {a.address.network}"
            yield Problem(f"{path}.b_end.address", message, str(b.address), str(a.address.network))
        for side, end in (("a_end", a), ("b_end", b)):
            reached = end.public_address or end.address.ip
            inside = next((region for region in spec.regions if reached in region.cidr), None)
            if inside is not None:
                key = "public_address" if end.public_address else "address"
                message = f"{reached} is in region {inside.name}'s {inside.cidr}, which is reached over links"
                hint = "declare a public_address outside of it" if link.kind == "vpn" else ""
                yield Problem(f"{path}.{side}.{key}", message, str(reached), hint=hint)


class GatewaysKnowTheirLinks:
    """Gateways answer "unreachable" where they know of no link, and one you have knows a link by its ends."""

    id: ClassVar[str] = "link-handover-missing"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Links between gateway nodes that nobody makes: not handed over, or from local to other regions."""
        providers = {region.name: region.provider for region in spec.regions}
        for path, link in links(spec):
            found = [providers[name] for name in (link.a, link.b) if name in providers]
            made = [provider.makes_links for provider in found]
            if link.a_end or link.b_end or all(made) or len(found) < 2:
                continue
            lacking = [region.name for region in _without_gateways(spec, link)]
            untold = [name for name in dict.fromkeys((link.a, link.b)) if name not in lacking]
            if untold and any(made):
                one, other = (link.a, link.b) if made[0] else (link.b, link.a)
                message = f"{one} is {providers[one].kind} and {other} is not: "
                message += "nobody makes a link between their gateways"
                yield Problem(path, message, hint=f"take the gateways out of {' and '.join(untold)}")
            elif untold:
                message = f"the gateways of {' and '.join(untold)} are not told where the link is handed over"
                yield Problem(path, message, hint="declare a_end and b_end, each with its address")
