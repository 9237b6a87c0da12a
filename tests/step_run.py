"""Runs steps: which may run beside each other, how each ended, and how to end them all early."""

import asyncio
import contextlib
import itertools
import os
import re
import resource
import signal
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests import declared

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / ".causeway" / "logs" / "tests"
AT_ONCE = 3
"""Of two cores: a step waits for a part of its time, for services to start and for peers to answer. With more
at a time more stacks stand, whose daemons take their part, and whoever waits looks more often."""
LARGE_AT_ONCE = 2
"""Of those whose services work all the time: the longer each stands, the more of that is for nothing."""
LIMIT_S = 3600  # a step that takes longer hangs: the longest takes half of it, on a busy machine
GRACE_S = 20  # for a step that is told to end: its fixtures take nodes down
SHOWN_LINES = 60
SHOWN_FAILURES, SHOWN_CHARACTERS = 20, 300
SHOWN_WORDS, SHOWN_OF_ONE = 30, 14
"""Lines of what tests said that failed: of all together, and of one of them."""
FAILURE = re.compile(r"^(FAILED|ERROR) tests/|fatal: \[|CRITICAL|^E? *(failed|unreachable) {2,}\S.*: ")
STALL_LOOK_S, STALL_S = 1, 5
COLOUR = r"\x1b\[[\d;]*m|\[(?:0|\d;\d+)m"
DRESS = re.compile(rf"^(?:{COLOUR}| )*│(?:{COLOUR})* ?|{COLOUR}")
"""Colours, those of a playbook in a playbook too, and the frame that Molecule draws around one."""
NEXT = re.compile(r"(TASK|PLAY|RUNNING HANDLER|NO MORE HOSTS)\b")
"""How what Ansible prints of a task ends; an inner playbook's is further in."""
TOLD = re.compile(r"    (msg|stderr|stdout|exception): *(\S.*)?$")
"""Begins what a task said, among what Ansible knows of it."""
NOTHING = ("''", "non-zero return code")
REASON = re.compile(r"\b(failed|unreachable|changed:|missing|left behind|not sealed|[Ee]rror|ERROR)\b")
REASON_LINES = 10
"""Shown of what a failed task said; of a longer text from the first line that may say why."""


@dataclass(frozen=True)
class Step:
    """One command of the test run, when and where it runs, and what it proves."""

    name: str
    command: tuple[str, ...]
    quick: bool = True
    """Needs no nodes, and is part of `./run test quick`."""
    long: bool = False
    """Takes long, and is part of a run where somebody names it or asks for all there is."""
    alone: bool = False
    """Measures time, or takes all that a machine has."""
    emulates: bool = False
    """Emulates every instruction of two machines: takes the place of two steps, and begins as the first,
    while the others are one process each."""
    large: bool = False
    """Has a cluster whose services work all the time, whether a test looks or not."""
    late: bool = False
    """Needs what is still being obtained while the first steps run."""
    ground: bool = False
    """What every step that needs nodes stands on."""
    folder: Path = ROOT
    proves: tuple[str, ...] = ()
    """The roles and capabilities that fail here when they are broken."""
    reads: tuple[str, ...] = ()
    """Patterns of the files of the checkout that its outcome depends on; empty: any of them."""
    turn: int = 1
    """The how manieth run of this step it is, where it is repeated."""

    @property
    def label(self) -> str:
        """Its name in the run: with the turn from the second on."""
        return self.name if self.turn == 1 else f"{self.name}.{self.turn}"

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return LOGS / f"{self.label}.log"

    @property
    def durations(self) -> Path:
        """Where Ansible notes what its tasks took: a JSON line per playbook."""
        return LOGS / f"{self.label}.durations"

    @property
    def opened(self) -> Path:
        """Where is noted which files of the checkout it read."""
        return LOGS / f"{self.label}.opened"

    @property
    def results(self) -> Path:
        """Where pytest notes what became of each test."""
        return LOGS / f"{self.label}.xml"


@dataclass(frozen=True)
class Ended:
    """How a step ended, and what it took."""

    step: Step
    passed: bool
    took_s: float
    interrupted: bool = False
    """Did not pass because the run was ended: that says nothing of the step."""
    cpu_s: float = 0.0
    """CPU seconds of its processes: of the one that we started, and of all that were waited for below it. Not
    what runs in nodes, and nothing that was left to itself, such as podman's monitors."""
    left_out: int = 0
    """Tests of it that were not asked for."""


@dataclass(frozen=True)
class Stall:
    """A while in which the machine gave nobody time, or its disk took nothing: seconds, and when it ended."""

    of: str
    took_s: float
    ended: float = field(default_factory=time.time)

    def __str__(self) -> str:
        at = time.strftime("%H:%M:%S", time.localtime(self.ended))
        return f"{self.of} stood still for {self.took_s:.0f} s until {at}"


class Stalls:
    """Watches for stalls beside the steps: what failed by its time limit in one of them is not to blame."""

    def __init__(self) -> None:
        self.seen: list[Stall] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._over.wait(STALL_LOOK_S):
            asked = time.monotonic()
            self._note("the processor", asked - before - STALL_LOOK_S)
            with tempfile.TemporaryFile(dir=LOGS) as file:
                file.write(b"?")
                file.flush()
                os.fsync(file.fileno())
            before = time.monotonic()
            self._note("the disk", before - asked)

    def _note(self, of: str, took_s: float) -> None:
        if took_s > STALL_S:
            self.seen.append(Stall(of, took_s))


class Run:
    """One test run over steps, `at_once` at a time; `env` is added to each step's environment.

    LONG: with the tests of that mark, experiments that take long.
    """

    def __init__(
        self,
        steps: list[Step],
        env: Mapping[str, str] | None = None,
        at_once: int = AT_ONCE,
        *,
        long: bool = True,
    ) -> None:
        self.waiting = list(steps)
        self.long = long
        self.total = len(steps)
        self.env = dict(env or {})
        self.at_once = at_once
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.ended: list[Ended] = []
        self.interrupted = False
        self.stalls = Stalls()
        self.ending: list[asyncio.Future[None]] = []
        self._counted_s = _waited_for_s()

    @property
    def passed(self) -> list[Step]:
        """The steps that passed so far."""
        return [one.step for one in self.ended if one.passed]

    @property
    def failed(self) -> list[Step]:
        """The steps that failed so far."""
        return [one.step for one in self.ended if not one.passed]

    async def all(self) -> None:
        """Run the steps in order: the ground first, `alone` beside no other, none beside itself, and what
        emulates machines beside one."""
        with self.stalls:
            await self._all()

    async def _all(self) -> None:
        running: dict[asyncio.Task[None], Step] = {}
        while running or (self.waiting and not self.interrupted):
            while not self.interrupted and (step := self._next(list(running.values()))):
                self.waiting.remove(step)
                running[asyncio.create_task(self._one(step))] = step
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                del running[task]
                task.result()

    def _next(self, running: list[Step]) -> Step | None:
        """The first step that may start now. A step that runs already holds back its own next turn only."""
        names = {step.name for step in running}
        no_ground = any(step.ground for step in (*running, *self.waiting))
        ready = (
            step
            for step in self.waiting
            if step.name not in names
            and (step.quick or step.ground or not no_ground)
            and (not step.large or sum(one.large for one in running) < LARGE_AT_ONCE)
        )
        step = next(ready, None)
        if step is None or not running:
            return step
        alone = step.alone or any(one.alone for one in running)
        # What emulates machines is next once the ground is there, and finds its place.
        held = 2 * (no_ground and any(one.emulates for one in self.waiting))
        taken = held + sum(1 + one.emulates for one in (*running, step) if not (held and one.ground))
        return None if alone or taken > max(self.at_once, 1 + step.emulates) else step

    async def _one(self, step: Step) -> None:
        print(f"       … {step.label}", flush=True)
        started = time.monotonic()
        for stale in (step.durations, step.results, step.opened):
            stale.unlink(missing_ok=True)
        with step.log.open("wb") as log:
            passed = await self._command(step, log.fileno())
            if passed and (odd := declared.undeclared(step.opened, step.reads)):
                log.write(f"FAILED tests/steps.py - {declared.in_words(step.label, odd)}\n".encode())
                passed = False
        took_s, interrupted = time.monotonic() - started, self.interrupted and not passed
        ended = Ended(step, passed, took_s, interrupted, self._cpu_s(), left_out(step.log))
        self.ended.append(ended)
        verdict = "ok    " if passed else "FAILED"
        print(
            f"{len(self.ended):3}/{self.total:<3}  {verdict} {step.label}  {ended.took_s:.1f} s", flush=True
        )

    def _cpu_s(self) -> float:
        """CPU seconds of what ended since the last time: a step. Of two in the same moment one has both's."""
        before, self._counted_s = self._counted_s, _waited_for_s()
        return self._counted_s - before

    async def _command(self, step: Step, log: int) -> bool:
        command = step.command
        watched: Mapping[str, str] = {}
        if step.reads:
            watched = declared.environment(step.opened, os.environ.get("PYTHONPATH", ""))
        if "pytest" in command:
            fewer = () if self.long else ("-m", "not long")
            command = (*command, *fewer, f"--junit-xml={step.results}")
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=step.folder,
                env={**os.environ, **self.env, **watched, "CAUSEWAY_DURATIONS": str(step.durations)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that a signal reaches all that the step started
            )
        except OSError as error:
            os.write(log, f"{step.command[0]} does not start: {error}\n".encode())
            return False
        self.processes[step.label] = process
        if self.interrupted:  # while it was being started: `interrupt` did not know of it
            self._end_soon(process)
        try:
            return await asyncio.wait_for(process.wait(), LIMIT_S) == 0
        except TimeoutError:
            os.write(log, f"\nended: still running after {LIMIT_S} s\n".encode())
            await _end(process)
            return False
        finally:
            del self.processes[step.label]

    def interrupt(self) -> None:
        """Start no more steps and end those that run."""
        print("\nending the steps that run …", flush=True)
        self.interrupted = True
        for process in self.processes.values():
            self._end_soon(process)

    def _end_soon(self, process: asyncio.subprocess.Process) -> None:
        self.ending.append(asyncio.ensure_future(_end(process)))

    def report(self) -> None:
        """Print the end of each failed step's log; at the very end, where nothing is cut off, what failed."""
        for step in self.failed:
            lines = step.log.read_text(errors="replace").splitlines()
            print(f"\n── {step.label}: {' '.join(step.command)}\n   {step.log.relative_to(ROOT)}")
            print("\n".join(f"   {line[:SHOWN_CHARACTERS]}" for line in lines[-SHOWN_LINES:]))
        if self.waiting:
            print(f"\nnot run: {', '.join(step.label for step in self.waiting)}")
        print(*self.stalls.seen, sep="\n", end="\n" if self.stalls.seen else "")
        if left := sum(one.left_out for one in self.ended):
            print(f"{left} long experiments of these steps were left out: a step's name or --long has them")
        for step in self.failed:
            print(f"\nFAILED {step.label}", *failures(step.log), sep="\n   ")
        print(f"{len(self.passed)} passed, {len(self.failed)} failed", flush=True)


def left_out(log: Path) -> int:
    """How many of a step's tests were not asked for, as pytest says in its last lines."""
    said = re.findall(r"^=.*\b(\d+) deselected\b", log.read_text(errors="replace"), re.MULTILINE)
    return int(said[-1]) if said else 0


def failures(log: Path) -> list[str]:
    """What failed and why, by a step's log: what tests said, pytest's summary, tasks, scenarios, checks."""
    lines = [DRESS.sub("", line) for line in log.read_text(errors="replace").splitlines()]
    groups = itertools.groupby(lines, key=lambda line: line.startswith("E "))
    blocks = (list(block) for is_said, block in groups if is_said)
    # One line is in the summary as well, and failed checks are named by theirs.
    told = (block for block in blocks if len(block) > 1 and not any(map(FAILURE.search, block)))
    said = [line for block in told for line in block[:SHOWN_OF_ONE]]
    found: list[str] = []
    for number, line in enumerate(lines):
        if FAILURE.search(line):
            found.append(line.removeprefix("E ").strip())
        if "fatal: [" in line:
            found += _reasons(
                itertools.takewhile(lambda line: not NEXT.match(line), filter(str.strip, lines[number + 1 :]))
            )
    shown = said[:SHOWN_WORDS] + list(dict.fromkeys(found))[:SHOWN_FAILURES]
    return [line[:SHOWN_CHARACTERS] for line in shown]


def _reasons(block: Iterable[str]) -> list[str]:
    """Why a task failed: what it said, of all that Ansible prints of it."""
    said: list[str] = []
    inside = False
    for line in block:
        if re.match(r"    \w", line):
            told = TOLD.match(line)
            inside = told is not None and (told[2] not in NOTHING)
            said += [line] if inside else []
        elif inside:
            said.append(line)
    if any("Traceback" in line for line in said):
        return said[-REASON_LINES:]
    first = next((number for number, line in enumerate(said) if REASON.search(line)), 0)
    return said[min(first, max(len(said) - REASON_LINES, 0)) :][:REASON_LINES]


def _waited_for_s() -> float:
    """CPU seconds of all processes that this one has waited for, and that those have."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ask a step to end, then make it, then end what it left behind."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        _signal(process, number)
        try:
            await asyncio.wait_for(process.wait(), GRACE_S)
        except TimeoutError:
            continue
        break
    # A shell's background jobs ignore SIGINT, and outlive it.
    _signal(process, signal.SIGTERM)


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
