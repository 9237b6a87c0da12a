"""surroundings: what every boot, login and program of a node goes by, beside what the roles wrote.

What was there at the first seal is known; what comes later is a difference. A file that is as its package
brought it says nothing: an update is no difference. What no program reads back is asked for where it is
kept: what systemd gives to all that it starts, what resolved was told of an interface.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from infra.drift.kind import Found, How, is_list
from infra.drift.kinds.effective import entries_below, files_below
from infra.drift.kinds.known import with_known
from infra.drift.kinds.slow import slow
from infra.drift.kinds.unit import is_brought, owners_of, settled_units
from infra.drift.looks import Look
from infra.drift.node import bytes_of, text_of
from roles.base.drift.everywhere import Everywhere, escaped, replaced
from roles.base.drift.privilege import filed

if TYPE_CHECKING:
    from infra.drift.manifest import Entry, Manifest
    from infra.drift.merge import HostSeal
    from infra.drift.repair import Obstacles

ROOTS_HOME = "/root"
SYSTEMDS = ("coredump", "journald", "logind", "networkd", "oomd", "resolved", "sleep", "timesyncd", "user")
"""systemd's programs that have files of settings (systemd.syntax(7)); its own are `systemd's defaults`."""
SURROUNDING_FILES = {
    "logins": (
        *(f"/etc/{x}" for x in ("environment", "profile", "profile.d", "bash.bashrc", "zsh", "security")),
        *("/etc/ssh/sshrc", "/etc/update-motd.d"),
        *(f"{ROOTS_HOME}/.{x}" for x in ("profile", "bashrc", "bash_profile", "bash_login", "bash_aliases")),
        *(f"{ROOTS_HOME}/.{x}" for x in ("bash_logout", "zshenv", "zprofile", "zshrc", "pam_environment")),
        *(f"{ROOTS_HOME}/.ssh/{x}" for x in ("rc", "environment")),
    ),
    "libraries": ("/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ssl/openssl.cnf"),
    "names": tuple(
        f"/etc/{x}" for x in ("nsswitch.conf", "gai.conf", "host.conf", "hosts.allow", "hosts.deny")
    ),
    "packages": (
        *(f"/etc/apt/{x}" for x in ("sources.list", "sources.list.d", "preferences", "preferences.d")),
        *(f"/etc/apt/{x}" for x in ("trusted.gpg", "trusted.gpg.d", "keyrings", "auth.conf", "auth.conf.d")),
        *("/etc/dpkg/dpkg.cfg", "/etc/dpkg/dpkg.cfg.d"),
    ),
    "boot": (
        *(
            f"/{top}/systemd/{x}"
            for top in ("etc", "run", "usr/local/lib")
            for x in ("system-generators", "system-environment-generators", "system-shutdown")
        ),
        *(
            f"/usr/local/lib/{x}"
            for x in ("udev/rules.d", "modprobe.d", "modules-load.d", "tmpfiles.d", "sysusers.d", "binfmt.d")
        ),
        *(f"/{top}/{x}" for top in ("etc", "run") for x in ("udev/rules.d", "modprobe.d", "modules-load.d")),
        *(f"/etc/{x}" for x in ("tmpfiles.d", "sysusers.d", "binfmt.d", "environment.d", "modules")),
        *(f"/etc/{x}" for x in ("rc.local", "init.d", "crypttab", "default/grub", "default/grub.d")),
        *(f"/etc/{x}" for x in ("kernel", "initramfs-tools", "network", "netplan", "systemd/network")),
    ),
    "policy": ("/etc/polkit-1", "/etc/dbus-1", "/usr/local/share/polkit-1", "/usr/local/share/dbus-1"),
    "hooks": (
        *("/etc/logrotate.conf", "/etc/logrotate.d", "/etc/dhcp", "/etc/networkd-dispatcher"),
        *("/etc/NetworkManager/dispatcher.d", "/etc/ppp"),
    ),
    "jobs": (
        *(f"/var/spool/cron/{x}" for x in ("atjobs", "crontabs")),
        *("/var/lib/systemd/linger", "/etc/systemd/user", f"{ROOTS_HOME}/.config/systemd/user"),
    ),
    "daemons": (
        *(f"/{top}/systemd/{x}.conf.d" for top in ("etc", "run") for x in SYSTEMDS),
        *(f"/etc/systemd/{x}.conf" for x in SYSTEMDS),
        "/run/systemd/system.conf.d",
    ),
    "trust": ("/usr/local/share/ca-certificates",),
    "users": tuple(f"/etc/{x}" for x in ("nologin", "cron.allow", "cron.deny", "at.allow", "at.deny")),
    "clients": (
        *("/etc/ssh/ssh_config", "/etc/ssh/ssh_config.d", "/etc/wgetrc", "/etc/gitconfig", "/etc/pip.conf"),
        "/etc/bash_completion.d",
        *(f"{ROOTS_HOME}/.{x}" for x in ("ssh/config", "wgetrc", "curlrc")),
    ),
    "modules": ("/etc/perl", "/usr/local/lib/site_perl"),
    "credentials": tuple(
        f"/{top}/credstore{x}" for top in ("etc", "run", "usr/local/lib") for x in ("", ".encrypted")
    ),
}
"""Files that are read together, by what they change. No file that DHCP or the boot writes is among them."""
DEFAULTS = "/etc/default"
"""Variables that units take, as sshd's options."""
STARTED_WITH = (
    DEFAULTS,
    *(f"/etc/{x}" for x in ("services", "protocols", "rpc", "netconfig", "gss", "idmapd.conf", "mime.types")),
    "/etc/login.defs",
)
"""What services read as they start, beside what has their name."""
NOT_DEFAULTS = tuple(f"{DEFAULTS}/{x}" for x in ("console-setup", "grub", "keyboard", "locale"))
"""How those begin that other kinds and lists compare."""
NOT_THESE = ("/var/spool/cron/crontabs/root", "/var/spool/cron/atjobs/.SEQ", "/etc/security/opasswd")
"""What `privilege` lists, what counts only, and what a change of a password writes."""
SPOOLS, LINGER = ("/var/spool/cron/atjobs", "/var/spool/cron/crontabs"), "/var/lib/systemd/linger"
PEOPLE_FROM, NOBODY = 1000, 65534
"""The first number of a person's account (UID_MIN of login.defs(5)), and one that is nobody's."""
SNAPS = ("snap.", "snap-", "70-snap.")
"""How names begin of files and units that snapd writes at each of its updates."""
PROGRAM_FOLDERS = ("/usr/sbin", "/usr/bin")
OWN_PROGRAM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin")
"""What is here goes before a program of the same name that a package brought."""
LIBRARY_FOLDERS, OWN_LIBRARIES = "/usr/lib", "/usr/local/lib"
"""The same of libraries, here and in the folder of a machine's architecture."""
ENABLED_IN = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system")
HELPER = "/var/lib/systemd/deb-systemd-helper-"
"""Where packages note which links of these they made: `enabled`, `masked`."""
BROUGHT = "by its package"
OWN_ENABLING = ("ceph-", *SNAPS)
"""How units begin that a program of theirs enables as it makes them."""
DIVERSIONS, ALTERNATIVES = "/var/lib/dpkg/diversions", "/var/lib/dpkg/alternatives"
CHOSEN = "/etc/alternatives"
HELD, ARCHITECTURES = b"\nStatus: hold ", "/var/lib/dpkg/arch"
CERTIFICATES, BUNDLE = "/etc/ssl/certs", "ca-certificates.crt"
CERTIFICATE_SOURCES = ("/usr/share/ca-certificates/", "/usr/local/share/ca-certificates/")
PYTHONS = (
    ("/usr/lib", ""),
    ("/usr/lib", "/dist-packages"),
    ("/usr/local/lib", "/dist-packages"),
    (f"{ROOTS_HOME}/.local/lib", "/site-packages"),
)
"""Where folders of Python's versions are, and what in them it goes through as it starts."""
LOADERS_CACHE, LIBRARIES = "/etc/ld.so.cache", ("/lib", "/usr/lib", "/usr/local/lib")
RESOLVER, MANAGER = "/run/systemd/resolve/netif", "/run/NetworkManager"
PASSING = ("LANG", "LC_", "container", "TERM", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "XDG_", "RD_")
"""How variables of systemd begin that the boot or the locale gives it."""


def look_at_surroundings(node: Look, key: str, how: How) -> Found:
    """Each list of what was added, by what it changes."""
    found = {what: strange_files(node, starts) for what, starts in SURROUNDING_FILES.items()}
    found["libraries"] += filed(node, strange_first(node))
    found["names"] += told_of_names()
    found["packages"] += diverted() + chosen()
    found["trust"] += strange_certificates()
    found["defaults"] = read_by_units(node)
    found["cached"] = cached_folders()
    found["fstab"] = fstab_lines(node)
    found["shadowing"] = shadowing(node)
    found["overriding"] = overriding(node)
    found["choices"] = choices(node)
    found["enabled"] = enabled_links(node)
    found["environment"] = manager_environment(node)
    return with_known(node, found)


def strange_files(node: Look, starts: tuple[str, ...]) -> list[str]:
    """Files that no role and no package wrote, with what they say; links that lead to no package's file."""
    paths = [path for start in starts for path in files_below(start) if path not in NOT_THESE]
    paths = [path for path in paths if not path.rpartition("/")[2].startswith(SNAPS)]
    paths = [path for path in paths if not is_a_persons(node, path)]
    links = {path: link_target(path) for path in paths if os.path.islink(path)}
    own = own_paths(node)
    found = [f"{path} ->{target}" for path, target in links.items() if target and path not in own]
    return found + filed(node, [path for path in paths if path not in links])


def pythons_first() -> list[str]:
    """Files that Python runs before any program of its (site.py): of root's, as most of a node's are."""
    tops = [
        f"{top}/{name}{inner}"
        for top, inner in PYTHONS
        for name in (os.listdir(top) if os.path.isdir(top) else ())
        if name.startswith("python3")
    ]
    found = {
        os.path.realpath(f"{top}/{name}")  # a package may have its own among its settings
        for top in tops
        for name in (os.listdir(top) if os.path.isdir(top) else ())
        if name.endswith(".pth") or name in ("sitecustomize.py", "usercustomize.py")
    }
    return sorted(found)


def strange_first(node: Look) -> list[str]:
    """Of these files what is not as its package brought it, where the timer has found out which one that is.

    Going through the lists of all packages costs more than all else here, comparing with one next to nothing.
    """
    paths = pythons_first()

    def read() -> list[str]:
        owners = owners_of(node, [path for path in paths if path.startswith(LIBRARY_FOLDERS + "/")])
        return [f"{path} {owner}" for path, owner in owners.items()]

    owners = dict(line.rsplit(" ", 1) for line in slow(node, "first", read) or ())
    return [path for path in paths if not is_owners(node, path, owners.get(path, ""))]


def is_owners(node: Look, path: str, owner: str) -> bool:
    """Whether a file is there as a package brought it."""
    try:
        return bool(owner) and is_brought(node, path, bytes_of(path), owner)
    except OSError:
        return False


def read_by_units(node: Look) -> list[str]:
    """Files that services of all kinds read as they start."""
    return [line for line in strange_files(node, STARTED_WITH) if not line.startswith(NOT_DEFAULTS)]


def cached_folders() -> list[str]:
    """Where the loader finds libraries beside the system's own places, whatever ld.so.conf says by now."""
    data = bytes_of(LOADERS_CACHE) if os.path.isfile(LOADERS_CACHE) else b""
    # Before the names stand numbers, any of whose bytes may look like the beginning of a path.
    paths = (part.rpartition(b"/") for part in data.split(b"\0") if part[:1] == b"/")
    folders = {os.fsdecode(folder) for folder, _, name in paths if b".so" in name}
    return sorted(folder for folder in folders if not folder.startswith(LIBRARIES))


def is_a_persons(node: Look, path: str) -> bool:
    """Whether it is a person's job, which runs as that person and is theirs to change."""
    folder, _, name = path.rpartition("/")
    if folder == LINGER:  # who is not in the file comes from a directory of people
        return all(_person(int(row[2])) for row in node.table("passwd") if row[0] == name)
    try:
        return folder in SPOOLS and _person(os.lstat(path).st_uid)
    except OSError:  # it has just gone
        return True


def _person(number: int) -> bool:
    return number >= PEOPLE_FROM and number != NOBODY


def own_paths(node: Look) -> set[str]:
    """The links that roles made."""
    paths: set[str] = node.once("own links", lambda: set(node.keys_of("link")))
    return paths


def link_target(path: str) -> str:
    """Where a link leads; empty where that is a package's file."""
    target = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    return "" if target.startswith(("/usr/lib/", "/lib/", "/usr/share/")) else target


def told_of_names() -> list[str]:
    """What resolved was told of an interface, as its name servers; NetworkManager tells it such itself."""
    if os.path.isdir(MANAGER) or not os.path.isdir(RESOLVER):
        return []
    from _socket import if_nameindex

    interfaces = {str(index): name for index, name in if_nameindex()}
    return [
        f"{interfaces.get(index, index)} {line}"
        for index in sorted(os.listdir(RESOLVER))
        for line in text_of(f"{RESOLVER}/{index}", "").splitlines()
        if line and line[0] != "#"
    ]


def diverted() -> list[str]:
    """Files of packages that somebody has dpkg put elsewhere: path, place and who, a line each."""
    lines = text_of(DIVERSIONS, "").splitlines()
    triples = zip(lines[::3], lines[1::3], lines[2::3])
    return [f"diverted {path} to {place}" for path, place, who in triples if who == ":"]


def chosen() -> list[str]:
    """Alternatives that somebody chose: by hand, as update-alternatives(1) notes it, or behind its back."""
    found = []
    for name in sorted(os.listdir(ALTERNATIVES)) if os.path.isdir(ALTERNATIVES) else ():
        text = text_of(f"{ALTERNATIVES}/{name}", "auto\n")
        path = f"{CHOSEN}/{name}"
        target = os.readlink(path) if os.path.islink(path) else "no link"
        if text.startswith("manual\n") or f"\n{target}\n" not in text:
            found.append(f"alternative {name} {target}")
    return found


def strange_certificates() -> list[str]:
    """Authorities that all programs trust and that no package brought, in both forms that are kept."""
    found, linked = [], 0
    if not os.path.isdir(CERTIFICATES):
        return []
    for entry in os.scandir(CERTIFICATES):
        if not entry.is_symlink():
            if entry.is_file() and entry.name not in (BUNDLE, "ssl-cert-snakeoil.pem"):
                found.append(f"{entry.path} 0")
        elif (target := os.readlink(entry.path)).startswith("/"):
            linked += 1
            if not target.startswith(CERTIFICATE_SOURCES):
                found.append(f"{entry.path} ->{target}")
    path = f"{CERTIFICATES}/{BUNDLE}"
    if os.path.isfile(path):
        more = bytes_of(path).count(b"BEGIN CERTIFICATE") - linked
        found += [f"{BUNDLE} has {more} more"] * (more > 0)
    return found


def fstab_lines(node: Look) -> list[str]:
    """What is mounted at boot and no task governs."""
    own = node.keys_of("mount")
    rows = [line.split() for line in text_of("/etc/fstab", "").splitlines()]
    return [
        " ".join(row)
        for row in rows
        if len(row) > 2 and row[0][0] != "#" and row[1].replace("\\040", " ") not in own
    ]


def shadowing(node: Look) -> list[str]:
    """Programs that go before a package's of the same name."""
    own = own_paths(node).union(node.keys_of("file"))
    found = []
    for folder in OWN_PROGRAM_FOLDERS:
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            path = f"{folder}/{name}"
            if path not in own and any(os.path.lexists(f"{top}/{name}") for top in PROGRAM_FOLDERS):
                found.append(f"{path} 0")
    return found


def overriding(node: Look) -> list[str]:
    """Libraries that the loader takes before a package's of the same name."""
    own, found = own_paths(node).union(node.keys_of("file")), []
    names = os.listdir(LIBRARY_FOLDERS) if os.path.isdir(OWN_LIBRARIES) else []
    inner = ["", *(f"/{name}" for name in names if name.endswith("-linux-gnu"))]
    for folder in inner:
        top = OWN_LIBRARIES + folder
        for name in sorted(os.listdir(top)) if os.path.isdir(top) else ():
            packages = (f"{LIBRARY_FOLDERS}{x}/{name}" for x in inner)
            if ".so" in name and f"{top}/{name}" not in own and any(map(os.path.lexists, packages)):
                found.append(f"{top}/{name} 0")
    return found


def choices(node: Look) -> list[str]:
    """What apt and dpkg were told to keep, and for which machines they take packages."""
    own, found = set(node.keys_of("package")), []
    data = node.dpkg()
    at = data.find(HELD)
    while at >= 0:
        start = data.rfind(b"\nPackage: ", 0, at) + 10
        name = data[start : data.find(b"\n", start)].decode("utf-8", "replace")
        found += [f"hold of {name}"] * (name not in own)
        at = data.find(HELD, at + 1)
    return found + [f"architecture {x}" for x in text_of(ARCHITECTURES, "").split()]


def enabled_links(node: Look) -> list[str]:
    """Units that are started, masked, or have another name, by no role and by no package."""
    own, known = set(node.keys_of("unit")).union(own_paths(node)), node.want.get("enabled") or ()
    found = []
    for folder in ENABLED_IN:
        for entry in entries_below(folder):
            path, name = entry.path, entry.name
            if not entry.is_symlink() or name in own or path in own or name.startswith(OWN_ENABLING):
                continue
            line, inner = f"{path} ->{os.readlink(path)}", path[len(folder) :]
            if not any(os.path.lexists(HELPER + state + inner) for state in ("enabled", "masked")):
                found += [line] * (f"{line} {BROUGHT}" not in known)
            elif node.mode == "seal":
                found.append(f"{line} {BROUGHT}")  # a package may forget its note, and keep the link
    return found


def manager_environment(node: Look) -> list[str]:
    """Variables that systemd gives to all that it starts, as hashes: a value may be secret."""
    told = node.once("units", lambda: settled_units(node))[""]["environment"]
    pairs = [line.partition("=") for line in told or ()]
    return [
        f"{name} {node.digest(value.encode())}" for name, _, value in pairs if not name.startswith(PASSING)
    ]


# On the controller


def spelt(line: str) -> str:
    """A line for `sed`, in whatever way its words are set apart."""
    space = "[[:space:]]"
    return space + "*" + rf"{space}\+".join(map(escaped, line.split())) + space + "*"


TRUST_AGAIN = ("trust in what no package brought", "update-ca-certificates", "--fresh")
UNSET = ("systemctl", "unset-environment")
BY_PACKAGES = ("/etc/nsswitch.conf",)
"""What packages add a word to as they are installed."""


class Surroundings(Everywhere):
    """What everything on a node goes by."""

    def ours(self, run: HostSeal, aspect: str, line: str) -> bool:
        """A file, link or unit that a task governs, and what a role's packages change."""
        governed, words = run.governed(), line.split()
        packages = any(kind == "package" for kind, _ in run.changed)
        if packages and (words[0] in BY_PACKAGES or aspect in ("defaults", "cached")):
            return True
        if line.endswith(BROUGHT):
            return True
        if aspect == "fstab":
            return words[1].replace("\\040", " ") in governed
        name = words[0].rpartition("/")[2]
        return words[0] in governed or (aspect == "enabled" and name in governed)

    def comes_along(self, before: Entry, aspect: str, line: str) -> bool:
        """A link that was there by its package, which has forgotten its note of it."""
        return aspect == "enabled" and f"{line} {BROUGHT}" in (before.want.get(aspect) or ())

    def key_of(self, aspect: str, line: str) -> str:
        """A line of fstab by its place, where it is no swap; files, choices and variables by their names."""
        words = line.split()
        if aspect == "fstab":
            return words[1] if words[1].startswith("/") else " ".join(words[:2])
        named = words[0] == "alternative" or aspect == "environment" or words[0].startswith("/")
        return line.rpartition(" ")[0] if named and aspect != "cached" else line

    def set_back(self, found: Obstacles, aspect: str, line: str, before: str) -> None:
        """A line of fstab and a choice, as they were. Of files and variables only hashes are known."""
        words = before.split()
        if aspect == "fstab":
            # The known line may be there, too: then it stays once.
            edits = ("-e", rf"\|^{spelt(before)}$|d", "-e", rf"s|^{spelt(line)}$|{replaced(before)}|")
            found.undo(f"line {line} of /etc/fstab in place of {before}", "sed", "-i", *edits, "/etc/fstab")
        elif words[0] == "alternative":
            found.undo(f"choice of {words[1]}", "update-alternatives", "--set", words[1], words[-1])

    def undo(self, found: Obstacles, aspect: str, line: str, manifest: Manifest) -> None:
        """What takes it away."""
        words = line.split()
        if aspect == "cached":
            found.undo(f"libraries of {line} in the loader's cache", "ldconfig")
        elif aspect == "environment":
            found.undo(f"variable {words[0]} of all that systemd starts", *UNSET, words[0])
        elif aspect == "fstab":
            found.undo(f"line {line} of /etc/fstab", "sed", "-i", "-e", rf"\|^{spelt(line)}$|d", "/etc/fstab")
        elif words[0] == "diverted":
            found.undo(f"diversion of {words[1]}", *DIVERT, words[1])
        elif words[0] == "alternative":
            found.undo(f"choice of {words[1]}", "update-alternatives", "--auto", words[1])
        elif aspect == "choices":
            argv = ("apt-mark", "unhold") if words[0] == "hold" else ("dpkg", "--remove-architecture")
            # Before packages are installed again: of another architecture there may be no lists.
            found.undo(line, *argv, words[-1], first=True)
        elif words[0] == BUNDLE:
            found.undo(*TRUST_AGAIN)
        elif not words[0].startswith("/"):
            found.undo(f"what resolved was told of {words[0]}", "resolvectl", "revert", words[0])
        else:
            self._file(found, aspect, line.rpartition(" ")[0])

    def _file(self, found: Obstacles, aspect: str, path: str) -> None:
        """A file or a link is moved away."""
        found.added.append(path)
        if path.startswith(("/etc/systemd/", "/run/systemd/")):
            found.run("had systemd read its files again", "systemctl", "daemon-reload")
        if aspect == "trust":
            found.undo(*TRUST_AGAIN)
        if aspect == "overriding":
            found.undo(f"library {path} in the loader's cache", "ldconfig")


DIVERT = ("dpkg-divert", "--local", "--rename", "--remove")
SURROUNDINGS = (
    *(*SURROUNDING_FILES, "defaults", "cached", "fstab", "shadowing", "overriding", "choices"),
    *("enabled", "environment"),
)
KINDS = (
    Surroundings(
        "surroundings",
        look_at_surroundings,
        dict.fromkeys(SURROUNDINGS, is_list),
        always=SURROUNDINGS,
        never_none=SURROUNDINGS,
        said={
            "logins": "read at logins",
            "libraries": "read for libraries",
            "names": "read for names",
            "packages": "read for packages",
            "boot": "read at boot",
            "daemons": "read by systemd's daemons",
            "trust": "trusted authority",
            "users": "read of what users may do",
            "clients": "read by programs of root's",
            "modules": "read before packages' modules",
            "credentials": "credential that systemd hands to services",
            "overriding": "library before a package's",
            "choices": "told to apt and dpkg",
            "defaults": "read as services start",
            "cached": "in the loader's cache",
            "shadowing": "program before a package's",
            "enabled": "enabled unit",
            "environment": "variable of systemd",
        },
        stands_alone=True,
    ),
)
