"""The test run itself: what it counts, what it prints last, and that it leaves nothing running."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from infra.errors import CausewayError
from infra.providers.local import names
from infra.providers.local.daemons import command_line
from tests import declared, leftovers, minutes, outcomes, step_run, steps
from tests.integration import checkout
from tests.patience import wait_for
from tests.step_run import Ended, Run, Step


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Logs of the steps under test, away from those of the run this test is part of."""
    for module in (steps, step_run):
        monkeypatch.setattr(module, "ROOT", tmp_path)
        monkeypatch.setattr(module, "LOGS", tmp_path / "logs")
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


def run_all(*listed: Step) -> Run:
    """A run over these steps, at its end and reported."""
    run = Run(list(listed))
    asyncio.run(run.all())
    run.report()
    return run


class Same(outcomes.Inputs):
    """One digest, whatever a step declares."""

    def __init__(self, digest: str) -> None:
        self.digest = digest

    def of(self, reads: tuple[str, ...] = ()) -> str:
        return f"{self.digest}{''.join(reads)}"


def shell(name: str, script: str, *, alone: bool = False) -> Step:
    return Step(name, ("sh", "-c", script), alone=alone, folder=Path("/"))


def test_last_line_counts_steps_and_the_end_of_a_failed_log_stands_above(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_all(shell("good", "true"), shell("bad", "echo because; exit 3"))
    output = capsys.readouterr().out
    assert output.splitlines()[-1] == "1 passed, 1 failed"
    assert "   because" in output.splitlines()


def test_the_last_lines_say_which_check_on_which_node_failed(capsys: pytest.CaptureFixture[str]) -> None:
    log = (
        "E   AssertionError: ended with 1, not 0:\n"
        "E         1 effective, 0 rendered, 1 failed\n"
        "E         failed      n1, n2: wan_gateway: every link is measured: nothing comes back\n"
        * 3
        + "ERROR tests/integration/test_wan.py::test_one - AssertionError: ended with 1, not 0:\n"
    )
    run_all(shell("bad", f"printf '%s' '{log}'; exit 1"))
    last = capsys.readouterr().out.rpartition("\nFAILED bad\n")[2].splitlines()
    assert last == [
        "   failed      n1, n2: wan_gateway: every link is measured: nothing comes back",
        "   ERROR tests/integration/test_wan.py::test_one - AssertionError: ended with 1, not 0:",
        "0 passed, 1 failed",
    ]


def test_what_failed_stands_below_all_logs(capsys: pytest.CaptureFixture[str]) -> None:
    named = "FAILED tests/integration/test_x.py::test_y - AssertionError"
    noise = "for i in $(seq 200); do echo noise; done; exit 1"
    run_all(shell("one", f"echo '{named}'; {noise}"), shell("two", noise))
    ends = {line.strip() for line in capsys.readouterr().out.splitlines()[-6:]}
    assert ends == {"FAILED one", named, "FAILED two", "", "0 passed, 2 failed"}


@pytest.mark.parametrize(("script", "status"), [("true", 0), ("false", 1)])
def test_exit_status_says_whether_one_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, status: int
) -> None:
    monkeypatch.setattr(steps, "OUTCOMES", tmp_path / "outcomes.json")
    monkeypatch.setattr(leftovers, "clear", list)
    monkeypatch.setattr(outcomes, "Inputs", lambda: Same("these"))
    monkeypatch.setattr(steps, "all_steps", lambda: [shell("one", script), shell("two", "true")])
    assert steps.main([]) == status


def test_command_that_is_not_there_is_a_failed_step_with_the_reason() -> None:
    step = Step("missing", ("no-such-command",), folder=Path("/"))
    assert run_all(step).failed == [step]
    assert "no-such-command does not start" in step.log.read_text()


def met(order: Path, *names: str) -> str:
    """Shell: go on once all of these steps have started, after a minute at the latest."""
    all_there = " && ".join(f"grep -q 'start {name}' {order}" for name in names)
    return f"for i in $(seq 1200); do {all_there} && break; sleep 0.05; done; "


def test_some_run_beside_each_other_but_none_beside_one_that_is_alone(tmp_path: Path) -> None:
    note = f"echo start $0 >>{tmp_path}/order; {{}}echo end $0 >>{tmp_path}/order"
    both = note.format(met(tmp_path / "order", "a", "b"))
    wanted = [("a", False), ("b", False), ("c", True), ("d", False)]
    listed = [
        Step(
            name, ("sh", "-c", note.format("") if name in "cd" else both, name), alone=alone, folder=Path("/")
        )
        for name, alone in wanted
    ]
    assert not run_all(*listed).failed
    order = (tmp_path / "order").read_text().splitlines()
    assert sorted(order[:2]) == ["start a", "start b"]
    assert order[4:] == ["start c", "end c", "start d", "end d"]


def test_what_needs_nodes_waits_for_their_image_and_nothing_else_does(tmp_path: Path) -> None:
    note = f"echo start $0 >>{tmp_path}/order; {{}}echo end $0 >>{tmp_path}/order"
    both = note.format(met(tmp_path / "order", "image", "types"))
    kinds = {"image": (False, True), "nodes": (False, False), "types": (True, False)}
    run_all(
        *(
            Step(
                name,
                ("sh", "-c", note.format("") if name == "nodes" else both, name),
                quick=quick,
                ground=ground,
                folder=Path("/"),
            )
            for name, (quick, ground) in kinds.items()
        )
    )
    order = (tmp_path / "order").read_text().splitlines()
    assert sorted(order[:2]) == ["start image", "start types"]
    assert order.index("start nodes") > order.index("end image")


def test_memory_is_given_out_as_before_once_a_run_has_ended(tmp_path: Path) -> None:
    setting = tmp_path / "enabled"
    setting.write_text("always inherit madvise [never]\n")
    with steps.larger_pages(setting):
        assert setting.read_text() == "always"
    assert setting.read_text() == "never"
    with steps.larger_pages(tmp_path / "of-a-newer-kernel" / "enabled"):
        pass
    assert not (tmp_path / "of-a-newer-kernel").exists()


@pytest.mark.parametrize("long", [False, True])
def test_long_experiments_run_when_they_are_asked_for(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], long: bool
) -> None:
    file = tmp_path / "test_cases.py"
    marked = "@pytest.mark.long\ndef test_long() -> None: ...\n"
    file.write_text(f"import pytest\n\ndef test_short() -> None: ...\n\n{marked}")
    command = ("python", "-m", "pytest", "-v", "-p", "no:cacheprovider", str(file))
    run = Run([Step("cases", command)], long=long)
    asyncio.run(run.all())
    run.report()
    text = (logs / "cases.log").read_text()
    assert "test_short PASSED" in text
    assert ("test_long PASSED" in text) == long
    said = capsys.readouterr().out
    assert ("1 long experiments of these steps were left out" in said) != long
    assert said.endswith("1 passed, 0 failed\n")


@pytest.mark.parametrize("kvm", [False, True])
def test_machines_are_emulated_for_whom_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kvm: bool
) -> None:
    (tmp_path / "accelerator").write_text("kvm" if kvm else "tcg")
    monkeypatch.setattr(names, "RUN_DIR", tmp_path)
    (tmp_path / "tests" / "integration").mkdir(parents=True)
    (tmp_path / "tests" / "integration" / "test_vm.py").touch()
    machines = "integration-vm"
    assert (machines in {step.name for step in steps.chosen([])}) == kvm
    assert machines in {step.name for step in steps.chosen([], long=True)}
    assert machines in {step.name for step in steps.chosen([machines])}


def test_what_takes_long_as_a_whole_runs_by_name_or_with_all(tmp_path: Path) -> None:
    for role, name in (("base", "default"), ("base", "alternative")):
        scenario = tmp_path / "roles" / role / "molecule" / name / "molecule.yml"
        scenario.parent.mkdir(parents=True)
        scenario.touch()
    (tmp_path / "tests" / "integration").mkdir(parents=True)
    marked = "import pytest\n\npytestmark = pytest.mark.long\n"
    (tmp_path / "tests" / "integration" / "test_story.py").write_text(marked)
    long = {"molecule-base-alternative", "integration-story"}
    bare, everything = ({step.name for step in steps.chosen([], long=whole)} for whole in (False, True))
    assert everything - bare == long
    assert "molecule-base-default" in bare
    assert long <= {step.name for step in steps.chosen(["base", "integration-story"])}


def test_hanging_step_is_ended_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_run, "LIMIT_S", 0.2)
    step = shell("hangs", "sleep 60")
    assert run_all(step).failed == [step]
    assert "still running after 0.2 s" in step.log.read_text()


def test_interrupt_ends_what_the_steps_started_and_starts_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = shell("busy", f"sleep 600 & echo $! >{tmp_path}/pid; touch {tmp_path}/pid.all; wait")

    async def interrupted_run() -> Run:
        run = Run([busy, shell("alone", "true", alone=True)])
        task = asyncio.create_task(run.all())
        await asyncio.to_thread(wait_for, (tmp_path / "pid.all").exists, "its start")
        run.interrupt()
        await asyncio.wait_for(task, 3 * step_run.GRACE_S)  # a signal after the other
        await asyncio.gather(*run.ending)
        return run

    run = asyncio.run(interrupted_run())
    run.report()
    assert "not run: alone" in capsys.readouterr().out
    assert [step.name for step in run.failed] == ["busy"]
    known = outcomes.Outcomes({}, {})
    known.add(run.ended[0], "these")
    assert known.tests == {}, "what was ended has not failed"
    left = int((tmp_path / "pid").read_text())
    wait_for(lambda: not command_line(left), "the end of what the step started")


def test_interrupt_ends_a_step_that_is_just_being_started(monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted_run() -> Run:
        run = Run([shell("busy", "sleep 600")])
        start = asyncio.create_subprocess_exec

        async def interrupted_start(*args: Any, **options: Any) -> asyncio.subprocess.Process:
            process = await start(*args, **options)
            run.interrupt()
            return process

        monkeypatch.setattr(asyncio, "create_subprocess_exec", interrupted_start)
        await asyncio.wait_for(run.all(), 3 * step_run.GRACE_S)
        await asyncio.gather(*run.ending)
        return run

    assert [one.interrupted for one in asyncio.run(interrupted_run()).ended] == [True]


def test_words_choose_steps_and_what_needs_nodes_brings_their_image(tmp_path: Path) -> None:
    for name in ("tests/unit/test_a.py", "tests/integration/test_two_regions.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text('PROVES = ("wan", "base")\n')
    (tmp_path / "roles/base/molecule/default").mkdir(parents=True)
    (tmp_path / "roles/base/molecule/default/molecule.yml").touch()
    assert {"mypy", "unit"} <= {step.name for step in steps.chosen(["quick"])}
    assert all(step.quick for step in steps.chosen(["quick"]))
    found = [step.name for step in steps.chosen(["integration-two-regions", "molecule-base-default"])]
    assert found == ["node-image", "molecule-base-default", "integration-two-regions"]
    assert [step.name for step in steps.chosen(["base"])] == found
    assert [step.name for step in steps.chosen(["wan"])] == ["node-image", "integration-two-regions"]


def test_what_needs_a_long_build_comes_last(tmp_path: Path) -> None:
    for name in ("roles/consul/molecule/default/molecule.yml", "tests/integration/test_stack.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    names = [step.name for step in steps.all_steps()]
    assert names[-2:] == ["integration-stack", "molecule-consul-default"]


def test_what_took_longest_last_time_starts_first_and_alone_ones_stay_last() -> None:
    known = next(iter(steps.LONG))
    names = ("short", "new", "long", "consul", known)
    nodes = [Step(name, ("true",), quick=False, late=name == "consul") for name in names]
    alone = [Step(name, ("true",), quick=False, alone=True) for name in ("engine", "wan")]
    machines = Step("machines", ("true",), quick=False, emulates=True)
    listed = [steps.NODE_IMAGE, Step("unit", ("true",)), *nodes, machines, *alone]
    took_s = {"unit": 900.0, "short": 10.0, "long": 600.0, "consul": 500.0, "engine": 60.0, "wan": 240.0}

    def order(*, obtained: bool) -> list[str]:
        return [step.name for step in steps.longest_first(listed, took_s, obtained=obtained)]

    first, last = ["machines", "node-image", "unit", known, "long"], ["engine", "wan"]
    assert order(obtained=True) == [*first, "consul", "new", "short", *last]
    assert order(obtained=False) == [*first, "new", "short", "consul", *last]


def test_the_steps_that_are_said_to_be_long_or_large_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "ROOT", Path(steps.__file__).parents[1])
    found = [step for step in steps.all_steps() if not step.alone]
    assert {*steps.LONG} <= {step.name for step in found}
    assert {*steps.LARGE} == {step.name for step in found if step.large}


@pytest.mark.parametrize(("at_once", "beside"), [(1, 0), (2, 0), (3, 1), (4, 2)])
def test_what_emulates_machines_takes_the_place_of_two(at_once: int, beside: int) -> None:
    machines, *others = listed = [Step(name, ("true",), emulates=name == "a") for name in "abcde"]
    run = Run(listed, at_once=at_once)
    running: list[Step] = []
    while step := run._next(running):
        run.waiting.remove(step)
        running.append(step)
    assert running == [machines, *others[:beside]]
    run = Run([machines], at_once=at_once)
    room = max(0, at_once - 2)
    assert run._next(others[:room]) == machines
    assert run._next(others[: room + 1]) is None


def test_what_emulates_machines_finds_its_place_once_the_ground_is_there() -> None:
    ground = Step("image", ("true",), quick=False, ground=True)
    machines = Step("machines", ("true",), quick=False, emulates=True)
    quick = [Step(name, ("true",)) for name in "ab"]
    run = Run([machines, ground, *quick], at_once=3)
    running: list[Step] = []
    while step := run._next(running):
        run.waiting.remove(step)
        running.append(step)
    assert running == [ground, quick[0]]
    assert run._next(quick[:1]) == machines


def test_two_large_steps_run_at_once_and_others_beside_them() -> None:
    listed = [Step(name, ("true",), large=name.isupper()) for name in ("A", "B", "C", "d", "e", "f")]
    run = Run(listed, at_once=4)
    running: list[Step] = []
    while step := run._next(running):
        run.waiting.remove(step)
        running.append(step)
    assert [step.name for step in running] == ["A", "B", "d", "e"]
    assert run._next([listed[0], *running[2:]]) == listed[2], "once one has ended"


def test_unknown_word_names_the_nearest_step() -> None:
    with pytest.raises(ValueError, match="did you mean mypy"):
        steps.chosen(["mypi"])


def test_a_repeated_step_runs_so_often_and_never_beside_itself(tmp_path: Path) -> None:
    note = f"echo start >>{tmp_path}/$0; sleep 0.1; echo end >>{tmp_path}/$0"
    listed = [Step(name, ("sh", "-c", note, name), folder=Path("/")) for name in ("a", "b")]
    run = run_all(*steps.repeated(listed, 3))
    assert len(run.passed) == 6
    for name in ("a", "b"):
        assert (tmp_path / name).read_text().split() == ["start", "end"] * 3
    assert {step.log.name for step in run.passed} >= {"a.log", "a.2.log", "a.3.log"}


STEP = Step("one", ("true",))


def history(*ends: tuple[bool, str]) -> outcomes.Outcomes:
    known = outcomes.Outcomes({}, {})
    for passed, inputs in ends:
        known.add(Ended(STEP, passed, 1.0), inputs)
    return known


def test_what_failed_and_passed_with_the_same_inputs_is_flaky_until_it_passed_twenty_times() -> None:
    ends = [(True, "these"), (False, "these")]
    assert "one: failed and passed" in history(*ends).flaky()[0]
    assert history(*ends, *[(True, "these")] * (outcomes.CURED - 1)).flaky()
    assert not history(*ends, *[(True, "these")] * outcomes.CURED).flaky()


def test_what_failed_and_passed_after_a_change_is_mended_not_flaky() -> None:
    assert not history((True, "before"), (False, "broken"), (True, "mended")).flaky()


def test_outcomes_are_kept_per_test_and_survive_a_spoiled_file(tmp_path: Path) -> None:
    case = '<testcase classname="tests.unit.test_a" name='
    STEP.results.write_text(f'<suite>{case}"test_good"/>{case}"test_bad"><failure/></testcase></suite>')
    file = tmp_path / "outcomes.json"
    for said in ("", "[]", '{"tests": 1}'):
        file.write_text(said)
        with outcomes.kept(file) as known:
            known.add(Ended(STEP, False, 1.0), "these")
    with outcomes.kept(file) as known:
        assert known.tests["tests/unit/test_a.py::test_good"].passed == ["these"]
        assert known.tests["tests/unit/test_a.py::test_bad"].failed == ["these"]
        assert known.took_s == {}, "what failed may have ended early"
        known.add(Ended(STEP, True, 2.0), "these")
    with outcomes.kept(file) as known:
        assert known.took_s == {STEP.name: 2.0}


def test_a_step_that_passed_with_the_same_inputs_is_unchanged_but_not_one_that_measures() -> None:
    timed = Step("timed", ("true",), alone=True)
    known = history((True, "these"))
    known.add(Ended(timed, True, 1.0), "these")
    assert outcomes.unchanged([STEP, timed], known, Same("these")) == [STEP]
    assert outcomes.unchanged([STEP, timed], known, Same("others")) == []
    known.add(Ended(STEP, False, 1.0), "these")
    assert outcomes.unchanged([STEP], known, Same("these")) == []


def test_a_step_of_which_tests_were_left_out_has_not_passed_for_whom_asks_for_all() -> None:
    known = history()
    known.add(Ended(STEP, True, 1.0, left_out=2), "these")
    assert outcomes.unchanged([STEP], known, Same("these"), long=True) == []
    assert outcomes.unchanged([STEP], known, Same("these"), long=False) == [STEP]
    known.add(Ended(STEP, True, 1.0), "these")
    assert outcomes.unchanged([STEP], known, Same("these"), long=True) == [STEP]
    assert outcomes.unchanged([STEP], known, Same("these"), long=False) == [STEP]


def test_inputs_are_every_file_that_git_does_not_ignore(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("ignored\n")
    seen = {outcomes.Inputs(tmp_path).of()}
    for name in ("new", "logs/deep"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a")
        seen.add(outcomes.Inputs(tmp_path).of())
        (tmp_path / name).chmod(0o755)
        seen.add(outcomes.Inputs(tmp_path).of())
    assert len(seen) == 5
    (tmp_path / "ignored").write_text("a")
    assert outcomes.Inputs(tmp_path).of() in seen


def test_inputs_of_a_step_that_declares_what_it_reads_are_these_and_what_every_step_stands_on(
    tmp_path: Path,
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    names = {"roles/a/tasks/main.yml": True, "roles/b/x.yml": False, "docs/a.md": False, "toolchain/x": True}
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a")
    before = outcomes.Inputs(tmp_path).of(("roles/a/",))
    for name, counts in names.items():
        (tmp_path / name).write_text("b")
        assert (outcomes.Inputs(tmp_path).of(("roles/a/",)) != before) == counts, name
        (tmp_path / name).write_text("a")


@pytest.mark.parametrize(
    ("script", "odd"),
    [
        ("open('docs/b.md')", ["docs/b.md"]),
        ("import pathlib; pathlib.Path('docs/../docs/b.md').read_text()", ["docs/b.md"]),
        (
            "import subprocess, sys; subprocess.run([sys.executable, '-c', 'open(\"docs/b.md\")'])",
            ["docs/b.md"],
        ),
        ("import lib.own", ["lib/__init__.py", "lib/own.py"]),
        ("open('roles/a/x.yml'); open('/etc/hostname'); open('.causeway/log', 'w')", []),
        ("open('docs/new.md', 'w').close(); import os; os.unlink('docs/new.md')", []),
        ("pass", []),
    ],
    ids=["relative", "odd path", "a child", "a module", "declared or not ours", "its own result", "nothing"],
)
def test_a_step_that_opens_what_it_does_not_declare_fails(
    script: str, odd: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declared, "ROOT", tmp_path)
    for name in ("roles/a/x.yml", "docs/b.md", "lib/__init__.py", "lib/own.py", ".causeway/log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path.parent / "compiled"))
    step = Step("reads", (sys.executable, "-c", script), folder=tmp_path, reads=("roles/a/",))
    for turn in ("first", "again, with modules that are compiled"):
        assert run_all(step).failed == ([step] if odd else []), turn
        assert declared.undeclared(step.opened, step.reads) == odd
    assert all(name in step.log.read_text() for name in odd)
    free = Step("free", (sys.executable, "-c", script), folder=tmp_path)
    assert not run_all(free).failed, "it declares nothing, and may open anything"


def test_minutes_stand_per_step_phase_role_and_task() -> None:
    step = Step("molecule-base-default", ("true",), proves=("base",))
    step.durations.write_text(
        '{"playbook": "converge.yml", "check": false, "took_s": 120, "tasks": [["base", "Install", 90]]}\n'
        '{"playbook": "converge.yml", "check": false, "took_s": 30, "tasks": []}\n'
        '{"playbook": "converge.yml", "check": true, "took_s": 15, "tasks": [["base", "Install", 9]]}\n'
        '{"playbook": "verify.yml", "check": false, "took_s": 35, "tasks": []}\n'
        '{"playbook": "des'
    )
    said = minutes.table([Ended(step, True, 180.0, cpu_s=42.4)])
    expected = "converge 120 s, idempotence 30 s, verify 20 s, check mode 15 s"
    assert said[1] == f"    3.0     42  molecule-base-default  ({expected})"
    assert "    2.0  converge" in said
    assert "    1.6  base" in said
    assert said[-1] == "    1.6  base : Install"


BURN = "import time\nwhile time.process_time() < 0.5: pass"


def test_a_step_has_the_cpu_of_all_below_it_and_none_of_others() -> None:
    burn = f"sh -c '{sys.executable} -c \"{BURN}\"; true'; true"
    scripts = {"before": "true", "busy": burn, "after": "true"}
    run = run_all(*(shell(name, script, alone=True) for name, script in scripts.items()))
    used = {one.step.name: one.cpu_s for one in run.ended}
    assert used["busy"] >= 0.5
    assert max(used["before"], used["after"]) < 0.5


def test_what_is_no_steps_cpu_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tick = os.sysconf("SC_CLK_TCK")
    columns = [60 * tick, 60 * tick, 120 * tick, 10**9, 10**9, 30 * tick, 30 * tick, 0, 60 * tick, 0]
    (tmp_path / "stat").write_text(f"cpu  {' '.join(map(str, columns))}\ncpu0 1 1 1\n")
    monkeypatch.setattr(minutes, "MACHINE", tmp_path / "stat")
    monkeypatch.setattr(minutes, "NODES", tmp_path / "cpu.stat")
    assert minutes.Processors.now() == minutes.Processors(0, 300), "no node has run yet"
    (tmp_path / "cpu.stat").write_text("usage_usec 90000000\nuser_usec 1\nsystem_usec 2\n")
    ended = [Ended(shell("a", "true"), True, 1.0, cpu_s=seconds) for seconds in (60.0, 30.0)]
    said = minutes.Processors.now().since(minutes.Processors(30, 0), ended)
    assert said == (
        "    5.0  CPU-minutes of the machine: 1.5 steps' own processes, 1.0 nodes in containers, 2.5 all else"
    )


def test_what_a_dead_run_started_is_ended_and_what_a_live_one_started_is_not() -> None:
    dead = subprocess.Popen(["sleep", "60"])
    dead.kill()
    dead.wait()
    marks = {"dead": f"{dead.pid}.123", "live": leftovers.new_mark()}
    started = {
        kind: subprocess.Popen(["sleep", "60"], env=os.environ | {leftovers.MARK: mark})
        for kind, mark in marks.items()
    }
    try:
        leftovers._end_processes()
        assert started["dead"].wait(10) == -signal.SIGKILL
        assert started["live"].poll() is None
    finally:
        for process in started.values():
            process.kill()
            process.wait()


def test_what_cannot_be_removed_stops_no_run_and_nobody_gets_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(stack: str) -> list[str]:
        if stack == "stuck":
            raise CausewayError("podman refuses")
        return []

    monkeypatch.setattr(checkout, "PLACES", tmp_path)
    monkeypatch.setattr("infra.providers.local.sweep.sweep", refuse)
    for part in ("_end_processes", "_remove_containers", "_sweep_grounds", "_forget_scenarios"):
        monkeypatch.setattr(leftovers, part, list)
    for number, stack in enumerate(("stuck", "gone")):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "stacks").write_text(stack)
    (line,) = leftovers.clear()
    assert "podman refuses" in line
    assert "still there" in line
    assert [(tmp_path / str(number)).exists() for number in range(2)] == [True, False]
    with checkout._free_place() as number:
        assert number != 0


def test_nodes_that_somebody_made_by_hand_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """molecule outside a run leaves the mark empty."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    marks = ("", leftovers.new_mark(), f"{dead.pid}.1")
    records = [{"Id": mark, "Names": [mark], "Labels": {leftovers.LABEL: mark}} for mark in marks]
    removed: list[str] = []
    monkeypatch.setattr(leftovers, "_podman_ps", lambda _label: records)
    monkeypatch.setattr(subprocess, "run", lambda argv, **_more: removed.append(argv[-1]))
    leftovers._remove_containers()
    assert removed == [f"{dead.pid}.1"]


def test_what_is_known_of_a_scenario_goes_once_no_scenario_has_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standing = [{"Id": "by hand"}]
    monkeypatch.setattr(leftovers, "ROOT", tmp_path)
    monkeypatch.setattr(leftovers, "_podman_ps", lambda _label: standing)
    stacks = tmp_path / ".causeway" / "stacks"
    for stack in ("molecule-0123abcd", "local"):
        (stacks / stack / "drift").mkdir(parents=True)
    assert leftovers._forget_scenarios() == []
    standing.clear()
    assert leftovers._forget_scenarios() == ["what was known of molecule-0123abcd"]
    assert [path.name for path in stacks.iterdir()] == ["local"]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("    changed: false\n    msg: no space left\n    rc: 1\n", ["    msg: no space left"]),
        ("    cmd:\n    - long\n    msg: non-zero return code\n    stderr: |-\n        gone\n",
         ["    stderr: |-", "        gone"]),
        ("    msg:\n" + "    - ok\n" * 50 + "    - 'failed  node-1: it lies'\n    - 2\n",
         [*["    - ok"] * 8, "    - 'failed  node-1: it lies'", "    - 2"]),
    ],
    ids=["a message", "a command", "the line of a long text"],
)  # fmt: skip
def test_a_failed_task_is_shown_with_what_it_said(logs: Path, said: str, shown: list[str]) -> None:
    log = logs / "scenario.log"
    said, shown = said.replace("gone", "[0;31mgone[0m [5m]"), [x.replace("gone", "gone [5m]") for x in shown]
    text = "fatal: [localhost]: FAILED! =>\n" + said + "\nPLAY RECAP\n    msg: another's\n"
    frame = "".join(f"  \x1b[2m│\x1b[0m \x1b[31m{line}\x1b[0m\n" for line in text.splitlines())
    log.write_text(frame)
    assert step_run.failures(log) == list(dict.fromkeys(["fatal: [localhost]: FAILED! =>", *shown]))


def test_a_failed_test_is_shown_with_all_that_it_said_and_none_crowds_out_the_summary(logs: Path) -> None:
    log = logs / "tests.log"
    said = [f"E     {number}  up  osd.{number}" for number in range(20)]
    one, other = "FAILED tests/a.py::test_it - AssertionError: ID", "FAILED tests/a.py::test_that - short"
    log.write_text(
        "\n".join(
            ["E   AssertionError: ID", *said, "", "a.py:3: AssertionError", "E   short", "", one, other]
        )
    )
    shown = step_run.failures(log)
    assert shown == ["E   AssertionError: ID", *said[: step_run.SHOWN_OF_ONE - 1], one, other]
    log.write_text("\n\n".join(["\n".join(said)] * 9 + [one]))
    assert step_run.failures(log)[step_run.SHOWN_WORDS :] == [one]


def test_a_machine_that_stands_still_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = tmp_path / "looked"
    until_a_look = f"until [ -e {looked} ]; do sleep 0.01; done"
    monkeypatch.setattr(step_run, "STALL_LOOK_S", 0.01)
    monkeypatch.setattr(os, "fsync", lambda _: looked.touch())  # this machine's own disk may be slow
    run_all(shell("good", until_a_look))
    assert "stood still" not in capsys.readouterr().out
    looked.unlink()

    def stalls(_: int) -> None:
        looked.touch()
        time.sleep(0.3)

    monkeypatch.setattr(step_run, "STALL_S", 0.2)
    monkeypatch.setattr(os, "fsync", stalls)
    run_all(shell("good", until_a_look))
    assert re.search(r"the disk stood still for \d+ s until ", capsys.readouterr().out)


def test_a_processor_that_gives_no_time_is_a_stall(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert logs.is_dir()
    monkeypatch.setattr(step_run, "STALL_LOOK_S", 0.01)
    monkeypatch.setattr(step_run, "STALL_S", 0.2)
    stalls = step_run.Stalls()
    wait = stalls._over.wait
    monkeypatch.setattr(stalls._over, "wait", lambda timeout: wait(timeout + 0.3))
    with stalls:
        wait_for(lambda: stalls.seen, "a stall", limit_s=30)
    assert stalls.seen[0].of == "the processor"
