"""What a declaration comes to: times, efficiency, spares. Pure, and light enough for `check`."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, inf

from infra.capabilities.reliability.checkpoint import (
    daly_s,
    efficiency,
    enough,
    mtbf_s,
    spares_for,
    young_s,
)
from infra.capabilities.reliability.rates import NETWORK, Rates, load_rates
from infra.declaration import ClusterSpec, NodePoolSpec, RegionSpec
from infra.declaration.reliability import CheckpointTierSpec, ReliabilitySpec, RepairDaysSpec
from infra.ground.clos import fabric_nodes, nodes_per_group

GIB = 2**30
REPLICATION_BITS = 8 * GIB / 1e6
"""Megabits in a GiB."""
LEAST_MBPS = 1e-6


def nodes_away(nodes: int, rates: Rates, repair: RepairDaysSpec) -> float:
    """The mean number of nodes under repair at a time, of NODES that run: nodes · rate · repair time."""
    days = rates.hardware_share * repair.hardware + (1 - rates.hardware_share) * repair.software
    return nodes * rates.total / 1000 * days


@dataclass(frozen=True)
class Job:
    """One job on some nodes, with what it loses and what stands by. Times in seconds."""

    nodes: int
    spares: int
    rates: Rates
    cost_s: float
    """What a checkpoint holds the job up."""
    restart_s: float
    repair: RepairDaysSpec
    declared_interval_s: float | None = None

    @property
    def mtbf_s(self) -> float:
        """Of the job: a failure of any of its nodes stops it."""
        return mtbf_s(self.nodes, self.rates.total)

    @property
    def interval_s(self) -> float:
        """Declared, else the best by Daly."""
        return self.daly_s if self.declared_interval_s is None else self.declared_interval_s

    @property
    def daly_s(self) -> float:
        """The best interval by Daly."""
        return daly_s(self.cost_s, self.mtbf_s) if self.mtbf_s != inf else inf

    @property
    def young_s(self) -> float:
        """The best interval by Young, to compare."""
        return young_s(self.cost_s, self.mtbf_s)

    @property
    def efficiency(self) -> float:
        """Of a job that always has its nodes."""
        return efficiency(self.interval_s, self.cost_s, self.restart_s, self.mtbf_s)

    @property
    def mean_away(self) -> float:
        """Nodes under repair at a time, of those that fail while they run: the job's."""
        return nodes_away(self.nodes, self.rates, self.repair)

    @property
    def goodput(self) -> float:
        """Efficiency, in the share of the time in which it has all of its nodes."""
        return self.efficiency * enough(self.spares, self.mean_away)

    def spares_needed(self, availability: float) -> int:
        """For all nodes in this share of the time."""
        return spares_for(self.mean_away, availability)


@dataclass(frozen=True)
class Written:
    """A checkpoint on its way to one place."""

    where: str
    path: str
    """In the declaration."""
    takes_s: float
    speed: float
    """As declared: GiB/s of a node or of all, Mbit/s of a link."""

    def needed(self, interval_s: float) -> float:
        """The speed with which it would take no longer than the interval."""
        return self.speed * self.takes_s / interval_s


@dataclass(frozen=True)
class PoolSpares:
    """A pool of GPU nodes that all run, and what stands by for them alone."""

    pool: str
    """`<region>-<pool>`, as its nodes are called."""
    nodes: int
    mean_away: float
    spares_needed: int


@dataclass(frozen=True)
class Outlook:
    """A declaration with its numbers."""

    spec: ReliabilitySpec
    region: str
    gpu_nodes: int
    """Of the whole cluster."""
    gpus_per_node: int
    """Of the node with the most."""
    job_gpus: int
    """Of the nodes with the most, as many as the job has."""
    leaf_nodes: int
    """Nodes that lose a port with the fullest leaf; 0 without a fabric."""
    planes: int
    """Of the region's fabric; 1 where none is declared."""
    checkpoint_gib: float
    job: Job
    tiers: tuple[Written, ...]
    replication: Written | None
    pools: tuple[PoolSpares, ...]

    def every(self, place: Written) -> int:
        """Every how manieth checkpoint a place can take: the job waits for none but the first tier."""
        return max(ceil(place.takes_s / self.job.interval_s), 1) if self.job.interval_s != inf else 1

    @property
    def places(self) -> tuple[Written, ...]:
        """All that a checkpoint is written to."""
        return (*self.tiers, *([self.replication] if self.replication else []))

    @property
    def leaf_gpus(self) -> int:
        """Lost to the job with a leaf, at most: none where another plane carries on."""
        return min(self.leaf_nodes * self.gpus_per_node, self.job_gpus) if self.planes == 1 else 0

    @property
    def availability(self) -> float:
        """The target, from 0 to 1."""
        return self.spec.availability_target_pct / 100


def gpu_pools(region: RegionSpec) -> list[NodePoolSpec]:
    """The pools of a region whose nodes have GPUs; numbers below none are for other rules to refuse."""
    return [pool for pool in region.pools if pool.gpus > 0 and pool.count > 0]


def gpu_nodes(region: RegionSpec) -> int:
    """The nodes of a region that have GPUs."""
    return sum(pool.count for pool in gpu_pools(region))


def outlook(spec: ClusterSpec) -> Outlook | None:
    """None where there is nothing to plan: no GPU, no tier. BadInputError for rates that are none."""
    declared = spec.reliability
    region = max(spec.regions, key=gpu_nodes, default=None)
    if region is None or declared is None or not gpu_nodes(region) or not declared.checkpoint.tiers:
        return None
    rates = _rates_in(region, load_rates(declared.failure_rates))
    target = declared.availability_target_pct / 100
    spares = declared.spares
    if spares is None:
        all_nodes = declared.job_nodes or gpu_nodes(region)
        spares = spares_for(nodes_away(all_nodes, rates, declared.repair_days), target)
    nodes = declared.job_nodes or max(gpu_nodes(region) - spares, 1)
    gib = declared.checkpoint.parameters_b * 1e9 * declared.checkpoint.bytes_per_parameter / GIB
    tiers = tuple(_tiers(declared, gib, nodes))
    minutes = declared.checkpoint.interval
    job = Job(
        nodes=nodes,
        spares=spares,
        rates=rates,
        cost_s=tiers[0].takes_s,
        restart_s=60 * declared.restart_min,
        repair=declared.repair_days,
        declared_interval_s=None if minutes == "auto" else 60 * minutes,
    )
    return Outlook(
        spec=declared,
        region=region.name,
        gpu_nodes=sum(map(gpu_nodes, spec.regions)),
        job_gpus=_job_gpus(region, nodes),
        leaf_nodes=_leaf_nodes(region),
        planes=_planes(region),
        gpus_per_node=max(pool.gpus for pool in gpu_pools(region)),
        checkpoint_gib=gib,
        job=job,
        tiers=tiers,
        replication=_replication(spec, gib),
        pools=tuple(_pools(spec, declared)),
    )


def _job_gpus(region: RegionSpec, nodes: int) -> int:
    most, left = 0, nodes
    for pool in sorted(gpu_pools(region), key=lambda pool: -pool.gpus):
        taken = min(pool.count, left)
        most, left = most + taken * pool.gpus, left - taken
    return most


def _planes(region: RegionSpec) -> int:
    return region.fabric.planes if region.fabric else 1


def _rates_in(region: RegionSpec, rates: Rates) -> Rates:
    """Those that stop a job there: a second plane goes on without a link or a switch."""
    return rates.without(*NETWORK) if _planes(region) > 1 else rates


def _leaf_nodes(region: RegionSpec) -> int:
    return min(nodes_per_group(region.fabric), fabric_nodes(region)) if region.fabric else 0


def _pools(spec: ClusterSpec, declared: ReliabilitySpec) -> Iterator[PoolSpares]:
    rates = load_rates(declared.failure_rates)
    for region in spec.regions:
        for pool in gpu_pools(region):
            away = nodes_away(pool.count, _rates_in(region, rates), declared.repair_days)
            needed = spares_for(away, declared.availability_target_pct / 100)
            yield PoolSpares(f"{region.name}-{pool.name}", pool.count, away, needed)


def speed_of(tier: CheckpointTierSpec) -> float:
    """The one that is declared; 0 where none is, which a rule refuses."""
    return tier.write_gib_s_per_node or tier.write_gib_s or 0


def _tiers(declared: ReliabilitySpec, gib: float, nodes: int) -> Iterator[Written]:
    for number, tier in enumerate(declared.checkpoint.tiers):
        together = nodes if tier.write_gib_s_per_node else 1
        key = "write_gib_s_per_node" if tier.write_gib_s_per_node else "write_gib_s"
        path = f"reliability.checkpoint.tiers[{number}].{key}"
        speed = speed_of(tier)
        yield Written(tier.name, path, gib / (together * speed) if speed else inf, speed)


def _replication(spec: ClusterSpec, gib: float) -> Written | None:
    """At the share of the link that its class of replication is guaranteed."""
    over = spec.reliability.checkpoint.replicate_over if spec.reliability else None
    for link in spec.wan_links:
        if link.name == over:
            mbps = link.bandwidth_mbps * link.classes.replication_pct / 100
            if mbps < LEAST_MBPS:
                return None  # what no link has, which a rule refuses
            return Written(
                f"link {over}", "reliability.checkpoint.replicate_over", gib * REPLICATION_BITS / mbps, mbps
            )
    return None


def gains(outlook: Outlook) -> dict[str, float]:
    """What one more of each brings, in goodput (0 to 1)."""
    job = outlook.job
    ways = {
        "a minute less to restart": replace(job, restart_s=max(job.restart_s - 60, 0)),
        "a first tier twice as fast": replace(job, cost_s=job.cost_s / 2),
        "one more spare": replace(job, spares=job.spares + 1),
    }
    if outlook.leaf_nodes and outlook.planes == 1:
        ways["two planes of the fabric"] = replace(job, rates=job.rates.without(*NETWORK))
    return {what: better.goodput - job.goodput for what, better in ways.items()}
