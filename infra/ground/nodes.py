"""Nodes as they are planned, before anything stands."""

from dataclasses import dataclass
from ipaddress import IPv4Address


def pool_key(region: str, pool: str) -> str:
    """By which a pool is known in the whole cluster: `<region>-<pool>`."""
    return f"{region}-{pool}"


@dataclass(frozen=True)
class PlannedNode:
    """One node: where it belongs and by which address it is reached."""

    name: str
    region: str
    pool: str
    role: str
    address: IPv4Address
    ssh_port: int = 22

    @property
    def pool_key(self) -> str:
        """The key of its pool in the contract."""
        return pool_key(self.region, self.pool)


@dataclass(frozen=True)
class Nodes:
    """All nodes of a cluster, in declared order."""

    nodes: tuple[PlannedNode, ...]

    def region_nodes(self, region: str) -> tuple[PlannedNode, ...]:
        """The nodes of one region, in declared order."""
        return tuple(node for node in self.nodes if node.region == region)

    def gateways(self, region: str) -> tuple[PlannedNode, ...]:
        """The nodes at which a region's WAN links end; none where its router does that."""
        return tuple(node for node in self.region_nodes(region) if node.role == "gateway")

    def pool_nodes(self, region: str, pool: str) -> tuple[PlannedNode, ...]:
        """The nodes of one pool, in node order."""
        return tuple(node for node in self.nodes if (node.region, node.pool) == (region, pool))

    def by_pool(self) -> dict[str, list[PlannedNode]]:
        """Every pool's key → its nodes."""
        pools: dict[str, list[PlannedNode]] = {}
        for node in self.nodes:
            pools.setdefault(node.pool_key, []).append(node)
        return pools
