"""A plan as JSON for programs and as tables for people."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from infra.capabilities import capabilities
from infra.declaration import ClusterSpec, NodePoolSpec, RegionSpec
from infra.ground.capability import Report
from infra.ground.names import some
from infra.ground.nodes import PlannedNode
from infra.ground.page import document
from infra.planning.plan import Plan

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SOME_NAMES = 4
NodesByPool = Mapping[tuple[str, str], list[PlannedNode]]


def plan_json(spec: ClusterSpec, plan: Plan, stack: str | None) -> dict[str, Any]:
    """The plan as plain values: cluster, stack, regions, what capabilities say, nodes, resources."""
    by_pool, reports = _nodes_by_pool(plan), _reports(plan)
    return {
        "cluster": spec.name,
        "stack": stack,
        "regions": {region.name: _region(region, by_pool, reports) for region in spec.regions},
        **{key: value for report in reports for key, value in report.data.items()},
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


def plan_page(cluster: str, plan: Plan) -> str | None:
    """The page of all capabilities that have one, without script or other files; None where none has."""
    parts = [report.page() for report in _reports(plan) if report.page]
    return document(f"Plan of {cluster}", parts) if parts else None


def _reports(plan: Plan) -> list[Report]:
    """What the declared capabilities say of themselves."""
    declared = (one for one in capabilities() if one.name in plan.plans)
    return [report for one in declared if (report := one.report(plan.plans[one.name]))]


def _nodes_by_pool(plan: Plan) -> dict[tuple[str, str], list[PlannedNode]]:
    by_pool: dict[tuple[str, str], list[PlannedNode]] = defaultdict(list)
    for node in plan.nodes:
        by_pool[node.region, node.pool].append(node)
    return by_pool


def _region(region: RegionSpec, by_pool: NodesByPool, reports: Sequence[Report]) -> dict[str, Any]:
    own = [report.regions[region.name] for report in reports if region.name in report.regions]
    return {
        "cidr": str(region.cidr),
        "provider": region.provider.kind,
        "nodes": sum(pool.count for pool in region.pools),
        "gpus": sum(pool.count * pool.gpus for pool in region.pools),
        "gpus_simulated": region.provider.simulates_gpus,
        "pools": {pool.name: _pool(pool, by_pool[region.name, pool.name]) for pool in region.pools},
        **{key: value for report in own for key, value in report.data.items()},
    }


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
    by_pool, reports = _nodes_by_pool(plan), _reports(plan)
    for region in spec.regions:
        console.print(f"\n{region.name} ({region.provider.kind}): {region.cidr}, {region.timezone}")
        console.print(_pools_table(region, by_pool))
        for report in reports:
            if region.name in report.regions and (text := report.regions[region.name].text):
                console.print(text)
    for report in reports:
        if report.text:
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
            _names(pool, nodes),
        )
    return table


def _names(pool: NodePoolSpec, nodes: list[PlannedNode]) -> str:
    """The first and the last name, where those between follow from them."""
    if any(host.name for host in pool.hosts):
        return some((node.name for node in nodes), SOME_NAMES)
    return _span(nodes[0].name, nodes[-1].name)


def _span(first: str, last: str) -> str:
    return first if first == last else f"{first} … {last}"
