"""Runs the project's tests: `./run test [quick|STEP|ROLE|CAPABILITY…]`, `./run test list`.

A step is one command with a log of its own; a test file that needs nodes is a step, and so is a molecule
scenario. Three steps run at a time, the quick ones first, then the longest. At the end stand where the
minutes went, which tests are flaky, and what failed.

Without a word, what takes long is left out: experiments with the mark `long`, the scenarios `alternative`,
and virtual machines, unless KVM is known to work. The run says what. Who names a step, a role or a capability
has all of it, and `--long` runs everything.

Exit status: 0 all passed, 1 a step failed, 2 no such step.
"""

import argparse
import asyncio
import difflib
import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from infra import capabilities
from infra.inventory.roles import roles_within
from infra.providers.local import vms
from tests import leftovers, minutes, outcomes, seed
from tests.step_run import AT_ONCE, LOGS, ROOT, Run, Step

LINT_OPTIONS = ("--offline", "--nocolor", "-q", "--strict", "--profile", "production")
PYTEST = ("python", "-m", "pytest", "-p", "no:cacheprovider")
MOLECULE = ("python", "-m", "tests.molecule.quick")
OUTCOMES = Path(os.environ.get("CAUSEWAY_CACHE", "~/.cache/causeway")).expanduser() / "test-outcomes.json"
KIND_FOLDERS = tuple(str(folder.relative_to(ROOT)) for folder in sorted(ROOT.glob("roles/*/drift")))
QUICK = (
    Step("ruff-check", ("ruff", "check", ".")),
    Step("ruff-format", ("ruff", "format", "--check", "--diff", ".")),
    Step(
        "mypy",
        ("mypy", "--strict", "--explicit-package-bases", "infra", "__main__.py", "tests", *KIND_FOLDERS),
    ),
    Step("yamllint", ("yamllint", "--strict", ".")),
    Step("ansible-lint", ("python", "-m", "tests.lint", *LINT_OPTIONS)),
)
QUICK_TESTS = ("unit", "components", "golden", "repo")
# Everything else that runs stands on it.
NODE_IMAGE = Step("node-image", ("python", "-m", "infra.providers.local.image"), quick=False, ground=True)
PROVES = re.compile(r"^PROVES = \((.*?)\)", re.MULTILINE | re.DOTALL)
"""How a test file says which roles and capabilities it proves."""
FEATURE = re.compile(r"\bfeature_(\w+)")
"""How a scenario says which roles it applies."""
ALL_LONG = re.compile(r"^pytestmark = pytest\.mark\.long$", re.MULTILINE)
"""How a test file says that all of it is a long experiment."""
LARGER_PAGES = Path("/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled")
ALONE = ("test_local_engine", "test_wan")
"""Test files that compare rates and round trips with what is declared: no other load beside them. They come
last, so that the run is drained once."""
EMULATES = ("test_vm",)
"""Test files that emulate machines. Alone a third of the CPU had nothing to do: while an image is built, and
while one machine boots."""
LONG = {
    **{"integration-vm": 900, "integration-storage": 1980, "integration-monitoring": 800},
    **{"integration-default-stack": 740, "integration-drift-truth": 490, "integration-drift": 440},
    **{"integration-existing": 360, "integration-consul": 360, "integration-stack": 320},
    **{"integration-existing-wan": 550, "molecule-ceph-alternative": 470, "integration-getting-in": 270},
    **{"integration-watch": 220, "integration-survival": 200, "molecule-ceph-default": 190},
    **{"integration-leave": 190, "integration-older-stack": 230, "integration-image": 140},
}
"""Seconds that the longest steps take beside others, where no earlier run on this machine has told; storage's
are those with its long experiments."""
LARGE = tuple(
    f"integration-{name}" for name in ("default-stack", "existing", "storage", "consul", "monitoring")
)
"""Steps with many nodes, or with daemons that are never idle."""
GUESS_S = 120
"""What a step is taken to last of which nothing is known."""
TOOLS = re.compile(r"^TOOLS = \((.*?)\)", re.MULTILINE)
"""How a test file says which programs it needs that no package brings: ./run obtains them meanwhile, and such
steps come late."""
CAPABILITIES = Path(capabilities.__file__).parent
MOLECULE_CONFIG = ROOT / "tests" / "molecule" / "config.yml"


def all_steps() -> list[Step]:
    """Every step there is, in the order in which they start."""
    folders = [name for name in QUICK_TESTS if any((ROOT / "tests" / name).rglob("test_*.py"))]
    quick_tests = [Step(name, (*PYTEST, f"tests/{name}")) for name in folders]
    nodes = [*_molecule_steps(), *_test_files("integration"), *_test_files("bench")]
    return [NODE_IMAGE, *quick_tests, *QUICK, *sorted(nodes, key=_turn)]


def _turn(step: Step) -> int:
    """Where a step stands among those that need nodes."""
    return 2 if step.alone else 1 if step.late else 0


def longest_first(steps: list[Step], took_s: Mapping[str, float], *, obtained: bool) -> list[Step]:
    """The steps in an order that leaves no long one for the end; `took_s` is what they took in earlier runs.

    Steps that need no nodes and those that are alone keep their places; before all of them comes what
    emulates machines. `obtained`: what the late ones need is there already, so they are like any other.
    """

    def turn(step: Step) -> tuple[int, float]:
        if step.emulates:
            return -2, 0
        if step.quick or step.ground:
            return -1, 0
        if step.alone:
            return _turn(step), 0
        return _turn(step) * (not obtained), -took_s.get(step.name, LONG.get(step.name, GUESS_S))

    return sorted(steps, key=turn)


def tools_are_obtained() -> bool:
    """Whether all that no package brings lies in the cache."""
    lines = [line.split() for file in CAPABILITIES.glob("*/tools") for line in file.read_text().splitlines()]
    return all(_is_obtained(name, *place.split(":")) for name, _, place, *_ in lines if name[0] != "#")


def _is_obtained(tool: str, file: str, key: str) -> bool:
    version = re.search(rf"^{key}: (\S+)", (CAPABILITIES.parents[1] / file).read_text(), re.MULTILINE)
    return version is not None and (OUTCOMES.parent / f"{tool}-{version[1]}" / tool).exists()


def _molecule_steps() -> Iterator[Step]:
    config = ("-c", str(MOLECULE_CONFIG)) if MOLECULE_CONFIG.exists() else ()
    for scenario in sorted(ROOT.glob("roles/*/molecule/*/molecule.yml")):
        role, name = scenario.parents[2], scenario.parent.name
        tried = tuple(dict.fromkeys((role.name, *FEATURE.findall(scenario.read_text()))))
        command = (*MOLECULE, *config, "test", "-s", name)
        yield Step(
            f"molecule-{role.name}-{name}",
            command,
            quick=False,
            long=name != "default",
            folder=role,
            proves=tried,
            late=bool(roles_with_tools() & set(tried)),
            reads=_read_by_a_scenario(tried),
        )


def roles_with_tools() -> set[str]:
    """The roles of capabilities that need programs which no package brings."""
    return {role for role, name in capabilities.owners().items() if (CAPABILITIES / name / "tools").exists()}


def _read_by_a_scenario(roles: tuple[str, ...]) -> tuple[str, ...]:
    """A scenario reads its roles, those they use, and what stands below all; of others, kinds of drift."""
    used = (f"roles/{each}/" for each in sorted({name for role in roles for name in roles_within(role)}))
    below = ("infra/", "playbooks/", "roles/*/drift/", "tests/molecule/", "tests/verify/*.py")
    return (*used, *below, *(f"tests/verify/{role}/" for role in roles))


def _test_files(kind: str) -> Iterator[Step]:
    for path in sorted((ROOT / "tests" / kind).glob("test_*.py")):
        name = f"{kind}-{path.stem.removeprefix('test_').replace('_', '-')}"
        command = (*PYTEST, "-v", str(path.relative_to(ROOT)))
        alone = kind == "bench" or path.stem in ALONE
        text, emulates = path.read_text(), path.stem in EMULATES
        late = bool(TOOLS.search(text))
        yield Step(
            name,
            command,
            quick=False,
            long=bool(ALL_LONG.search(text)) or (emulates and vms.known_accelerator() != "kvm"),
            alone=alone,
            emulates=emulates,
            large=name in LARGE,
            late=late,
            proves=proven_by(path),
        )


def proven_by(path: Path) -> tuple[str, ...]:
    """The roles and capabilities that a test file says it proves, read without importing it."""
    said = PROVES.search(path.read_text())
    return tuple(re.findall(r"\"([^\"]+)\"", said.group(1))) if said else ()


def chosen(words: list[str], *, long: bool = False) -> list[Step]:
    """The steps that the command line's words name, in order; all without a word.

    LONG: without a word, also those that take long.

    Raises ValueError for a word that names none.
    """
    steps = all_steps()
    if not words:
        return [step for step in steps if long or not step.long]
    known = {word for step in steps for word in (step.name, *step.proves)} | {"quick"}
    for word in words:
        if word not in known:
            near = difflib.get_close_matches(word, sorted(known), n=1)
            raise ValueError(f"no step '{word}'" + (f"; did you mean {near[0]}?" if near else ""))
    wanted = set(words)
    picked = [
        step for step in steps if wanted & {step.name, *step.proves} or ("quick" in wanted and step.quick)
    ]
    if any(not step.quick for step in picked) and NODE_IMAGE not in picked:
        picked.insert(0, NODE_IMAGE)
    return picked


def repeated(steps: list[Step], times: int) -> list[Step]:
    """All steps once, then all of them again, and so on; the node image is needed only once."""
    again = [step for step in steps if step != NODE_IMAGE]
    return [*steps, *(replace(step, turn=turn) for turn in range(2, times + 1) for step in again)]


def _options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./run test", allow_abbrev=False, description="Run the project's tests."
    )
    parser.add_argument("words", nargs="*", metavar="quick|STEP|ROLE|CAPABILITY", help="default: all steps")
    parser.add_argument("--changed", action="store_true", help="skip what passed with the same inputs")
    parser.add_argument(
        "--long", action="store_true", help="run long experiments, too, where no step is named"
    )
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="run each step N times")
    parser.add_argument("--burn", type=int, default=0, metavar="N", help="keep N cores busy meanwhile")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, metavar="N", help="steps beside each other")
    parser.add_argument("--seed", type=int, metavar="N", help="what generated tests begin with")
    return parser.parse_args(words)


@contextmanager
def _only_run() -> Iterator[None]:
    """One run at a time in a checkout: its steps have fixed names for logs and stacks."""
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError("another test run goes on in this checkout") from None
        yield


@contextmanager
def _burners(count: int) -> Iterator[None]:
    """Busy loops that end with us, however that comes about."""
    loop = ("setpriv", "--pdeathsig", "KILL", "sh", "-c", "while :; do :; done")
    started = [subprocess.Popen(loop) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextmanager
def larger_pages(setting: Path = LARGER_PAGES) -> Iterator[None]:
    """Have the kernel give out memory by 64 KiB, where it can, until we end.

    A fifth of a run's CPU was the kernel's, most of it page faults of processes that fork.
    """
    try:
        before = re.findall(r"\[(\w+)\]", setting.read_text())
        setting.write_text("always")
    except OSError:  # a kernel before 6.8, or not root
        before = []
    try:
        yield
    finally:
        for word in before:
            setting.write_text(word)


async def _main(run: Run) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, run.interrupt)
    await run.all()
    await asyncio.gather(*run.ending)


def _run(steps: list[Step], options: argparse.Namespace) -> int:
    """Run the steps; print what it cost, what is flaky, and what failed. 1 if anything did."""
    inputs, long = outcomes.Inputs(), options.long or bool(options.words)
    with outcomes.kept(OUTCOMES) as known:
        same = outcomes.unchanged(steps, known, inputs, long=long) if options.changed else []
        steps = longest_first(steps, known.took_s, obtained=tools_are_obtained())
    if same:
        print(f"unchanged since they passed: {', '.join(step.name for step in same)}")
    for line in leftovers.clear():
        print(line)
    if left := [] if long else [step.name for step in all_steps() if step.long]:
        print(f"left out (they run by name, or with --long): {', '.join(left)}")
    begun = seed.environment(options.seed)
    print(f"seed: {begun[seed.NAME]}")
    run = Run(
        repeated([step for step in steps if step not in same], options.repeat),
        {leftovers.MARK: leftovers.new_mark(), **begun},
        options.at_once,
        long=long,
    )
    started, used = time.monotonic(), minutes.Processors.now()
    with _burners(options.burn), larger_pages():
        asyncio.run(_main(run))
    print("", *minutes.table(run.ended), sep="\n")
    print(f"{(time.monotonic() - started) / 60:7.1f}  minutes from the first step to the last, set-up apart")
    print(minutes.Processors.now().since(used, run.ended))
    with outcomes.kept(OUTCOMES) as known:
        for ended in run.ended:
            known.add(ended, inputs.of(ended.step.reads))
        for line in known.flaky():
            print(f"flaky: {line}")
    run.report()
    return 1 if run.failed or run.waiting else 0


def main(words: list[str]) -> int:
    """Run the steps the words name; see the module's docstring for the exit status."""
    if words == ["list"]:
        for step in all_steps():
            print(f"{step.name:<40} {'quick' if step.quick else 'full ':<6} {' '.join(step.proves)}".rstrip())
        return 0
    options = _options(words)
    with ExitStack() as held:
        try:
            steps = chosen(options.words, long=options.long)
            held.enter_context(_only_run())
        except ValueError as error:
            print(f"error: {error}\n  → ./run test list shows the steps", file=sys.stderr)
            return 2
        return _run(steps, options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
