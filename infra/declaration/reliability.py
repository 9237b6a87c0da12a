"""How often things fail, and what a job does about it."""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from infra.declaration.base import FilePath, Float, Int, ModelName, Spec, refusal

Positive = Annotated[Float, Field(gt=0, le=1e9)]
Percent = Annotated[Float, Field(gt=0, lt=100)]
MOST_MINUTES = 1_000_000


def _interval(value: object) -> object:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value != "auto" and not (number and 0 < float(str(value)) <= MOST_MINUTES):
        raise refusal(f"is neither auto nor a number of minutes, at most {MOST_MINUTES:,}")
    return value


Interval = Annotated[Literal["auto"] | float, BeforeValidator(_interval)]


class CheckpointTierSpec(Spec):
    """Where checkpoints are written. One of the two speeds is declared."""

    what: ClassVar = "a checkpoint tier"
    name: ModelName
    """What the plan calls it."""
    write_gib_s_per_node: Positive | None = None
    """What each node writes by itself, as to its own NVMe."""
    write_gib_s: Positive | None = None
    """What all nodes of the job write together, as to the region's storage."""


class CheckpointSpec(Spec):
    """What a job saves, and where."""

    what: ClassVar = "the checkpoint"
    parameters_b: Positive
    """Billions of parameters."""
    bytes_per_parameter: Positive = 14
    """2 for the weights in 16 bits, 12 for Adam's state in 32."""
    interval: Interval = "auto"
    """Minutes from one checkpoint to the next; `auto` is the best by Daly."""
    tiers: tuple[CheckpointTierSpec, ...]
    """The job waits for the first; the others take as many of the checkpoints as they can."""
    replicate_over: str | None = None
    """Name of the WAN link that carries each checkpoint to the other region; unset means none."""


class RepairDaysSpec(Spec):
    """How long a node is away."""

    what: ClassVar = "the repair times"
    software: Positive = 0.1
    """After a failure that a reboot or a new image mends."""
    hardware: Positive = 7
    """After one that takes a part, or a hand."""


class ReliabilitySpec(Spec):
    """What fails how often, and how a job goes on."""

    what: ClassVar = "the reliability plan"
    failure_rates: FilePath = "default"
    """`default` and `llama3`, `rsc-1`, `rsc-2` are published ones; else a file of the site's own, relative to
    the checkout."""
    checkpoint: CheckpointSpec
    """What a job saves."""
    job_nodes: Annotated[Int, Field(ge=1, le=1_000_000)] | None = None
    """Nodes of the job that is planned for; unset means all GPU nodes of the largest region but spares."""
    spares: Annotated[Int, Field(ge=0, le=1_000_000)] | None = None
    """GPU nodes of that region that stand by for it; unset means as many as the target needs."""
    restart_min: Positive = 10
    """From a failure to the first step after it."""
    repair_days: RepairDaysSpec = RepairDaysSpec()
    """How long a node is away."""
    availability_target_pct: Percent = 99
    """Share of the time in which the job has all of its nodes."""
    largest_loss_pct: Annotated[Float, Field(gt=0, le=100)] | None = None
    """Share of the job's GPUs that one failure may take; unset means any."""
