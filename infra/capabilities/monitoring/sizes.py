"""How much disk and memory a region's Prometheus takes."""

from infra.declaration import MonitoringSpec, RegionSpec

SERIES_PER_NODE = 1_500
"""What a node has at most for this estimate; node_exporter with its filters gives 800 to 1,300."""
BYTES_PER_SAMPLE = 2.0
"""One to two on disk (Prometheus' documentation, "Operational aspects")."""
GIB, DAY_S = 2**30, 86_400
ROOM = 1.2
"""Blocks are compacted beside what they replace."""


def nodes(region: RegionSpec) -> int:
    """How many a region has."""
    return sum(pool.count for pool in region.pools)


def gib_per_day(monitoring: MonitoringSpec, count: int) -> float:
    """What the metrics of `count` nodes take on disk for each day."""
    samples = count * SERIES_PER_NODE * DAY_S / monitoring.interval_s
    return samples * BYTES_PER_SAMPLE * ROOM / GIB


def size_gib(monitoring: MonitoringSpec, regions: tuple[RegionSpec, ...]) -> float:
    """The limit on disk: as declared, or what the days take in the largest region, at least half a GiB."""
    if monitoring.retention.size_gib is not None:
        return monitoring.retention.size_gib
    largest = max(map(nodes, regions))
    return max(0.5, round(gib_per_day(monitoring, largest) * monitoring.retention.time_days, 1))
