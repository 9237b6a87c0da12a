"""Runs the checks of each host in a process of its own, so that a host that hangs costs the others nothing.

The process that has collected forks one for a host as soon as it is told of that host; one at a time, but for
those whose check takes longer than SLOW_S: they wait for somebody, and take no processor meanwhile.
"""

import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pytest

from infra.process import descendants

SLOW_S = 2.0
MOST_AT_ONCE = 16
"""Processes of which all but one wait."""
GRACE_S = 30.0
"""What a check may take to put things back after its deadline; then its process is killed."""
LOOK_S = 0.5


class Hung(pytest.fail.Exception):  # type: ignore[misc,name-defined,unused-ignore] # pytest makes the class
    """A deadline has passed. No `except Exception` of a check takes it."""


@contextmanager
def deadline(limit_s: float) -> Iterator[None]:
    """Raise Hung in what runs longer than this, and end the programs that it waits for."""

    def ring(*_: object) -> None:
        for pid in descendants(os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise Hung(f"hung: not done within {limit_s:g} s", pytrace=False)

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass
class Child:
    """The process of one host."""

    host: str
    ends: int
    """A descriptor that can be read when it has ended."""
    began: float = field(default_factory=time.monotonic)
    """When it began with the check that it is at."""
    check: str = ""
    limit_s: float = GRACE_S


class SideBySide:
    """The processes of all hosts that one process has collected checks of."""

    def __init__(self, look: Callable[[str, Callable[[str, float], None]], None]) -> None:
        """LOOK runs a host's checks, and calls its second argument before each with its name and deadline."""
        self.look = look
        self.killed: dict[str, str] = {}
        """Host → the check in which its process had to be killed."""
        self._children: dict[int, Child] = {}
        self._said, self._say = os.pipe()

    def run(self, told: int) -> None:
        """Look at every host that is named on the descriptor TOLD, a JSON string a line, until its end."""
        waiting: list[str] = []
        data, is_open = b"", True
        while is_open or waiting or self._children:
            while waiting and self._has_room():
                self._begin(waiting.pop(0))
            for ready in self._ready([told] if is_open else []):
                if ready == told:
                    more = os.read(told, 1 << 16)
                    is_open = bool(more)
                    *lines, data = (data + more).split(b"\n")
                    waiting += [json.loads(line) for line in lines]
                elif ready == self._said:
                    self._hear(os.read(self._said, 1 << 16))
            self._end()

    def _has_room(self) -> bool:
        slow = time.monotonic() - SLOW_S
        busy = [child for child in self._children.values() if child.began > slow]
        return not busy and len(self._children) < MOST_AT_ONCE

    def _ready(self, descriptors: Sequence[int]) -> list[int]:
        ends = [child.ends for child in self._children.values()]
        return select.select([*descriptors, self._said, *ends], [], [], LOOK_S)[0]

    def _begin(self, host: str) -> None:
        if pid := os.fork():
            self._children[pid] = Child(host, os.pidfd_open(pid))
            return
        status = 1
        try:
            self.look(host, self._tell)
            status = 0
        finally:
            os._exit(status)  # nothing of the collecting process's own ends twice

    def _tell(self, check: str, limit_s: float) -> None:
        """In a child: say what it begins with. A line this short is written whole."""
        os.write(self._say, json.dumps([os.getpid(), check[:200], limit_s]).encode() + b"\n")

    def _hear(self, data: bytes) -> None:
        for line in data.splitlines():
            pid, check, limit_s = json.loads(line)
            if child := self._children.get(pid):
                child.began, child.check, child.limit_s = time.monotonic(), check, limit_s

    def _end(self) -> None:
        """Take down who has ended, and end who does not."""
        for pid, child in list(self._children.items()):
            if time.monotonic() - child.began > child.limit_s + GRACE_S:
                self.killed[child.host] = child.check
                os.kill(pid, signal.SIGKILL)
            if os.waitpid(pid, 0 if child.host in self.killed else os.WNOHANG)[0]:
                os.close(child.ends)
                del self._children[pid]
