"""Where the minutes of a test run went: per step, per phase, per role, and the most expensive tasks.

Beside a step's minutes stand the CPU seconds of its own processes; what its nodes took is told for all steps
together, as the kernel keeps it (`Processors`).
"""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.step_run import Ended

TASKS_SHOWN = 10
PHASES = {
    "create.yml": "create",
    "verify.yml": "verify",
}
"""What a molecule scenario's playbook is for; `converge.yml` is two: the second time it is idempotence."""

NODES = Path("/sys/fs/cgroup/libpod_parent/cpu.stat")
"""What podman's containers have used, those that are gone too."""
MACHINE = Path("/proc/stat")
WORKING = (1, 2, 3, 6, 7)
"""Its columns of time in which a CPU did something: user, nice, system, interrupts. Guests are in user."""


@dataclass(frozen=True)
class Processors:
    """CPU seconds that were used since the machine was started: in nodes that are containers, and in all."""

    nodes_s: float
    machine_s: float

    @classmethod
    def now(cls) -> "Processors":
        """As the kernel has it."""
        columns = MACHINE.read_text().split("\n", 1)[0].split()
        machine_s = sum(int(columns[number]) for number in WORKING) / os.sysconf("SC_CLK_TCK")
        used = dict(map(str.split, NODES.read_text().splitlines() if NODES.exists() else ()))
        return cls(int(used.get("usage_usec", 0)) / 1_000_000, machine_s)

    def since(self, before: "Processors", ended: Iterable[Ended]) -> str:
        """What was used between, and by whom."""
        steps_s = sum(one.cpu_s for one in ended)
        nodes_s, machine_s = self.nodes_s - before.nodes_s, self.machine_s - before.machine_s
        return (
            f"{machine_s / 60:7.1f}  CPU-minutes of the machine: {steps_s / 60:.1f} steps' own processes,"
            f" {nodes_s / 60:.1f} nodes in containers, {(machine_s - steps_s - nodes_s) / 60:.1f} all else"
        )


def playbooks(file: Path) -> list[dict[str, Any]]:
    """What the callback `causeway_durations` noted of a step's playbooks, in order; [] if it ran none."""
    found = []
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:  # the last line of a killed run
            continue
    return found


def phases(ran: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Seconds per phase of a molecule scenario."""
    seconds: dict[str, float] = defaultdict(float)
    converged = False
    for one in ran:
        phase = PHASES.get(one["playbook"], "other")
        if one["playbook"] == "converge.yml":
            phase = "check mode" if one["check"] else "idempotence" if converged else "converge"
            converged = True
        if one["check"]:  # verify.yml runs it
            seconds["verify"] -= one["took_s"]
        seconds[phase] += one["took_s"]
    return dict(seconds)


def table(ended: Iterable[Ended]) -> list[str]:
    """The lines that a run prints at its end."""
    by_step = sorted(ended, key=lambda one: -one.took_s)
    roles: Counter[str] = Counter()
    tasks: Counter[tuple[str, str]] = Counter()
    lines = ["minutes  CPU s  step"]
    of_all: Counter[str] = Counter()
    for one in by_step:
        ran = playbooks(one.step.durations)
        for playbook in ran:
            for role, name, took_s in playbook["tasks"]:
                tasks[role, name] += took_s
                roles[role] += took_s
        scenario = one.step.name.startswith("molecule-")
        spent = phases(ran) if scenario else {}
        of_all.update(spent)
        lines.append(f"{one.took_s / 60:7.1f}{one.cpu_s:7.0f}  {one.step.label}{_in_brackets(spent)}")
    total_s = sum(one.took_s for one in by_step)
    lines.append(f"{total_s / 60:7.1f}  step-minutes in all")
    lines += _section("phase of the molecule scenarios", of_all.most_common())
    lines += _section("role", ((role or "(playbooks' own tasks)", s) for role, s in roles.most_common()))
    named = ((" : ".join(filter(None, task)), took_s) for task, took_s in tasks.most_common(TASKS_SHOWN))
    return [*lines, *_section("task", named)]


def _in_brackets(spent: dict[str, float]) -> str:
    return f"  ({', '.join(f'{phase} {took_s:.0f} s' for phase, took_s in spent.items())})" if spent else ""


def _section(title: str, rows: Iterable[tuple[str, float]]) -> Iterator[str]:
    listed = [f"{took_s / 60:7.1f}  {name}" for name, took_s in rows]
    if listed:
        yield from ("", f"minutes  {title}", *listed)
