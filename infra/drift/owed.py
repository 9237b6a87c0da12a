"""Handlers that are due on a host and had no turn: what a run that ended early owes the next one.

Ansible keeps in memory whom tasks have notified. After a run that was killed, or failed on a host, the next
one finds every file as it should be and notifies nobody, and the daemon goes on with what it read before.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from infra import ROOT
from infra.files import write_file
from infra.stack import stack_dir

Notified = dict[str, list[str]]
"""Role → what its tasks notified: names of handlers, or of what these listen to, in order."""


def owed_path(stack: str, host: str) -> Path:
    """Where a host's are noted, beside its manifest; there is none where nothing is owed."""
    # Not by `manifest`: every run of Ansible asks this, and would load pydantic for it.
    return ROOT / stack_dir(stack) / "drift" / f"{host}.owed"


def owed(stack: str, host: str) -> Notified:
    """What earlier runs owe a host."""
    try:
        return dict(json.loads(owed_path(stack, host).read_text()))
    except FileNotFoundError:
        return {}


def forget_owed(stack: str, host: str, roles: Collection[str]) -> None:
    """Drop what is owed to roles that have left a host."""
    _write(stack, host, {role: names for role, names in owed(stack, host).items() if role not in roles})


class Owed:
    """The same while a run goes on: a task's handlers are noted before it begins."""

    def __init__(self, stack: str) -> None:
        self.stack = stack
        self._known: dict[str, Notified] = {}
        self._begun: dict[tuple[str, str], tuple[str, list[str]]] = {}
        """Host and task → its role, and whom it may notify."""

    def of(self, host: str, role: str) -> list[str]:
        """Whom tasks of a role have notified on a host, this run's included."""
        return self._of(host).get(role, [])

    def begin(self, host: str, role: str, task: str, names: Iterable[str]) -> None:
        """A task that may notify begins on a host; while nobody hears of its end, it may have changed it."""
        if new := [name for name in names if name not in self.of(host, role)]:
            self._begun[host, task] = role, new
            self._keep(host)

    def end(self, host: str, role: str, task: str, notified: Iterable[str], *, unclear: bool) -> None:
        """It has ended. UNCLEAR: it failed, and may have changed things before."""
        _role, names = self._begun.pop((host, task), ("", []))
        mine = self._of(host).setdefault(role, [])
        before = len(mine)
        mine += [name for name in (*notified, *(names if unclear else ())) if name not in mine]
        if names or len(mine) != before:
            self._keep(host)

    def settle(self, host: str, role: str) -> None:
        """All handlers of a role have had their turn on a host."""
        if self._of(host).pop(role, None):
            self._keep(host)

    def _of(self, host: str) -> Notified:
        if host not in self._known:
            self._known[host] = owed(self.stack, host)
        return self._known[host]

    def _keep(self, host: str) -> None:
        noted = {role: [*names] for role, names in self._of(host).items()}
        for (at, _task), (role, names) in self._begun.items():
            if at == host:
                noted[role] = [*noted.get(role, ()), *names]
        _write(self.stack, host, noted)


def in_words(names: Iterable[str]) -> str:
    """Why nothing can be said of a role that handlers are owed to."""
    return f"a run ended before this was done there: {', '.join(names)}"


def _write(stack: str, host: str, noted: Mapping[str, Collection[str]]) -> None:
    kept = {role: list(dict.fromkeys(names)) for role, names in noted.items() if names}
    path = owed_path(stack, host)
    if kept:
        write_file(path, json.dumps(kept))
    else:
        path.unlink(missing_ok=True)
