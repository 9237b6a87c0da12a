"""What Ansible's events say: how far a run is, and what became of each host."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from infra.errors import shown

Event = Mapping[str, Any]
HostState = Literal["ok", "failed", "unreachable"]

LINE_INTERVAL_S = 5.0
"""Pulumi prints every line twice, so progress is told rarely."""
HEARTBEAT_S = 30.0
"""A long task says that it still works."""
MESSAGE_CHARS = 400
SSH_BANNER = "@@@@@@"
SAYS_NOTHING = (
    *("non-zero return code", "MODULE FAILURE", "Module failed"),
    "Module result deserialization failed",  # Mitogen's words for a module that raised
)
"""Beginnings of messages whose cause is in the output."""

CHANGED = "\nchanged: ["
_DONE = ("runner_on_ok", "runner_on_skipped", "runner_on_failed", "runner_on_unreachable")
_TASK_STARTS = ("playbook_on_task_start", "playbook_on_handler_task_start")


@dataclass(frozen=True)
class Progress:
    """Where a run is: `done` of `total` hosts are through with the task, `failed` of them dropped out."""

    play: str
    task: str
    done: int
    total: int
    failed: int
    elapsed_s: float

    def __str__(self) -> str:
        failed = f"{self.failed} failed" if self.failed else ""
        hosts = f"{self.done}/{self.total} hosts" if self.task else ""
        return " · ".join(filter(None, (self.play, self.task, hosts, failed, f"{self.elapsed_s:.0f} s")))


@dataclass(frozen=True)
class HostResult:
    """What became of one host. `task`, `message` and `log` say where it failed, else they are empty."""

    state: HostState
    changed: int = 0
    task: str = ""
    message: str = ""
    log: Path | None = None
    left: tuple[str, ...] = ()
    """What tasks name as `left`: what stays where it was, and why."""


@dataclass
class Tracker:
    """Follows the events of one run.

    `targets` are the hosts the run is meant for, as far as they are known before; `log_dir` gets one file
    per failed host.
    """

    targets: set[str]
    log_dir: Path
    on_progress: Callable[[Progress], None]
    clock: Callable[[], float] = time.monotonic
    on_change: Callable[[str, str, Event], None] | None = None
    """Called with host, task and result of every task that changed something, would do so, or failed."""
    hosts: dict[str, HostResult] | None = None
    """Every host's result, once Ansible has counted; None when it never came to that."""
    plays: set[str] = field(default_factory=set)
    """The plays that began, by name."""
    _failures: dict[str, HostResult] = field(default_factory=dict)
    _left: dict[str, list[str]] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _done: set[str] = field(default_factory=set)
    _play: str = ""
    _coming: str = ""
    """A play that has begun, and none of its tasks yet: there may be no host for it."""
    _task: str = ""
    _task_uuid: str = ""
    _changed: bool = False

    def __post_init__(self) -> None:
        self._started = self._told = self.clock()

    @property
    def failed_hosts(self) -> int:
        """How many hosts have failed or could not be reached, so far."""
        return len(self._failures)

    def handle(self, event: Event) -> bool:
        """Take one event of ansible-runner; False, since the event itself need not be kept."""
        kind, data = event.get("event", ""), event.get("event_data") or {}
        if kind == "playbook_on_play_start":
            self._coming = str(data.get("name") or data.get("play") or "")
            self.plays.add(self._coming)
        elif kind in _TASK_STARTS:
            if self._coming:
                self._play, self._coming, self._task, self._done = self._coming, "", "", set()
                self._tell()
            self._task, self._task_uuid, self._done = _task_name(data), data.get("task_uuid", ""), set()
            self._changed = True
        elif kind in _DONE and "host" in data:
            self._take(kind, data)
            self._tell_change(kind, data, f"\n{event.get('stdout')}")
        elif kind == "playbook_on_stats":
            self._count(data)
            self._tell()
        self.tick()
        return False

    def tick(self) -> None:
        """Tell where the run is, if there is something new to say and the last line is old enough."""
        if self.clock() - self._told >= (LINE_INTERVAL_S if self._changed else HEARTBEAT_S):
            self._tell()

    def _take(self, kind: str, data: Event) -> None:
        host = str(data["host"])
        self._seen.add(host)
        if data.get("task_uuid") == self._task_uuid:
            self._done.add(host)
        self._changed = True
        if kind == "runner_on_unreachable":
            self._failures[host] = self._failure("unreachable", host, data)
        elif kind == "runner_on_failed" and not data.get("ignore_errors"):
            self._failures[host] = self._failure("failed", host, data)
        left = (data.get("res") or {}).get("left")
        if isinstance(left, list):
            self._left.setdefault(host, []).extend(map(str, left))

    def _tell_change(self, kind: str, data: Event, printed: str) -> None:
        """Of a result that is `no_log` only what was printed says whether anything changed."""
        result = data.get("res") or {}
        changed = result.get("changed") or ("censored" in result and CHANGED in printed)
        if self.on_change and (kind == "runner_on_failed" or (kind == "runner_on_ok" and changed)):
            told = {**result, "failed": kind == "runner_on_failed"}
            self.on_change(str(data["host"]), _task_name(data), told)

    def _failure(self, state: HostState, host: str, data: Event) -> HostResult:
        task, result = _task_name(data), data.get("res") or {}
        log = self.log_dir / f"{host}.log"
        log.write_text(failure_log(task, str(data.get("task_path", "")), result))
        return HostResult(state, task=task, message=failure_message(result), log=log)

    def _count(self, stats: Event) -> None:
        """Ansible's own count decides: a failure that a `rescue` took care of is none."""
        changed, dark, failures = (stats.get(key) or {} for key in ("changed", "dark", "failures"))
        reached = {*(stats.get("processed") or {}), *dark}
        self.hosts = {}
        for host in sorted(self.targets | reached) if reached else ():
            left = tuple(dict.fromkeys(self._left.get(host, ())))
            if host in dark or host in failures:
                state: HostState = "unreachable" if host in dark else "failed"
                failure = self._failures.get(host) or HostResult(state)
                self.hosts[host] = replace(failure, state=state, changed=changed.get(host, 0), left=left)
            else:
                self.hosts[host] = HostResult("ok", changed.get(host, 0), left=left)

    def _tell(self) -> None:
        self._told, self._changed = self.clock(), False
        done, total = len(self._done | self._failures.keys()), len(self.targets | self._seen)
        elapsed_s = self._told - self._started
        self.on_progress(Progress(self._play, self._task, done, total, self.failed_hosts, elapsed_s))


def failure_message(result: Event) -> str:
    """The cause in one line of at most 400 characters: of the item that failed, where a task loops."""
    items = [item for item in result.get("results") or () if isinstance(item, dict)]
    result = next((item for item in items if item.get("failed") or item.get("unreachable")), result)
    message = result.get("msg") or result.get("censored") or result.get("reason") or ""
    if not isinstance(message, str):
        message = json.dumps(message)
    if SSH_BANNER in message:  # ssh shouts first and says what it means in its last line
        message = f"{message.partition(SSH_BANNER)[0]} {message.splitlines()[-1]}"
    words = shown(" ".join(message.split())).removeprefix("Task failed: ")
    if words.startswith(SAYS_NOTHING) or not words:
        words = ": ".join(filter(None, (words, shown(_last_line(result)))))
    return words if len(words) <= MESSAGE_CHARS else words[: MESSAGE_CHARS - 1] + "…"


def failure_log(task: str, task_path: str, result: Event) -> str:
    """What a person wants to read about a failed task; a result that is `no_log` comes censored already."""
    parts = [f"task: {task}", f"at: {task_path}", f"message: {failure_message(result)}"]
    kept = ("cmd", "rc", "stdout", "stderr", "module_stdout", "module_stderr")
    parts += [f"{key}:\n{result[key]}" for key in kept if result.get(key) not in (None, "", [])]
    items = [item for item in result.get("results") or () if isinstance(item, dict) and item.get("failed")]
    parts += [f"item {item.get('item')!r}: {failure_message(item)}" for item in items]
    return shown("\n".join(parts)) + "\n"


def _task_name(data: Event) -> str:
    name, role = str(data.get("name") or data.get("task") or ""), data.get("role")
    return f"{role}: {name.removeprefix(f'{role} : ')}" if role else name


def _last_line(result: Event) -> str:
    for key in ("stderr", "module_stderr", "stdout", "module_stdout"):
        if text := str(result.get(key) or "").strip():
            lines = [line.strip() for line in text.splitlines()]
            # Of errors that led to one another, the system's is the cause.
            causes = [line for line in lines if "Error: [Errno " in line] if "Traceback" in text else []
            return (causes or lines)[-1]
    return ""
