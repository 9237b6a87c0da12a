"""Power cap and parts of this node's GPUs, as /etc/causeway/gpu.json has them; neither outlives a boot.

    causeway_gpu.py apply

Looks first, so that it may be run again; what is in use is not taken apart.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

SETTINGS = Path("/etc/causeway/gpu.json")
PART = re.compile(r"^\s+MIG (\S+)\s+Device")
GPU = re.compile(r"^GPU (\d+):")


class RefusedError(Exception):
    """What the driver does not do, in its own words."""


def smi(*words: str) -> str:
    """What nvidia-smi prints; RefusedError with what it complained of."""
    done = subprocess.run(("nvidia-smi", *words), capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines() or ["no word"]
        raise RefusedError(f"nvidia-smi {' '.join(words)} ended with {done.returncode}: {said[-1]}")
    return done.stdout


def modes() -> dict[int, bool | None]:
    """GPU → whether it is divided; None where it cannot be."""
    rows = smi("--query-gpu=index,mig.mode.current", "--format=csv,noheader").splitlines()
    words = (row.split(", ") for row in rows)
    return {int(index): {"Enabled": True, "Disabled": False}.get(mode.strip()) for index, mode in words}


def parts() -> dict[int, list[str]]:
    """GPU → the profiles of its parts."""
    found: dict[int, list[str]] = {}
    current = -1
    for line in smi("--list-gpus").splitlines():
        if gpu := GPU.match(line):
            current = int(gpu[1])
            found[current] = []
        elif part := PART.match(line):
            found[current].append(part[1])
    return found


def switch(index: int, on: bool) -> None:
    """Divide a GPU, or make it whole. It may say that it will only after a reset."""
    smi("--id", str(index), f"--multi-instance-gpu={int(on)}")
    if modes()[index] is not on:
        word = "divided" if on else "whole"
        raise RefusedError(f"GPU {index} is {word} only after a reset: drain the node, and reboot it")


def divide(wanted: list[str]) -> None:
    """Give every GPU exactly these parts; none means that it is whole."""
    for index, mode in modes().items():
        if wanted and mode is None:
            raise RefusedError(f"GPU {index} cannot be divided")
        if bool(wanted) != bool(mode):
            if mode:
                _take_apart(index)
            switch(index, bool(wanted))
        if wanted and parts()[index] != wanted:
            _take_apart(index)
            smi("mig", "--id", str(index), "--create-gpu-instance", ",".join(wanted), "-C")


def _take_apart(index: int) -> None:
    if parts()[index]:
        smi("mig", "--id", str(index), "--destroy-compute-instance")
        smi("mig", "--id", str(index), "--destroy-gpu-instance")


def main() -> None:
    """The program."""
    wanted: dict[str, Any] = json.loads(SETTINGS.read_text())
    if wanted["power_cap_w"]:
        smi(f"--power-limit={wanted['power_cap_w']:g}")
    divide([wanted["mig_profile"]] * wanted["mig_count"])


if __name__ == "__main__":
    try:
        main()
    except (RefusedError, OSError, KeyError, ValueError) as error:
        sys.exit(str(error))
