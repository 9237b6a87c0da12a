"""What the WAN of a declaration comes to: what links ask of hosts, where they end, routes, gateways."""

from dataclasses import asdict, dataclass
from ipaddress import IPv4Address

from infra.capabilities.wan.routes import Route, plan_routes
from infra.capabilities.wan.section import WanLink, WanLinkEnd, WanRegion, WanRoute, WanSection
from infra.capabilities.wan.tcp import LinkPlan, plan_link
from infra.declaration import ClusterSpec, RegionSpec, WanLinkSpec
from infra.ground import addresses
from infra.ground.nodes import Nodes, PlannedNode

PLAN_INPUTS = {"name", "flows", "mtu_bytes", "single_flow_mbps", "pfc_priorities", "a_end", "b_end"}
"""Fields of a declared link that only the plan reads: the contract has what was planned from them."""
Ends = dict[str, dict[str, PlannedNode | None]]
"""Link → region → the gateway node at which it ends there; None for the region's router."""


@dataclass(frozen=True)
class WanPlan:
    """`links` maps a link's name to what it asks of hosts, `routes` a region and another to the way there."""

    declared: tuple[WanLinkSpec, ...]
    links: dict[str, LinkPlan]
    routes: dict[str, dict[str, Route]]
    ends: Ends
    section: WanSection
    resources: int
    """How many Pulumi makes for the links."""


def plan_wan(spec: ClusterSpec, nodes: Nodes) -> WanPlan:
    """Plan the WAN of a declaration that has passed the checks; also where it has no link."""
    links = {link.name: plan_link(link) for link in spec.wan_links}
    routes, ends = plan_routes(spec), _link_ends(spec, nodes.nodes)
    section = WanSection(
        regions={
            region.name: _region(spec, number, nodes, routes[region.name])
            for number, region in enumerate(spec.regions)
        },
        links={
            link.name: _link(spec, number, links[link.name], ends[link.name])
            for number, link in enumerate(spec.wan_links)
        },
        ports={},
    )
    return WanPlan(spec.wan_links, links, routes, ends, section, _resources(spec))


def _region(spec: ClusterSpec, number: int, nodes: Nodes, routes: dict[str, Route]) -> WanRegion:
    region = spec.regions[number]
    gateways = nodes.gateways(region.name)
    return WanRegion(
        asn=addresses.FIRST_ASN + number,
        gateways=tuple(node.name for node in gateways),
        gateway_address=_gateway_address(region, gateways),
        tcp_buffer_max_bytes=max((route.tcp_buffer_max_bytes for route in routes.values()), default=0),
        routes=tuple(_route(spec.region(far), route) for far, route in routes.items()),
    )


def _gateway_address(region: RegionSpec, gateways: tuple[PlannedNode, ...]) -> IPv4Address | None:
    """Where a region's nodes send traffic for others; None where only the machines' own routes know."""
    if len(gateways) > 1:
        return region.shared_gateway_address()
    if gateways:
        return gateways[0].address
    return addresses.router_address(region.cidr) if region.provider.owns_router else None


def _route(far: RegionSpec, route: Route) -> WanRoute:
    return WanRoute(
        region=far.name,
        cidr=far.cidr,
        path=route.primary.links,
        backup_path=route.backup.links if route.backup else (),
        rtt_ms=route.primary.rtt_ms,
        bandwidth_mbps=route.primary.bandwidth_mbps,
        loss_pct=route.primary.loss_pct,
        congestion_control=route.congestion_control,
        reason=route.reason,
        mtu_bytes=route.primary.mtu_bytes,
        mss_bytes=route.primary.mss_bytes,
    )


def _link(spec: ClusterSpec, number: int, planned: LinkPlan, ends: dict[str, PlannedNode | None]) -> WanLink:
    link = spec.wan_links[number]
    made = all(spec.region(end).provider.makes_links for end in (link.a, link.b))
    tunnelled = link.kind == "vpn"
    pairs = zip(addresses.link_interfaces(number), addresses.tunnel_interfaces(number), strict=True)
    return WanLink(
        **link.model_dump(exclude=PLAN_INPUTS),
        **asdict(planned),
        tunnel_port=addresses.FIRST_TUNNEL_PORT + number if tunnelled else None,
        ends={
            region: WanLinkEnd(
                gateway=node.name if (node := ends[region]) else None,
                address=bare if made else end and end.address,
                public_address=end and end.public_address,
                tunnel_address=tunnel if tunnelled else None,
            )
            for region, end, (bare, tunnel) in zip(
                (link.a, link.b), (link.a_end, link.b_end), pairs, strict=True
            )
        },
    )


def _link_ends(spec: ClusterSpec, nodes: tuple[PlannedNode, ...]) -> Ends:
    """Where nothing else is declared, link number i of a region ends at its gateway number i mod n."""
    ends: Ends = {link.name: {} for link in spec.wan_links}
    for region in spec.regions:
        gateways = [node for node in nodes if node.region == region.name and node.role == "gateway"]
        named = {node.name: node for node in gateways}
        own = [link for link in spec.wan_links if region.name in (link.a, link.b)]
        for number, link in enumerate(own):
            spread = gateways[number % len(gateways)] if gateways else None
            end = link.end(region.name)
            ends[link.name][region.name] = named[end.gateway] if end and end.gateway else spread
    return ends


def _resources(spec: ClusterSpec) -> int:
    """The component of each link; what makes it here; a key for each end of a tunnel."""
    made = {region.name for region in spec.regions if region.provider.makes_links}
    links_made = sum({link.a, link.b} <= made for link in spec.wan_links)
    return len(spec.wan_links) + links_made + 2 * sum(link.kind == "vpn" for link in spec.wan_links)
