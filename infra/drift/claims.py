"""What a task made true, as claims: told by the kind that records its module, or by the task itself.

A claim names a kind, a key and what the task itself reported. Which values hold is not decided here: the
probe reads them when the claim is sealed.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from infra.drift.kind import Claim, Task, Uncovered
from infra.drift.kinds import FOLLOWING, KINDS, MODULES, kind_of

COMMANDS = frozenset(f"ansible.builtin.{name}" for name in ("command", "shell", "raw", "script", "expect"))
"""Anything may come of these: reads when the task says `changed_when: false`, uncovered otherwise."""

NEUTRAL = {
    f"ansible.builtin.{name}"
    for name in (
        *("add_host", "assert", "async_status", "debug", "fail", "fetch", "find", "gather_facts", "getent"),
        *("group_by", "import_playbook", "import_role", "import_tasks", "include_role", "include_tasks"),
        *("include_vars", "meta", "package_facts", "pause", "ping", "service_facts", "set_fact", "set_stats"),
        *("setup", "slurp", "stat", "tempfile", "uri", "validate_argument_spec", "wait_for"),
        "wait_for_connection",
    )
} | {"causeway_keep_secret", "causeway_artefact_server"}
"""Nothing on the node is different after these, or not for longer than a run."""


def derived(claim: Claim) -> Iterator[Claim]:
    """The claim, and those that follow from it: a directory's listing, a program's settings."""
    claim = kind_of(claim.kind, claim.key).completed(claim)
    yield claim
    for kind in FOLLOWING:
        yield from kind.following(claim)


def claims_of(task: Task, declared: list[Mapping[str, Any]]) -> Iterator[Claim]:
    """All claims of a task. `declared`: what the task's `causeway_governs` says on top.

    Raises Uncovered when the task changes the node and nothing says what it governs.
    """
    stated = [*declared, *task.result.get("governs", ())]
    for item in stated:
        if item["kind"] not in KINDS:
            names = ", ".join(name for name in KINDS if " " not in name)
            raise ValueError(f"governs: {item['kind']!r} is not one of {names}")
        reported = {str(k): v for k, v in (item.get("want") or {}).items()}
        yield from derived(Claim(item["kind"], str(item["key"]), reported, item.get("how") or {}))
    if recorder := MODULES.get(task.module):
        for claim in recorder(task):
            yield from derived(claim)
    elif not stated and task.module not in NEUTRAL:
        raise Uncovered
