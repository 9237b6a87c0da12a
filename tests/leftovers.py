"""What test runs that were killed have left on this machine, and its end.

A run puts its mark into the environment of all that it starts and on the containers of its molecule
scenarios. Stacks of clones have a place each, with a lock that dies with its holder. A run that lives is not
touched.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from infra import ROOT
from infra.errors import CausewayError
from infra.providers.local import names, sweep
from infra.stack import stack_dir
from tests.integration import checkout
from tests.molecule.recorded import SCENARIO

MARK = "CAUSEWAY_TEST_RUN"
LABEL = "causeway.test-run"


def new_mark() -> str:
    """A mark for this process's run: its PID, and when it was started, for PIDs come back."""
    return f"{os.getpid()}.{_started(os.getpid())}"


def clear() -> Iterator[str]:
    """End and remove what runs that are dead have left; a line for each, also for what does not go.

    What does not go is no reason to test nothing: this run keeps away from it, and the next one tries again.
    """
    parts = (
        _end_processes,
        _remove_containers,
        _sweep_grounds,
        _forget_scenarios,
        checkout.sweep_dead_places,
    )
    for part in parts:
        try:
            yield from (f"left by a run that was killed, and removed: {line}" for line in part())
        except (CausewayError, OSError, subprocess.SubprocessError) as error:
            yield f"left by a run that was killed, and still there: {error}"


def is_dead(mark: str) -> bool:
    """Whether the run with this mark has ended."""
    pid, _, started = mark.partition(".")
    return not pid.isdigit() or _started(int(pid)) != started


def _started(pid: int) -> str:
    """When a process was started, in clock ticks since boot; "" if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _end_processes() -> list[str]:
    ended = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            mark = _mark_in(environ.read_bytes())
            command = (environ.parent / "comm").read_text().strip()
            # What nodes and links consist of ends with their stack, below.
            if (
                mark
                and is_dead(mark)
                and command not in checkout.STANDING
                and not _in_container(environ.parent)
            ):
                os.kill(int(environ.parent.name), signal.SIGKILL)
                ended.append(f"process {environ.parent.name} ({command})")
    return ended


def _mark_in(environ: bytes) -> str:
    found = (entry for entry in environ.split(b"\0") if entry.startswith(f"{MARK}=".encode()))
    return next(found, b"").partition(b"=")[2].decode()


def _in_container(process: Path) -> bool:
    return (process / "ns" / "pid").readlink() != Path("/proc/self/ns/pid").readlink()


def _remove_containers() -> list[str]:
    """Those of molecule scenarios; nodes of stacks are swept with their stack, and what was made by hand,
    outside a run, is somebody's."""
    gone = []
    for record in _podman_ps(LABEL):
        if (mark := record["Labels"][LABEL]) and is_dead(mark):
            subprocess.run(
                ["podman", "rm", "--force", "--ignore", "--time=0", "--volumes", record["Id"]],
                check=True, stdout=subprocess.DEVNULL, timeout=120,
            )  # fmt: skip
            gone.append(f"container {record['Names'][0]}")
    return gone


def _sweep_grounds() -> list[str]:
    """Stacks that this checkout's tests made without a clone. One run at a time uses them: ours."""
    ours = names.short_hash(str(names.CHECKOUT))
    stacks = {record["Labels"][f"{names.LABEL}stack"] for record in _podman_ps(f"{names.LABEL}stack")}
    if names.RUN_DIR.exists():
        stacks |= {folder.name for folder in names.RUN_DIR.iterdir()}
    mine = sorted(stack for stack in stacks if stack.removesuffix("-b").endswith(f"-{ours}"))
    return [line for stack in mine for line in sweep.sweep(stack)]


def _forget_scenarios() -> list[str]:
    """What is known of nodes of molecule scenarios that failed, unless one still has nodes: maybe by hand."""
    known = sorted((ROOT / stack_dir("any")).parent.glob(f"{SCENARIO}*"))
    if known and _podman_ps("causeway.molecule"):
        return []
    for folder in known:
        shutil.rmtree(folder)
    return [f"what was known of {folder.name}" for folder in known]


def _podman_ps(label: str) -> list[dict[str, Any]]:
    said = subprocess.run(
        ["podman", "ps", "--all", "--format=json", f"--filter=label={label}"],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=120,
    ).stdout  # fmt: skip
    return list(json.loads(said or b"[]"))
