#!/usr/bin/python3
"""Clean a scratch folder: what nobody has used for days, and the oldest first when the disk fills.

    scratch.py FOLDER DAYS HIGH_PCT LOW_PCT CLOCK

CLOCK is a file that knows whether the clock has jumped: days count from there on. A file that a process of
this node has open or mapped is never removed. Files are moved aside and looked at again before they go, so
that one that is opened meanwhile comes back to its place.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from causeway_clock import Clock, look

DAY_S = 86_400
YOUNGEST_S = 3600
"""What was used in the last hour stays even where the disk is full: it is a job's that runs."""
AHEAD_S = DAY_S
"""A file may say that it is from the future, as one that was unpacked. No cleaning lasts as long as this, so
what is used meanwhile is none of these."""
SHARED = frozenset((
    "9p", "afs", "autofs", "beegfs", "ceph", "cifs", "gfs2", "glusterfs", "gpfs", "lustre", "nfs", "nfs4",
    "ocfs2", "orangefs", "smb3", "virtiofs", "wekafs",
))  # fmt: skip
"""File systems in which other machines have their data."""
OWN_BY_FUSE = "fuse.fuse-overlayfs"
"""All else by FUSE may lead to another machine: by SSH, to objects, to Ceph."""
ASIDE = ".causeway-aside"
BATCH = 1000
Key = tuple[int, int]
"""Device and inode."""


class File(NamedTuple):
    """A file, when it was last read, written, moved or made, when written, and what it takes of the disk."""

    path: str
    key: Key
    used_at: float
    written_at: float
    bytes: int


class Tree:
    """What lies below a folder, on its own file system."""

    def __init__(self, folder: str) -> None:
        """`folder`: without links on the way to it, as the kernel names mounts."""
        self.folder = folder
        self.device = Path(folder).stat().st_dev
        self.mounted = set(mount_points(mounts_now()))

    def all(self) -> Iterator[tuple[str, os.stat_result]]:
        """Paths with what they are, a folder before what is in it, however deep they lie."""
        left = [self.folder]
        while left:
            for entry in entries(left.pop()):
                with contextlib.suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    # A folder of the same file system may be mounted here a second time: it is not ours.
                    if found.st_dev != self.device or entry.path in self.mounted:
                        continue
                    if stat.S_ISDIR(found.st_mode):
                        left.append(entry.path)
                    yield entry.path, found

    def files(self, now: float) -> Iterator[File]:
        """Files and links. NOW: in seconds since 1970."""
        for path, found in self.all():
            if stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode):
                # Each of a file's names has its part of the room, which is free with the last one.
                room_of_name = found.st_blocks * 512 // max(found.st_nlink, 1)
                key = (found.st_dev, found.st_ino)
                yield File(path, key, used_at(found, now), found.st_mtime, room_of_name)

    def folders(self) -> list[str]:
        """Folders, each before those in it."""
        return [path for path, found in self.all() if stat.S_ISDIR(found.st_mode)]


def used_at(found: os.stat_result, now: float) -> float:
    """When a file was last read, written, moved or made; NOW where all it says is from the future."""
    stamps = (found.st_atime, found.st_mtime, found.st_ctime)
    return max((stamp for stamp in stamps if stamp < now + AHEAD_S), default=now)


def mounts_now() -> str:
    """What is mounted where, as this process sees it (proc(5), mountinfo)."""
    return Path("/proc/self/mountinfo").read_text(errors="surrogateescape")


def mount_points(mounts: str) -> Iterator[str]:
    """Where something is mounted; the kernel writes a blank in a name as `\\040`."""
    for line in mounts.splitlines():
        point = os.fsencode(line.split(" ")[4])
        yield os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), point))


def entries(folder: str) -> list[os.DirEntry[str]]:
    """What is in a folder; nothing where it is gone, or its path is longer than the kernel takes."""
    try:
        with os.scandir(folder) as found:
            return [entry for entry in found if entry.name != ASIDE]
    except OSError:
        return []


class Used:
    """What processes have open, mapped, or as their folder; what backs loop devices and swap."""

    def __init__(self) -> None:
        """Look at all of them."""
        self.keys: set[Key] = set()
        self.seen: set[tuple[str, str]] = set()
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                for opened in (place / "fd").iterdir():
                    self.add(opened)
            for name in ("cwd", "root"):
                self.add(place / name)
            with contextlib.suppress(OSError):
                self.add_mapped(place)
        for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
            with contextlib.suppress(OSError):
                self.add(Path(backing.read_text().rstrip("\n")))
        for line in Path("/proc/swaps").read_text().splitlines()[1:]:
            self.add(Path(line.split()[0]))

    def add_mapped(self, process: Path) -> None:
        """What a process has mapped, by its path there: a mapping may name another device."""
        for line in (process / "maps").read_text(errors="replace").splitlines():
            words = line.split(maxsplit=5)
            if len(words) < 6 or (words[3], words[4]) in self.seen or words[5].endswith(" (deleted)"):
                continue
            if words[5].startswith("/") and self.add(process / "root" / words[5].lstrip("/")):
                self.seen.add((words[3], words[4]))

    def add(self, path: Path) -> bool:
        """What a path leads to; False where that is nothing."""
        with contextlib.suppress(OSError):
            found = path.stat()
            self.keys.add((found.st_dev, found.st_ino))
            return True
        return False

    def has(self, key: Key) -> bool:
        """Whether it is somebody's now."""
        return key in self.keys


class Scratch:
    """A folder that is cleaned."""

    def __init__(self, folder: str, clock: Clock) -> None:
        """`clock`: by which it goes."""
        self.folder, self.clock = folder, clock
        self.tree = Tree(folder)
        self.aside = Path(folder) / ASIDE
        self.count = self.freed = 0

    def by_age(self, days: float) -> None:
        """Remove what was not used for days, and folders that have been empty for as long."""
        found = self.tree.files(self.clock.now)
        self.remove([one for one in found if self.clock.age_s(one.used_at) > days * DAY_S])
        self.empty_folders(days)

    def by_room(self, high_pct: float, low_pct: float) -> None:
        """From `high_pct` of the disk on, remove what was not used for longest until `low_pct` are taken."""
        taken, whole = room(self.folder)
        if taken < whole * high_pct / 100:
            return
        wanted, chosen = taken - whole * low_pct / 100, list[File]()
        used = Used()
        for one in sorted(self.tree.files(self.clock.now), key=lambda one: one.used_at):
            if wanted <= 0 or self.clock.age_s(one.used_at) < YOUNGEST_S:
                break
            if not used.has(one.key):
                chosen.append(one)
                wanted -= one.bytes
        self.remove(chosen)

    def remove(self, chosen: list[File]) -> None:
        """Remove files that nobody uses."""
        if not chosen:
            return
        self.aside.mkdir(mode=0o700, exist_ok=True)
        used = Used()
        idle = [one for one in chosen if not used.has(one.key)]
        for start in range(0, len(idle), BATCH):
            self.remove_some(idle[start : start + BATCH])
        with contextlib.suppress(OSError):
            self.aside.rmdir()

    def remove_some(self, chosen: list[File]) -> None:
        """Move them aside, where nobody opens them any more; who did before gets them back.

        What cannot be moved stays: it is gone, may not be removed, or something was mounted over it.
        """
        beside = Path(tempfile.mkdtemp(dir=self.aside))  # what an earlier run could not bring back stays
        moved: list[tuple[File, Path]] = []
        for number, one in enumerate(chosen):
            place = beside / str(number)
            with contextlib.suppress(OSError):
                Path(one.path).rename(place)
                moved.append((one, place))
        used = Used()
        for one, place in moved:
            found = place.lstat()
            same = (found.st_dev, found.st_ino) == one.key and found.st_mtime == one.written_at
            if used.has(one.key) or not same:
                self.bring_back(place, Path(one.path))
                continue
            place.unlink()
            self.count += 1
            self.freed += one.bytes
        with contextlib.suppress(OSError):
            beside.rmdir()

    def bring_back(self, place: Path, path: Path) -> None:
        """To where it was; beside it where something new has its name."""
        taken = os.path.lexists(path)
        target = path.with_name(f"{path.name}.{int(self.clock.now)}") if taken else path
        with contextlib.suppress(OSError):
            place.rename(target)

    def empty_folders(self, days: float) -> None:
        """Remove folders, the innermost first; one that is not empty stays, and one that a process is in."""
        below = map(Path, reversed(self.tree.folders()))
        old = [place for place in below if self.is_old(place, days)]
        used = Used() if old else None
        for place in old:
            with contextlib.suppress(OSError):
                found = place.lstat()
                if used and not used.has((found.st_dev, found.st_ino)):
                    place.rmdir()

    def is_old(self, place: Path, days: float) -> bool:
        """Whether nothing was made, moved or removed in a folder for days."""
        with contextlib.suppress(OSError):
            found = place.lstat()
            return self.clock.age_s(max(found.st_mtime, found.st_ctime)) > days * DAY_S
        return False

    def left_aside(self) -> None:
        """What a run that was killed had moved aside goes: nobody knows its place any more."""
        left = sorted(self.aside.rglob("*"), reverse=True) if self.aside.is_dir() else []
        used = Used() if left else None
        for place in left:
            with contextlib.suppress(OSError):  # a folder that is not empty
                found = place.lstat()
                if stat.S_ISDIR(found.st_mode):
                    place.rmdir()
                elif used and not used.has((found.st_dev, found.st_ino)):
                    place.unlink()


def room(folder: str) -> tuple[int, int]:
    """Bytes that are taken of a file system, and all that there are for users."""
    found = os.statvfs(folder)
    taken = (found.f_blocks - found.f_bfree) * found.f_frsize
    return taken, taken + found.f_bavail * found.f_frsize


def file_system(folder: str, mounts: str) -> str:
    """Of which kind the one is that holds a folder, by the text of /proc/self/mountinfo."""
    found, length = "", 0
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = before.split()[4].rstrip("/") + "/"
        # What is mounted last at one place covers what was there.
        if f"{folder}/".startswith(point) and len(point) >= length:
            found, length = after.split()[0], len(point)
    return found


def is_shared(kind: str) -> bool:
    """Whether other machines have their data in file systems of a kind."""
    return kind in SHARED or (kind.startswith("fuse.") and kind != OWN_BY_FUSE)


def main(folder: str, days: str, high_pct: str, low_pct: str, clock: str) -> None:
    """Clean, and say what went."""
    folder = os.path.realpath(folder)
    kind = file_system(folder, mounts_now())
    if is_shared(kind):
        sys.exit(f"{folder} lies on a file system of kind {kind}, where other machines have their data")
    scratch = Scratch(folder, look(Path(clock)))
    scratch.left_aside()
    scratch.by_age(float(days))
    scratch.by_room(float(high_pct), float(low_pct))
    if scratch.count:
        print(f"removed {scratch.count} files, {scratch.freed} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
