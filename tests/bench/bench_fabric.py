"""How long a large fabric takes: planned, counted, cabled, handed over, its switches configured.

Prints seconds of CPU for each, the best of three runs; judges nothing.
Usage: python tests/bench/bench_fabric.py [GPUS]
"""

import io
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from infra.capabilities.fabric import cabling, diagram, sonic
from infra.capabilities.fabric.capability import CAPABILITY as FABRIC
from infra.checks import check, parse_spec
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from infra.planning.report import plan_json

RUNS = 3
RAILS = 8


def declaration(gpus: int) -> dict[str, Any]:
    """One region of nodes with eight GPUs and NICs each, on 64-port switches."""
    switch = {"asic": "spectrum-4"}
    fabric = {"kind": "rail_optimized", "radix": 64, "rails": RAILS, "link_gbps": 400, "switch": switch}
    pool = {"name": "gpu", "role": "gpu", "count": gpus // RAILS, "gpus": RAILS, "gpu_model": "h100-sxm"}
    pools = [{"name": "control", "role": "control", "count": 3}, {**pool, "nics": RAILS, "nic_gbps": 400}]
    return {
        "name": "bench",
        "regions": [{"name": "large", "cidr": "10.0.0.0/8", "fabric": fabric, "pools": pools}],
    }


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of the fastest run."""
    best = float("inf")
    for _ in range(RUNS):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best


def main(gpus: int) -> None:
    """Each step on what the step before made."""
    plain = declaration(gpus)
    spec = parse_spec(plain)
    plan = make_plan(spec)
    fabric = (plan.of(FABRIC) or {})["large"]
    steps: dict[str, Callable[[], object]] = {
        "parse and check": lambda: check(parse_spec(plain)),
        "plan": lambda: make_plan(spec),
        "plan as JSON": lambda: json.dumps(plan_json(spec, plan, None)),
        "contract": lambda: build_contract(spec, plan, "bench").model_dump_json(),
        "diagram": lambda: diagram.fabrics_svg([fabric]),
        "cabling list": lambda: cabling.write_csv(cabling.cables(fabric), io.StringIO()),
        "switches": lambda: sum(len(text) for _, text in sonic.switch_files(fabric)),
    }
    counts = fabric.counts
    switches = counts.leafs + counts.spines + counts.cores
    print(f"{gpus:,} GPUs, {fabric.shape.nodes:,} nodes, {switches:,} switches; CPU, best of {RUNS}:")
    for name, work in steps.items():
        print(f"  {name:<16} {seconds(work):7.3f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 24_576)
