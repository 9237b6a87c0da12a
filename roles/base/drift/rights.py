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


ACL, ACL_OF_NEW = "system.posix_acl_access", "system.posix_acl_default"
FIELDS = ((0, 2), (2, 2), (4, 4))
NAMED, MASK, READ, WRITE = {0x02: "user", 0x08: "group"}, 0x10, 4, 2


def look_at_rights(node: Look, key: str, how: How) -> Found:
    """A line for each file and folder to which others have rights that root's should not give."""
    secrets = {*SECRETS, *matching(HOST_KEYS)}
    paths = leading_to_root(node, secrets)
    return with_known(node, {"open": open_lines(node, paths, secrets), "acls": acl_lines(paths, secrets)})


def leading_to_root(node: Look, secrets: set[str]) -> list[str]:
    """The files and folders by which one becomes root, but for those that a task governs."""
    files = [path for start in CRON for path in files_below(start)]
    files += [*ROOTS_FILES, *ROOTS_FOLDERS, *sudo_files(), *files_below("/etc/pam.d"), *unit_files()]
    return sorted({*files, *secrets} - {*node.keys_of("file"), *node.keys_of("directory")})


def open_lines(node: Look, paths: list[str], secrets: set[str]) -> list[str]:
    """What others than root may write, or read of secrets."""
    found = []
    for path in paths:
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


def acl_lines(paths: list[str], secrets: set[str]) -> list[str]:
    """Whom ACLs let in beside; also to what will be made in a folder."""
    found = []
    for path in paths:
        given = let_in(path, WRITE | READ if path in secrets else WRITE)
        given += [f"new:{one}" for one in let_in(path, WRITE, ACL_OF_NEW)]
        found += [f"{path} {','.join(given)}"] * bool(given)
    return found


def let_in(path: str, rights: int, kind: str = ACL) -> list[str]:
    """To which users and groups, by their numbers, an ACL gives one of these rights (acl(5)).

    A version, then entries of tag, rights and number (linux/posix_acl_xattr.h), little-endian everywhere.
    """
    try:
        data = os.getxattr(path, kind)
    except OSError:
        return []
    rows = [
        [int.from_bytes(data[at + i : at + i + n], "little") for i, n in FIELDS]
        for at in range(4, len(data), 8)
    ]
    most = next((given for tag, given, _ in rows if tag == MASK), READ | WRITE)
    named = [(NAMED[tag], given & most & rights, number) for tag, given, number in rows if tag in NAMED]
    return [f"{what}:{number}" for what, given, number in named if given and (what, number) != ("user", 0)]


# On the controller

OWN_AGAIN = 'chown "$2" "$1" && chmod "$3" "$1"'
"""Gives a path an owner, by name or with its group, and a mode."""
WITHOUT_ACL = f"""
import os, sys
path = sys.argv[1]
if "{ACL_OF_NEW}" in os.listxattr(path):
    os.removexattr(path, "{ACL_OF_NEW}")
if "{ACL}" in os.listxattr(path):
    data, mode = os.getxattr(path, "{ACL}"), os.stat(path).st_mode & 0o7777
    group = next(data[at + 2] for at in range(4, len(data), 8) if data[at] == 4)
    os.removexattr(path, "{ACL}")
    os.chmod(path, mode & ~0o070 | group << 3)
"""
"""Takes ACLs from a path. While there is one, what it gives at most stands where the group's rights do."""


class Rights(Everywhere):
    """What others than root may do."""

    def key_of(self, aspect: str, line: str) -> str:
        """By the path."""
        return line.rpartition(" ")[0] if aspect == "acls" else line.rsplit(" ", 3)[0]

    def undo(self, found: Obstacles, aspect: str, line: str, manifest: Manifest) -> None:
        """The command that takes their rights away."""
        path = self.key_of(aspect, line)
        if aspect == "acls":
            found.undo(f"rights of others: {line}", "python3", "-c", WITHOUT_ACL, path)
            return
        _, mode, _, group = line.rsplit(" ", 3)
        taken = 0o027 if path.startswith((*SECRETS, HOST_KEYS.partition("*")[0])) else 0o022
        whose = f"root:{'shadow' if path in SECRETS else group}"
        self._give(found, line, path, whose, f"{int(mode, 8) & ~taken:04o}")

    def set_back(self, found: Obstacles, aspect: str, line: str, before: str) -> None:
        """The rights that were sealed. An ACL is named: who was let in before is known by number only."""
        if aspect == "open":
            path, mode, owner, group = before.rsplit(" ", 3)
            self._give(found, line, path, f"{owner}:{group}", mode)

    def _give(self, found: Obstacles, line: str, path: str, whose: str, mode: str) -> None:
        found.undo(f"rights of others: {line}", "sh", "-c", OWN_AGAIN, "own", path, whose, mode)


RIGHTS = ("open", "acls")
KINDS = (
    Rights(
        "rights",
        look_at_rights,
        dict.fromkeys(RIGHTS, is_list),
        always=RIGHTS,
        never_none=RIGHTS,
        said={"open": "rights of others", "acls": "let in by an ACL"},
        stands_alone=True,
    ),
)
