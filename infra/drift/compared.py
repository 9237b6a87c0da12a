"""What a task compared by itself: it answers for that without a change, where it found it as asked for.

A result says more than that: `copy` without a mode reports the mode that it met, and `lineinfile` reports
a file of which it compared one line.
"""

from collections.abc import Callable, Mapping
from typing import Any

from infra.drift.kinds import MODULES, OWNERSHIP, Claim, Task

WHOLE = frozenset(f"ansible.builtin.{name}" for name in ("copy", "template", "assemble"))
"""Modules whose reported checksum is that of the text they were to write."""
SHOWN_BY = {"sha1": "digest", "masked": "load"}
"""What a task reports → the sealed aspect that shows it, where that has another name."""
USERS = {name: name for name in ("uid", "home", "shell", "groups", "password")} | {"gid": "group"}
"""Aspect of an account → the argument of `user` that sets it."""
ENABLED = ("enabled", "enabled-runtime", "static", "alias", "indirect")


def compared(task: Task, claim: Claim) -> dict[str, Any]:
    """What the task reported → the value that it asked for, found, and would have changed otherwise."""
    asked = {what: value for what, value in claim.reported.items() if _asked(task, what)}
    more = BY_KIND.get(claim.kind) if task.module in MODULES else None
    return asked | (more(task, claim) if more else {})


def untouched(task: Task, claim: Claim) -> set[str]:
    """What a change by the task leaves as it was: a file written anew keeps the owner that somebody gave it.

    Nothing where the task's arguments are not all known, and where its module is none of the table.
    """
    if task.module not in MODULES or "censored" in task.result:
        return set()
    if claim.kind in ("file", "directory"):
        return {"immutable", *OWNERSHIP} - {what for what in OWNERSHIP if task.args.get(what) is not None}
    if claim.kind == "group":
        return {"members"}
    if claim.kind == "user":
        given = {aspect for aspect, name in USERS.items() if task.args.get(name) is not None}
        return USERS.keys() - (
            given - {"password"} if task.args.get("update_password") == "on_create" else given
        )
    return set()


def holds(kind: str, what: str, value: Any, found: Mapping[str, Any]) -> bool:
    """Whether the values found are as a task reported."""
    if kind == "unit" and what == "enabled":
        return bool((found.get("enabled") in ENABLED) == value)
    if kind == "unit" and what == "masked":
        return bool((found.get("load") == "masked") == value)
    return bool(found.get("_sha1" if what == "sha1" else what) == value)


def answered_for(claim: Mapping[str, Any], before: Mapping[str, Any], found: Mapping[str, Any]) -> set[str]:
    """The aspects whose new value a task compared, and would not have let stand as they were sealed.

    Where what it compared holds of both values, it cannot tell them apart: `enabled` and `enabled-runtime`.
    """
    return {
        SHOWN_BY.get(what, what)
        for what, value in claim["compared"].items()
        if holds(claim["kind"], what, value, found) and not holds(claim["kind"], what, value, before)
    }


def _asked(task: Task, what: str) -> bool:
    if what == "sha1":
        return task.module in WHOLE
    # Modules of ours, and what a task says it governs, report on purpose only.
    return what not in OWNERSHIP or task.module not in MODULES or task.args.get(what) is not None


def _file(task: Task, claim: Claim) -> dict[str, Any]:
    return {"type": claim.kind} if task.module == "ansible.builtin.file" else {}


def _unit(_task: Task, claim: Claim) -> dict[str, Any]:
    # systemd starts and enables nothing that is masked or not there.
    runs = claim.reported.get("active") == "active" or claim.reported.get("enabled") is True
    return {"load": "loaded"} if runs else {}


def _sysctl(task: Task, _claim: Claim) -> dict[str, Any]:
    if task.module != "ansible.posix.sysctl" or task.args.get("value") is None:
        return {}
    value = " ".join(str(task.args["value"]).split())
    return {"kept": value} | ({"live": value} if task.args.get("sysctl_set") in (True, "yes", "true") else {})


def _mount(task: Task, claim: Claim) -> dict[str, Any]:
    if task.args.get("state") not in ("mounted", "present"):
        return {}
    fields = (task.args.get("src"), claim.key, task.args.get("fstype"), task.args.get("opts") or "defaults",
              task.args.get("dump") or 0, task.args.get("passno") or 0)  # fmt: skip
    return {"fstab": " ".join(str(field).replace(" ", "\\040") for field in fields)}


def _user(task: Task, _claim: Claim) -> dict[str, Any]:
    given = {what: task.args.get(what) for what in ("shell", "home", "uid")}
    found: dict[str, Any] = {what: str(value) for what, value in given.items() if value is not None}
    groups = task.args.get("groups")
    if groups is not None and not task.args.get("append"):
        names = groups if isinstance(groups, list) else str(groups).split(",")
        found["groups"] = sorted({str(name).strip() for name in names} - {""})
    return found


def _group(task: Task, _claim: Claim) -> dict[str, Any]:
    return {} if task.args.get("gid") is None else {"gid": str(task.args["gid"])}


def _hostname(task: Task, _claim: Claim) -> dict[str, Any]:
    return {} if task.args.get("name") is None else {"kept": str(task.args["name"])}


BY_KIND: Mapping[str, Callable[[Task, Claim], dict[str, Any]]] = {
    "directory": _file, "link": _file, "absent": _file, "unit": _unit, "sysctl": _sysctl, "mount": _mount,
    "user": _user, "group": _group, "hostname": _hostname,
}  # fmt: skip
"""Kind → what a task compares of it beyond what it reports."""
