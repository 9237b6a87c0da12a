"""Acceptance: what is expected of nodes with GPUs before they join, and how many may be out."""

from infra.capabilities.acceptance.floors import single
from infra.capabilities.acceptance.rules import RULES
from infra.capabilities.acceptance.section import AcceptanceSection, AcceptedPool, Breaker
from infra.declaration import ClusterSpec, NodePoolSpec
from infra.declaration.acceptance import AcceptanceSpec
from infra.ground.capability import Capability, Planned, Report
from infra.ground.nodes import pool_key


class Acceptance(Capability[AcceptanceSection]):
    """Where `acceptance` is declared."""

    name = "acceptance"
    uses = ("fabric", "energy")
    rules = RULES

    def plan(self, spec: ClusterSpec, planned: Planned) -> AcceptanceSection | None:
        """Every pool with GPUs."""
        declared = spec.acceptance
        if declared is None:
            return None
        breaker = declared.breaker
        return AcceptanceSection(
            interval_min=declared.interval_min,
            clock_limit_ms=declared.clock_limit_ms,
            breaker=Breaker(
                leaf=breaker.leaf_pct,
                rack=breaker.rack_pct,
                pool=breaker.pool_pct,
                region=breaker.region_pct,
            ),
            pools={
                pool_key(region.name, pool.name): _pool(declared, region.name, pool)
                for region in spec.regions
                for pool in region.pools
                if pool.gpus
            },
        )

    def report(self, plan: AcceptanceSection) -> Report:
        """A line for each pool."""
        lines = ["Acceptance: nodes are held against"]
        lines += [f"  {key}: {in_words(one)}" for key, one in plan.pools.items()]
        return Report("\n".join(lines), {"acceptance": plan.model_dump(mode="json")})


def _pool(declared: AcceptanceSpec, region: str, pool: NodePoolSpec) -> AcceptedPool:
    own = next((one for one in declared.pools if (one.region, one.pool) == (region, pool.name)), None)
    published = single(pool.gpu_model or "", pool.gpus)
    if own is None:
        return AcceptedPool(all_reduce_gbs=published)
    return AcceptedPool(
        **own.model_dump(exclude={"region", "pool", "all_reduce_gbs"}),
        all_reduce_gbs=own.all_reduce_gbs or published,
    )


def in_words(pool: AcceptedPool) -> str:
    """What is expected beside GPUs and NICs, in a line."""
    parts = ["the declared GPUs and NICs"]
    if pool.memory_gib is not None:
        parts.append(f"{pool.memory_gib:g} GiB of memory")
    if pool.nvme_disks is not None:
        parts.append(f"{pool.nvme_disks} NVMe disks")
    if pool.all_reduce_gbs is not None:
        parts.append(f"all_reduce of {pool.all_reduce_gbs:g} GB/s within a node")
    return ", ".join(parts)


CAPABILITY = Acceptance()
