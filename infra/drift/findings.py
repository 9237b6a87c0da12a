"""What a scan says: per host and role, what differs, since when, and how it is repaired."""

import difflib
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import repeat
from typing import Any, Literal

from infra.drift.kind import in_words
from infra.drift.kinds import kind_of
from infra.errors import one_line

HostState = Literal["clean", "drift", "stale", "not sealed", "unreachable", "failed"]
NOT_SCANNED = ("unreachable", "failed")
RoleState = Literal["clean", "drift", "stale", "not sealed", "orphaned"]
"""Given up: the declaration does not have it any more, and nothing took off what it made."""
MANIFEST_ROLE = "manifest"
"""Stands where a role does, for the node's own copy of the manifest."""
DIFF_STEPS = 1_000_000
"""About 0.3 s: meanwhile, the scan of all other nodes waits."""


@dataclass(frozen=True)
class Difference:
    """One governed thing that is not as sealed. `expected` and `found`: aspect → value."""

    role: str
    task: str
    kind: str
    key: str
    expected: Mapping[str, Any]
    found: Mapping[str, Any]
    since: str | None = None
    """ISO 8601, as the node knows it: the file's change time, the unit's last change of state."""
    diff: str | None = None
    """Unified diff, for text that every user of the node may read."""

    def __str__(self) -> str:
        """In one line: what, and how it differs."""
        return one_line(f"{self.kind} {self.key}: {self.said}")

    @property
    def said(self) -> str:
        """How it differs, in words, some of which may be the node's."""
        return explain(self.kind, self.expected, self.found, self.key)


@dataclass
class RoleReport:
    """One role on one host. `notes` say why it is stale or not sealed; `ran`: a run of it was recorded."""

    state: RoleState
    differences: list[Difference] = field(default_factory=list)
    uncovered: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sealed_at: str | None = None
    ran: bool = True


@dataclass
class HostReport:
    """One host's scan. `message` says why it is unreachable or failed."""

    host: str
    region: str
    state: HostState
    roles: dict[str, RoleReport] = field(default_factory=dict)
    message: str = ""
    took_s: float = 0.0

    @property
    def differences(self) -> list[Difference]:
        """All differences, in the order of roles."""
        return [difference for role in self.roles.values() for difference in role.differences]

    @property
    def drifted_roles(self) -> list[str]:
        """The roles a repair has to run: those that differ and those whose last run was not sealed.

        All of them where the node's copy of the manifest differs. A role that never ran or is stale is a
        roll-out, not a repair.
        """
        roles = {
            name: role
            for name, role in self.roles.items()
            if name != MANIFEST_ROLE and role.state != "orphaned"
        }
        if MANIFEST_ROLE in self.roles:
            return list(roles)
        return [name for name, role in roles.items() if role.differences or name in self.unsealed_roles]

    @property
    def unsealed_roles(self) -> list[str]:
        """Roles that ran and were not sealed: what they made true, nothing compares."""
        return [name for name, role in self.roles.items() if role.state == "not sealed" and role.ran]

    @property
    def unsettled_roles(self) -> list[str]:
        """Roles of which nothing can be said: changed since they were sealed, or not sealed."""
        return [name for name, role in self.roles.items() if role.state in ("stale", "not sealed")]

    def unsettled(self, role: str) -> str:
        """In one line, why nothing can be said of a role."""
        part = self.roles[role]
        return one_line(f"{role} is {part.state}: {'; '.join(part.notes)}")

    def repair_command(self, stack: str) -> str:
        """What brings the host back; plain Ansible."""
        return f"{repair_command(stack)} --limit {self.host} --tags {','.join(self.drifted_roles)}"


def repair_command(stack: str) -> str:
    """What brings a whole stack back; plain Ansible."""
    return f"./run exec ansible-playbook playbooks/repair.yml -i inventories/{stack}"


def explain(kind: str, expected: Mapping[str, Any], found: Mapping[str, Any], key: str = "") -> str:
    """How `found` differs from `expected`, in words."""
    if "error" in found:
        return f"cannot be read: {in_words(found['error'])}"
    return kind_of(kind, key).explain(expected, found)


def text_diff(key: str, sealed: str, found: str) -> str:
    """A unified diff between the sealed text and the one found; in one piece where the best takes long."""
    name, old, new = posixpath.relpath(key, "/"), sealed.splitlines(), found.splitlines()
    try:
        hunks = list(_Matcher(None, old, new).get_grouped_opcodes(2))
    except TooManyStepsError:
        head = len(posixpath.commonprefix([old, new]))
        tail = len(posixpath.commonprefix([old[:head:-1], new[:head:-1]]))
        hunks = [[("replace", head, len(old) - tail, head, len(new) - tail)]] if old != new else []
    lines = [f"--- sealed/{name}", f"+++ found/{name}"] if hunks else []
    for hunk in hunks:
        (_, top, _, new_top, _), (_, _, end, _, new_end) = hunk[0], hunk[-1]
        lines.append(f"@@ -{_range(top, end)} +{_range(new_top, new_end)} @@")
        for tag, start, stop, new_start, new_stop in hunk:
            lines += [f"{' ' if tag == 'equal' else '-'}{line}" for line in old[start:stop]]
            lines += [f"+{line}" for line in new[new_start:new_stop] if tag != "equal"]
    return "\n".join(lines)


def _range(top: int, end: int) -> str:
    """Lines as a hunk names them: of none, the line before."""
    return f"{top + 1 if end > top else top},{end - top}"


class TooManyStepsError(Exception):
    """Two texts are not compared any further."""


class _Matcher(difflib.SequenceMatcher[str]):
    """Finds equal lines, and gives up after so many steps: a node may make its text hard to compare."""

    a: Sequence[str]
    b2j: dict[str, list[int]]
    steps = DIFF_STEPS

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        lines = self.a[alo:ahi]
        self.steps -= len(lines) + sum(map(len, map(self.b2j.get, lines, repeat([]))))
        if self.steps < 0:
            raise TooManyStepsError
        return super().find_longest_match(alo, ahi, blo, bhi)


def moment(seconds: float | None) -> str | None:
    """Seconds since 1970 as ISO 8601 in UTC."""
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
