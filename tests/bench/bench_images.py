"""What the first `up` of the same nodes takes from plain and from baked images; judges nothing.

Usage: ./run exec python tests/bench/bench_images.py [--nodes N] [--json FILE]
A stack of one control node and N GPU nodes is stood up twice, in a checkout of its own, and taken down. What
the mirror sends is in no figure of the second one: that is what an image is for.
"""

import argparse
import json
import re
import resource
import sys
import time
from pathlib import Path
from typing import Any

from tests.integration.checkout import DEBIANS_GPUS, Checkout, new_checkout, region

POOLS = ("tokyo-control", "tokyo-gpu")


def declared(checkout: Checkout, gpu_nodes: int) -> dict[str, Any]:
    """One region with discovery, metrics, logs and a GPU stack."""
    logs = {"kind": "victorialogs", "retention_days": 2, "size_gib": 1}
    tokyo = region("tokyo", checkout.cidr(0), "Asia/Tokyo", {"control": 1, "gpu": gpu_nodes})
    tokyo["pools"][1] |= DEBIANS_GPUS
    return {
        "name": "pacific",
        "regions": [tokyo | {"locale": "ja_JP.UTF-8"}],
        "discovery": {"kind": "consul"},
        "monitoring": {"kind": "prometheus", "retention": {"time_days": 2}, "logs": logs},
    }


def measured_up(checkout: Checkout) -> dict[str, float]:
    """The figures of one `up` and of the roles in it."""
    began, cpu_s = time.monotonic(), _children_cpu_s()
    checkout.up()
    figures = {"up_s": time.monotonic() - began, "controller_cpu_s": _children_cpu_s() - cpu_s}
    (log,) = checkout.files.glob("runs/*/artifacts/*/stdout") or [None]
    assert log, "the roles ran once"
    started = time.mktime(time.strptime(log.parent.name.partition("-")[0], "%Y%m%dT%H%M%S"))
    recap = log.read_text().partition("PLAY RECAP")[2]
    figures["roles_s"] = log.stat().st_mtime - started
    for word in ("ok", "changed"):
        figures[f"tasks_{word}"] = sum(map(int, re.findall(rf"\b{word}=(\d+)", recap)))
    return figures


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure both ways, and print them side by side."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=3, help="GPU nodes (default: 3)")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    with new_checkout() as checkout:
        checkout.declare(declared(checkout, arguments.nodes))
        plain = measured_up(checkout)
        checkout.run("down", checkout.stack)
        began = time.monotonic()
        for pool in POOLS:
            checkout.run("exec", "causeway", "image", "build", pool, "--stack", checkout.stack)
        print(f"building {len(POOLS)} images: {time.monotonic() - began:.0f} s", file=sys.stderr)
        baked = measured_up(checkout)
    print(f"{'':<18} {'plain':>8} {'baked':>8} {'ratio':>6}")
    for what, value in plain.items():
        print(f"{what:<18} {value:8.1f} {baked[what]:8.1f} {baked[what] / value:6.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"plain": plain, "baked": baked}, indent=1))


if __name__ == "__main__":
    main()
