"""The plan: every node, address and link that `up` would make, and how many resources it takes."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

from infra.capabilities import capabilities
from infra.capabilities.fabric.topology import FabricPlan, has_switches, plan_fabric
from infra.capabilities.wan import routes
from infra.capabilities.wan import tcp as wan
from infra.declaration import ClusterSpec, NodePoolSpec, RegionSpec
from infra.ground import addresses
from infra.ground.capability import MadeSecret, Planned
from infra.ground.contract import Section
from infra.ground.endpoint import Endpoint
from infra.ground.nodes import Nodes, PlannedNode


@dataclass(frozen=True)
class Plan(Nodes):
    """What would stand. `links` maps a link's name to what it asks of the hosts.

    `routes` maps a region and another one to the way between them, `ends` a link's name and a region to the
    gateway node at which it ends there; None stands for the region's router, where there is no such node.
    `fabrics` holds the regions that have one, `sections` what capabilities have planned, by their names.
    """

    links: dict[str, wan.LinkPlan]
    routes: dict[str, dict[str, routes.Route]]
    ends: dict[str, dict[str, PlannedNode | None]]
    fabrics: dict[str, FabricPlan]
    sections: dict[str, Section]
    endpoints: tuple[Endpoint, ...]
    secrets: dict[str, MadeSecret]
    """Name → kind of those that all regions share."""
    resources: dict[str, int]

    def gateway_address(self, region: RegionSpec) -> IPv4Address | None:
        """Where a region's nodes send traffic for others; None where only the machines' own routes know."""
        gateways = self.gateways(region.name)
        if len(gateways) > 1:
            return region.shared_gateway_address()
        if gateways:
            return gateways[0].address
        return addresses.router_address(region.cidr) if region.provider.owns_router else None


def make_plan(spec: ClusterSpec) -> Plan:
    """Plan a declaration that has passed the checks. Linear in the number of nodes."""
    nodes = tuple(
        node
        for region in spec.regions
        for index, pool in enumerate(region.pools)
        for node in _pool_nodes(region, index, pool)
    )
    links = {link.name: wan.plan_link(link) for link in spec.wan_links}
    ends = _link_ends(spec, nodes)
    planned = (plan_fabric(index, region) for index, region in enumerate(spec.regions))
    fabrics = {fabric.region: fabric for fabric in planned if fabric is not None}
    sections, endpoints = _sections(spec, nodes)
    secrets = {
        capability.name: capability.secrets(sections[capability.name])
        for capability in capabilities()
        if capability.name in sections
    }
    return Plan(
        nodes=nodes,
        links=links,
        routes=routes.plan_routes(spec),
        ends=ends,
        fabrics=fabrics,
        sections=sections,
        endpoints=endpoints,
        secrets={name: kind for own in secrets.values() for name, kind in own.items()},
        resources=_resource_counts(spec) | {name: len(own) for name, own in secrets.items() if own},
    )


def _sections(
    spec: ClusterSpec, nodes: tuple[PlannedNode, ...]
) -> tuple[dict[str, Section], tuple[Endpoint, ...]]:
    """What every capability that is declared comes to, and what listens for all of them."""
    sections: dict[str, Section] = {}
    for capability in capabilities():
        section = capability.plan(spec, Planned(nodes, sections))
        if section is not None:
            sections[capability.name] = section
    declared = [capability for capability in capabilities() if capability.name in sections]
    planned = Planned(nodes, sections)
    endpoints = tuple(
        endpoint
        for capability in declared
        for endpoint in capability.endpoints(sections[capability.name], planned)
    )
    planned = Planned(nodes, sections, endpoints)
    return {one.name: one.finish(sections[one.name], planned) for one in declared}, endpoints


def _link_ends(spec: ClusterSpec, nodes: tuple[PlannedNode, ...]) -> dict[str, dict[str, PlannedNode | None]]:
    """Where nothing else is declared, link number i of a region ends at its gateway number i mod n."""
    ends: dict[str, dict[str, PlannedNode | None]] = {link.name: {} for link in spec.wan_links}
    for region in spec.regions:
        gateways = [node for node in nodes if node.region == region.name and node.role == "gateway"]
        named = {node.name: node for node in gateways}
        own = [link for link in spec.wan_links if region.name in (link.a, link.b)]
        for number, link in enumerate(own):
            spread = gateways[number % len(gateways)] if gateways else None
            end = link.end(region.name)
            ends[link.name][region.name] = named[end.gateway] if end and end.gateway else spread
    return ends


def _pool_nodes(region: RegionSpec, index: int, pool: NodePoolSpec) -> Iterator[PlannedNode]:
    ports = [host.ssh_port for host in pool.hosts] or [22] * pool.count
    for number, (address, port) in enumerate(
        zip(addresses.pool_addresses(region, index), ports, strict=True)
    ):
        name = addresses.host_name(region, pool, number)
        yield PlannedNode(name, region.name, pool.name, pool.role, address, port)


def _resource_counts(spec: ClusterSpec) -> dict[str, int]:
    """Pulumi resources by what they are for, components and the stack included.

    They grow with pools and links, never with nodes.
    """
    made = {region.name for region in spec.regions if region.provider.makes_links}
    links_made = [link for link in spec.wan_links if {link.a, link.b} <= made]
    networks = sum(region.provider.owns_router for region in spec.regions)
    return {
        "cluster": 3 + bool(networks),  # the stack, the component, the key; this machine
        "regions": len(spec.regions) + networks,  # the component; its network
        "node_pools": 2 * sum(len(region.pools) for region in spec.regions),  # the component; its nodes
        # the component; what makes it here; a key for each end of a tunnel
        "wan_links": len(spec.wan_links) + len(links_made) + 2 * sum(x.kind == "vpn" for x in spec.wan_links),
        "hand_off": 2 + sum(map(has_switches, spec.regions)),  # the component; the files; the switches' files
        "configuration": 1 + len(spec.rollout()),  # the component; the waves
        "verification": 1,
    }
