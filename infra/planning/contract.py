"""The contract of a declaration and its plan; what it may hold is in contract.py."""

from dataclasses import asdict

from infra.capabilities.fabric.topology import FabricNic, FabricPlan
from infra.capabilities.wan.routes import Route
from infra.declaration import (
    ClusterSpec,
    NodePoolSpec,
    RegionSpec,
    WanLinkSpec,
)
from infra.ground import addresses
from infra.ground.contract import (
    Contract,
    FabricContract,
    FabricNicContract,
    HostContract,
    LinkContract,
    LinkEndContract,
    PoolContract,
    RegionContract,
    RoceContract,
    WanRoute,
)
from infra.ground.nodes import pool_key
from infra.planning.plan import Plan
from infra.stack import stack_dir

ECN_CAPABLE = 0b10
"""ECT(0), the low bits of the IP header's ToS byte (RFC 3168)."""

PLANNED = {"name", "flows", "mtu_bytes", "single_flow_mbps", "pfc_priorities", "a_end", "b_end"}
"""What of a link is an input of the plan, or says itself where it is needed."""


def build_contract(spec: ClusterSpec, plan: Plan, stack: str) -> Contract:
    """The contract of a declaration and its plan."""
    nics = {
        node: tuple(_nic(fabric, nic) for nic in found)
        for fabric in plan.fabrics.values()
        for node, found in fabric.node_nics()
    }
    return Contract(
        stack=stack,
        cluster=spec.name,
        known_hosts_file=str(stack_dir(stack) / "ssh" / "known_hosts"),
        regions={region.name: _region(spec, region, plan, stack) for region in spec.regions},
        pools={
            pool_key(region.name, pool.name): _pool(region, pool)
            for region in spec.regions
            for pool in region.pools
        },
        hosts={
            node.name: HostContract(
                pool=node.pool_key,
                address=node.address,
                ssh_port=node.ssh_port,
                fabric=nics.get(node.name, ()),
            )
            for node in plan.nodes
        },
        links={link.name: _link(spec, index, link, plan) for index, link in enumerate(spec.wan_links)},
        sections=dict(plan.sections),
        waves=spec.rollout(),
    )


def _nic(fabric: FabricPlan, nic: FabricNic) -> FabricNicContract:
    return FabricNicContract(
        name=nic.name,
        address=nic.address,
        prefix=nic.prefix,
        gateway=nic.gateway,
        rail=nic.rail,
        plane=nic.plane,
        leaf=fabric.switch_name("leaf", nic.plane, nic.leaf),
        port=nic.port,
    )


def _fabric(plan: FabricPlan) -> FabricContract:
    fabric, roce = plan.fabric, plan.fabric.roce
    return FabricContract(
        kind=fabric.kind,
        link_gbps=fabric.link_gbps,
        planes=fabric.planes,
        rails=fabric.rails,
        mtu_bytes=fabric.mtu_bytes,
        roce=RoceContract(tos=roce.dscp << 2 | ECN_CAPABLE, **roce.model_dump()),
        rail_cidrs=tuple(
            plan.rail_range(plane, rail) for plane in range(fabric.planes) for rail in range(fabric.rails)
        ),
    )


def _region(spec: ClusterSpec, region: RegionSpec, plan: Plan, stack: str) -> RegionContract:
    provider = region.provider
    generated_key = str(stack_dir(stack) / "ssh" / "id_ed25519")
    routes = plan.routes[region.name]
    return RegionContract(
        provider=provider.kind,
        makes_nodes=provider.makes_nodes,
        makes_links=provider.makes_links,
        simulates_gpus=provider.simulates_gpus,
        for_trials=provider.for_trials,
        cidr=region.cidr,
        mtu_bytes=region.mtu_bytes,
        ssh_user=provider.ssh_user,
        ssh_private_key_file=provider.ssh_key_file or generated_key,
        asn=addresses.FIRST_ASN + spec.regions.index(region),
        gateways=tuple(node.name for node in plan.gateways(region.name)),
        gateway_address=plan.gateway_address(region),
        tcp_buffer_max_bytes=max((route.tcp_buffer_max_bytes for route in routes.values()), default=0),
        wan_routes=tuple(_route(spec.region(far), route) for far, route in routes.items()),
        fabric=_fabric(plan.fabrics[region.name]) if region.name in plan.fabrics else None,
    )


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


def _link(spec: ClusterSpec, index: int, link: WanLinkSpec, plan: Plan) -> LinkContract:
    made = all(spec.region(end).provider.makes_links for end in (link.a, link.b))
    tunnelled = link.kind == "vpn"
    pairs = zip(addresses.link_interfaces(index), addresses.tunnel_interfaces(index), strict=True)
    return LinkContract(
        **link.model_dump(exclude=PLANNED),
        **asdict(plan.links[link.name]),
        tunnel_port=addresses.FIRST_TUNNEL_PORT + index if tunnelled else None,
        ends={
            region: LinkEndContract(
                gateway=node.name if (node := plan.ends[link.name][region]) else None,
                address=bare if made else end and end.address,
                public_address=end and end.public_address,
                tunnel_address=tunnel if tunnelled else None,
            )
            for region, end, (bare, tunnel) in zip(
                (link.a, link.b), (link.a_end, link.b_end), pairs, strict=True
            )
        },
    )


def _pool(region: RegionSpec, pool: NodePoolSpec) -> PoolContract:
    return PoolContract(
        region=region.name,
        node_kind=region.node_kind(pool),
        gpus_simulated=region.provider.simulates_gpus and pool.gpus > 0,
        **pool.model_dump(exclude={"count", "hosts", "nic_names", "node_kind", "shm_gib"}),
    )
