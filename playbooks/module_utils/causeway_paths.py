"""What is in a node's file system where roles write, and what was there at an earlier look. Python 3.8.

No look follows a link on its way, nor waits for another machine. What it could not list is UNKNOWN later,
and not *nothing*: that would be taken away.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

UNKNOWN = "unknown"
LOOKED_AT = {
    **{"/": 2, "/etc": 12, "/usr/local": 6, "/usr/lib/systemd": 3, "/run/systemd": 3},
    **{"/root": 4, "/var": 4, "/opt": 3, "/srv": 3, "/usr": 3, "/home": 1},
}
"""Where → how many levels below it: what lies deeper is not known of, unless its directory was not there."""
FIRST_LOOKED_AT = {**LOOKED_AT, "/home": 3}
"""Where looks looked that do not say it: those of older versions."""
MOST_BEHIND_LINKS = 6
"""So many levels at most below a directory that a link leads to."""
VOLATILE = ("/proc", "/sys", "/dev", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - nothing is written there
PASSED_OVER = (*VOLATILE, "/var/lib/causeway", "/var/cache/apt")
KEPT_WHOLE = ("/etc/", "/root/.ssh/", "/var/spool/cron/", "/usr/local/")
"""Where the content of files is kept, the first as long as there is room."""
KEYS = ".ssh"
KEY_FILES = "authorized_keys"
"""What an account's files are called of which the content is kept; of its others nothing is looked at."""
MOST_IN_FOLDER = 20_000
MOST_PATHS = 50_000
"""Below each place. Of a larger one the upper levels are known."""
MOST_LINKS = 40
"""As many follow each other at most, as Linux has it (path_resolution(7))."""
OF_OTHERS = ("nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "beegfs", "gpfs", "glusterfs", "9p", "autofs")
"""File systems that another machine has, which may be away: who looks at one then waits for it."""
FUSE = "fuse."


def then(facts: Mapping[str, Any], path: str) -> tuple[str, list[Any] | str | None]:
    """Where a path led at an earlier look, and what was there.

    That is [type, mode, uid, gid, target]; None for nothing, or UNKNOWN. Links on the way led on, as they
    were then; the last one is what is asked for.
    """
    known, here, links = facts["paths"], "/", 0
    todo = [part for part in path.split("/") if part]
    while todo:
        part = todo.pop(0)
        if part in (".", ".."):
            here = os.path.dirname(here) if part == ".." else here
            continue
        step = os.path.join(here, part)
        was = known.get(step)
        if was is None or not todo:
            found = list(was) if was is not None else None if _is_known(facts, here, step) else UNKNOWN
            return os.path.join(step, *todo), found
        if was[0] != "link":
            here = step
            continue
        links += 1
        if links > MOST_LINKS:
            break
        here = "/" if was[4].startswith("/") else here
        todo = [each for each in was[4].split("/") if each] + todo
    return path, UNKNOWN


def _is_known(facts: Mapping[str, Any], above: str, step: str) -> bool:
    """Whether a look would have seen a path, had it been there."""
    unread, looked_at = facts.get("unread", ()), facts.get("looked_at", FIRST_LOOKED_AT)
    if facts.get("cut_short") or above in unread or step in unread:
        return False
    return step in looked_at or levels_below(above, looked_at) > 0


def levels_below(folder: str, looked_at: Mapping[str, int]) -> int:
    """How many levels a look lists below a directory."""
    above, depth = folder, 0
    while above not in looked_at:
        if above == "/":
            return 0
        above, depth = os.path.dirname(above), depth + 1
    return 0 if _is_in(folder, PASSED_OVER) else max(0, looked_at[above] - depth)


def _is_in(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def look_at_paths(homes: Iterable[str]) -> dict[str, Any]:
    """The facts of today. HOMES: of accounts; of each the keys that let somebody in are looked at."""
    walk = _Walk()
    for start in LOOKED_AT:
        walk.note_way(start)
        if walk.paths.get(start, ["directory"])[0] == "directory" and os.path.realpath(start) == start:
            walk.below(start)
    walk.behind_links()
    walk.keys([*homes, *walk.homes()])
    # A set is quicker to ask, and JSON has none.
    return {
        "paths": walk.paths,
        "unread": dict.fromkeys(sorted(walk.unread)),
        "looked_at": walk.looked_at,
        "kept": walk.kept,
    }


class _Walk:
    """A look that goes on: `kept` are further places of which contents are kept."""

    def __init__(self) -> None:
        self.paths: dict[str, list[Any]] = {}
        self.unread: set[str] = set()
        self.looked_at = dict(LOOKED_AT)
        self.kept: list[str] = []
        self.away = list(of_others(Path("/proc/self/mountinfo").read_text()))

    def below(self, start: str) -> None:
        """What lies in a directory and below, the upper levels first."""
        todo, count = deque([start]), 0
        while todo:
            folder = todo.popleft()
            if count >= MOST_PATHS:
                self.unread.add(folder)
                continue
            for path, kind in self._in(folder):
                count += 1
                if kind == "directory" and path not in LOOKED_AT and levels_below(path, self.looked_at):
                    todo.append(path)

    def _in(self, folder: str) -> Iterator[tuple[str, str]]:
        """What lies in a directory: path and type."""
        try:
            with os.scandir(folder) as found:
                entries = sorted(islice(found, MOST_IN_FOLDER + 1), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError:
            entries = []
            self.unread.add(folder)
        if len(entries) > MOST_IN_FOLDER:
            self.unread.add(folder)
            return
        for entry in entries:
            if self.note(entry.path):
                yield entry.path, self.paths[entry.path][0]

    def note(self, path: str) -> bool:
        """Note what is at a path; whether something is."""
        if path in self.away:
            self.unread.add(path)
            return False
        try:
            self.paths[path] = described(path, os.lstat(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            self.unread.add(path)
            return False
        return True

    def note_way(self, path: str) -> None:
        """Note the directories on the way to a path, up to the first that is not there, and the path."""
        for step in [*map(str, reversed(Path(path).parents)), path]:
            if step == "/" or self.note(step):
                continue
            if step not in self.unread:
                self.looked_at.setdefault(step, 0)  # that nothing is there has been seen
            return

    def behind_links(self) -> None:
        """Directories that links lead to from where roles write, as deep as if they were in its place."""
        links = [path for path, found in self.paths.items() if found[0] == "link"]
        for link in links:
            levels = LOOKED_AT.get(link, levels_below(link, LOOKED_AT))
            if not levels or self._leads_away(link) or not os.path.isdir(link):
                continue
            real = os.path.realpath(link)
            if not _is_in(real, [*self.away, *PASSED_OVER]):
                self._behind(link, real, min(levels, MOST_BEHIND_LINKS))

    def _leads_away(self, link: str) -> bool:
        """Whether a link leads to where another machine may be waited for, or in a circle."""
        for _ in range(MOST_LINKS):
            found = self.paths.get(link)
            if _is_in(link, self.away) or found is None or found[0] != "link":
                return _is_in(link, self.away)
            link = os.path.normpath(os.path.join(os.path.dirname(link), found[4]))
        return True

    def _behind(self, link: str, real: str, levels: int) -> None:
        if levels > levels_below(real, self.looked_at):
            self.looked_at[real] = levels
            self.note_way(real)
            self.below(real)
        if f"{link}/".startswith(KEPT_WHOLE):
            self.kept.append(f"{real}/")

    def homes(self) -> Iterator[str]:
        """Homes of accounts that are in no file of this node."""
        return (path for path in self.paths if os.path.dirname(path) == "/home")

    def keys(self, homes: Iterable[str]) -> None:
        """The files by which somebody gets in as these accounts."""
        for home in dict.fromkeys(homes):
            folder = os.path.join(home, KEYS)
            if not home.startswith("/") or any(self._leads_away(str(step)) for step in Path(folder).parents):
                continue
            self.note_way(folder)
            real = os.path.realpath(folder)
            if not _is_in(real, [*self.away, *PASSED_OVER]) and not levels_below(real, self.looked_at):
                self.looked_at[real] = 1
                self.note_way(real)
                self.below(real)


def kept_at(path: str, more: Iterable[str]) -> int | None:
    """The place of a file among those whose content is kept; None where it is not. MORE: further places."""
    for number, top in enumerate((*KEPT_WHOLE, *more)):
        if path.startswith(top):
            return number
    folder, name = os.path.split(path)
    return 0 if os.path.basename(folder) == KEYS and name.startswith(KEY_FILES) else None


def of_others(mounts: str) -> Iterator[str]:
    """Where file systems of other machines are mounted, by /proc/self/mountinfo; the root is this one's."""
    for line in mounts.splitlines():
        fields = line.split()
        kind = fields[fields.index("-") + 1]
        if fields[4] != "/" and (kind in OF_OTHERS or kind.startswith(FUSE)):
            yield fields[4].replace("\\040", " ")


def described(path: str, status: os.stat_result) -> list[Any]:
    """[type, mode, uid, gid, target] of what is at a path."""
    kind, target = "other", ""
    if stat.S_ISLNK(status.st_mode):
        kind, target = "link", os.readlink(path)
    elif stat.S_ISDIR(status.st_mode):
        kind = "directory"
    elif stat.S_ISREG(status.st_mode):
        kind = "file"
    return [kind, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, target]


def at(path: str) -> list[Any] | None:
    """What is at a path now; None for nothing."""
    try:
        return described(path, os.lstat(path))
    except OSError:
        return None
