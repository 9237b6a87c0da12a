"""Notes, while a playbook runs, what each finished task made true on each host, per role.

Knows nothing of Ansible's classes: the callback plugin hands over plain values, and a test can do the same.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from infra.drift.claims import COMMANDS, NEUTRAL, claims_of
from infra.drift.compared import compared, untouched
from infra.drift.kind import Claim, Task, Uncovered
from infra.drift.kinds import kind_of

INTERNAL = "_ansible_"
SETTLED_TASKS = "causeway_settled_tasks"
"""A host's variable during a repair: role → names of tasks left out, for all they govern is as sealed."""
UNCHANGED_TASKS = "causeway_unchanged_tasks"
"""The same during a roll-out, where what they depend on is as it was, too: the run covers the whole role."""


@dataclass
class RoleRecord:
    """One role on one host: claims by (kind, key), and the tasks nothing can be said of."""

    claims: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    uncovered: dict[str, str] = field(default_factory=dict)
    """Task → module."""
    errors: list[str] = field(default_factory=list)
    """What a task declared and cannot be understood."""


@dataclass
class Recorder:
    """All hosts of a run."""

    hosts: dict[str, dict[str, RoleRecord]] = field(default_factory=dict)

    def seen(self, host: str, role: str) -> RoleRecord:
        """The record of a role on a host; a role without any claim is recorded as well."""
        return self.hosts.setdefault(host, {}).setdefault(role, RoleRecord())

    def take(
        self,
        host: str,
        role: str,
        task: Task,
        *,
        is_read: bool = False,
        declared: Iterable[Mapping[str, Any]] = (),
    ) -> list[tuple[str, str, str]]:
        """Note one result (of a loop: one item); role, kind and key of what it governs.

        `is_read`: the task says that it never changes anything.
        """
        record, declared = self.seen(host, role), list(declared)
        noted: list[tuple[str, str, str]] = []
        if is_read and not declared and (task.module in COMMANDS or task.module in NEUTRAL):
            return noted
        try:
            stated = {(item["kind"], str(item["key"])) for item in declared}
            for claim in claims_of(task, declared):
                if "{{" in claim.key:  # nothing on a node is called so: what it governs is not known
                    raise ValueError(f"{claim.kind} {claim.key} is a template, and no name")
                note(record, claim, task, stated=(claim.kind, claim.key) in stated)
                noted.append((role, claim.kind, claim.key))
        except Uncovered:
            if not is_read:
                record.uncovered[task.name] = task.module
        except (KeyError, TypeError, ValueError) as error:
            record.uncovered[task.name] = task.module
            record.errors.append(f"{task.name}: {error}")
        return noted


def governed_by(role: str, task: Task, declared: list[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Role, kind and key of what a task that failed would have made, as far as its arguments tell.

    `declared`: what its `causeway_governs` says on top.
    """
    found: list[tuple[str, str, str]] = []
    with suppress(Uncovered, KeyError, TypeError, ValueError):
        named = (claim for claim in claims_of(task, declared) if "{{" not in claim.key)
        found.extend((role, claim.kind, claim.key) for claim in named)
    return found


def note(record: RoleRecord, claim: Claim, task: Task, *, stated: bool = False) -> None:
    """File a claim; a later task that governs the same thing completes and overrides an earlier one.

    `stated`: the task's `causeway_governs` says it, not its module.
    """
    at, kind = (claim.kind, claim.key), kind_of(claim.kind, claim.key)
    for other in kind.one_of - {
        claim.kind
    }:  # what a file was before it was taken away does not hold any more
        record.claims.pop((other, claim.key), None)
    before = record.claims.get(at)
    aspects = claim.aspects
    how = dict(claim.how)
    for part in kind.gathered:  # several tasks, or a loop, may each put keys into one file
        if before and part in how:
            how[part] = [*before["how"][part], *how[part]]
    if before and before["aspects"] is None:
        aspects = None  # a task that only sets the mode does not take the content out again
        how = before["how"] | {key: value for key, value in how.items() if key not in kind.in_part}
    elif before and aspects is not None:
        aspects = tuple(dict.fromkeys([*before["aspects"], *aspects]))
    elif aspects is None:
        how = {key: value for key, value in how.items() if key not in kind.in_part}
    left = untouched(task, claim) if task.changed else None
    if before and before["changed"]:
        left = set(before["untouched"]) if left is None else left & set(before["untouched"])
    record.claims[at] = {
        "kind": claim.kind,
        "key": claim.key,
        "task": task.name,
        "tasks": list(dict.fromkeys([*(before["tasks"] if before else ()), task.name])),
        "stated_by": [*(before["stated_by"] if before else ()), *([task.name] if stated else ())],
        "reported": {**(before["reported"] if before else {}), **claim.reported},
        "compared": {**(before["compared"] if before else {}), **compared(task, claim)},
        "how": how,
        "aspects": aspects,
        "untouched": sorted(left or ()),
        "changed": task.changed or bool(before and before["changed"]),
        "handler": task.handler and (before is None or before["handler"]),
        "part": task.declared or bool(before and before["part"]),
    }


def plain_arguments(fields: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """A task's final arguments: as given, completed by what the module says it was called with.

    In a loop Ansible hands over what was given before it filled in the item; the module knows better.
    """
    given = {k: v for k, v in (fields.get("args") or {}).items() if not k.startswith(INTERNAL)}
    invoked = (result.get("invocation") or {}).get("module_args") or {}
    if not isinstance(invoked, Mapping):
        return given
    final = {k: v for k, v in given.items() if k not in invoked or "{{" not in str(v)}
    return {**invoked, **final}


def as_json(record: RoleRecord) -> dict[str, Any]:
    """A role's record for the sealing process."""
    data = asdict(record)
    data["claims"] = list(record.claims.values())
    return data
