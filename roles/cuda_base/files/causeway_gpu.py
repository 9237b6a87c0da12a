"""Persistence, power cap and parts of this node's GPUs, as /etc/causeway/gpu.json has them.

    causeway_gpu.py apply   sets what is set otherwise, and says what that was; none of it outlives a boot
    causeway_gpu.py check   how each GPU is set, a line each, for the watch over drift

Looks first, so that it may be run again; what is in use is not taken apart.
"""

from __future__ import annotations

import fcntl
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SETTINGS = Path("/etc/causeway/gpu.json")
LOCK = Path("/run/causeway-gpu.lock")
LIMIT_S = 12
"""Longest that all the questions of one run may take: a scan ends a look after 20 s."""
SOON_S = 0.1
WATT = 1
"""A cap is as declared where it differs by less: a driver may round it."""
FIELDS = "index,persistence_mode,power.limit,mig.mode.current"
PART = re.compile(r"^\s+MIG (\S+)\s+Device")
GPU = re.compile(r"^GPU (\d+):")


class RefusedError(Exception):
    """What the driver does not do, in its own words."""


@dataclass(frozen=True)
class Gpu:
    """How one GPU is set; None for what it does not have."""

    index: int
    persistence: bool | None
    cap_w: float | None
    divided: bool | None


class Driver:
    """nvidia-smi, asked within one deadline."""

    def __init__(self) -> None:
        self.until = time.monotonic() + LIMIT_S

    def ask(self, *words: str) -> str:
        """What it answers. RefusedError where it complains, or says nothing in time.

        One that hangs in the driver cannot be ended. It keeps the lock, so that no second one comes to it.
        """
        late = RefusedError(f"nvidia-smi gives no answer within {LIMIT_S} s")
        with LOCK.open("w") as lock:
            while not taken(lock.fileno()):
                if time.monotonic() > self.until:
                    raise late
                time.sleep(SOON_S)
            asked = subprocess.Popen(
                ("nvidia-smi", *words),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                pass_fds=[lock.fileno()],
            )
            try:
                said, _ = asked.communicate(timeout=max(self.until - time.monotonic(), SOON_S))
            except subprocess.TimeoutExpired:
                asked.kill()  # and not waited for
                raise late from None
        return answer(words, asked.returncode, said)

    def gpus(self) -> list[Gpu]:
        """How each GPU is set, but for its parts."""
        rows = self.ask(f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits").splitlines()
        return [gpu_of([word.strip() for word in row.split(",")]) for row in rows if row.strip()]

    def parts(self) -> dict[int, list[str]]:
        """GPU → the profiles of its parts."""
        found: dict[int, list[str]] = {}
        current = -1
        for line in self.ask("--list-gpus").splitlines():
            if gpu := GPU.match(line):
                current = int(gpu[1])
                found[current] = []
            elif part := PART.match(line):
                found[current].append(part[1])
        return found


def taken(handle: int) -> bool:
    """Whether the lock is ours."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def answer(words: tuple[str, ...], status: int, said: str) -> str:
    """What nvidia-smi printed; RefusedError with what it complained of."""
    if status:
        last = (said.strip().splitlines() or ["no word"])[-1]
        raise RefusedError(f"nvidia-smi {' '.join(words)} ended with {status}: {last}")
    return said


def gpu_of(fields: list[str]) -> Gpu:
    """A GPU, of what is said of it. ValueError for a line of another form."""
    index, persistence, limit, mode = fields
    on = {"Enabled": True, "Disabled": False}
    watts = float(limit) if re.fullmatch(r"\d+(\.\d+)?", limit) else None
    return Gpu(int(index), on.get(persistence), watts, on.get(mode))


def change(what: str, *words: str) -> None:
    """Have nvidia-smi change something, which takes as long as it takes; say so."""
    argv = ("nvidia-smi", *words)
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    answer(words, done.returncode, done.stdout)
    print(what)


def persist(wanted: bool) -> None:
    """Have the driver stay loaded between jobs, or not."""
    for gpu in Driver().gpus():
        if gpu.persistence is not None and gpu.persistence is not wanted:
            word = "on" if wanted else "off"
            change(f"GPU {gpu.index}: persistence {word}", *of(gpu), f"--persistence-mode={int(wanted)}")


def cap(watts: float) -> None:
    """Give every GPU this cap. Without one each keeps what it has."""
    for gpu in Driver().gpus() if watts else ():
        if gpu.cap_w is None or abs(gpu.cap_w - watts) >= WATT:
            change(f"GPU {gpu.index}: power cap {watts:g} W", *of(gpu), f"--power-limit={watts:g}")


def of(gpu: Gpu) -> tuple[str, str]:
    """The words that mean one GPU."""
    return "--id", str(gpu.index)


def switch(gpu: Gpu, on: bool) -> None:
    """Divide a GPU, or make it whole. It may say that it will only after a reset."""
    word = "divided" if on else "whole"
    change(f"GPU {gpu.index}: {word}", *of(gpu), f"--multi-instance-gpu={int(on)}")
    if any(now.index == gpu.index and now.divided is not on for now in Driver().gpus()):
        raise RefusedError(f"GPU {gpu.index} is {word} only after a reset: drain the node, and reboot it")


def divide(wanted: list[str]) -> None:
    """Give every GPU exactly these parts; none means that it is whole."""
    for gpu in Driver().gpus():
        if wanted and gpu.divided is None:
            raise RefusedError(f"GPU {gpu.index} cannot be divided")
        if bool(wanted) != bool(gpu.divided):
            if gpu.divided:
                _take_apart(gpu)
            switch(gpu, bool(wanted))
        if wanted and Driver().parts()[gpu.index] != wanted:
            _take_apart(gpu)
            words = ("mig", *of(gpu), "--create-gpu-instance", ",".join(wanted), "-C")
            change(f"GPU {gpu.index}: parts {', '.join(wanted)}", *words)


def _take_apart(gpu: Gpu) -> None:
    if Driver().parts()[gpu.index]:
        change(f"GPU {gpu.index}: compute instances gone", "mig", *of(gpu), "--destroy-compute-instance")
        change(f"GPU {gpu.index}: instances gone", "mig", *of(gpu), "--destroy-gpu-instance")


def apply(wanted: dict[str, Any]) -> None:
    """All of it, each for itself; RefusedError with all that was refused.

    A driver that is not to stay loaded forgets a cap between jobs: whether it stays comes first.
    """
    steps: list[Callable[[], None]] = [
        lambda: persist(wanted["persistence"]),
        lambda: cap(wanted["power_cap_w"]),
        lambda: divide([wanted["mig_profile"]] * wanted["mig_count"]),
    ]
    refused = []
    for step in steps:
        try:
            step()
        except RefusedError as error:
            refused.append(str(error))
    if refused:
        raise RefusedError("; ".join(refused))


def check(wanted: dict[str, Any]) -> None:
    """A line for each GPU. Where no cap is declared it is not ours."""
    driver = Driver()
    gpus = driver.gpus()
    parts = driver.parts() if any(gpu.divided for gpu in gpus) else {}
    for gpu in gpus:
        said = [] if gpu.persistence is None else [f"persistence {'on' if gpu.persistence else 'off'}"]
        if wanted["power_cap_w"]:
            said.append("no power cap" if gpu.cap_w is None else f"power cap {gpu.cap_w:g} W")
        said.append(f"parts {', '.join(parts.get(gpu.index, ())) or 'none'}" if gpu.divided else "whole")
        print(f"GPU {gpu.index}: {', '.join(said)}")


def main(verb: str) -> None:
    """The program."""
    {"apply": apply, "check": check}[verb](json.loads(SETTINGS.read_text()))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (RefusedError, OSError, KeyError, ValueError) as error:
        sys.exit(str(error))
