"""Callback plugin: notes what a playbook and each of its tasks took, where the test run asks for it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from ansible import context
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: causeway_durations
type: aggregate
short_description: Notes what tasks take
description:
  - Appends one JSON line per playbook to a file.
  - "C(playbook): its file's name; C(check): whether in check mode; C(took_s): seconds in all; C(tasks): role,
    name and seconds of each task, over all hosts."
options:
  durations:
    description: The file. Without it nothing is noted.
    type: path
    env: [{name: CAUSEWAY_DURATIONS}]
requirements: []
"""


class CallbackModule(CallbackBase):  # type: ignore[misc] # ansible has no types
    """Takes the time from each task's start to the next one's."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "causeway_durations"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.started_s = self.task_started_s = time.monotonic()
        self.playbook = ""
        self.task: tuple[str, str] | None = None
        self.tasks: list[tuple[str, str, float]] = []

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Keep the playbook's name."""
        self.playbook = Path(playbook._file_name).name

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """A task begins, so the one before has ended."""
        del is_conditional
        self._end_task()
        role = task._role.get_name() if task._role else ""
        self.task, self.task_started_s = (role, task.name or task.action), time.monotonic()

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        """Likewise a handler."""
        self.v2_playbook_on_task_start(task, False)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """The playbook has ended: write its line, in one piece, for several may end at once."""
        del stats
        self._end_task()
        file = self.get_option("durations")
        if file:
            line = {
                "playbook": self.playbook,
                "check": bool(context.CLIARGS.get("check")),
                "took_s": round(time.monotonic() - self.started_s, 3),
                "tasks": self.tasks,
            }
            number = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(number, json.dumps(line).encode() + b"\n")
            finally:
                os.close(number)

    def _end_task(self) -> None:
        if self.task:
            self.tasks.append((*self.task, round(time.monotonic() - self.task_started_s, 3)))
            self.task = None
