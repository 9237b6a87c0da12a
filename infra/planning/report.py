"""A plan as JSON for programs and as tables for people."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from itertools import combinations
from typing import TYPE_CHECKING, Any

from infra.capabilities import capabilities
from infra.capabilities.fabric import topology as fabric
from infra.declaration import ClusterSpec, NodePoolSpec, RegionSpec, WanLinkSpec
from infra.ground.capability import Report
from infra.ground.nodes import PlannedNode
from infra.planning.plan import Plan

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

NodesByPool = Mapping[tuple[str, str], list[PlannedNode]]


def plan_json(spec: ClusterSpec, plan: Plan, stack: str | None) -> dict[str, Any]:
    """The plan as plain values: cluster, stack, regions, wan, routes, each capability's, nodes, resources."""
    by_pool = _nodes_by_pool(plan)
    return {
        "cluster": spec.name,
        "stack": stack,
        "regions": {region.name: _region(region, by_pool, plan) for region in spec.regions},
        "wan": {name: asdict(link) for name, link in plan.links.items()},
        "routes": {
            source: {target: asdict(route) for target, route in routes.items()}
            for source, routes in plan.routes.items()
        },
        **{name: report.data for name, report in _reports(plan).items()},
        "nodes": [
            {
                "name": node.name,
                "region": node.region,
                "pool": node.pool,
                "role": node.role,
                "address": str(node.address),
            }
            for node in plan.nodes
        ],
        "resources": {**plan.resources, "total": sum(plan.resources.values())},
    }


def _reports(plan: Plan) -> dict[str, Report]:
    """What the declared capabilities say of themselves."""
    declared = ((one, plan.sections[one.name]) for one in capabilities() if one.name in plan.sections)
    return {one.name: report for one, section in declared if (report := one.report(section))}


def _nodes_by_pool(plan: Plan) -> dict[tuple[str, str], list[PlannedNode]]:
    by_pool: dict[tuple[str, str], list[PlannedNode]] = defaultdict(list)
    for node in plan.nodes:
        by_pool[node.region, node.pool].append(node)
    return by_pool


def _region(region: RegionSpec, by_pool: NodesByPool, plan: Plan) -> dict[str, Any]:
    planned = plan.fabrics.get(region.name)
    return {
        "cidr": str(region.cidr),
        "provider": region.provider.kind,
        "gateway_address": str(address) if (address := plan.gateway_address(region)) else None,
        "nodes": sum(pool.count for pool in region.pools),
        "gpus": sum(pool.count * pool.gpus for pool in region.pools),
        "gpus_simulated": region.provider.simulates_gpus,
        "pools": {pool.name: _pool(pool, by_pool[region.name, pool.name]) for pool in region.pools},
        "fabric": _fabric(planned) if planned else None,
    }


def _fabric(plan: fabric.FabricPlan) -> dict[str, Any]:
    """Counts are over all planes; `max_endpoints` is for so many tiers, `largest` for as many as may be."""
    spec, shape, larger = plan.fabric, plan.shape, plan.shape.next_step()
    return {
        "kind": spec.kind,
        "tiers": shape.tiers,
        "planes": spec.planes,
        "nodes": shape.nodes,
        **asdict(plan.counts),
        "pods": len(shape.pods),
        "leaf_ports": {"down": fabric.down_ports(spec), "up": shape.leaf_up},
        "max_endpoints": fabric.max_endpoints(spec, max(shape.tiers, 2)),
        "largest": {
            "tiers": fabric.max_tiers(spec),
            "nodes": fabric.max_nodes(spec),
            "endpoints": fabric.max_endpoints(spec),
        },
        "next_step": _next_step(shape, larger) if larger else None,
        "cidr": str(plan.cidr),
        "mtu_bytes": spec.mtu_bytes,
        "roce": spec.roce.model_dump(),
    }


def _next_step(shape: fabric.Shape, larger: fabric.Shape) -> dict[str, int]:
    """From how many nodes on it is due, how many it holds, and what has to be added to what stands."""
    now, then = asdict(fabric.Counts.of(shape)), asdict(fabric.Counts.of(larger))
    added = {f"more_{what}": then[what] - now[what] for what in now}
    return {"above_nodes": shape.full, "nodes": larger.nodes, "tiers": larger.tiers, **added}


def _pool(pool: NodePoolSpec, nodes: list[PlannedNode]) -> dict[str, Any]:
    return {
        "count": pool.count,
        "role": pool.role,
        "gpus_per_node": pool.gpus,
        "gpu_model": pool.gpu_model,
        "first_address": str(nodes[0].address),
        "last_address": str(nodes[-1].address),
        "host_names": [node.name for node in nodes],
    }


def print_plan(spec: ClusterSpec, plan: Plan, stack: str | None, console: "Console") -> None:
    """Write a table of pools per region, a paragraph per link, the longer ways, and how many resources."""
    gpus = sum(pool.count * pool.gpus for region in spec.regions for pool in region.pools)
    of_stack = f", stack {stack}" if stack else ""
    console.print(f"Cluster {spec.name}{of_stack}: {len(plan.nodes):,} nodes, {gpus:,} GPUs")
    by_pool = _nodes_by_pool(plan)
    for region in spec.regions:
        console.print(f"\n{region.name} ({region.provider.kind}): {region.cidr}, {region.timezone}")
        console.print(_pools_table(region, by_pool))
        if text := _gateways_text(region, plan):
            console.print(text)
        if region.name in plan.fabrics:
            console.print(_fabric_text(plan.fabrics[region.name]))
    for link in spec.wan_links:
        console.print("\n" + _link_text(link, plan))
    ways = [text for pair in combinations(plan.routes, 2) if (text := _way_text(plan, *pair))]
    if ways:
        console.print("\n" + "\n".join(ways))
    for report in _reports(plan).values():
        console.print("\n" + report.text)
    if any(region.provider.simulates_gpus for region in spec.regions) and gpus:
        console.print("\nGPUs of local nodes are declared but simulated: there is no GPU behind them.")
    counts = ", ".join(f"{kind.replace('_', ' ')} {number}" for kind, number in plan.resources.items())
    console.print(f"\n{sum(plan.resources.values())} resources: {counts}")


def _pools_table(region: RegionSpec, by_pool: NodesByPool) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 0, 0, 2), header_style="bold")
    for heading in ("POOL", "ROLE", "NODES", "GPUS EACH", "ADDRESSES", "HOSTS"):
        table.add_column(heading, justify="right" if heading == "NODES" else "left", overflow="fold")
    for pool in region.pools:
        nodes = by_pool[region.name, pool.name]
        table.add_row(
            pool.name,
            pool.role,
            f"{pool.count:,}",
            f"{pool.gpus} {pool.gpu_model}" if pool.gpus else "–",
            _span(str(nodes[0].address), str(nodes[-1].address)),
            _span(nodes[0].name, nodes[-1].name),
        )
    return table


def _gateways_text(region: RegionSpec, plan: Plan) -> str:
    """Where nodes send what is for other regions, if that is to gateway nodes."""
    gateways = plan.gateways(region.name)
    shared = f", which {len(gateways)} gateways share" if len(gateways) > 1 else ""
    return f"to other regions by {plan.gateway_address(region)}{shared}" if gateways else ""


def _fabric_text(plan: fabric.FabricPlan) -> str:
    spec, shape = plan.fabric, plan.shape
    counts = {what.replace("_", " "): number for what, number in asdict(plan.counts).items() if number}
    planes = f" in {spec.planes} planes" if spec.planes > 1 else ""
    lines = [
        f"fabric {spec.kind}, {shape.tiers} tier{'s' * (shape.tiers > 1)}{planes}, {spec.link_gbps} Gbit/s, "
        f"MTU {spec.mtu_bytes}, {plan.cidr}",
        "  " + ", ".join(f"{number:,} {what}" for what, number in counts.items()),
        f"  radix {spec.radix} carries up to {fabric.max_nodes(spec):,} such nodes "
        f"({fabric.max_endpoints(spec):,} endpoints) in {fabric.max_tiers(spec)} tiers",
    ]
    larger = shape.next_step()
    if larger:
        step = _next_step(shape, larger)
        added = {what: step[f"more_{what}s"] for what in ("leaf", "spine", "core")}
        more = ", ".join(f"{number:,} {what}{'s' * (number > 1)}" for what, number in added.items() if number)
        lines.append(f"  more than {shape.full:,} nodes take {more} more, for up to {larger.nodes:,}")
    return "\n".join(lines)


def _link_text(link: WanLinkSpec, plan: Plan) -> str:
    planned = plan.links[link.name]
    stands_in = f", backup of {link.backup_of}" if link.backup_of else ""
    ends = " – ".join(_end_text(link, region, plan) for region in (link.a, link.b))
    return (
        f"{link.name} ({link.kind}{stands_in}): {ends}\n"
        f"  {link.rtt_ms:g} ms round trip, {link.bandwidth_mbps:g} Mbit/s, {link.loss_pct:g} % loss, "
        f"MTU {planned.mtu_bytes} (MSS {planned.mss_bytes})\n"
        f"  in flight when full {planned.bdp_bytes:,} bytes, "
        f"TCP buffers up to {planned.tcp_buffer_max_bytes:,} bytes\n"
        f"  {planned.congestion_control}: {planned.reason}"
    )


def _end_text(link: WanLinkSpec, region: str, plan: Plan) -> str:
    """A region, or its gateway node that ends the link, with what the carrier hands over there."""
    node, declared = plan.ends[link.name][region], link.end(region)
    where = node.name if node else region
    return f"{where} ({declared.address})" if declared else where


def _way_text(plan: Plan, source: str, target: str) -> str:
    """How traffic goes between two regions, where that is more than one link without a backup."""
    route = plan.routes[source].get(target)
    if route is None or (len(route.primary.links) == 1 and route.backup is None):
        return ""
    way = route.primary
    text = (
        f"{source} – {target} over {', '.join(way.links)}: {way.rtt_ms:g} ms, {way.bandwidth_mbps:g} Mbit/s, "
        f"{way.loss_pct:.3g} % loss, MTU {way.mtu_bytes}; {route.congestion_control}"
    )
    if route.backup is None:
        return text
    return f"{text}; when that is down, over {', '.join(route.backup.links)}: {route.backup.rtt_ms:g} ms"


def _span(first: str, last: str) -> str:
    return first if first == last else f"{first} … {last}"
