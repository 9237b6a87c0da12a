"""What nodes are held against, and what the breaker goes by."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from infra.ground.contract import Contract, Declared, Part, Section


class Breaker(Part):
    """Per cent of a domain of each kind that may be out."""

    leaf: int
    rack: int
    pool: int
    region: int


class AcceptedPool(Part):
    """What each node of a pool has to have beside what the contract says of the pool."""

    memory_gib: float | None = None
    nvme_disks: int | None = None
    nvme_read_mbps: float | None = None
    all_reduce_gbs: float | None = None
    """The floor within a node."""


class AcceptanceSection(Section):
    """The pools with GPUs, by their keys."""

    capability: ClassVar = "acceptance"
    version: Literal[1] = 1
    interval_min: int
    clock_limit_ms: float
    breaker: Breaker
    pools: dict[str, AcceptedPool]

    def declared(self, contract: Contract, region: str) -> Iterator[Declared]:
        """The pools that look, how often a node does, and the share of a region's nodes that may be out."""
        names = [contract.pools[key].name for key in self.pools if contract.pools[key].region == region]
        for name in names:
            yield Declared("acceptance_pool", 1, {"pool": name})
        if names:
            yield Declared("acceptance_interval_seconds", self.interval_min * 60)
            yield Declared("acceptance_region_out_ratio", self.breaker.region / 100)


SECTION = AcceptanceSection
