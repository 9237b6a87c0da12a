"""Are the GPUs well? By what is recorded of DCGM's series or nvidia-smi's; the ones that are worst off."""

from infra.ground.dashboard import HERE, Dashboard, Panel, Query, or_none, or_zero

GPU = "a GPU"
ONE = "{{instance}} {{gpu}}"
BY_GPU = "region, instance, gpu"
MOST = 10


def worst(series: str) -> Query:
    """A page of thousands of curves shows none."""
    return Query(f"topk({MOST}, max by ({BY_GPU}) ({series}{{{HERE}}}))", ONE, needs=GPU)


def of_pools(how: str, series: str) -> Query:
    """Each pool as one curve."""
    return Query(f"{how} by (region, pool) ({series}{{{HERE}}})", "{{region}} {{pool}}", needs=GPU)


GPUS = Dashboard(
    uid="causeway-gpus",
    title="Are the GPUs well?",
    about="region",
    help=f"Of pools their mean or sum, of GPUs the {MOST} worst. Nodes' verdicts: causeway accept STACK.",
    panels=(
        Panel(
            "GPUs that do not answer",
            "numbers",
            (Query(or_zero(f"sum(causeway_gpu_declared{{{HERE}}} - causeway_gpu_found{{{HERE}}})")),),
            bad_from=1,
        ),
        Panel(
            "Drivers that say nothing",
            "numbers",
            (Query(or_zero(f"count(causeway_gpu_answers{{{HERE}}} == 0)")),),
            bad_from=1,
        ),
        Panel(
            "Slowed down, and why",
            "table",
            (
                Query(
                    or_none(
                        f"max by ({BY_GPU}, reason) (causeway_gpu_slowed{{{HERE}}}) == 1",
                        "reason",
                    ),
                    "found",
                ),
            ),
        ),
        Panel("Busy, by pool", "curves", (of_pools("avg", "gpu:busy_ratio"),), "percentunit"),
        Panel("Memory in use, by pool", "curves", (of_pools("avg", "gpu:memory_used_ratio"),), "percentunit"),
        Panel("Power, by pool", "curves", (of_pools("sum", "gpu:power_watts"),), "watt"),
        Panel("The hottest", "curves", (worst("gpu:temperature_celsius"),), "celsius"),
        Panel(
            "Uncorrectable memory errors since the driver was loaded",
            "curves",
            (worst("gpu:ecc_uncorrected"),),
        ),
        Panel(
            "Rows to be remapped, and GPUs without spare ones",
            "curves",
            (
                Query(f"sum(gpu:row_remap_pending{{{HERE}}})", "wait for a reset", needs=GPU),
                Query(f"sum(gpu:row_remap_failed{{{HERE}}})", "worn out", needs=GPU),
            ),
        ),
    ),
)

DASHBOARDS = (GPUS,)
