"""programs: what a node runs and no role wrote: programs, libraries, modules of Python, Perl and the shell.

Those of packages that are gone or not as their package brought them, and those that no package brought.
Reading them all would cost a scan more than all its other looks, so the timer on the node asks, and reads
only those that changed after their package was installed: nothing changes a file and leaves its ctime.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from infra.drift.kind import Found, How, is_list
from infra.drift.kinds.effective import files_below
from infra.drift.kinds.known import with_known
from infra.drift.kinds.slow import slow
from infra.drift.kinds.unit import DPKG_INFO, REINSTALL, is_brought
from infra.drift.looks import LEFT_OVER, Look
from infra.drift.node import bytes_of, text_of
from roles.base.drift.everywhere import Everywhere
from roles.base.drift.privilege import is_installed_so
from roles.base.drift.rights import OWN_AGAIN, WRITE, let_in, others_write
from roles.base.drift.surroundings import CHOSEN, DIVERSIONS, PROGRAM_FOLDERS, PYTHONS

if TYPE_CHECKING:
    from infra.drift.manifest import Manifest
    from infra.drift.merge import HostSeal
    from infra.drift.repair import Obstacles

RUN_FROM = (
    *(b"usr/bin/", b"usr/sbin/", b"bin/", b"sbin/"),
    *(b"usr/lib/systemd/", b"lib/systemd/", b"usr/lib/lsb/", b"lib/lsb/"),
)
MODULES, LIBRARY = (b".py", b".pm", b".sh", b".so"), b".so."
OURS = "/usr/local/lib"
NAME_AT = 34
"""Where a file's name begins in a line of checksums: 32 digits and two spaces are before it."""
UNPACKED_S = 60
"""dpkg notes the checksums of files after it has unpacked them; images are unpacked in any order."""
PACKAGES_OWN = ("/usr/lib", "/usr/bin/", "/usr/sbin/", "/usr/share/", "/lib", "/bin/", "/sbin/")
"""Where packages' files are."""
SETTINGS = (
    *(f"/usr/lib/{x}" for x in ("udev/rules.d", "tmpfiles.d", "sysusers.d", "modprobe.d", "modules-load.d")),
    *(f"/usr/lib/{x}" for x in ("binfmt.d", "environment.d", "pam.d", "kernel", "NetworkManager/conf.d")),
    *(f"/usr/share/{x}" for x in ("polkit-1", "dbus-1", "initramfs-tools")),
)
"""Where packages have settings that those below /etc go before."""
UNITS = "/usr/lib/systemd/system"
CALLED_TOO = ("/usr/share/containers/systemd", "/usr/lib/dhcpcd/dhcpcd-hooks")
"""Where packages have units of containers, and what a client of DHCP's runs at each lease."""
NO_MODULES = (*LEFT_OVER, "__pycache__", ".pyc", ".dist-info", ".egg-info", ".pth")
"""How names end that are found where Python looks, and are no module; `surroundings` has `.pth`."""


def look_at_programs(node: Look, key: str, how: How) -> Found:
    """What the timer last found and still is so; of what was edited also its package's checksums."""
    edited = slow(node, "edited", lambda: edited_programs(node)) or []
    missing = slow(node, "missing", lambda: missing_programs(node)) or []
    strange = slow(node, "strange", lambda: strange_programs(node)) or []
    settings = slow(node, "settings", strange_settings) or []
    dropins = slow(node, "dropins", strange_dropins) or []
    known = own_files(node).union(node.want.get("strange") or ())
    found = {
        "edited": [line for line in edited if is_edited(node, *line.rsplit(" ", 1))],
        "missing": [line for line in missing if is_missing(*line.rsplit(" ", 1))],
        "open": [path for path in slow(node, "open", lambda: open_programs(node)) or () if is_open(path)],
        "strange": of_no_package(
            (beside_ours() | {path for path in strange if os.path.lexists(path)}) - known
        ),
        "settings": [path for path in settings if os.path.lexists(path) and path not in own_files(node)],
        "dropins": [path for path in dropins if os.path.lexists(path) and path not in own_files(node)],
    }
    return with_known(node, found)


def own_files(node: Look) -> set[str]:
    """What tasks wrote."""
    paths: set[str] = node.once("own files", lambda: set(node.keys_of("file")))
    return paths


def brought(node: Look) -> dict[str, str]:
    """Path → its package's file of checksums, of all that packages brought to be run."""

    def read() -> dict[str, str]:
        merged = tuple(top for top in (b"bin/", b"sbin/", b"lib/") if os.path.islink(b"/" + top[:-1]))
        found = {}
        for owner in sorted(os.listdir(DPKG_INFO)):
            if owner.endswith(".md5sums"):
                for line in bytes_of(DPKG_INFO + owner).split(b"\n"):
                    name = line[NAME_AT:]
                    if is_run(name):
                        found["/" + os.fsdecode(b"usr/" * name.startswith(merged) + name)] = owner
        return found

    paths: dict[str, str] = node.once("brought", read)
    return paths


def is_run(name: bytes) -> bool:
    """Whether a path, without the slash before it, is that of a program, a library or a module."""
    return name.startswith(RUN_FROM) or name.endswith(MODULES) or LIBRARY in name


def edited_programs(node: Look) -> list[str]:
    """Programs, libraries and modules of all packages that changed since and have another content."""
    moved, found = set(text_of(DIVERSIONS, "").splitlines()), []
    until = {owner: os.stat(DPKG_INFO + owner).st_ctime + UNPACKED_S for owner in set(brought(node).values())}
    for path, owner in brought(node).items():
        if path not in moved and has_changed(path, until[owner]) and is_edited(node, path, owner):
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


def missing_programs(node: Look) -> list[str]:
    """What packages brought and is gone, or is a program that nobody may run."""
    moved = set(text_of(DIVERSIONS, "").splitlines())
    return [
        f"{path} {owner}"
        for path, owner in brought(node).items()
        if path not in moved and not is_to_be_run(path)
        if not os.path.exists(path) or has_changed(path, os.stat(DPKG_INFO + owner).st_ctime)
    ]


def open_programs(node: Look) -> list[str]:
    """What packages brought to be run, and others than root may write: all others, or some since."""
    return [
        path
        for path, owner in brought(node).items()
        if is_open(path) and (os.stat(path).st_mode & 0o002 or not is_installed_so(path, owner))
    ]


def is_open(path: str) -> bool:
    """Whether a file is there, and others than root may write it."""
    try:
        status = os.stat(path)
        return others_write(status) or bool(status.st_mode & 0o020 and let_in(path, WRITE))
    except OSError:
        return False


def is_to_be_run(path: str) -> bool:
    """Whether a file is there, and if it is a program may be run."""
    try:
        return bool(os.stat(path).st_mode & 0o111) or not path.startswith(PROGRAM_FOLDERS)
    except OSError:
        return False


def is_missing(path: str, owner: str) -> bool:
    """Whether it still is so, and its package still has it."""
    if is_to_be_run(path) or not os.path.exists(DPKG_INFO + owner):
        return False
    names = (os.fsencode(name) for name in (path[1:], path[1:].replace("usr/", "", 1)))
    sums = bytes_of(DPKG_INFO + owner)
    return any(b"  " + name + b"\n" in sums for name in names)


def strange_programs(node: Look) -> list[str]:
    """What lies beside packages' programs, libraries and modules, and nobody brought."""
    paths = brought(node)
    folders = {path.rpartition("/")[0] for path in paths}
    above = {folder.rpartition("/")[0] for folder in folders} | folders
    namespaces = {folder for folder in above if "/dist-packages/" in folder}
    beside = {path for folder in folders | namespaces for path in run_in(folder)}
    beside.update(path for top in python_tops() for path in (*run_in(top), *packages_in(top)))
    return of_no_package(beside - paths.keys() - above - own_files(node))


def strange_settings() -> list[str]:
    """Files beside packages' settings that no package brought, and links that enable units."""
    links = {path for path in files_below(UNITS) if os.path.islink(path)}
    return of_no_package({path for folder in SETTINGS for path in files_below(folder)} | links)


def strange_dropins() -> list[str]:
    """Settings of packages' units, units of containers, and what leases run, that no package brought."""
    dropins = {path for path in files_below(UNITS) if path.endswith(".conf") and not os.path.islink(path)}
    called = {path for folder in CALLED_TOO for path in files_below(folder)}
    return of_no_package({path for path in dropins if os.path.dirname(path).endswith(".d")} | called)


def python_tops() -> list[str]:
    """Where Python looks for what was added to it, of root's, as most of a node's programs are."""
    return [
        f"{start}/{name}{inner}"
        for start, inner in PYTHONS
        for name in (os.listdir(start) if inner and os.path.isdir(start) else ())
        if name.startswith("python3")
    ]


def packages_in(top: str) -> list[str]:
    """Directories that can be imported."""
    names = os.listdir(top) if os.path.isdir(top) else []
    return [f"{top}/{name}" for name in names if name.isidentifier() and not name.endswith(NO_MODULES)]


def beside_ours() -> set[str]:
    """The files where our own programs are: a module there goes before Python's own of the same name."""
    return {
        f"{folder}/{file}"
        for name in (os.listdir(OURS) if os.path.isdir(OURS) else ())
        if name.startswith("causeway")
        for folder, _, files in os.walk(f"{OURS}/{name}")
        for file in files
        if not file.endswith(NO_MODULES)
    }


def run_in(folder: str) -> list[str]:
    """Programs, libraries and modules in a directory; not the links to those of packages."""
    try:
        entries = list(os.scandir(folder))
    except OSError:  # a package's own whose files somebody removed
        return []
    return [
        entry.path
        for entry in entries
        if is_run(os.fsencode(entry.path[1:]))
        and not entry.name.endswith(NO_MODULES)
        and (leads_away(entry.path) if entry.is_symlink() else entry.is_file())
    ]


def leads_away(link: str) -> bool:
    """Whether a link leads out of what packages fill, and not to what was chosen of several."""
    target = os.path.normpath(os.path.join(os.path.dirname(link), os.readlink(link)))
    return not target.startswith((*PACKAGES_OWN, CHOSEN))


def of_no_package(paths: set[str]) -> list[str]:
    """Those of some paths that dpkg does not list: a few packages have no checksums, and no link has one."""
    before_merge = {path: path.replace("/usr/", "/", 1) for path in paths}
    wanted = {*paths, *before_merge.values()}
    listed = wanted.intersection(text_of(DIVERSIONS, "").splitlines())
    for name in os.listdir(DPKG_INFO) if paths else ():
        if name.endswith(".list"):
            listed |= wanted.intersection(text_of(DPKG_INFO + name).splitlines())
    return sorted(path for path, older in before_merge.items() if not {path, older} & listed)


# On the controller


class Programs(Everywhere):
    """Programs, libraries and modules."""

    def ours(self, run: HostSeal, aspect: str, line: str) -> bool:
        """What a task wrote, and what a role's packages make of themselves as they are installed."""
        packages = any(kind == "package" for kind, _ in run.changed)
        return aspect in ADDED_FILES and (packages or line in run.governed())

    def undo(self, found: Obstacles, aspect: str, line: str, manifest: Manifest) -> None:
        """Moved away, or its package is installed again."""
        if aspect in ADDED_FILES:
            found.added.append(line)
            if line.startswith(UNITS):
                found.run("had systemd read its files again", "systemctl", "daemon-reload")
            return
        if aspect == "open":
            found.undo(f"that others may write {line}", "sh", "-c", OWN_AGAIN, "own", line, "root", "go-w")
            return
        path, _, owner = line.rpartition(" ")
        package = owner.removesuffix(".md5sums")
        now = "what {} is now" if aspect == "edited" else "that {} is gone or cannot be run"
        found.undo(f"{now.format(path)}, for {package}'s", *REINSTALL, package)


ADDED_FILES = ("strange", "settings", "dropins")
PROGRAMS = ("edited", "missing", "open", *ADDED_FILES)
KINDS = (
    Programs(
        "programs",
        look_at_programs,
        dict.fromkeys(PROGRAMS, is_list),
        always=PROGRAMS,
        never_none=PROGRAMS,
        said={
            "edited": "other than its package brought it",
            "missing": "gone or not to be run",
            "open": "for others to write",
            "strange": "brought by no package",
            "settings": "settings beside packages'",
            "dropins": "settings of units beside packages'",
        },
        stands_alone=True,
    ),
)
