"""user: an account."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from infra.drift.kind import Claim, Found, How, Kind, Task, Value, is_flag, is_list, is_text
from infra.drift.looks import Look
from infra.drift.node import text_of

if TYPE_CHECKING:
    from infra.drift.findings import Difference
    from infra.drift.manifest import Manifest
    from infra.drift.repair import Obstacles


def look_at_user(node: Look, key: str, how: How) -> Found:
    """An account; its password as a salted hash of what /etc/shadow has."""
    row = next((row for row in node.table("passwd") if row[0] == key), None)
    if row is None:
        return {"exists": False}
    shadow = next(
        (line for line in text_of("/etc/shadow", "").splitlines() if line.startswith(key + ":")), ""
    )
    return {
        "exists": True,
        "uid": row[2],
        "gid": row[3],
        "home": row[5],
        "shell": row[6],
        "groups": sorted(r[0] for r in node.table("group") if len(r) > 3 and key in r[3].split(",")),
        "password": node.digest(shadow.split(":")[1].encode()) if shadow else None,
        "aging": shadow.split(":")[3:8] if shadow else None,
    }


# On the controller

ARGUMENTS = {
    **{name: name for name in ("uid", "home", "shell", "groups", "password")},
    "gid": "group",
}
"""Aspect → the argument of `user` that sets it."""
AGED_BY = ("expires", *(f"password_expire_{x}" for x in ("min", "max", "warn", "account_disable")))
"""The arguments that set `aging`."""
AGING = ("--mindays", "--maxdays", "--warndays", "--inactive", "--expiredate")
"""chage's options, in the order of shadow(5)."""


def user(task: Task) -> Iterator[Claim]:
    """user: the account."""
    yield Claim("user", str(task.args["name"]), {"exists": task.args.get("state", "present") == "present"})


class User(Kind):
    """An account."""

    def compared(self, task: Task, claim: Claim) -> dict[str, Value]:
        """What the task was given, never a password."""
        given = {what: task.args.get(what) for what in ("shell", "home", "uid")}
        found: dict[str, Value] = {what: str(value) for what, value in given.items() if value is not None}
        groups = task.args.get("groups")
        if groups is not None and not task.args.get("append"):
            names = groups if isinstance(groups, list) else str(groups).split(",")
            found["groups"] = sorted({str(name).strip() for name in names} - {""})
        return found

    def untouched(self, task: Task) -> set[str]:
        """What the task was not given."""
        given = {aspect for aspect, name in ARGUMENTS.items() if task.args.get(name) is not None}
        if task.args.get("update_password") == "on_create":
            given -= {"password"}
        given |= {"aging"} if any(task.args.get(name) is not None for name in AGED_BY) else set()
        return {*ARGUMENTS, "aging"} - given

    def obstacle(self, found: Obstacles, difference: Difference, manifest: Manifest) -> None:
        """When the account and its password end: most tasks leave that open."""
        if difference.found.get("aging") and (sealed := difference.expected.get("aging")):
            words = (word for name, days in zip(AGING, sealed, strict=True) for word in (name, days or "-1"))
            found.run(f"set back when {difference.key} ends", "chage", *words, difference.key)


KINDS = (
    User(
        "user",
        look_at_user,
        {
            "exists": is_flag,
            **dict.fromkeys(("uid", "gid", "home", "shell"), is_text),
            "groups": is_list,
            "password": is_text,
            "aging": is_list,
        },
        modules={"ansible.builtin.user": user},
        always=("exists",),
        what_it_is="exists",
        knows_others=True,
        said={"password": "its password was changed", "aging": "when it or its password ends was changed"},
    ),
)
