"""rights: what others than root may write, or read of secrets: files and folders by which one becomes root.

What was so at the first seal is known; what comes later is a difference. What a role governs is compared
there.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from infra.drift.kind import Found, How, is_list
from infra.drift.kinds.effective import files_below
from infra.drift.kinds.known import with_known
from infra.drift.looks import Look
from roles.base.drift.everywhere import Everywhere
from roles.base.drift.privilege import CRON, sudo_files, unit_files
from roles.base.drift.sshd import matching

if TYPE_CHECKING:
    from infra.drift.manifest import Manifest
    from infra.drift.repair import Obstacles

ROOTS_FILES = (
    *(f"/etc/{x}" for x in ("passwd", "group", "fstab", "profile", "environment", "ssh/sshd_config")),
    *("/etc/hosts", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/login.defs"),
)
SECRETS = tuple(f"/etc/{x}" for x in ("shadow", "gshadow", "shadow-", "gshadow-"))
HOST_KEYS = "/etc/ssh/ssh_host_*_key"
ROOTS_FOLDERS = (
    *("/boot", "/dev/shm", "/tmp", "/var/tmp"),  # noqa: S108 - looked at, never written to
    *("/root", "/root/.ssh", "/etc", "/etc/ssh", "/etc/ssh/sshd_config.d", "/etc/sudoers.d", "/etc/pam.d"),
    *("/etc/systemd/system", "/etc/cron.d", "/etc/profile.d", "/etc/ld.so.conf.d", "/etc/apt/apt.conf.d"),
    *("/usr", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib/systemd", "/usr/lib/systemd/system"),
    *("/usr/local", "/usr/local/bin", "/usr/local/sbin", "/usr/local/lib"),
    *("/var", "/var/lib", "/var/lib/dpkg", "/var/lib/dpkg/info", "/var/lib/causeway", "/var/spool/cron"),
)
"""Who writes to one of these, or below it, is root soon."""


def look_at_rights(node: Look, key: str, how: How) -> Found:
    """A line for each file and folder to which others have rights that root's should not give."""
    return with_known(node, {"open": open_lines(node)})


def open_lines(node: Look) -> list[str]:
    """What others than root may write, or read of secrets: of files and folders by which one becomes root."""
    own = {*node.keys_of("file"), *node.keys_of("directory")}
    files = [path for start in CRON for path in files_below(start)]
    files += [*ROOTS_FILES, *ROOTS_FOLDERS, *sudo_files(), *files_below("/etc/pam.d"), *unit_files()]
    secrets = {*SECRETS, *matching(HOST_KEYS)}
    found = []
    for path in sorted({*files, *secrets} - own):
        try:
            status = os.stat(path)
        except OSError:
            continue  # it is not there, or has just gone
        mode, group = stat.S_IMODE(status.st_mode), node.name_of("group", status.st_gid)
        read_too = path in secrets and (mode & 0o004 or (mode & 0o040 and group not in ("root", "shadow")))
        if read_too or others_write(status):
            owner = node.name_of("passwd", status.st_uid)
            found.append(f"{path} {mode:04o} {owner} {group}")
    return found


def others_write(status: os.stat_result) -> bool:
    """Whether others than root may write to what has this status."""
    return bool(status.st_uid or status.st_mode & 0o002 or (status.st_mode & 0o020 and status.st_gid))


# On the controller

OWN_AGAIN = 'chown "$2" "$1" && chmod "$3" "$1"'
"""Gives a path an owner, by name or with its group, and a mode."""


class Rights(Everywhere):
    """What others than root may do."""

    def undo(self, found: Obstacles, aspect: str, line: str, manifest: Manifest) -> None:
        """The command that takes their rights away."""
        found.undo(f"rights of others: {line}", *_closed(line, manifest))


def _closed(line: str, manifest: Manifest) -> list[str]:
    """The command that gives a file or folder the rights that were sealed, or takes those of others away."""
    path, mode, _, group = line.rsplit(" ", 3)
    sealed = manifest.entry("rights", "all")
    lines = (str(old).rsplit(" ", 3) for old in (sealed.want.get("open") or () if sealed else ()))
    taken = 0o027 if path.startswith((*SECRETS, HOST_KEYS.partition("*")[0])) else 0o022
    closed = [f"{int(mode, 8) & ~taken:04o}", "root", "shadow" if path in SECRETS else group]
    mode, owner, group = next((old[1:] for old in lines if old[0] == path), closed)
    return ["sh", "-c", OWN_AGAIN, "own", path, f"{owner}:{group}", mode]


KINDS = (
    Rights(
        "rights",
        look_at_rights,
        {"open": is_list},
        always=("open",),
        never_none=("open",),
        said={"open": "rights of others"},
        stands_alone=True,
    ),
)
