"""What a declaration comes to: times, efficiency, spares. Pure, and light enough for `check`."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, inf

from infra.capabilities.reliability.checkpoint import (
    SECONDS_A_DAY,
    daly_s,
    efficiency,
    enough,
    mtbf_s,
    spares_for,
    young_s,
)
from infra.capabilities.reliability.rates import NETWORK, Rates, load_rates
from infra.declaration import ClusterSpec, RegionSpec
from infra.declaration.reliability import CheckpointTierSpec, ReliabilitySpec

GIB = 2**30
REPLICATION_BITS = 8 * GIB / 1e6
"""Megabits in a GiB."""


@dataclass(frozen=True)
class Job:
    """One job on some nodes, with what it loses and what stands by. Times in seconds."""

    nodes: int
    spares: int
    rates: Rates
    cost_s: float
    """What a checkpoint holds the job up."""
    restart_s: float
    repair_software_s: float
    repair_hardware_s: float
    declared_interval_s: float | None = None

    @property
    def mtbf_s(self) -> float:
        """Of the job: a failure of any of its nodes stops it."""
        return mtbf_s(self.nodes, self.rates.total)

    @property
    def interval_s(self) -> float:
        """Declared, else the best by Daly."""
        if self.declared_interval_s is not None:
            return self.declared_interval_s
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
        hardware = self.rates.hardware_share
        away_s = hardware * self.repair_hardware_s + (1 - hardware) * self.repair_software_s
        return self.nodes * self.rates.total / 1000 * away_s / SECONDS_A_DAY

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
    has_fabric: bool
    planes: int
    """Of the region's fabric; 1 where none is declared."""
    checkpoint_gib: float
    job: Job
    tiers: tuple[Written, ...]
    replication: Written | None

    def every(self, place: Written) -> int:
        """Every how manieth checkpoint a place can take: the job waits for none but the first tier."""
        return max(ceil(place.takes_s / self.job.interval_s), 1) if self.job.interval_s != inf else 1

    @property
    def places(self) -> tuple[Written, ...]:
        """All that a checkpoint is written to."""
        return (*self.tiers, *([self.replication] if self.replication else []))

    @property
    def availability(self) -> float:
        """The target, from 0 to 1."""
        return self.spec.availability_target_pct / 100


def gpu_nodes(region: RegionSpec) -> int:
    """The nodes of a region that have GPUs."""
    return sum(pool.count for pool in region.pools if pool.gpus)


def outlook(spec: ClusterSpec) -> Outlook | None:
    """None where there is nothing to plan: no GPU, no tier. BadInputError for rates that are none."""
    declared = spec.reliability
    region = max(spec.regions, key=gpu_nodes, default=None)
    if region is None or declared is None or not gpu_nodes(region) or not declared.checkpoint.tiers:
        return None
    planes = region.fabric.planes if region.fabric else 1
    rates = load_rates(declared.failure_rates)
    rates = rates.without(*NETWORK) if planes > 1 else rates
    spares = declared.spares
    if spares is None:
        spares = _spares(declared, rates, declared.job_nodes or gpu_nodes(region))
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
        repair_software_s=declared.repair_days.software * SECONDS_A_DAY,
        repair_hardware_s=declared.repair_days.hardware * SECONDS_A_DAY,
        declared_interval_s=None if minutes == "auto" else 60 * minutes,
    )
    return Outlook(
        spec=declared,
        region=region.name,
        gpu_nodes=sum(map(gpu_nodes, spec.regions)),
        job_gpus=_job_gpus(region, nodes),
        has_fabric=region.fabric is not None,
        planes=planes,
        gpus_per_node=max(pool.gpus for pool in region.pools),
        checkpoint_gib=gib,
        job=job,
        tiers=tiers,
        replication=_replication(spec, gib),
    )


def _job_gpus(region: RegionSpec, nodes: int) -> int:
    most, left = 0, nodes
    for pool in sorted(region.pools, key=lambda pool: -pool.gpus):
        taken = min(pool.count, left) if pool.gpus else 0
        most, left = most + taken * pool.gpus, left - taken
    return most


def _spares(declared: ReliabilitySpec, rates: Rates, nodes: int) -> int:
    """As many as the target needs for so many nodes."""
    days = declared.repair_days
    away = rates.hardware_share * days.hardware + (1 - rates.hardware_share) * days.software
    return spares_for(nodes * rates.total / 1000 * away, declared.availability_target_pct / 100)


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
        if link.name == over and link.bandwidth_mbps > 0:
            mbps = link.bandwidth_mbps * link.classes.replication_pct / 100
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
    if outlook.has_fabric and outlook.planes == 1:
        ways["two planes of the fabric"] = replace(job, rates=job.rates.without(*NETWORK))
    return {what: better.goodput - job.goodput for what, better in ways.items()}
