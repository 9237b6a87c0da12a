"""folders: the directories above what roles made, and what is mounted over either.

Who may write to a directory may put another file in the place of each that lies there, and what is mounted
over a path hides what a role wrote there, also where both say the same. What a task governs is compared as
such; these are the directories that no task makes.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

from infra.drift.kind import Found, How, added, is_list
from infra.drift.kinds.known import with_known
from infra.drift.looks import Look
from infra.drift.node import text_of
from roles.base.drift.everywhere import Everywhere

if TYPE_CHECKING:
    from infra.drift.findings import Difference
    from infra.drift.manifest import Entry, Manifest
    from infra.drift.merge import HostSeal, Turn
    from infra.drift.repair import Obstacles

GOVERNED = "governed"
"""What is said of a directory that a task makes: it is compared by itself."""
COMES_AND_GOES = (
    *("/ ", "/proc", "/sys", "/dev", "/run"),
    *(f"/var/lib/{x}/" for x in ("containers", "docker", "containerd", "kubelet")),
)
"""How mount points begin that come and go by themselves, but for what roles made there."""


def look_at_folders(node: Look, key: str, how: How) -> Found:
    """Mode, owner and group of each directory above; where a link stands in its place, where that leads.

    A seal also notes mounts over what nothing governs yet: the role that comes to it later finds them there.
    What more there is above what was governed since counts from the next seal on.
    """
    files = {path for kind in ("file", "link") for path in node.keys_of(kind) if path[0] == "/"}
    made, mounts = set(node.keys_of("directory")), set(node.keys_of("mount"))
    folders, governed = above(files | made) | made, list[str]()
    if node.mode == "seal":
        governed = [f"{path} {GOVERNED}" for path in folders & made]
    else:
        sealed = [line.split() for line in node.want.get("folders") or ()]
        folders &= {words[0] for words in sealed}
        made |= {words[0] for words in sealed if words[1] == GOVERNED}  # what no task makes any more
    lines = [line for path in folders - made for line in folder_line(node, path)]
    there = [line for line in mount_lines(node) if line.split()[0] not in mounts]
    covered = [line for line in there if line.split()[0] in folders | files]
    if node.mode == "seal":
        covered += [line for line in there if not line.startswith(COMES_AND_GOES)]
    return with_known(node, {"folders": governed + lines, "mounts": covered})


def above(paths: set[str]) -> set[str]:
    """All directories above these paths, but for the root."""
    found: set[str] = set()
    for path in paths:
        path = path.rpartition("/")[0]
        while path and path not in found:
            found.add(path)
            path = path.rpartition("/")[0]
    return found


def folder_line(node: Look, path: str) -> list[str]:
    """What is at a path, as one line; none where nothing is: that says what is missing below."""
    try:
        status = os.lstat(path)
    except OSError:
        return []
    owner = f"{node.name_of('passwd', status.st_uid)} {node.name_of('group', status.st_gid)}"
    if stat.S_ISLNK(status.st_mode):
        return [f"{path} is a link of {owner} to {os.readlink(path)}"]
    return [f"{path} {stat.S_IMODE(status.st_mode):04o} {owner}"]


def mount_lines(node: Look) -> list[str]:
    """Mount points, each with its type of file system, as often as something is mounted there."""
    lines: list[str] = node.once("mounts", lambda: text_of("/proc/self/mountinfo").splitlines())
    found: list[str] = []
    for line in lines:
        fields = line.split()
        said = f"{fields[4]} {fields[fields.index('-') + 1]}"
        found.append(said + f" {found.count(said) + 1}" * (said in found))
    return found


# On the controller


class Folders(Everywhere):
    """Directories above, and mounts over, what roles made."""

    def ours(self, run: HostSeal, aspect: str, line: str) -> bool:
        """A directory that a task makes by now."""
        return line.endswith(f" {GOVERNED}")

    def settled(self, run: HostSeal, before: Entry, entry: Entry, turn: Turn) -> Entry:
        """A directory that nothing governed lay below before, or that a task made, is sealed as it is, with
        its mounts; so are mounts over what nothing governs."""
        sealed = [str(line) for line in before.want.get("folders") or ()]
        known = {line.split()[0] for line in sealed if not line.endswith(f" {GOVERNED}")}
        new = [line for line in entry.want.get("folders") or () if line.split()[0] not in known]
        made = {path for path in run.governed() if path.startswith("/")}
        places, concerned = {line.split()[0] for line in new}, made | above(made) | known
        mounts = {
            line
            for line in entry.want.get("mounts") or ()
            if line.split()[0] in places or line.split()[0] not in concerned
        }
        want = {
            "folders": sorted({*sealed, *new}),
            "mounts": sorted({*(before.want.get("mounts") or ()), *mounts}),
        }
        return super().settled(run, before.model_copy(update={"want": want}), entry, turn)

    def obstacle(self, found: Obstacles, difference: Difference, manifest: Manifest) -> None:
        """A directory is brought back as sealed; what is mounted is named with what takes it away."""
        sealed: dict[str, Any] = {}
        for line in difference.expected.get("folders") or ():
            sealed[str(line).split()[0]] = str(line).split()
        for line in added(difference, "folders"):
            path, _, now = line.partition(" ")
            words = sealed.get(path, ())
            if now.startswith("is a link"):
                argv = ("sh", "-c", PUT_BACK, "folder", path)
                found.undo(f"link in the place of directory {path}", *argv, first=True)
            elif len(words) == 4:
                found.ownership[path] = dict(zip(("mode", "owner", "group"), words[1:], strict=True))
        for line in added(difference, "mounts"):
            found.undo(f"mount {line}", "umount", line.split()[0], first=True)


PUT_BACK = 'target=$(readlink -f "$1") && [ -d "$target" ] && rm "$1" && cp -a "$target" "$1"'
"""Makes a directory of a link to one; what it led to stays where it is."""
KINDS = (
    Folders(
        "folders",
        look_at_folders,
        {"folders": is_list, "mounts": is_list},
        always=("folders", "mounts"),
        never_none=("folders", "mounts"),
        said={"folders": "directory", "mounts": "mounted"},
        stands_alone=True,
    ),
)
