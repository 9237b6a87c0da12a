"""privilege: who may act as root on a node beside what the roles say: accounts, keys, sudo, PAM, cron, units.

What was there at the first seal is known; what comes later is a difference. A file that is as its package
brought it says nothing: an update is no difference.
"""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING, Any

from infra.drift.kind import Found, How, is_list
from infra.drift.kinds.effective import files_below, is_packaged, lines_of
from infra.drift.kinds.known import with_known
from infra.drift.kinds.slow import slow
from infra.drift.kinds.unit import DPKG_INFO, is_brought, owners_of
from infra.drift.looks import LEFT_OVER, Look
from infra.drift.node import bytes_of, text_of
from roles.base.drift.authorized_keys import key_files, key_files_of, keys_in, keys_in_files
from roles.base.drift.everywhere import Everywhere, escaped, replaced
from roles.base.drift.sshd import FILES, matching

if TYPE_CHECKING:
    from infra.drift.manifest import Entry, Manifest
    from infra.drift.merge import HostSeal
    from infra.drift.repair import Obstacles

SUDOERS = "/etc/sudoers"
NO_LOGIN = ("/nologin", "/false", "/sync", "/shutdown", "/halt")
MIGHTY = ("root", "sudo", "admin", "wheel", "adm", "shadow", "disk", "docker", "lxd", "incus-admin")
"""Groups whose members are root, or can become it."""
CRON = (
    "/etc/crontab",
    "/etc/anacrontab",
    *(f"/etc/cron.{name}" for name in ("d", "hourly", "daily", "weekly", "monthly")),
    "/var/spool/cron/crontabs/root",
)
TOLD_FOLDERS = tuple(f"/{top}/systemd/system.{x}" for top in ("etc", "run") for x in ("control", "attached"))
"""Where systemd keeps what it was told of units, and units of images that were attached."""
TRANSIENT = "/run/systemd/transient"
STARTERS = (".timer", ".path", ".socket")
"""How units end that start others; services and scopes come and go with what made them."""
UNIT_FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system")
PACKAGES_UNITS = ("/usr/lib/systemd/", "/lib/systemd/", "/dev/null")
SET_ID = stat.S_ISUID | stat.S_ISGID
NOT_WALKED = ("/proc", "/sys", "/dev", "/var/lib/containers", "/var/lib/docker", "/var/lib/containerd")
REMOTE = ("nfs", "nfs4", "ceph", "fuse.ceph", "lustre", "cifs", "9p", "beegfs", "gpfs", "fuse.sshfs")
WALK_LIMIT_S = 20
SUBORDINATES_FROM = 100000
"""The first number that accounts are given beside their own; what is below may be another account's."""
INSTALLATION_S = 600
"""A package may set its programs' rights after it was unpacked."""


def look_at_privilege(node: Look, key: str, how: How) -> Found:
    """Each list of who and what; setuid programs as the timer last found them."""
    found = {
        "accounts": account_lines(node),
        "members": other_members(node),
        "services": [*in_groups(node, of_services(node)), *other_members(node, of_services(node))],
        "subordinates": subordinate_lines(node),
        "keys": other_keys(node),
        "sudo": filed(node, sudo_files()),
        "pam": filed(node, files_below("/etc/pam.d")),
        "cron": filed(node, [path for start in CRON for path in files_below(start)]),
        "units": filed(node, unit_files()),
        "told": filed(node, told_of_units(node)),
        "preloaded": filed(node, files_below("/etc/ld.so.preload")),
    }
    # Not by the name `setuid`: what an older Causeway's timer left there names packages' own programs, too.
    programs = slow(node, "privileged", lambda: strangers(node, privileged_programs())) or ()
    found["setuid"] = [line for line in programs if is_privileged(*line.rpartition(" ")[::2])]
    return with_known(node, found)


def strangers(node: Look, programs: list[str]) -> list[str]:
    """Those that no package brought so."""
    paths = [line.rpartition(" ")[0] for line in programs]
    owners = owners_of(node, paths) if paths else {}
    brought = {
        p for p in owners if is_installed_so(p, owners[p]) and is_brought(node, p, bytes_of(p), owners[p])
    }
    return [line for line in programs if line.rpartition(" ")[0] not in brought]


def account_lines(node: Look) -> list[str]:
    """Accounts with root's number or a login shell, those with a password, and who is in a mighty group."""
    found = []
    shadow = {row[0]: row[1] for row in node.table("shadow")}
    own = node.keys_of("user")
    for row in node.table("passwd"):
        if row[0] in own or len(row) < 7 or not (row[2] == "0" or (row[6] and not row[6].endswith(NO_LOGIN))):
            continue
        found.append(f"{row[0]} uid {row[2]} shell {row[6]}")
        secret = shadow.get(row[0], "")
        if secret[:1] not in ("!", "*"):
            also = f" {node.digest(secret.encode())}" if row[2] == "0" else ""
            found.append(f"{row[0]} has a password{also}" if secret else f"{row[0]} needs no password")
    return found + in_groups(node, MIGHTY)


def in_groups(node: Look, groups: tuple[str, ...]) -> list[str]:
    """Who is in one of these groups."""
    own, rows = node.keys_of("user"), [row for row in node.table("group") if len(row) > 3]
    return [
        f"{name} in group {row[0]}"
        for row in rows
        if row[0] in groups
        for name in row[3].split(",")
        if name and name not in own
    ]


def of_services(node: Look) -> tuple[str, ...]:
    """The groups of accounts that roles made for services: who is in one reads the service's secrets."""
    own = node.keys_of("user")
    return tuple(
        row[0]
        for row in node.table("passwd")
        if row[0] in own and len(row) > 3 and row[2].isdigit() and 0 < int(row[2]) < FIRST_PERSON
        if node.name_of("group", int(row[3])) == row[0]
    )


def subordinate_lines(node: Look) -> list[str]:
    """Other numbers than their own that accounts may take: any that may be a system's, and people's.

    A package that makes an account without a shell gets none that count (SUB_UID_MIN of login.defs(5)).
    """
    rows = [row for row in node.table("passwd") if len(row) > 6]
    systems = {row[0] for row in rows if row[6].endswith(NO_LOGIN)}.union(node.keys_of("user"))
    return [
        f"{row[0]} {name} {row[1]}:{row[2]}"
        for name in ("subuid", "subgid")
        for row in (node.table(name) if os.path.exists(f"/etc/{name}") else ())
        if len(row) > 2 and row[1].isdigit() and not (int(row[1]) >= SUBORDINATES_FROM and row[0] in systems)
    ]


def other_members(node: Look, groups: tuple[str, ...] = MIGHTY) -> list[str]:
    """Whose own group is one of these, who may let others into one, and those that a password opens."""
    mighty = {row[2]: row[0] for row in node.table("group") if len(row) > 3 and row[0] in groups}
    own = node.keys_of("user")
    found = [
        f"{row[0]} of group {mighty[row[3]]}"
        for row in node.table("passwd")
        if len(row) > 3 and row[3] in mighty and row[2] != "0" and row[0] not in own
    ]
    for row in node.table("gshadow") if os.path.exists("/etc/gshadow") else ():
        if len(row) > 3 and row[0] in groups:
            found += [f"{name} lets into group {row[0]}" for name in row[2].split(",") if name]
            found += [f"{row[0]} has a password as a group"] * (row[1][:1] not in ("", "!", "*"))
    return found


def other_keys(node: Look) -> list[str]:
    """Keys that open an account with a login shell of which no entry of its own tells."""
    own = node.keys_of("authorized_keys")
    names = [row[0] for row in node.table("passwd") if len(row) > 6 and not row[6].endswith(NO_LOGIN)]
    return [
        f"{path}: {line}"
        for name in names
        if name not in own and name != "root"
        for path in key_files_of(node, name, FILES)
        for line in keys_in(path)
    ]


def sudo_files() -> list[str]:
    """sudo's settings, and what they include (sudoers(5))."""
    found: list[str] = []
    todo = [SUDOERS]
    while todo:
        path = todo.pop(0)
        if path in found or not os.path.isfile(path):
            continue
        found.append(path)
        for line in text_of(path).splitlines():
            words = line.split()
            if len(words) > 1 and words[0] in ("#include", "@include"):
                todo.append(os.path.join("/etc", words[1]))
            elif len(words) > 1 and words[0] in ("#includedir", "@includedir"):
                todo += [
                    name
                    for name in matching(words[1].rstrip("/") + "/*")
                    if "." not in name.rpartition("/")[2]
                ]
    return found


def unit_files() -> list[str]:
    """Unit files, timers among them, and drop-ins that no package brought."""
    found = []
    for folder in UNIT_FOLDERS:
        for path in files_below(folder):
            inner = path[len(folder) + 1 :]
            if os.path.islink(path):
                target = os.path.join(os.path.dirname(path), os.readlink(path))
                if "/" in inner or os.path.normpath(target).startswith((*PACKAGES_UNITS, folder)):
                    continue  # that a unit is enabled, or has another name
            if not inner.startswith("snap"):
                found.append(path)
    return found


def told_of_units(node: Look) -> list[str]:
    """What systemd was told of units that no task governs: their settings, and what it is to start."""
    own = {f"/{unit}.d/" for unit in node.keys_of("unit")}
    paths = [path for folder in TOLD_FOLDERS for path in files_below(folder)]
    paths += [path for path in files_below(TRANSIENT) if path.endswith(STARTERS)]
    return [
        path
        for path in paths
        if not any(unit in path for unit in own) and not path.startswith(f"{TRANSIENT}/causeway-")
    ]


def filed(node: Look, paths: list[str]) -> list[str]:
    """Files that are no task's nor as a package brought them, with what they say; comments say nothing."""
    own, found = node.once("own files", lambda: set(node.keys_of("file"))), []
    for path in paths:
        if path not in own and not path.endswith((*LEFT_OVER, "/.placeholder")) and os.path.isfile(path):
            data = bytes_of(path)
            if not is_packaged(node, path, data):
                found.append(f"{path} {node.digest(chr(10).join(lines_of(data)).encode())}")
    return found


def privileged_programs() -> list[str]:
    """Files that give who runs them another's rights: setuid, setgid, capabilities. Of local file systems."""
    until = time.monotonic() + WALK_LIMIT_S
    rows = [line.split() for line in text_of("/proc/mounts").splitlines()]
    skipped = {row[1] for row in rows if row[2] in REMOTE or "nosuid" in row[3].split(",")}.union(NOT_WALKED)
    found, todo = [], ["/"]
    while todo and time.monotonic() < until:
        try:
            entries = list(os.scandir(todo.pop()))
        except OSError:
            continue
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    todo += [entry.path] * (entry.path not in skipped)
                elif entry.is_file(follow_symlinks=False):
                    mode = entry.stat(follow_symlinks=False).st_mode
                    if mode & SET_ID and mode & 0o111:
                        found.append(f"{entry.path} {stat.S_IMODE(mode):o}")
                    elif mode & 0o111 and "security.capability" in os.listxattr(entry.path):
                        found.append(f"{entry.path} capabilities")
            except OSError:
                continue  # gone meanwhile
    return sorted(found)


def is_installed_so(path: str, owner: str) -> bool:
    """Whether a package's program has its rights since the package was installed: dpkg keeps no modes."""
    installed = os.stat(DPKG_INFO + owner.replace(".md5sums", ".list")).st_mtime
    return os.lstat(path).st_ctime < installed + INSTALLATION_S


def is_privileged(path: str, how: str) -> bool:
    """Whether a program still is what the timer found."""
    try:
        mode = os.lstat(path).st_mode
        return how == (
            f"{stat.S_IMODE(mode):o}"
            if mode & SET_ID
            else "capabilities" * ("security.capability" in os.listxattr(path, follow_symlinks=False))
        )
    except OSError:
        return False


# On the controller

FIRST_PERSON = 1000
"""The first number of an account that is no system's (Debian Policy 9.2.2)."""
FILED = ("sudo", "pam", "cron", "units", "told", "preloaded")


class Privilege(Everywhere):
    """Who may act as root."""

    key = "root"

    def ours(self, run: HostSeal, aspect: str, line: str) -> bool:
        """An account or a file that a task governs."""
        governed = run.governed()
        if aspect == "keys":
            return self._is_known(run, line, governed)
        words = line.split()
        if aspect == "subordinates":
            return ("user", words[0]) in run.changed
        if aspect == "services":
            return self._is_of_a_new_service(run, words) or (words[1] == "in" and words[0] in governed)
        if any(kind == "package" for kind, _ in run.changed) and (
            line.startswith("/etc/pam.d/common-") or (words[1] == "uid" and 0 < int(words[2]) < FIRST_PERSON)
        ):
            return True  # what a role's packages bring along
        name = line.rpartition(" ")[0] if aspect in (*FILED, "setuid") else words[0]
        return name in governed

    def _is_of_a_new_service(self, run: HostSeal, words: list[str]) -> bool:
        """Whether a group has come to be a service's only now, with those that were in it before."""
        account = ("user", words[0] if words[-1] == "group" else words[-1])
        return account in run.same and not any((e.kind, e.key) == account for e in run.entries())

    def _is_known(self, run: HostSeal, line: str, governed: set[str]) -> bool:
        """A key of a file that a task wrote; of one that was given keys, those that were sealed there."""
        path, _, key = line.partition(": ")
        if run.is_way_in(key):
            return True
        sealed = run.entries()
        given_keys = path in {file.key for file in key_files(sealed)}
        return line in keys_in_files(run, sealed) if given_keys else path in governed

    def inherited(self, run: HostSeal, entry: Entry, gone: list[Entry]) -> dict[str, Any]:
        """With the keys of an account to which no task gives keys any more."""
        known = keys_in_files(run, gone)
        return {**entry.want, "keys": sorted({*entry.want["keys"], *known})} if known else dict(entry.want)

    def key_of(self, aspect: str, line: str) -> str:
        """A file by its path; an account by its name: it may have got another number, or another shell."""
        words = line.split()
        if aspect in FILED:
            return line.rpartition(" ")[0]
        return " ".join(words[:2]) if aspect == "accounts" and words[1] == "uid" else line

    def set_back(self, found: Obstacles, aspect: str, line: str, before: str) -> None:
        """The number and the shell that an account had: `usermod` changes no number of who is logged in.

        A file says something else by now: it is changed back by hand.
        """
        if aspect in FILED:
            return
        name, _, number, _, shell = before.split()
        edit = (
            rf"s|^{escaped(name)}:\([^:]*\):[0-9]*:\(.*\):[^:]*$|"
            rf"{replaced(name)}:\1:{number}:\2:{replaced(shell)}|"
        )
        found.undo(f"account {line} in place of {before}", "sed", "-i", "-e", edit, "/etc/passwd")

    def undo(self, found: Obstacles, aspect: str, line: str, manifest: Manifest) -> None:
        """What takes it away."""
        path, _, rest = line.rpartition(" ")
        if aspect == "keys":
            file, _, key = line.partition(": ")
            found.added_keys.setdefault(file, []).append(key)
        elif aspect in FILED:
            if path.startswith(TRANSIENT):
                name = path.rpartition("/")[2]
                found.undo(f"unit {name}", "systemctl", "stop", name)
            else:
                found.added.append(path)
            if aspect in ("units", "told"):
                found.run("had systemd read its files again", "systemctl", "daemon-reload")
        elif aspect == "setuid":
            argv = ("setcap", "-r", path) if rest == "capabilities" else ("chmod", "u-s,g-s", path)
            found.undo(f"program {line}", *argv)
        else:
            found.undo(f"account {line}", *_without(line.split()))


def _without(words: list[str]) -> list[str]:
    """The command that takes an account's rights away; its files stay."""
    name = words[0]
    if words[1] in ("subuid", "subgid"):  # the account itself may be gone by now, or be none
        return ["sed", "-i", "-e", rf"\|^{escaped(f'{name}:{words[2]}')}$|d", f"/etc/{words[1]}"]
    if words[1] == "in":
        return ["gpasswd", "--delete", name, words[-1]]
    if words[1] == "of":
        return ["usermod", "--gid", "nogroup", name]
    if words[1] == "lets":
        return ["gpasswd", "--administrators", "", words[-1]]
    if words[-1] == "group":
        return ["gpasswd", "--remove-password", name]
    if words[1] == "uid":
        if words[2] == "0" and name != "root":
            return ["userdel", "--force", name]
        return ["usermod", "--expiredate", "1", "--shell", "/usr/sbin/nologin", name]
    return ["usermod", "--password", "*", name]


LISTS = ("accounts", "members", "services", "subordinates", "keys", *FILED, "setuid")
KINDS = (
    Privilege(
        "privilege",
        look_at_privilege,
        dict.fromkeys(LISTS, is_list),
        always=LISTS[:-1],
        never_none=LISTS[:-1],
        said={
            "members": "member",
            "services": "in a service's group",
            "subordinates": "numbers beside its own",
            "pam": "PAM",
            "told": "told to systemd",
            "preloaded": "preloaded library",
            "setuid": "privileged program",
        },
        stands_alone=True,
    ),
)
