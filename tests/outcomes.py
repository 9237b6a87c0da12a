"""What became of each test in earlier runs on this machine: which are flaky, and which need not run again.

Kept in the cache and never in the repository. A test is *flaky* that failed and passed with the same inputs,
until it has passed `CURED` times in a row.
"""

import fcntl
import hashlib
import json
import os
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests import declared
from tests.step_run import ROOT, Ended, Step

CURED = 20
IN_PART = " in part"
REMEMBERED = 10
"""Inputs kept per test, newest last."""


@dataclass
class History:
    """With which inputs a test passed and failed lately, and since when it has passed in a row."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    streak: int = 0
    flaky: bool = False

    def add(self, passed: bool, inputs: str) -> None:
        """Note one more outcome with these inputs."""
        mine, other = (self.passed, self.failed) if passed else (self.failed, self.passed)
        if inputs in mine:
            mine.remove(inputs)
        mine.append(inputs)
        del mine[:-REMEMBERED]
        self.flaky = self.flaky or inputs in other
        self.streak = self.streak + 1 if passed else 0
        if self.streak >= CURED:
            self.flaky, self.failed = False, []


class Outcomes:
    """The history of every test, by its name: pytest's node ID, or the step's name where that is one test."""

    def __init__(
        self, tests: dict[str, History], steps: dict[str, str], took_s: dict[str, float] | None = None
    ) -> None:
        self.tests = tests
        self.steps = steps
        """Step → the inputs with which it passed last of all; with `IN_PART` where tests were left out."""
        self.took_s = took_s or {}
        """Step → the seconds that it took when it passed last."""

    def add(self, ended: Ended, inputs: str) -> None:
        """Note how a step and each test in it ended, unless the run was ended meanwhile."""
        if ended.interrupted:
            return
        for name, passed in _tests_of(ended):
            self.tests.setdefault(name, History()).add(passed, inputs)
        if ended.passed:
            self.steps[ended.step.name] = inputs + IN_PART * bool(ended.left_out)
            self.took_s[ended.step.name] = round(ended.took_s, 1)
        else:
            self.steps.pop(ended.step.name, None)

    def flaky(self) -> list[str]:
        """What to tell of each flaky test, by name."""
        return [
            f"{name}: failed and passed with the same inputs; {test.streak} of {CURED} passes in a row since"
            for name, test in sorted(self.tests.items())
            if test.flaky
        ]


@contextmanager
def kept(file: Path) -> Iterator[Outcomes]:
    """The outcomes in `file`, if it exists; written back at the end. One run at a time has them."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        outcomes = _read(file)
        yield outcomes
        fresh = file.with_suffix(".new")
        tests = {name: asdict(test) for name, test in sorted(outcomes.tests.items())}
        fresh.write_text(json.dumps({"tests": tests, "steps": outcomes.steps, "took_s": outcomes.took_s}))
        fresh.replace(file)


def _read(file: Path) -> Outcomes:
    try:
        said = json.loads(file.read_text())
        tests = {name: History(**test) for name, test in said["tests"].items()}
        return Outcomes(tests, dict(said["steps"]), dict(said.get("took_s", {})))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # none yet, or of another version
        return Outcomes({}, {})


def _tests_of(ended: Ended) -> Iterator[tuple[str, bool]]:
    """Each test of a step that pytest ran, and whether it passed; else the step itself."""
    try:
        cases = list(ElementTree.parse(ended.step.results).iter("testcase"))  # noqa: S314 - pytest wrote it
    except (OSError, ElementTree.ParseError):
        cases = []
    for case in cases:
        if case.find("skipped") is None:
            bad = case.find("failure") is not None or case.find("error") is not None
            yield f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}", not bad
    if not cases:
        yield ended.step.name, ended.passed


class Inputs:
    """Digests of what a step's outcome may depend on: the working tree, tools, kernel and machine.

    The lock and what the node image is made of are part of the tree.
    """

    def __init__(self, root: Path = ROOT) -> None:
        names = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root, check=True, stdout=subprocess.PIPE,
        ).stdout.split(b"\0")  # fmt: skip
        self.files = {os.fsdecode(name): _digest(root / os.fsdecode(name)) for name in filter(None, names)}
        self.around = list(_surroundings())

    def of(self, reads: tuple[str, ...] = ()) -> str:
        """For a step that READS the files of these patterns; without any, the whole tree."""
        files = [[name, self.files[name]] for name in sorted(declared.part(self.files, reads))]
        return hashlib.sha256(json.dumps([files, self.around]).encode()).hexdigest()[:16]


def _digest(path: Path) -> str:
    content = os.fsencode(path.readlink()) if path.is_symlink() else _content(path)
    return hashlib.sha256(content).hexdigest()


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes() + (b"x" if path.stat().st_mode & 0o100 else b"-")
    except OSError:  # deleted, and not committed yet
        return b"gone"


def _surroundings() -> Iterable[str]:
    yield from os.uname()
    yield os.environ.get("VIRTUAL_ENV", "")
    for status in ("/var/lib/dpkg/status", "/etc/os-release"):
        yield hashlib.sha256(_content(Path(status))).hexdigest()


def unchanged(steps: list[Step], outcomes: Outcomes, inputs: Inputs, *, long: bool = True) -> list[Step]:
    """The steps that passed last with these very inputs. One that measures time has to run again.

    LONG: a step of which tests were left out then has not passed.
    """

    def passed(step: Step) -> bool:
        these = inputs.of(step.reads)
        return outcomes.steps.get(step.name) in ((these,) if long else (these, these + IN_PART))

    return [step for step in steps if not step.alone and passed(step)]
