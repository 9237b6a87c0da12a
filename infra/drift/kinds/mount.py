"""mount: the line in fstab, and what is mounted."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import TYPE_CHECKING

from infra.drift.kind import Claim, Found, How, Kind, Task, Value, is_text
from infra.drift.looks import Look
from infra.drift.node import text_of

if TYPE_CHECKING:
    from infra.drift.findings import Difference
    from infra.drift.manifest import Manifest
    from infra.drift.repair import Obstacles


AUTOFS = "autofs"
"""What waits at a place until it is used. Its options are numbers of this boot, as of a pipe."""


def look_at_mount(node: Look, key: str, how: How) -> Found:
    """What /etc/fstab says of a mount point, and what is mounted there."""
    found: Found = {"fstab": None, "mounted": None}
    for line in text_of("/etc/fstab", "").splitlines():
        fields = line.split()
        if len(fields) > 2 and not fields[0].startswith("#") and fields[1] == key.replace(" ", "\\040"):
            found["fstab"] = " ".join(fields)
    for line in node.once("mounts", lambda: text_of("/proc/self/mountinfo").splitlines()):
        fields = line.split()
        tail = fields[fields.index("-") + 1 :]
        if fields[4] == key.replace(" ", "\\040") and tail[0] != AUTOFS:
            options = sorted(set(fields[5].split(",") + (tail[2].split(",") if len(tail) > 2 else [])))
            found["mounted"] = " ".join([tail[1], tail[0], ",".join(options)])
    sealed = node.want.get("mounted") or ""
    if f" {AUTOFS} " in sealed:  # by an older version: what is used by now says nothing against it
        found["mounted"] = sealed
    return found


# On the controller

LINE_ONLY = ("present", "absent_from_fstab")
"""States of ansible.posix.mount in which it mounts and unmounts nothing."""


def mounts(task: Task) -> Iterator[Claim]:
    """ansible.posix.mount: the line in fstab and what is mounted, or the line alone where it sees to no more.

    What is mounted when somebody first uses it is at times there and at times not.
    """
    place = posixpath.normpath(str(task.args.get("path") or task.args["name"]))
    yield Claim("mount", place, aspects=("fstab",) if task.args.get("state") in LINE_ONLY else None)


class Mount(Kind):
    """A mount point."""

    def compared(self, task: Task, claim: Claim) -> dict[str, Value]:
        """The line in fstab."""
        if task.args.get("state") not in ("mounted", "present"):
            return {}
        fields = (task.args.get("src"), claim.key, task.args.get("fstype"),
                  task.args.get("opts") or "defaults", task.args.get("dump") or 0,
                  task.args.get("passno") or 0)  # fmt: skip
        return {"fstab": " ".join(str(field).replace(" ", "\\040") for field in fields)}

    def obstacle(self, found: Obstacles, difference: Difference, manifest: Manifest) -> None:
        """Its options."""
        mounted = str(difference.expected.get("mounted") or "")
        if f" {AUTOFS} " in mounted:  # as an older version sealed it
            return
        if mounted and difference.found.get("mounted"):
            path, options = difference.key, mounted.rpartition(" ")[2]
            found.run(f"mounted {path} with {options}", "mount", "-o", f"remount,{options}", path)


KINDS = (
    Mount(
        "mount",
        look_at_mount,
        {"fstab": is_text, "mounted": is_text},
        modules={"ansible.posix.mount": mounts},
        knows_others=True,
    ),
)
