"""What the verification of 20 nodes takes while one of them hangs, and while none does; judges nothing.

In turn on one stack: nothing is wrong; then on one node a daemon is stopped by a signal, so that it takes
connections and never answers, one daemon after the other; then the node's sshd; then the whole node.

Usage: ./run exec python tests/bench/bench_verify.py [--stack STACK] [--json FILE]
Without a stack of this checkout that stands, one of 20 nodes is stood up in a checkout of its own, and taken
down.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra import ROOT
from infra.ground.contract import load_contract
from infra.stack import contract_file
from tests.bench.bench_drift import stand_up
from tests.integration.checkout import new_checkout

RUNS = 3
DAEMONS = {
    "chrony.service": "control",
    "consul.service": "control",
    "frr.service": "gateway",
    "ssh.service": "gpu",
}
"""Unit → the role in the name of the node on which it hangs."""
HEALTHY = "all healthy"


@contextmanager
def stopped(container: str, unit: str) -> Iterator[None]:
    """While it lasts, all processes of a unit are stopped; of sshd the one that listens."""
    who = ["--kill-whom=main"] if unit == "ssh.service" else []
    send = ["podman", "exec", container, "systemctl", "kill", *who]
    subprocess.run([*send, "--signal=STOP", unit], check=True, timeout=60)
    try:
        yield
    finally:
        subprocess.run([*send, "--signal=CONT", unit], check=True, timeout=60)


@contextmanager
def paused(container: str) -> Iterator[None]:
    """While it lasts, nothing of a node runs."""
    subprocess.run(["podman", "pause", container], check=True, timeout=60)
    try:
        yield
    finally:
        subprocess.run(["podman", "unpause", container], check=True, timeout=60)


def verified(stack: str) -> tuple[float, list[dict[str, str]]]:
    """The seconds of one verification, and what was not proven in it."""
    command = ["-m", "infra.verify.verification", "--inventory", f"inventories/{stack}", "--json"]
    began = time.monotonic()
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=3600)
    took_s = time.monotonic() - began
    checks = json.loads(done.stdout)["checks"]
    return took_s, [check for check in checks if check["verdict"] in ("failed", "unreachable")]


def measure(stack: str) -> dict[str, float]:
    """What hangs → seconds."""
    names = list(load_contract(contract_file(stack)).hosts)
    figures = {HEALTHY: statistics.median(show(HEALTHY, *verified(stack)) for _ in range(RUNS))}
    for unit, role in DAEMONS.items():
        node = next(name for name in reversed(names) if f"-{role}-" in name)
        with stopped(f"cw-{stack}-{node}", unit):
            figures[unit] = show(f"{unit} of {node} hangs", *verified(stack))
    with paused(f"cw-{stack}-{names[-1]}"):
        figures["a whole node"] = show(f"{names[-1]} hangs", *verified(stack))
    return figures


def show(what: str, took_s: float, wrong: list[dict[str, str]]) -> float:
    """Say what came of one run."""
    print(f"{what}: {took_s:.1f} s", file=sys.stderr, flush=True)
    for check in wrong:
        words = (check["host"], check["role"], check["name"], check["message"])
        print(f"    {': '.join(filter(None, words))}", file=sys.stderr, flush=True)
    return took_s


def main() -> None:
    """Measure on the stack that is given, or on one that is stood up."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--stack", help="a stack of this checkout that stands")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    if arguments.stack is None:
        with new_checkout() as checkout:
            stand_up(checkout)
            words = ["--stack", checkout.stack]
            words += ["--json", str(arguments.json.absolute())] if arguments.json else []
            checkout.run("exec", "python", "tests/bench/bench_verify.py", *words)
        return
    figures = measure(arguments.stack)
    for what, took_s in figures.items():
        print(f"{what:<20} {took_s:7.1f} s  {took_s / figures[HEALTHY]:5.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
