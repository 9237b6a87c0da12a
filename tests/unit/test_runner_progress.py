"""What the events of a run are made into: sparse progress, each host's end, messages that name the cause."""

from pathlib import Path
from typing import Any

import pytest

from infra.converge.progress import MESSAGE_CHARS, HostResult, Progress, Tracker, failure_log, failure_message
from infra.converge.runner import RunResult

RAISED = """Traceback (most recent call last):
  File "basic.py", line 1797, in atomic_move
OSError: [Errno 16] Device or resource busy: b'/etc/.x' -> b'/etc/x'

The above exception was the direct cause of the following exception:

Exception: Unable to make b'/root/.source' into to '/etc/x'.
"""
"""Of a module under Mitogen."""


class Run:
    """A tracker with a clock that is moved by hand."""

    def __init__(self, log_dir: Path, targets: set[str]) -> None:
        self.now_s = 0.0
        self.told: list[Progress] = []
        self.tracker = Tracker(targets, log_dir, self.told.append, clock=lambda: self.now_s)

    def event(self, kind: str, **data: Any) -> None:
        self.tracker.handle({"event": kind, "event_data": data})

    def task(self, name: str, after_s: float = 0.0) -> None:
        self.now_s += after_s
        self.event("playbook_on_task_start", name=name, task_uuid=name)

    def host(self, kind: str, host: str, task: str, **data: Any) -> None:
        self.event(f"runner_on_{kind}", host=host, task=task, task_uuid=task, **data)

    def end(self, **stats: dict[str, int]) -> dict[str, HostResult]:
        self.event("playbook_on_stats", **stats)
        assert self.tracker.hosts is not None
        return self.tracker.hosts


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> Run:
    return Run(tmp_path, {"a", "b"})


def test_a_play_is_told_with_its_first_task_and_others_rarely(run: Run) -> None:
    run.event("playbook_on_play_start", name="Base")
    for number in range(20):
        run.task(f"task {number}", after_s=1)
    assert [(line.play, line.task) for line in run.told] == [
        ("Base", ""),
        *(("Base", f"task {number}") for number in (5, 10, 15)),
    ]
    assert run.tracker.plays == {"Base"}


def test_a_play_for_no_host_is_not_told(run: Run) -> None:
    run.event("playbook_on_play_start", name="Base")
    run.event("playbook_on_play_start", name="Storage")
    run.task("one")
    run.event("playbook_on_play_start", name="Metrics")
    run.end(processed={"a": 1})
    assert [line.play for line in run.told] == ["Storage", "Storage"], "with its first task and the end"
    assert run.tracker.plays == {"Base", "Storage", "Metrics"}


def test_a_long_task_says_now_and_then_that_it_works(run: Run) -> None:
    run.event("playbook_on_play_start", name="Base")
    run.task("slow", after_s=6)
    for _ in range(61):
        run.now_s += 1
        run.tracker.tick()
    assert [line.elapsed_s for line in run.told] == [6, 11, 41]


def test_progress_counts_hosts_of_the_current_task(run: Run) -> None:
    run.event("playbook_on_play_start", name="Base")
    run.task("one")
    run.host("ok", "a", "one")
    run.host("skipped", "b", "one")
    run.task("two")
    run.host("failed", "b", "two", res={"msg": "no"})
    run.now_s = 12.0
    run.tracker.tick()
    assert str(run.told[-1]) == "Base · two · 1/2 hosts · 1 failed · 12 s"
    run.task("three")
    run.host("ok", "a", "three")
    run.now_s = 20.0
    run.tracker.tick()
    assert str(run.told[-1]) == "Base · three · 2/2 hosts · 1 failed · 20 s"


def test_each_failed_host_is_named_with_task_message_and_log(run: Run) -> None:
    run.host("failed", "a", "install", res={"msg": "No package matching 'x'"}, role="base")
    run.host("unreachable", "b", "ping", res={"msg": "Connection timed out"})
    hosts = run.end(processed={"a": 1, "b": 1}, failures={"a": 1}, dark={"b": 1}, changed={"a": 3})
    assert (hosts["a"].state, hosts["a"].changed, hosts["a"].task) == ("failed", 3, "base: install")
    assert (hosts["b"].state, hosts["b"].message) == ("unreachable", "Connection timed out")
    log = hosts["a"].log
    assert log is not None
    assert "No package matching 'x'" in log.read_text()


def test_ignored_and_rescued_failures_are_none(run: Run) -> None:
    run.host("failed", "a", "probe", res={"msg": "no"}, ignore_errors=True)
    run.host("failed", "b", "rescued", res={"msg": "no"})
    assert run.tracker.failed_hosts == 1  # whether `b` is rescued shows in the end
    hosts = run.end(processed={"a": 1, "b": 1}, rescued={"b": 1}, ignored={"a": 1})
    assert {host.state for host in hosts.values()} == {"ok"}


def test_a_target_without_a_task_is_ok_unless_nothing_was_reached(run: Run) -> None:
    assert run.end(processed={"a": 1})["b"].state == "ok"
    assert run.end(processed={}) == {}


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"msg": "plain\n  words"}, "plain words"),
        ({"msg": "Task failed: it broke"}, "it broke"),
        ({"msg": "non-zero return code", "stderr": "first\nlast\n"}, "non-zero return code: last"),
        ({"msg": "MODULE FAILURE: see stdout", "module_stdout": "No such file"}, "No such file"),
        (
            {"msg": "Module result deserialization failed: No start of json", "module_stderr": RAISED},
            "b'/etc/x'",
        ),
        ({"stdout": "only output"}, "only output"),
        ({"msg": ["a", "b"]}, '["a", "b"]'),
        ({"censored": "hidden"}, "hidden"),
        ({"msg": "items failed", "results": [{"msg": "fine"}, {"failed": True, "msg": "second"}]}, "second"),
    ],
)
def test_the_message_is_the_cause_in_one_line(result: dict[str, Any], message: str) -> None:
    assert failure_message(result).endswith(message)
    assert "\n" not in failure_message(result)


def test_a_long_message_is_cut_and_stands_whole_in_the_log() -> None:
    stderr = "x" * 5000
    assert len(failure_message({"stderr": stderr})) == MESSAGE_CHARS
    assert stderr in failure_log("task", "roles/base/tasks/main.yml:1", {"stderr": stderr})


def test_the_report_names_failed_hosts_only() -> None:
    hosts = {
        "a": HostResult("ok", changed=1),
        "b": HostResult("failed", task="install", message="no package", log=Path("/runs/b.log")),
    }
    result = RunResult(hosts, Path("/runs/stdout"), 1.0)
    assert result.failed == ("b",)
    assert result.report().splitlines() == [
        "1 of 2 hosts failed:",
        "  b failed at “install”: no package",
        "    log: /runs/b.log",
    ]


def test_the_report_of_many_failures_stays_short() -> None:
    hosts = {f"node-{n}": HostResult("unreachable", message="gone") for n in range(1000)}
    lines = RunResult(hosts, Path("/runs/stdout"), 1.0).report().splitlines()
    assert len(lines) == 42
    assert lines[-1] == "  … and 980 more in /runs/stdout"


def test_the_report_of_a_good_run_is_one_line() -> None:
    hosts = {"a": HostResult("ok", changed=2), "b": HostResult("ok")}
    result = RunResult(hosts, Path("/runs/stdout"), 1.0)
    assert not result.failed
    assert result.report() == "2 hosts ok, 1 changed"


def test_what_tasks_left_where_it_was_is_said_of_each_host_once(run: Run) -> None:
    for _ in range(2):
        run.host("ok", "a", "undo", res={"left": ["disk: has data"]})
    run.host("ok", "b", "undo", res={"left": []})
    run.host("failed", "b", "undo", res={"left": ["mount: busy"], "msg": "no"})
    hosts = run.end(processed={"a": 1, "b": 1}, failures={"b": 1})
    assert {name: host.left for name, host in hosts.items()} == {
        "a": ("disk: has data",),
        "b": ("mount: busy",),
    }
    assert (hosts["b"].state, hosts["b"].message) == ("failed", "no")
