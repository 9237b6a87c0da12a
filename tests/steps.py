"""Runs the project's tests: `./run test [quick|STEP…]`, `./run test list`.

A step is one command with a log of its own; a test file that needs nodes is a step, and so is a molecule
scenario. Two steps run at a time, the quick ones first. Exit status: 0 all passed, 1 a step failed, 2 no such
step.
"""

import asyncio
import contextlib
import difflib
import os
import re
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / ".causeway" / "logs" / "tests"
AT_ONCE = 2
LIMIT_S = 2400  # a step that takes longer hangs
GRACE_S = 20  # for a step that is told to end: its fixtures take nodes down
SHOWN_LINES = 60
SHOWN_FAILURES, SHOWN_CHARACTERS = 10, 300
FAILURE = re.compile(r"^(FAILED|ERROR) tests/|fatal: \[|CRITICAL")
LINT_OPTIONS = ("--offline", "--nocolor", "-q", "--strict", "--profile", "production")
PYTEST = ("python", "-m", "pytest", "-p", "no:cacheprovider")


@dataclass(frozen=True)
class Step:
    """One command of the test run, and when and where it runs."""

    name: str
    command: tuple[str, ...]
    quick: bool = True
    """Needs no nodes, and is part of `./run test quick`."""
    alone: bool = False
    """Measures time, or changes what other steps stand on."""
    folder: Path = ROOT

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return LOGS / f"{self.name}.log"


QUICK = (
    Step("ruff-check", ("ruff", "check", ".")),
    Step("ruff-format", ("ruff", "format", "--check", "--diff", ".")),
    Step("mypy", ("mypy", "--strict", "--explicit-package-bases", "infra", "__main__.py", "tests")),
    Step("yamllint", ("yamllint", "--strict", ".")),
    # Without an inventory: the default one asks for a stack that stands.
    Step("ansible-lint", ("env", "ANSIBLE_INVENTORY=/dev/null", "ansible-lint", *LINT_OPTIONS)),
)
QUICK_TESTS = ("unit", "components", "golden", "repo")
# Everything else that runs stands on it.
NODE_IMAGE = Step("node-image", ("python", "-m", "infra.providers.local.image"), quick=False, alone=True)
ALONE = ("test_local_engine", "test_vm", "test_wan")
"""Test files that compare rates and round trips with what is declared, or emulate every instruction of two
machines: no other load beside them."""
LATE = ("consul", "existing-wan")
"""Parts of the names of steps that come last: ./run builds meanwhile the Consul that they need."""
MOLECULE_CONFIG = ROOT / "tests" / "molecule" / "config.yml"


def all_steps() -> list[Step]:
    """Every step there is, in the order in which they start."""
    folders = [name for name in QUICK_TESTS if any((ROOT / "tests" / name).rglob("test_*.py"))]
    quick_tests = [Step(name, (*PYTEST, f"tests/{name}")) for name in folders]
    nodes = [*_molecule_steps(), *_test_files("integration"), *_test_files("bench")]
    return [
        *QUICK,
        *quick_tests,
        NODE_IMAGE,
        *sorted(nodes, key=lambda step: any(word in step.name for word in LATE)),
    ]


def _molecule_steps() -> Iterator[Step]:
    config = ("-c", str(MOLECULE_CONFIG)) if MOLECULE_CONFIG.exists() else ()
    for scenario in sorted(ROOT.glob("roles/*/molecule/*/molecule.yml")):
        role, name = scenario.parents[2], scenario.parent.name
        command = ("molecule", *config, "test", "-s", name)
        yield Step(f"molecule-{role.name}-{name}", command, quick=False, folder=role)


def _test_files(kind: str) -> Iterator[Step]:
    for path in sorted((ROOT / "tests" / kind).glob("test_*.py")):
        name = f"{kind}-{path.stem.removeprefix('test_').replace('_', '-')}"
        command = (*PYTEST, "-v", str(path.relative_to(ROOT)))
        alone = kind == "bench" or path.stem in ALONE
        yield Step(name, command, quick=False, alone=alone)


def chosen(words: list[str]) -> list[Step]:
    """The steps that the command line's words name, in order; all without a word.

    Raises ValueError for a word that names none.
    """
    steps = all_steps()
    if not words:
        return steps
    names = [step.name for step in steps]
    for word in words:
        if word != "quick" and word not in names:
            near = difflib.get_close_matches(word, names, n=1)
            raise ValueError(f"no step '{word}'" + (f"; did you mean {near[0]}?" if near else ""))
    picked = [step for step in steps if step.name in words or ("quick" in words and step.quick)]
    if any(not step.quick for step in picked) and NODE_IMAGE not in picked:
        picked.insert(0, NODE_IMAGE)
    return picked


class Run:
    """One test run: which steps are under way, how each ended, and how to end them all early."""

    def __init__(self, steps: list[Step]) -> None:
        self.waiting = deque(steps)
        self.total = len(steps)
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.passed: list[Step] = []
        self.failed: list[Step] = []
        self.interrupted = False
        self.ending: list[asyncio.Future[None]] = []

    async def all(self) -> None:
        """Run the steps, `AT_ONCE` at a time, in order; a step marked `alone` beside no other."""
        running: dict[asyncio.Task[None], Step] = {}
        while running or (self.waiting and not self.interrupted):
            while self.waiting and not self.interrupted and self._may_start(list(running.values())):
                step = self.waiting.popleft()
                running[asyncio.create_task(self._one(step))] = step
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                del running[task]
                task.result()

    def _may_start(self, running: list[Step]) -> bool:
        if not running:
            return True
        alone = self.waiting[0].alone or any(step.alone for step in running)
        return not alone and len(running) < AT_ONCE

    async def _one(self, step: Step) -> None:
        print(f"       … {step.name}", flush=True)
        started = time.monotonic()
        with step.log.open("wb") as log:
            passed = await self._command(step, log.fileno())
        (self.passed if passed else self.failed).append(step)
        count = len(self.passed) + len(self.failed)
        verdict = "ok    " if passed else "FAILED"
        took_s = time.monotonic() - started
        print(f"{count:3}/{self.total:<3}  {verdict} {step.name}  {took_s:.1f} s", flush=True)

    async def _command(self, step: Step, log: int) -> bool:
        try:
            process = await asyncio.create_subprocess_exec(
                *step.command,
                cwd=step.folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that a signal reaches all that the step started
            )
        except OSError as error:
            os.write(log, f"{step.command[0]} does not start: {error}\n".encode())
            return False
        self.processes[step.name] = process
        try:
            return await asyncio.wait_for(process.wait(), LIMIT_S) == 0
        except TimeoutError:
            os.write(log, f"\nended: still running after {LIMIT_S} s\n".encode())
            await _end(process)
            return False
        finally:
            del self.processes[step.name]

    def interrupt(self) -> None:
        """Start no more steps and end those that run."""
        print("\nending the steps that run …", flush=True)
        self.interrupted = True
        self.ending += [asyncio.ensure_future(_end(process)) for process in self.processes.values()]

    def report(self) -> None:
        """Print the end of each failed step's log; at the very end, where nothing is cut off, what failed."""
        for step in self.failed:
            lines = step.log.read_text(errors="replace").splitlines()
            print(f"\n── {step.name}: {' '.join(step.command)}\n   {step.log.relative_to(ROOT)}")
            print("\n".join(f"   {line}" for line in lines[-SHOWN_LINES:]))
        if self.waiting:
            print(f"\nnot run: {', '.join(step.name for step in self.waiting)}")
        for step in self.failed:
            print(f"\nFAILED {step.name}", *failures(step.log), sep="\n   ")
        print(f"{len(self.passed)} passed, {len(self.failed)} failed", flush=True)


def failures(log: Path) -> list[str]:
    """What failed, from a step's log: pytest's summary, Ansible's tasks, Molecule's verdict."""
    lines = log.read_text(errors="replace").splitlines()
    return [line[:SHOWN_CHARACTERS] for line in lines if FAILURE.search(line)][-SHOWN_FAILURES:]


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


async def _main(steps: list[Step]) -> int:
    LOGS.mkdir(parents=True, exist_ok=True)
    run = Run(steps)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, run.interrupt)
    await run.all()
    await asyncio.gather(*run.ending)
    run.report()
    return 1 if run.failed or run.waiting else 0


def main(words: list[str]) -> int:
    """Run the steps the words name; see the module's docstring for the exit status."""
    if words == ["list"]:
        for step in all_steps():
            print(f"{step.name:<40} {'quick' if step.quick else 'full'}")
        return 0
    try:
        steps = chosen(words)
    except ValueError as error:
        print(f"error: {error}\n  → ./run test list shows the steps", file=sys.stderr)
        return 2
    return asyncio.run(_main(steps))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
