"""Processes that outlive the command which starts them: switches and wires of WAN links, virtual machines.

What runs is known by comparing process command lines, so a process id that another program has since
inherited is never taken for ours.
"""

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from infra.errors import CausewayError
from infra.process import run

PROGRAMS = ("vde_switch", "wirefilter", "qemu-system-x86_64")
START_TIMEOUT_S = 5.0
STOP_TIMEOUT_S = 3.0


def start(starter: Sequence[str], argv: Sequence[str], pid_file: Path) -> None:
    """Run `starter`, which leaves the process `argv` behind, and wait until that is there."""
    pid_file.unlink(missing_ok=True)  # vde programs refuse to start while it exists, whoever it names
    log = pid_file.with_suffix(".log")
    try:
        run(starter, log=log)
    except CausewayError as error:  # whose message repeats a command line much longer than what was said
        said = log.read_text(errors="replace").strip() or error.message
        raise CausewayError(f"{argv[0]} did not start: {said}", f"see {log}") from None
    deadline = time.monotonic() + START_TIMEOUT_S
    while not running(pid_file, argv):
        if time.monotonic() > deadline:
            raise CausewayError(f"{argv[0]} did not start: {log.read_text().strip()}", f"see {log}")
        time.sleep(0.02)


def command_line(pid: int) -> list[str]:
    """A process's words; none when it is gone, or dead and not yet reaped by its parent."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return []
    return text.rstrip("\0").split("\0") if text else []


def running(pid_file: Path, argv: Sequence[str]) -> bool:
    """Whether the process of that file lives and is the one we would start now."""
    text = pid_file.read_text().strip() if pid_file.exists() else ""
    return text.isdigit() and command_line(int(text)) == list(argv)


def processes(place: Path) -> list[int]:
    """Our processes whose command line names this file, or something in this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        words = command_line(int(entry.name)) if entry.name.isdigit() else []
        if words and words[0] in PROGRAMS:
            found += [int(entry.name)] if any(f"{w}/".startswith(f"{place}/") for w in words) else []
    return sorted(found)


def stop_all(folder: Path) -> None:
    """End every process of ours that works under `folder`."""
    stop(processes(folder))


def stop(pids: list[int]) -> None:
    """End processes at once: they keep nothing that would need a polite signal."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while any(command_line(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
