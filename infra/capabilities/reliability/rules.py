"""What cannot work, or not as well as it is meant to."""

from collections.abc import Iterator
from math import ceil, floor, inf, log10
from typing import ClassVar

from infra.capabilities.reliability.checkpoint import longest_cost_s
from infra.capabilities.reliability.outlook import Outlook, gpu_nodes, outlook
from infra.declaration import ClusterSpec
from infra.errors import BadInputError
from infra.ground.problem import Problem, Severity, listing, nearest, show


def _outlook(spec: ClusterSpec) -> Outlook | None:
    """None where there is nothing to be planned from: what is wrong with it, other rules say."""
    try:
        return outlook(spec)
    except BadInputError:
        return None


def _rounded_up(value: float) -> str:
    """To three digits, and never to less than is needed."""
    if not 0 < value < inf:
        return "more than any"
    digits = 10 ** (floor(log10(value)) - 2)
    return f"{ceil(value / digits) * digits:,.10g}"


class JobsHaveNodes:
    """A job runs on GPU nodes of one region, for its steps wait for each other."""

    id: ClassVar[str] = "job-nodes"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """A job with more nodes than the largest region has beside the spares, or none."""
        declared, most = spec.reliability, max(map(gpu_nodes, spec.regions), default=0)
        if declared is None:
            return
        if not most:
            hint = "declare gpus in a pool, or leave reliability out"
            yield Problem("reliability", "there is no GPU node that a job could run on", hint=hint)
        elif (declared.job_nodes or 1) + (spares := declared.spares or 0) > most:
            yield Problem(
                "reliability.job_nodes" if declared.job_nodes else "reliability.spares",
                f"a job of {declared.job_nodes or 1} nodes and {spares} spares are more than"
                f" the {most} GPU nodes of the largest region",
                show(declared.job_nodes or spares),
                f"at most {most} together",
                hint="take fewer of either, or declare more nodes in that region",
            )


class RatesAreKnown:
    """Without rates nothing can be planned."""

    id: ClassVar[str] = "failure-rates"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """A file of failure rates that is not there, or is none."""
        try:
            outlook(spec)
        except BadInputError as error:
            name = spec.reliability.failure_rates if spec.reliability else ""
            yield Problem("reliability.failure_rates", error.message, show(name), hint=error.hint or "")


class TiersHaveOneSpeed:
    """There is a tier at least, and each is a node's own or one for all."""

    id: ClassVar[str] = "checkpoint-tier"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """No tier, two of one name, or one with both speeds or with none."""
        if spec.reliability and not spec.reliability.checkpoint.tiers:
            yield Problem(
                "reliability.checkpoint.tiers", "a checkpoint is written nowhere", hint="declare a tier"
            )
        tiers = spec.reliability.checkpoint.tiers if spec.reliability else ()
        for number, tier in enumerate(tiers):
            if tier.name in [other.name for other in tiers[:number]]:
                path = f"reliability.checkpoint.tiers[{number}].name"
                yield Problem(path, f"two tiers are called {tier.name}", show(tier.name))
            if (tier.write_gib_s_per_node is None) == (tier.write_gib_s is None):
                how = "no speed" if tier.write_gib_s is None else "two speeds"
                path = f"reliability.checkpoint.tiers[{number}]"
                hint = "disks of the nodes have write_gib_s_per_node, shared storage has write_gib_s"
                yield Problem(path, f"{tier.name} has {how}", hint=hint)


class ReplicationHasALink:
    """Checkpoints leave the job's region over a link that is declared."""

    id: ClassVar[str] = "checkpoint-link"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """A link that is not declared, or that ends in other regions."""
        over = spec.reliability.checkpoint.replicate_over if spec.reliability else None
        names = [link.name for link in spec.wan_links]
        if over is not None and over not in names:
            yield Problem(
                "reliability.checkpoint.replicate_over",
                f"{show(over)} is no WAN link",
                show(over),
                listing(names),
                nearest(over, names),
            )
        found = _outlook(spec)
        for link in spec.wan_links:
            if found and link.name == over and found.region not in (link.a, link.b):
                ours = [one.name for one in spec.wan_links if found.region in (one.a, one.b)]
                message = f"{over} leads from {link.a} to {link.b}, and the job is in {found.region}"
                yield Problem("reliability.checkpoint.replicate_over", message, show(over), listing(ours))


class CheckpointsKeepUp:
    """What takes longer than the interval falls behind, a little more with each checkpoint."""

    id: ClassVar[str] = "checkpoint-time"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """A tier or a link on which a checkpoint takes longer than the time to the next one. With
        `interval: auto` that is the first tier's alone: the others take as many as they can."""
        found = _outlook(spec)
        if found is None:
            return
        interval_s, best = found.job.interval_s, found.job.declared_interval_s is None
        # With `auto` each place behind the first takes as many of the checkpoints as it can.
        for place in found.places[:1] if best else found.places:
            if place.takes_s > interval_s and place.speed:
                unit = "Mbit/s of the replication class" if place is found.replication else "GiB/s"
                # With a faster first tier the best interval is shorter, too.
                within_s = longest_cost_s(found.job.mtbf_s) if best else interval_s
                needed = _rounded_up(place.needed(within_s))
                yield Problem(
                    place.path,
                    f"a checkpoint of {found.checkpoint_gib:,.0f} GiB takes {place.takes_s / 60:,.1f} minutes"
                    f" to {place.where}, and the next one comes after {interval_s / 60:,.1f}",
                    f"{place.speed:g}",
                    f"at least {needed} {unit}",
                    hint=f"it needs {needed} {unit}, or fewer bytes",
                )


class SparesAreEnough:
    """A job that lacks a node waits for its repair."""

    id: ClassVar[str] = "spares"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Fewer spares than the availability that is aimed at needs."""
        found = _outlook(spec)
        if found is None:
            return
        needed = found.job.spares_needed(found.availability)
        if found.job.spares < needed:
            yield Problem(
                "reliability.spares",
                f"{found.job.spares} of them leave a job of {found.job.nodes:,} nodes without one more often"
                f" than the target of {found.spec.availability_target_pct:g} % allows:"
                f" {found.job.mean_away:.2g} nodes are away at a time",
                show(found.job.spares),
                f"at least {needed}",
                hint=f"{needed} would do",
            )


class CheckpointsSurvive:
    """The disks of a node are lost with it."""

    id: ClassVar[str] = "checkpoint-lost"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Checkpoints that only the nodes themselves hold, each a part."""
        if (found := _outlook(spec)) is None or found.replication:
            return
        if all(tier.write_gib_s_per_node for tier in found.spec.checkpoint.tiers):
            yield Problem(
                "reliability.checkpoint.tiers",
                "a node that does not come back takes its part of every checkpoint with it, and the job"
                " begins anew",
                hint="declare a tier that all nodes share (write_gib_s), or replicate_over a link",
            )


class DomainsAreSmall:
    """What fails together is no more than the job may lose."""

    id: ClassVar[str] = "failure-domain"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """A node or a leaf that takes more of the job's GPUs than `largest_loss_pct`."""
        found = _outlook(spec)
        limit = found.spec.largest_loss_pct if found else None
        if found is None or limit is None:
            return
        most = int(found.job_gpus * limit / 100)
        domains = {"a node": found.gpus_per_node, "a leaf": found.leaf_gpus}
        what, gpus = max(domains.items(), key=lambda domain: domain[1])
        if gpus <= most:
            return
        fewer = most // found.gpus_per_node
        leaf = f"two planes of the fabric, or leafs with {fewer} nodes each" if fewer else ""
        yield Problem(
            "reliability.largest_loss_pct",
            f"{what} that fails takes {gpus:,} of the job's {found.job_gpus:,} GPUs,"
            f" {100 * gpus / found.job_gpus:.3g} %",
            show(limit),
            f"at least {_rounded_up(100 * gpus / found.job_gpus)}",
            hint=leaf if what == "a leaf" and leaf else "a job on more nodes loses a smaller share with each",
        )


RULES = (
    JobsHaveNodes(),
    RatesAreKnown(),
    TiersHaveOneSpeed(),
    ReplicationHasALink(),
    CheckpointsKeepUp(),
    SparesAreEnough(),
    CheckpointsSurvive(),
    DomainsAreSmall(),
)
