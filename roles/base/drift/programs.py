"""programs: programs and libraries of packages that are not as their package brought them.

Reading them all would cost a scan more than all its other looks, so the timer on the node asks, and reads
only those that changed after their package was installed: nothing changes a file and leaves its ctime.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from infra.drift.kind import Found, How, is_list
from infra.drift.kinds.known import with_known
from infra.drift.kinds.slow import slow
from infra.drift.kinds.unit import DPKG_INFO, REINSTALL, is_brought
from infra.drift.looks import Look
from infra.drift.node import bytes_of, text_of
from roles.base.drift.everywhere import Everywhere
from roles.base.drift.surroundings import DIVERSIONS

if TYPE_CHECKING:
    from infra.drift.manifest import Manifest
    from infra.drift.repair import Obstacles

RUN_FROM = (b"usr/bin/", b"usr/sbin/", b"bin/", b"sbin/", b"usr/lib/systemd/", b"lib/systemd/")
LIBRARY = b".so"
NAME_AT = 34
"""Where a file's name begins in a line of checksums: 32 digits and two spaces are before it."""
UNPACKED_S = 60
"""dpkg notes the checksums of files after it has unpacked them; images are unpacked in any order."""


def look_at_programs(node: Look, key: str, how: How) -> Found:
    """Those that the timer last found and that still are other ones, each with its package's checksums."""
    edited = slow(node, "edited", lambda: edited_programs(node)) or []
    return with_known(node, {"edited": [line for line in edited if is_edited(node, *line.rsplit(" ", 1))]})


def edited_programs(node: Look) -> list[str]:
    """Programs and libraries of all packages that changed since and have another content."""
    moved, found = set(text_of(DIVERSIONS, "").splitlines()), []
    for owner in sorted(os.listdir(DPKG_INFO)):
        if not owner.endswith(".md5sums"):
            continue
        until = os.stat(DPKG_INFO + owner).st_ctime + UNPACKED_S
        for line in bytes_of(DPKG_INFO + owner).split(b"\n"):
            if not line.startswith(RUN_FROM, NAME_AT) and LIBRARY not in line:
                continue
            path = "/" + line[NAME_AT:].decode("utf-8", "surrogateescape")
            if path not in moved and has_changed(path, until) and is_edited(node, path, owner):
                found.append(f"{path} {owner}")
    return found


def has_changed(path: str, until: float) -> bool:
    """Whether a file is there and another one than at this time."""
    try:
        return os.stat(path).st_ctime > until
    except OSError:
        return False


def is_edited(node: Look, path: str, owner: str) -> bool:
    """Whether a file is there and has another content than its package brought."""
    try:
        return not is_brought(node, path, bytes_of(path), owner)
    except OSError:
        return False


# On the controller


class Programs(Everywhere):
    """Programs and libraries of packages."""

    def undo(self, found: Obstacles, aspect: str, line: str, manifest: Manifest) -> None:
        """Its package is installed again."""
        path, _, owner = line.rpartition(" ")
        package = owner.removesuffix(".md5sums")
        found.undo(f"what {path} is now, for {package}'s", *REINSTALL, package)


KINDS = (
    Programs(
        "programs",
        look_at_programs,
        {"edited": is_list},
        always=("edited",),
        never_none=("edited",),
        said={"edited": "other than its package brought it"},
        stands_alone=True,
    ),
)
