"""Looks at this node, keeps the verdict, and tells.

    python3 -m infra.capabilities.acceptance.node TIER [--repaired]
    python3 -m infra.capabilities.acceptance.node series

TIER: passive (seconds), active (minutes), burn-in (an hour and more), show (the kept verdict as one line),
auto (active where the node waits to be accepted, nothing is wrong with it, no program is on its GPUs, and it
was not tried just before; else passive).
--repaired says that what was broken is repaired: what was before is forgotten, the active tier goes deeper.
series leaves what nvidia-smi tells of the GPUs as metrics, and decides nothing.
Exit 0: no job is kept away. 3: the node is out, or waits.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import sys
import time
from pathlib import Path

from infra.capabilities.acceptance.node import active, passive, series, xid
from infra.capabilities.acceptance.node.tools import Tools
from infra.capabilities.acceptance.node.verdict import (
    OUT,
    decided,
    metrics,
    new_state,
    read_state,
    repaired,
    unknown,
    worst,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from infra.capabilities.acceptance.node.verdict import Finding

EXPECTED = Path("/etc/causeway/acceptance.json")
KEPT = Path("/var/lib/causeway/acceptance")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
TIERS = ("passive", "active", "burn-in", "auto", "show", "series")
KEPT_AWAY = 3
RETRY_S = 6 * 3600
"""A node that the active tier refused is not tried again sooner, but after a boot (a rule of ours)."""


def main(argv: Sequence[str]) -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="acceptance", description="Whether this node is good.")
    parser.add_argument("tier", choices=TIERS)
    parser.add_argument("--repaired", action="store_true", help="what was broken is repaired")
    arguments = parser.parse_args(argv)
    if arguments.tier == "series":
        expected = json.loads(EXPECTED.read_text())
        text = series.told(Tools(), expected, time.time())
        xid.write(Path(expected["metrics_dir"]), "causeway_gpu.prom", text)
        return 0
    boot = BOOT_ID.read_text().strip()
    if arguments.tier == "show":
        print(json.dumps({"verdict": read(KEPT / "verdict.json"), "boot_id": boot}))
        return 0
    with locked():
        verdict = looked(arguments.tier, arguments.repaired, boot)
    print(json.dumps(verdict, indent=1))
    return KEPT_AWAY if verdict["action"] in OUT else 0


@contextlib.contextmanager
def locked() -> Any:
    """One look at a time: the timer's waits for that of a person, and sees what it found."""
    with (KEPT / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def read(path: Path) -> Any:
    """A JSON file's value; None where there is none, or nonsense."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return None


def looked(tier: str, is_repaired: bool, boot: str) -> dict[str, Any]:
    """Look, decide, and keep: the state first, so that no verdict stands without what it rests on."""
    expected, now = json.loads(EXPECTED.read_text()), time.time()
    state = read_state(read(KEPT / "state.json") or new_state())
    if is_repaired:
        state = repaired(state, now, boot, int(time.monotonic() * 1e6))
    node = passive.Node(Tools(), expected, state)
    findings = passive.found(node)
    if tier == "auto":
        is_bad = worst(one.action for one in findings) in OUT
        tier = "active" if not is_bad and is_to_be_tried(state, boot, now) and not busy(node) else "passive"
    if tier != "passive":
        findings += proven(tier, is_repaired, node)
    verdict, state = decided(findings, state, tier, boot, time.time())
    state["counters"] = node.counters
    gpus = len(node.smi.gpus) if node.smi else 0
    verdict.update(node=expected["node"], gpus_declared=expected["gpus"], gpus_found=gpus)
    xid.write(KEPT, "state.json", json.dumps(state))
    xid.write(KEPT, "verdict.json", json.dumps(verdict) + "\n")
    told = {} if expected["simulated"] or not expected["gpus"] else {"gpus": gpus}
    xid.write(Path(expected["metrics_dir"]), "causeway_acceptance.prom", metrics(verdict, told))
    return verdict


def proven(tier: str, is_repaired: bool, node: passive.Node) -> list[Finding]:
    """What a proving tier finds; a machine at work is not disturbed by it."""
    if busy(node):
        return [unknown("programs run on its GPUs: the tier was left out, end them first")]
    deep = active.BURN_IN if tier == "burn-in" else active.REPAIRED if is_repaired else active.ACTIVE
    return active.found(node, deep)


def is_to_be_tried(state: dict[str, Any], boot: str, now: float) -> bool:
    """Whether it waits to be accepted, and was not refused just before."""
    lately = state["active_boot"] == boot and 0 <= now - state["active_at"] < RETRY_S
    return not state["accepted"] and not lately


def busy(node: passive.Node) -> bool:
    """Whether a program is on one of its GPUs."""
    return any(gpu.busy for gpu in node.smi.gpus) if node.smi else False


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # without waiting for a look that hangs
