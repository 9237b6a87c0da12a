"""How many switches a fabric has, from what is declared alone.

A folded Clos network of equal switches in one to three tiers, `planes` times side by side. In each plane a
leaf has `down` ports to nodes and `up` ports to spines. Nodes fill the leafs in order, a group of nodes that
share leafs at a time.

- `rail_optimized`: a group has a leaf per rail, and NIC i of all its nodes goes to the leaf of rail i.
- `fat_tree`, `spine_leaf`: a group is one leaf, and all NICs of its nodes go there.

Counts follow the published designs (NVIDIA DGX B200 and B300 reference architectures, Meta's 24k cluster,
Alibaba HPN): `leafs = rails · ⌈N / down⌉`; per plane or pod the fewest spines, at least ⌈leafs · up / radix⌉,
over which a leaf's uplinks stripe evenly. Beyond `radix` leafs a plane falls into pods, joined by cores; with
1:1 throughout that gives as many spines as leafs and half as many cores, and at most radix²/2 endpoints in
two tiers, radix³/4 in three (Al-Fares et al., SIGCOMM 2008).
"""

import math
from dataclasses import dataclass
from functools import cached_property

from infra.declaration import FabricSpec, NodePoolSpec, RegionSpec


@dataclass(frozen=True)
class Pod:
    """Leafs of one plane that share spines: `leafs` from number `first_leaf`, `spines` from `first_spine`."""

    first_leaf: int
    leafs: int
    first_spine: int
    spines: int


@dataclass(frozen=True)
class Shape:
    """How many switches a fabric of `nodes` nodes has *in one plane*, and how their ports are used.

    Only for `nodes` from 1 to `max_nodes(fabric)`; ValueError otherwise.
    """

    fabric: FabricSpec
    nodes: int

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= max_nodes(self.fabric):
            raise ValueError(f"{self.nodes} nodes: this fabric has 1 to {max_nodes(self.fabric)}")

    @cached_property
    def groups(self) -> int:
        """Sets of nodes that share leafs."""
        return -(-self.nodes // nodes_per_group(self.fabric))

    @cached_property
    def leafs(self) -> int:
        """Leafs."""
        return self.groups * leafs_per_group(self.fabric)

    @cached_property
    def tiers(self) -> int:
        """1 when one leaf is all there is, 2 with spines, 3 with cores."""
        if self.leafs == 1:
            return 1
        return 2 if self.leafs <= self.fabric.radix else 3

    @cached_property
    def leaf_up(self) -> int:
        """Uplinks of each leaf."""
        return up_ports(self.fabric) if self.tiers > 1 else 0

    @cached_property
    def spine_down(self) -> int:
        """Ports of a spine that may go to leafs."""
        return spine_down_ports(self.fabric) if self.tiers == 3 else self.fabric.radix

    @cached_property
    def spine_up(self) -> int:
        """Ports of each spine that go to cores."""
        return self.fabric.radix - self.spine_down

    @cached_property
    def pods(self) -> tuple[Pod, ...]:
        """All pods but the last have as many leafs as a spine has ports down; two tiers are one pod."""
        pods: list[Pod] = []
        spine = 0
        for leaf in range(0, self.leafs, self.spine_down if self.tiers > 1 else self.leafs):
            leafs = min(self.spine_down, self.leafs - leaf)
            spines = _fewest_spines(leafs * self.leaf_up, self.leaf_up, self.spine_down)
            pods.append(Pod(leaf, leafs, spine, spines))
            spine += spines
        return tuple(pods)

    @cached_property
    def spines(self) -> int:
        """Spines of all pods."""
        return sum(pod.spines for pod in self.pods)

    @cached_property
    def cores(self) -> int:
        """Cores; each port of a spine that goes up ends at one."""
        return -(-self.spines * self.spine_up // self.fabric.radix)

    @property
    def full(self) -> int:
        """Nodes that the leafs have ports for: so many may be added without a new switch."""
        return min(self.groups * nodes_per_group(self.fabric), max_nodes(self.fabric))

    def next_step(self) -> "Shape | None":
        """The fabric one group of nodes larger, full; None for the largest one."""
        if self.full == max_nodes(self.fabric):
            return None
        return Shape(self.fabric, min(self.full + nodes_per_group(self.fabric), max_nodes(self.fabric)))


def _fewest_spines(links: int, up: int, down: int) -> int:
    """The fewest spines of `down` ports that take `links`, `up` of each leaf, spread evenly over them."""
    if not links:
        return 0
    return next(count for count in range(-(-links // down), up + 1) if up % count == 0)


def down_ports(fabric: FabricSpec) -> int:
    """Ports of a leaf to nodes: declared, or as many as the oversubscription leaves to uplinks."""
    if fabric.leaf_down_ports is not None:
        return fabric.leaf_down_ports
    return fabric.radix - _share_up(fabric.radix, fabric.oversubscription)


def up_ports(fabric: FabricSpec) -> int:
    """Ports of a leaf to spines: the fewest that keep the oversubscription."""
    return max(_ceil(down_ports(fabric) / fabric.oversubscription), 1)


def spine_down_ports(fabric: FabricSpec) -> int:
    """Ports of a spine to leafs where there is a third tier."""
    return fabric.radix - _share_up(fabric.radix, fabric.core_oversubscription)


def _share_up(radix: int, ratio: float) -> int:
    return max(_ceil(radix / (1 + ratio)), 1)


def _ceil(quotient: float) -> int:
    """Rounded up, where a quotient that is whole but for the last bit of the float stays whole."""
    return math.ceil(quotient - 1e-9)


def leafs_per_group(fabric: FabricSpec) -> int:
    """Leafs, in one plane, that the nodes of a group share."""
    return fabric.rails if fabric.kind == "rail_optimized" else 1


def nodes_per_group(fabric: FabricSpec) -> int:
    """Nodes whose NICs the leafs of a group take; 0 when a leaf has not the ports for one node."""
    nics_per_leaf = fabric.rails // leafs_per_group(fabric)
    return down_ports(fabric) // nics_per_leaf


def max_tiers(fabric: FabricSpec) -> int:
    """How many tiers the kind may grow to."""
    return 2 if fabric.kind == "spine_leaf" else 3


def max_nodes(fabric: FabricSpec, tiers: int | None = None) -> int:
    """The largest cluster in so many tiers (by default as many as the kind may have), in nodes.

    A spine reaches `radix` leafs in two tiers; in three it reaches its pod's, and a core `radix` pods.
    """
    leafs = fabric.radix
    if (tiers or max_tiers(fabric)) == 3:
        leafs *= spine_down_ports(fabric)
    return leafs // leafs_per_group(fabric) * nodes_per_group(fabric)


def max_endpoints(fabric: FabricSpec, tiers: int | None = None) -> int:
    """The same in node ports, over all planes."""
    return max_nodes(fabric, tiers) * ports_per_node(fabric)


def ports_per_node(fabric: FabricSpec) -> int:
    """Fabric ports of a node: one for every NIC in every plane."""
    return fabric.rails * fabric.planes


def fabric_pools(region: RegionSpec) -> tuple[NodePoolSpec, ...]:
    """The pools whose nodes are on the fabric."""
    return tuple(pool for pool in region.pools if pool.nics > 0)


def fabric_nodes(region: RegionSpec) -> int:
    """How many nodes are on the region's fabric."""
    return sum(pool.count for pool in fabric_pools(region))
