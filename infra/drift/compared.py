"""What a task compared by itself: it answers for that without a change, where it found it as asked for.

A result says more than that: `copy` without a mode reports the mode that it met, and `lineinfile` reports
a file of which it compared one line.
"""

from collections.abc import Mapping
from typing import Any

from infra.drift.kind import Claim, Task
from infra.drift.kinds import MODULES, kind_of


def compared(task: Task, claim: Claim) -> dict[str, Any]:
    """What the task reported → the value that it asked for, found, and would have changed otherwise."""
    kind, known = kind_of(claim.kind, claim.key), task.module in MODULES
    asked = {what: value for what, value in claim.reported.items() if kind.asked(task, what, known)}
    return asked | (kind.compared(task, claim) if known else {})


def untouched(task: Task, claim: Claim) -> set[str]:
    """What a change by the task leaves as it was.

    Nothing where the task's arguments are not all known, and where no kind records its module.
    """
    if task.module not in MODULES or "censored" in task.result:
        return set()
    return kind_of(claim.kind, claim.key).untouched(task)


def answered_for(claim: Mapping[str, Any], before: Mapping[str, Any], found: Mapping[str, Any]) -> set[str]:
    """The aspects whose new value a task compared, and would not have let stand as they were sealed.

    Where what it compared holds of both values, it cannot tell them apart: `enabled` and `enabled-runtime`.
    """
    kind = kind_of(claim["kind"], claim["key"])
    return {
        kind.shown_as(what)
        for what, value in claim["compared"].items()
        if kind.holds(what, value, found) and not kind.holds(what, value, before)
    }
