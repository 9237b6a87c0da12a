"""Where the servers of the service discovery stand, and which datacenter each region is."""

from infra.declaration import ClusterSpec, ConsulDiscovery, RegionSpec

SERVER_COUNTS = (1, 3, 5)
"""Raft goes on while more than half of the servers do: 2 stand no more failures than 1, nor 4 than 3."""


MAX_NAME_SERVERS = 3
"""Of a region without a discovery; of more, none would be asked that one of three could not answer for."""


def control_nodes(region: RegionSpec) -> int:
    """How many nodes of a region may be servers."""
    return sum(pool.count for pool in region.pools if pool.role == "control")


def server_count(discovery: ConsulDiscovery | None, region: RegionSpec) -> int:
    """Servers of a region: as declared, or as many as it has control nodes for; 0 where it has none."""
    if discovery is None:
        return min(control_nodes(region), MAX_NAME_SERVERS)
    if discovery.servers is not None:
        return discovery.servers
    return max((count for count in SERVER_COUNTS if count <= control_nodes(region)), default=0)


def datacenter(discovery: ConsulDiscovery | None, region: str) -> str:
    """The datacenter that a region is."""
    return discovery.datacenters.get(region, region) if discovery else region


def primary_region(discovery: ConsulDiscovery, spec: ClusterSpec) -> str:
    """The region in which rights are granted: as declared, or the first that is configured."""
    return discovery.primary or spec.rollout()[0][0]
