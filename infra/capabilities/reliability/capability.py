"""What a cluster of this size really delivers: failures, checkpoints, spares."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from infra.capabilities.reliability.domains import Domain, domains
from infra.capabilities.reliability.outlook import Outlook, Written, gains, outlook
from infra.capabilities.reliability.rules import RULES
from infra.declaration import ClusterSpec
from infra.ground.capability import Capability, Planned, Report
from infra.ground.clos import Shape, fabric_nodes
from infra.ground.contract import Section

HOUR_S, MINUTE_S = 3600, 60


@dataclass(frozen=True)
class ReliabilityPlan:
    """The outlook, and what one failure takes."""

    outlook: Outlook
    domains: tuple[Domain, ...]


class Reliability(Capability[ReliabilityPlan]):
    """Where `reliability` is declared. No node has to know of it."""

    name = "reliability"
    uses = ("wan",)
    rules = RULES

    def plan(self, spec: ClusterSpec, planned: Planned) -> ReliabilityPlan | None:
        """From the declaration, and from what the WAN has planned."""
        if (found := outlook(spec)) is None:
            return None
        region = next(one for one in spec.regions if one.name == found.region)
        shape = Shape(region.fabric, nodes) if region.fabric and (nodes := fabric_nodes(region)) else None
        return ReliabilityPlan(found, domains(found, shape, planned))

    def section(self, plan: ReliabilityPlan) -> Section | None:
        """Nobody reads it on a node."""
        return None

    def report(self, plan: ReliabilityPlan) -> Report:
        """Some lines for whoever decides; the page has the curves."""
        return Report("\n".join(in_words(plan)), {"reliability": as_json(plan)}, page=lambda: _page(plan))


def in_words(plan: ReliabilityPlan) -> Iterator[str]:
    """About ten lines."""
    found, job = plan.outlook, plan.outlook.job
    source = job.rates.source + (" (links and switches left out: two planes)" if found.planes > 1 else "")
    yield f"Reliability, by {source}"
    everything = job.mtbf_s * job.nodes / found.gpu_nodes
    yield (
        f"  a job on {job.nodes:,} nodes of {found.region} is stopped {every(job.mtbf_s)};"
        f" of all {found.gpu_nodes:,} GPU nodes one fails {every(everything)}"
    )
    writes = ", ".join(f"{in_time(one.takes_s)} to {one.where}{_often(found, one)}" for one in found.places)
    yield f"  a checkpoint of {found.checkpoint_gib:,.0f} GiB takes {writes}"
    how = "declared" if job.declared_interval_s is not None else "the best by Daly"
    yield (
        f"  one {every(job.interval_s)} ({how}; by Young {in_time(job.young_s)})"
        f" leaves {job.efficiency:.1%} of the time for progress that is kept"
    )
    needed = job.spares_needed(found.availability)
    yield (
        f"  {job.mean_away:.1f} of its nodes are away at a time: {needed} spares keep it whole for"
        f" {found.spec.availability_target_pct:g} % of the time; declared are {job.spares}"
    )
    with_spares, without = (replace(job, spares=spares).goodput for spares in (needed, 0))
    yield (
        f"  goodput of a job that waits for its nodes: {job.goodput:.1%};"
        f" with {needed} spares {with_spares:.1%}, without any {without:.1%}"
    )
    if len(found.pools) > 1:
        alone = ", ".join(f"{pool.pool} {pool.spares_needed} of {pool.nodes:,}" for pool in found.pools)
        yield f"  spares that each pool needs for itself: {alone}"
    for domain in plan.domains:
        lost = f"{domain.gpus:,} GPUs stop" if domain.gpus else "no GPU stops"
        yield f"  {domain.what} fails: {lost}; what goes on: {domain.stays}"
    best = sorted(gains(found).items(), key=lambda item: -item[1])
    yield "  what buys most: " + ", ".join(f"{what} {_points(gain)}" for what, gain in best)


def _often(found: Outlook, place: Written) -> str:
    number = found.every(place)
    return f" (one in {number})" if number > 1 else ""


def _points(gain: float) -> str:
    return f"+{100 * gain:.2f} points" if gain >= 0.00005 else "nothing"


def as_json(plan: ReliabilityPlan) -> dict[str, Any]:
    """The same for programs, in seconds."""
    found, job = plan.outlook, plan.outlook.job
    return {
        "source": job.rates.source,
        "failures_per_1000_node_days": {cause: round(rate, 4) for cause, rate in job.rates.by_cause.items()},
        "job_nodes": job.nodes,
        "mtbf_s": _finite(job.mtbf_s),
        "checkpoint_gib": round(found.checkpoint_gib, 1),
        "write_s": {place.where: _finite(place.takes_s) for place in found.places},
        "interval_s": _finite(job.interval_s),
        "interval_young_s": _finite(job.young_s),
        "efficiency": round(job.efficiency, 4),
        "nodes_away": round(job.mean_away, 3),
        "spares": job.spares,
        "spares_needed": job.spares_needed(found.availability),
        "pools": {
            pool.pool: {
                "nodes": pool.nodes,
                "nodes_away": round(pool.mean_away, 3),
                "spares_needed": pool.spares_needed,
            }
            for pool in found.pools
        },
        "goodput": round(job.goodput, 4),
        "goodput_without_spares": round(replace(job, spares=0).goodput, 4),
        "gains": {what: round(gain, 6) for what, gain in gains(found).items()},
        "domains": [{"what": one.what, "gpus": one.gpus, "stays": one.stays} for one in plan.domains],
    }


def _finite(value: float) -> float | None:
    return None if value == inf else round(value, 1)


def every(seconds: float) -> str:
    """How often something is that comes after so long."""
    return "never" if seconds == inf else f"every {in_time(seconds)}"


def in_time(seconds: float) -> str:
    """A duration as one says it."""
    if seconds == inf:
        return "never"
    for unit, size in (("days", 24 * HOUR_S), ("h", HOUR_S), ("min", MINUTE_S)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def _page(plan: ReliabilityPlan) -> str:
    from infra.capabilities.reliability.page import fragment  # nothing else needs it

    return fragment(plan.outlook, tuple(in_words(plan)))


CAPABILITY = Reliability()
