#!/usr/bin/python3
"""Counts NVIDIA's XIDs in the kernel's log, with what each asks for, as metrics for node_exporter.

    causeway_xid.py STATE-FILE METRICS-FOLDER

Drivers tell the last XID as a gauge that never clears; the log has every one. Where it was read to is kept
together with the counts, so that none is lost or counted twice, whatever ends this program.
METRICS-FOLDER/causeway_xid.prom is written whole or not at all. Python 3.8, standard library.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

LINE = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:]{4,20})(?:[ .][^)]{0,40})?\): ([0-9]{1,4})\b(.*)")
"""Of a GPU that is divided the driver names the part, too: `PCI:0000:3b:00 GPU-I:02 GPU-CI:00`
(NVIDIA/open-gpu-kernel-modules, src/nvidia/src/kernel/gpu/rc/kernel_rc.c)."""
ACTIONS = {
    "restart_app": (13, 31, 32, 39, 40, 41, 68, 69, 94),
    "reset_gpu": (46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158),
    "reboot_node": (79,),
    "none": (43, 45, 63, 92, 93, 106, 107, 121),
}
"""NVIDIA's XID catalog; for every other number it, or the vendor, has a procedure.

That of 45 is to follow the XID before it; alone it is what a program leaves that somebody ended.
"""
BY_NUMBER = {number: action for action, numbers in ACTIONS.items() for number in numbers}
ANNOUNCED = re.compile(r"\bto 0x([0-9a-f]+)")
RECOVERY = (
    *("none", "reset_gpu", "reboot_node", "workflow"),
    *("reset_gpu", "workflow", "reset_gpu", "reboot_node"),
)
"""XID 154 says by NVML's number what the GPU asks for."""
PATIENCE_S = 60
NAME, READ = "causeway_gpu_xid_total", "causeway_gpu_xid_read_timestamp_seconds"


def action_of(number: int, rest: str) -> str:
    """What an XID asks for."""
    announced = ANNOUNCED.search(rest) if number == 154 else None
    if announced:
        asked = int(announced[1], 16)
        return RECOVERY[asked] if asked < len(RECOVERY) else "workflow"
    return BY_NUMBER.get(number, "workflow")


def entries(text: str) -> Iterator[dict[str, Any]]:
    """The lines of a journal, each a JSON object with a cursor; what is no line of it is passed over."""
    for line in text.split("\n"):
        try:
            entry = json.loads(line)
            str(entry["__CURSOR"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        if isinstance(entry, dict):
            yield entry


def event_of(entry: dict[str, Any]) -> tuple[str, int, str] | None:
    """The GPU, the XID and what it asks for, where a line of the journal tells of one."""
    found = LINE.search(message_of(entry))
    if found is None:
        return None
    number = int(found[2])
    return found[1].lower(), number, action_of(number, found[3])


def message_of(entry: dict[str, Any]) -> str:
    """What a line says. The journal has bytes where it is no UTF-8, as by the name of somebody's program."""
    message = entry.get("MESSAGE")
    with contextlib.suppress(TypeError, ValueError):
        return message if isinstance(message, str) else bytes(message or b"").decode(errors="replace")
    return ""


def counted(text: str, state: dict[str, Any]) -> dict[str, Any]:
    """The state after some lines of the journal."""
    cursor, counts = state.get("cursor", ""), dict(state.get("counts", {}))
    for entry in entries(text):
        cursor, event = str(entry["__CURSOR"]), event_of(entry)
        if event:
            key = " ".join(map(str, event))
            counts[key] = counts.get(key, 0) + 1
    return {"cursor": cursor, "counts": counts}


def metrics(state: dict[str, Any], now: float) -> str:
    """In Prometheus' text format."""
    lines = [f"# HELP {NAME} XIDs in the kernel's log, and what each asks for.", f"# TYPE {NAME} counter"]
    for key, count in sorted(state["counts"].items()):
        pci, number, action = key.split(" ")
        lines.append(f'{NAME}{{pci="{pci}",xid="{number}",action="{action}"}} {count}')
    lines += [f"# HELP {READ} When the log was last read.", f"# TYPE {READ} gauge", f"{READ} {int(now)}"]
    return "\n".join(lines) + "\n"


def read(file: Path) -> dict[str, Any]:
    """The state that was kept; none where there is none, or nonsense."""
    try:
        state = json.loads(file.read_text())
        counts = {str(key): int(count) for key, count in state["counts"].items() if len(key.split(" ")) == 3}
        return {"cursor": str(state["cursor"]), "counts": counts}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {"cursor": "", "counts": {}}


def journal(cursor: str) -> str:
    """The kernel's lines after a place, or all of this boot."""
    since = [f"--after-cursor={cursor}"] if cursor else ["--boot"]
    command = ["journalctl", "--dmesg", "--output=json", "--quiet", "--grep=NVRM: Xid", *since]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=PATIENCE_S, check=False
    )
    if done.returncode > 1 or done.stderr.strip():  # 1 without a word: no such line
        if cursor:  # the journal was emptied, and the place is gone
            return journal("")
        raise OSError(done.stderr.strip() or f"journalctl ended with {done.returncode}")
    return done.stdout


def write(folder: Path, name: str, text: str) -> None:
    """Whole or not at all, and through no link: the folder may be another user's, or become it meanwhile."""
    part, place = f".{name}.part", os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part, dir_fd=place)
        new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(part, new, 0o600, dir_fd=place), "w") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)
        os.replace(part, name, src_dir_fd=place, dst_dir_fd=place)
    finally:
        os.close(place)


def main(state_file: str, folder: str) -> None:
    """Read on, keep where and what, and tell."""
    kept = Path(state_file)
    state = read(kept)
    state = counted(journal(state["cursor"]), state)
    write(kept.parent, kept.name, json.dumps(state))
    write(Path(folder), "causeway_xid.prom", metrics(state, time.time()))


if __name__ == "__main__":
    main(*sys.argv[1:])
