"""Acceptance: what a node has to be to join, and how many may be taken out by machine."""

from typing import Annotated, ClassVar

from pydantic import Field

from infra.declaration.base import Float, Int, Spec

Percent = Annotated[Int, Field(ge=1, le=100)]


class BreakerSpec(Spec):
    """The share of each failure domain that may be out by machine; of a small one a single node may be."""

    what: ClassVar = "the breaker"
    leaf_pct: Percent = 25
    """Of the nodes at one leaf switch."""
    rack_pct: Percent = 50
    """Of the nodes in one rack, where `energy` says how many share one."""
    pool_pct: Percent = 10
    """Of the nodes of one pool."""
    region_pct: Percent = 5
    """Of a region's nodes that are accepted so."""


class PoolAcceptanceSpec(Spec):
    """What a pool's nodes have beside GPUs and NICs."""

    what: ClassVar = "a pool's acceptance"
    region: str
    """Name of the pool's region."""
    pool: str
    """Name of the pool."""
    memory_gib: Annotated[Float, Field(gt=0, le=1_000_000)] | None = None
    """Memory that is built in; unset means that its size is not looked at."""
    nvme_disks: Annotated[Int, Field(ge=0, le=256)] | None = None
    """NVMe disks; unset means that they are not counted, and not tried."""
    nvme_read_mbps: Annotated[Float, Field(gt=0, le=1_000_000)] | None = None
    """MB/s that fio has to read, one job of 1 MiB blocks, 16 at once; unset means that any will do."""
    all_reduce_gbs: Annotated[Float, Field(gt=0, le=100_000)] | None = None
    """GB/s of bus bandwidth that all_reduce has to reach within a node; unset means the published floor for
    the model and eight GPUs, and none where nothing is published."""


class AcceptanceSpec(Spec):
    """Joining is earned: nodes with GPUs are tried against the declaration, and say what is to be done."""

    what: ClassVar = "the acceptance"
    interval_min: Annotated[Int, Field(ge=1, le=1440)] = 15
    """Minutes between two looks of the passive tier."""
    clock_limit_ms: Annotated[Float, Field(gt=0, le=1000)] = 10.0
    """Milliseconds that a node's clock may be off."""
    breaker: BreakerSpec = BreakerSpec()
    """How many nodes may be out by machine at a time."""
    pools: tuple[PoolAcceptanceSpec, ...] = ()
    """More that is expected of pools with GPUs, each at most once."""
