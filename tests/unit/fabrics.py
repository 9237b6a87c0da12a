"""Fabrics that several tests plan: published designs, and small ones that have every tier."""

from typing import Any

from infra.capabilities.fabric.capability import CAPABILITY as FABRIC
from infra.capabilities.fabric.topology import FabricPlan
from infra.checks import parse_spec
from infra.declaration import ClusterSpec
from infra.planning.plan import make_plan

B200: dict[str, Any] = {"kind": "rail_optimized", "radix": 64, "rails": 8, "link_gbps": 400}
B300: dict[str, Any] = {**B200, "radix": 128, "planes": 2}
SONIC: dict[str, Any] = {"switch": {"asic": "spectrum-4"}}
TINY: dict[str, Any] = {"kind": "rail_optimized", "radix": 4, "rails": 2, "link_gbps": 400, **SONIC}
SHAPES: dict[str, tuple[int, dict[str, Any]]] = {
    "two tiers": (33, {**B200, **SONIC}),
    "three tiers": (7, TINY),
    "three tiers, last pod not full": (9, {**TINY, "radix": 8, "kind": "fat_tree"}),
    "two planes": (5, {**TINY, "radix": 8, "planes": 2}),
    "a tree": (29, {**B200, "kind": "fat_tree", "radix": 32, **SONIC}),
    "oversubscribed": (
        40,
        {**B200, "oversubscription": 2.0, "core_oversubscription": 3.0, "radix": 16, **SONIC},
    ),
    "one leaf": (3, {**TINY, "kind": "spine_leaf", "radix": 16}),
}
"""What is special about it → (nodes, fabric)."""


def cluster(nodes: int, *more_pools: int, **fabric: Any) -> ClusterSpec:
    """A region with pools of so many nodes on a fabric, and a control pool that is not on it."""
    nic_gbps = fabric["link_gbps"] * fabric.get("planes", 1)
    pools = [
        {"name": f"gpu{n}", "role": "gpu", "count": count, "nics": fabric["rails"], "nic_gbps": nic_gbps}
        for n, count in enumerate((nodes, *more_pools))
    ]
    control = {"name": "control", "role": "control", "count": 3}
    region = {"name": "r", "cidr": "10.0.0.0/8", "fabric": fabric, "pools": [control, *pools]}
    return parse_spec({"name": "c", "regions": [region]})


def fabric_of(nodes: int, *more_pools: int, **fabric: Any) -> FabricPlan:
    """The plan of that region's fabric."""
    planned = make_plan(cluster(nodes, *more_pools, **fabric)).of(FABRIC)
    assert planned
    return planned["r"]


def shaped(name: str) -> FabricPlan:
    """One of `SHAPES`, planned."""
    nodes, fabric = SHAPES[name]
    return fabric_of(nodes, **fabric)
