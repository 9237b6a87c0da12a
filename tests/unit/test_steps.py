"""The test run itself: what it counts, what it prints last, and that it leaves nothing running."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from tests import steps
from tests.steps import Run, Step


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Logs of the steps under test, away from those of the run this test is part of."""
    monkeypatch.setattr(steps, "ROOT", tmp_path)
    monkeypatch.setattr(steps, "LOGS", tmp_path / "logs")
    return tmp_path / "logs"


def shell(name: str, script: str, *, alone: bool = False) -> Step:
    return Step(name, ("sh", "-c", script), alone=alone, folder=Path("/"))


def test_last_line_counts_steps_and_the_exit_status_says_whether_one_failed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = asyncio.run(steps._main([shell("good", "true"), shell("bad", "echo because; exit 3")]))
    output = capsys.readouterr().out
    assert status == 1
    assert output.splitlines()[-1] == "1 passed, 1 failed"
    assert "   because" in output.splitlines()


def test_what_failed_stands_below_all_logs(capsys: pytest.CaptureFixture[str]) -> None:
    named = "FAILED tests/integration/test_x.py::test_y - AssertionError"
    noise = "for i in $(seq 200); do echo noise; done; exit 1"
    asyncio.run(steps._main([shell("one", f"echo '{named}'; {noise}"), shell("two", noise)]))
    ends = {line.strip() for line in capsys.readouterr().out.splitlines()[-6:]}
    assert ends == {"FAILED one", named, "FAILED two", "", "0 passed, 2 failed"}


def test_all_passed_is_exit_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert asyncio.run(steps._main([shell("one", "true"), shell("two", "true")])) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 passed, 0 failed"


def test_command_that_is_not_there_is_a_failed_step_with_the_reason() -> None:
    step = Step("missing", ("no-such-command",), folder=Path("/"))
    assert asyncio.run(steps._main([step])) == 1
    assert "no-such-command does not start" in step.log.read_text()


def test_two_run_beside_each_other_but_none_beside_one_that_is_alone(tmp_path: Path) -> None:
    note = f"echo start $0 >>{tmp_path}/order; sleep 0.3; echo end $0 >>{tmp_path}/order"
    wanted = [("a", False), ("b", False), ("c", True), ("d", False)]
    listed = [Step(name, ("sh", "-c", note, name), alone=alone, folder=Path("/")) for name, alone in wanted]
    assert asyncio.run(steps._main(listed)) == 0
    order = (tmp_path / "order").read_text().splitlines()
    assert sorted(order[:2]) == ["start a", "start b"]
    assert order[4:] == ["start c", "end c", "start d", "end d"]


def test_hanging_step_is_ended_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "LIMIT_S", 0.2)
    step = shell("hangs", "sleep 60")
    assert asyncio.run(steps._main([step])) == 1
    assert "still running after 0.2 s" in step.log.read_text()


def test_interrupt_ends_what_the_steps_started_and_starts_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = shell("busy", f"sleep 60 & echo $! >{tmp_path}/pid; wait")

    async def interrupted_run() -> Run:
        run = Run([busy, shell("alone", "true", alone=True)])
        task = asyncio.create_task(run.all())
        await asyncio.to_thread(wait_until_written, tmp_path / "pid")
        run.interrupt()
        await asyncio.wait_for(task, 10)
        await asyncio.gather(*run.ending)
        return run

    steps.LOGS.mkdir()
    run = asyncio.run(interrupted_run())
    run.report()
    assert "not run: alone" in capsys.readouterr().out
    assert [step.name for step in run.failed] == ["busy"]
    assert is_gone(int((tmp_path / "pid").read_text()))


def wait_until_written(path: Path) -> None:
    deadline = time.monotonic() + 10
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Whether the process ends within two seconds; it is no child of ours, so we cannot wait for it."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    return False


def test_words_choose_steps_and_what_needs_nodes_brings_their_image(tmp_path: Path) -> None:
    for name in ("tests/unit/test_a.py", "tests/integration/test_two_regions.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    (tmp_path / "roles/base/molecule/default").mkdir(parents=True)
    (tmp_path / "roles/base/molecule/default/molecule.yml").touch()
    assert {"mypy", "unit"} <= {step.name for step in steps.chosen(["quick"])}
    assert all(step.quick for step in steps.chosen(["quick"]))
    found = [step.name for step in steps.chosen(["integration-two-regions", "molecule-base-default"])]
    assert found == ["node-image", "molecule-base-default", "integration-two-regions"]


def test_what_needs_a_long_build_comes_last(tmp_path: Path) -> None:
    for name in ("roles/consul/molecule/default/molecule.yml", "tests/integration/test_stack.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    names = [step.name for step in steps.all_steps()]
    assert names[-2:] == ["integration-stack", "molecule-consul-default"]


def test_unknown_word_names_the_nearest_step() -> None:
    with pytest.raises(ValueError, match="did you mean mypy"):
        steps.chosen(["mypi"])
