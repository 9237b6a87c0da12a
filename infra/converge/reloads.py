"""Whether systemd has to read its units once more on a host.

A task that starts a service says `daemon_reload: true`, for an earlier run may have been killed between a
unit's file and this. So on a node of many roles systemd read all of its units twenty times in a run that
changes nothing, a tenth of a second of CPU each. The first one of a run is due always, another one once a
task has changed something since.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

RELOAD = "daemon_reload"
SERVICES = ("ansible.builtin.systemd_service", "ansible.builtin.systemd")
"""Whose changes need none: what is enabled or masked, systemctl has read again by itself."""


class Reloads:
    """Of one run of Ansible, over all its plays."""

    def __init__(self) -> None:
        self._current: set[str] = set()
        """Hosts whose systemd has read all that tasks have written."""

    @contextmanager
    def only_due(self, host: str, task: Any) -> Iterator[None]:
        """The task without a reload that would be in vain, for as long as it is handed to a process."""
        arguments = task.args
        if host in self._current and is_reload(task):
            task.args = {name: value for name, value in arguments.items() if name != RELOAD}
        try:
            yield
        finally:
            task.args = arguments

    def note(self, host: str, task: Any, *, changed: bool, failed: bool, skipped: bool) -> None:
        """What came of a task."""
        if skipped:
            return
        if task.delegate_to:
            if changed or failed:
                self._current.clear()
        elif task.action not in SERVICES:
            if changed or failed:
                self._current.discard(host)
        elif is_reload(task) and not failed:
            self._current.add(host)


def is_reload(task: Any) -> bool:
    """Whether a task starts a service, or the like, and has systemd read its units first."""
    arguments = task.args
    named = task.action in SERVICES and arguments.get("name") and not arguments.get("scope")
    return bool(named and arguments.get(RELOAD) is True and not task.delegate_to)


current = Reloads()
