"""group: a group and its members."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from infra.drift.kind import Claim, Found, How, Kind, Task, Value, added, is_flag, is_list, is_text
from infra.drift.looks import Look

if TYPE_CHECKING:
    from infra.drift.findings import Difference
    from infra.drift.manifest import Entry, Manifest
    from infra.drift.merge import HostSeal, Turn
    from infra.drift.repair import Obstacles


def look_at_group(node: Look, key: str, how: How) -> Found:
    """The group and its members."""
    for row in node.table("group"):
        if row[0] == key:
            return {"exists": True, "gid": row[2], "members": sorted(filter(None, row[3].split(",")))}
    return {"exists": False}


# On the controller


def group(task: Task) -> Iterator[Claim]:
    """group: the group and its members."""
    yield Claim("group", str(task.args["name"]), {"exists": task.args.get("state", "present") == "present"})


class Group(Kind):
    """A group."""

    def compared(self, task: Task, claim: Claim) -> dict[str, Value]:
        """Its number, where it is given."""
        return {} if task.args.get("gid") is None else {"gid": str(task.args["gid"])}

    def untouched(self, task: Task) -> set[str]:
        """Its members are the accounts' tasks'."""
        return {"members"}

    def settled(self, run: HostSeal, before: Entry, entry: Entry, turn: Turn) -> Entry:
        """The members count where tasks changed the accounts that joined or left."""
        if before.want == entry.want:
            return entry
        others = set(before.want.get("members") or ()) ^ set(entry.want.get("members") or ())
        joined = all(("user", name) in run.changed for name in others)
        own = run.own(before, entry, turn) | ({"members"} if joined else set())
        return run.accounted(before, entry, turn, own)

    def obstacle(self, found: Obstacles, difference: Difference, manifest: Manifest) -> None:
        """Members that somebody added: tasks only ever add some."""
        for name in added(difference, "members") if difference.expected.get("members") is not None else ():
            found.undo(
                f"member {name} of the group {difference.key}", "gpasswd", "--delete", name, difference.key
            )


KINDS = (
    Group(
        "group",
        look_at_group,
        {"exists": is_flag, "gid": is_text, "members": is_list},
        modules={"ansible.builtin.group": group},
        always=("exists",),
        what_it_is="exists",
    ),
)
