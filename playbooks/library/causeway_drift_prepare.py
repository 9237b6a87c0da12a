#!/usr/bin/python3
"""Ansible module: takes out of a role's way what its tasks cannot change back."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import shlex
import shutil
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.causeway_node import Steps, make_room, move, setting_path

DOCUMENTATION = r"""
---
module: causeway_drift_prepare
short_description: Remove the obstacles that keep a role from repairing a node
description:
  - Clears immutable and append-only bits, takes extended attributes away, moves away what has the wrong type,
    brings back sealed package versions and sysctls, and runs the commands that kinds of things name for the
    rest.
  - Moves away files, takes out keys, and undoes what else somebody added beside a role's own, if
    I(remove_added) says so.
  - Nothing is deleted. What is moved lies under /var/lib/causeway/aside afterwards.
options:
  obstacles:
    description: As infra.drift.repair finds them.
    type: dict
    required: true
  remove_added:
    description: Whether added files and keys are moved away.
    type: bool
    default: false
"""
EXAMPLES = r"""
- name: Clear the way
  causeway_drift_prepare:
    obstacles: {thaw: [/etc/hosts]}
"""
RETURN = r"""
changes:
  description: What was done, in words.
  type: list
  returned: always
unable:
  description: What did not go well, and what the command said of it.
  type: list
  returned: always
left:
  description: What was added by somebody, and stays without consent.
  type: list
  returned: always
"""
FS_IOC_GETFLAGS, FS_IOC_SETFLAGS = 0x80086601, 0x40086602
BITS = {0x10: "immutable", 0x20: "append-only"}
INSTALL = (
    *("apt-get", "install", "--yes", "--quiet", "--no-install-recommends"),
    "--allow-change-held-packages",
    *("-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Options::=--force-confold"),
)
UPDATE = ("apt-get", "update", "--quiet", "-o", "DPkg::Lock::Timeout=300")
ADVICE = "maybe run apt-get update"
NOT_DONE = "is not possible, it cannot be downloaded"
"""apt-get takes that for no failure."""
APT = ("apt-get", "install")
OF_APT = "/etc/apt/"


class Preparation(Steps):
    """One obstacle after the other, in an order in which one makes way for the next."""

    def __init__(self, module: AnsibleModule) -> None:
        super().__init__(module)
        self.todo = module.params["obstacles"]
        self.consent = module.params["remove_added"]

    def leave(self, what: str, why: str) -> None:
        """The scan that follows says what stays."""
        self.fail(what, why)

    def all(self) -> None:
        """Everything; first what hides something, for what is below it is what has to be brought back."""
        self.undo(first=True)
        for path in self.todo.get("thaw", ()):
            self.thaw(path)
        for path, names in self.todo.get("attributes", {}).items():
            for name in names if not os.path.islink(path) else ():
                self.do(f"{path}: without {name}", lambda path=path, name=name: without(path, name))
        for path, sealed in self.todo.get("ownership", {}).items():
            words = ", ".join(f"{aspect} {value}" for aspect, value in sealed.items())
            self.do(f"{path}: {words}", lambda path=path, sealed=sealed: own(path, sealed))
        for path in self.todo.get("wrong_type", ()):
            self.away(path, "moved away, for it has the wrong type")
        for path in self.todo.get("parents", ()):
            folder = os.path.dirname(path)
            if not os.path.isdir(folder):
                self.do(f"made {folder}", lambda folder=folder: os.makedirs(folder, 0o755))
        self.settings()
        self.packages()
        self.added()
        for command in self.todo.get("commands", ()):
            self.run(command["what"], *command["argv"])
        self.units()

    def settings(self) -> None:
        """Sysctls in force, and the name."""
        for key, value in self.todo.get("sysctls", {}).items():
            setting = Path("/proc/sys", setting_path(key))
            self.do(f"set {key} to {value}", lambda s=setting, v=value: s.write_text(v))
        if name := self.todo.get("hostname"):
            self.do(f"/etc/hostname says {name}", lambda: Path("/etc/hostname").write_text(f"{name}\n"))

    def packages(self) -> None:
        """Sealed versions, where the archive still has them; the role decides otherwise."""
        for name, version in self.todo.get("packages", {}).items():
            pin = f"{name}={version}"
            self.install(f"installed {pin}", lambda pin=pin: ("--allow-downgrades", pin))
        for name, version in self.todo.get("updates", {}).items():
            if not self.has(name, version):
                self.update(name, version)

    def has(self, name: str, version: str) -> bool:
        """Whether a package has this version or a newer one: it may have been updated since the scan."""
        query = ["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}", name]
        state, _, installed = self.command(*query)[1].partition(" ")
        at_least = ("dpkg", "--compare-versions", installed, "ge", version)
        return state == "installed" and self.command(*at_least)[0] == 0

    def update(self, name: str, version: str) -> None:
        """The sealed version, else what the archive has by now; nothing is downgraded for it."""
        sealed = f"{name}={version}"

        def wanted() -> tuple[str]:
            return (sealed if self.command(*INSTALL, "--simulate", sealed)[0] == 0 else name,)

        self.install(f"installed {name}, {version} or newer", wanted)

    def install(self, what: str, wanted: Callable[[], tuple[str, ...]]) -> None:
        """By apt-get; as it advises itself, again with fresh lists where the archive has dropped some."""

        self.attempt(what, lambda: self.by_apt(lambda: (*INSTALL, *wanted())))

    def by_apt(self, wanted: Callable[[], tuple[str, ...]]) -> None:
        """A command of apt-get's; with fresh lists once more where the lists are old, or gone."""
        try:
            self.installed(wanted())
        except OSError as error:
            if ADVICE not in str(error) and NOT_DONE not in str(error):
                raise
            self._succeed(UPDATE)
            self.installed(wanted())

    def installed(self, argv: tuple[str, ...]) -> None:
        """OSError also where it was only said that nothing was done."""
        status, out, complaint = self.command(*argv)
        if status:
            raise OSError((complaint or out).strip()[-300:])
        if undone := [line for line in out.splitlines() if NOT_DONE in line]:
            raise OSError(undone[0])

    def added(self) -> None:
        """Files and keys that no task accounts for."""
        for program in self.todo.get("added_to", ()):
            strangers = [path for path in below(program["inputs"]) if path not in program["known"]]
            # A changed file of the role's own makes its task write it again, and that restarts what reads it.
            for path in program["own"] if strangers and self.consent else ():
                self.do(f"had {path} written again", lambda path=path: nudge(path))
            for path in strangers:
                self.stranger(path)
        for path in sorted(self.todo.get("added", ()), key=apt_first):
            self.stranger(path)
        for path, keys in self.todo.get("added_keys", {}).items():
            if self.consent:
                self.thaw(path)
                self.do(f"took keys out of {path}", lambda p=path, k=keys: self.take_out(p, k))
            else:
                self.left.append(f"{len(keys)} keys in {path}")
        self.undo(first=False)

    def undo(self, *, first: bool) -> None:
        """Take away what somebody added that is no file, with consent; name it without."""
        for command in self.todo.get("undone", ()):
            if command.get("first", False) != first:
                continue
            what, argv = f"took away: {command['what']}", tuple(command["argv"])
            if self.consent and argv[:2] == APT:
                self.attempt(what, lambda argv=argv: self.by_apt(lambda: argv))
            elif self.consent:
                self.run(what, *argv)
            else:
                self.left.append(f"{command['what']} ({shlex.join(command['argv'])})")

    def units(self) -> None:
        """Definitions that systemd has to read again."""
        units = self.todo.get("restart", ())
        if units and not self.module.check_mode:
            self.command("systemctl", "daemon-reload")
        for unit in units:
            self.run(f"restarted {unit}", "systemctl", "try-restart", unit)

    def stranger(self, path: str) -> None:
        """Move an added file away, with consent; name it without."""
        if not os.path.lexists(path):
            return
        if self.consent:
            self.thaw(path)
            self.away(path, "moved away, for no role wrote it")
            self.bring_again(path)
        else:
            self.left.append(path)

    def bring_again(self, path: str) -> None:
        """Have the package of a file of settings bring it once more; of most added files there is none."""
        owner, _, named = self.command("dpkg-query", "--search", path)[1].partition(": ")
        if named.splitlines()[:1] == [path] and " " not in owner:
            again = ("--reinstall", "-o", "Dpkg::Options::=--force-confmiss", owner)
            self.install(f"{path}: as {owner} brings it", lambda: again)

    def away(self, path: str, why: str) -> None:
        """Move a path to where nothing reads it."""
        if os.path.lexists(path):
            target = self.put_aside(path)
            self.do(f"{path}: {why}", lambda: move(path, target))

    def take_out(self, path: str, keys: list[str]) -> None:
        """Take keys out of a file of authorised keys; the file as it was is kept."""
        file, target = Path(path), self.put_aside(path)
        make_room(target)
        # The folder is a user's own: nothing that lies there is followed or written through.
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as handle:
            data, status = handle.read(), os.fstat(handle.fileno())
        target.write_bytes(data)
        lines = data.decode(errors="surrogateescape").splitlines(keepends=True)
        left = "".join(line for line in lines if shown_key(line) not in keys)
        # Whole or not at all: half a file would lock everybody out.
        part = file.with_name(f".{file.name}.part")
        with suppress(FileNotFoundError):
            part.unlink()
        new = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(new, "wb") as handle:
            handle.write(left.encode(errors="surrogateescape"))
            os.fchown(new, status.st_uid, status.st_gid)
            os.fchmod(new, status.st_mode & 0o777)
        part.replace(file)

    def thaw(self, path: str) -> None:
        """Clear the immutable and the append-only bit, where one is set."""
        if os.path.islink(path) or not (os.path.isfile(path) or os.path.isdir(path)):
            return
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            flags = struct.unpack("l", fcntl.ioctl(handle, FS_IOC_GETFLAGS, b"\0" * 8))[0]
            if names := [name for bit, name in BITS.items() if flags & bit]:
                clear = struct.pack("l", flags & ~sum(BITS))
                what = f"{path}: no longer {' and '.join(names)}"
                self.do(what, lambda: fcntl.ioctl(handle, FS_IOC_SETFLAGS, clear))
        except OSError as error:
            self.module.warn(f"{path}: {error}")
        finally:
            os.close(handle)


def apt_first(path: str) -> bool:
    """What apt reads goes before all else: it is asked for what packages bring in the place of others."""
    return not path.startswith(OF_APT)


def without(path: str, name: str) -> None:
    """Take an extended attribute away: an ACL, a capability."""
    with suppress(FileNotFoundError, OSError):  # gone meanwhile: the scan that follows tells
        os.removexattr(path, name, follow_symlinks=False)


def below(starts: list[str]) -> list[str]:
    """The files at or below these paths."""
    found = []
    for start in starts:
        if os.path.isdir(start):
            found += [os.path.join(top, name) for top, _, names in os.walk(start) for name in names]
    return sorted(found)


def shown_key(line: str) -> str:
    """A line of authorised keys as the probe shows it: a module sees nothing of the checkout."""
    return " ".join(fingerprint(word) if word.startswith("AAAA") else word for word in line.split())


def fingerprint(key: str) -> str:
    """A key's fingerprint, as `ssh-keygen -l` prints it; what is no key, as it is."""
    try:
        digest = hashlib.sha256(base64.b64decode(key + "===")).digest()
    except ValueError:
        return key
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def own(path: str, sealed: dict[str, str]) -> None:
    """Give a path its owner, group and mode back; the mode last, for a change of owner takes bits away."""
    if os.path.islink(path):
        return
    mode = os.stat(path).st_mode & 0o7777
    for aspect, argument in (("owner", "user"), ("group", "group")):
        if name := sealed.get(aspect):
            # An account that is gone: the role makes it again, and gives it its files.
            with suppress(LookupError):
                shutil.chown(path, **{argument: int(name) if name.isdigit() else name})
    os.chmod(path, int(sealed["mode"], 8) if "mode" in sealed else mode)


def nudge(path: str) -> None:
    """Change a file by an empty line."""
    with open(path, "a") as file:
        file.write("\n")


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "obstacles": {"type": "dict", "required": True},
            "remove_added": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    preparation = Preparation(module)
    try:
        preparation.all()
    except OSError as error:
        done = "; ".join(preparation.changes)
        module.fail_json(msg=f"{error}. Done so far: {done or 'nothing'}", changed=bool(preparation.changes))
    module.exit_json(
        changed=bool(preparation.changes),
        changes=preparation.changes,
        unable=preparation.failed,
        left=sorted(set(preparation.left)),
    )


if __name__ == "__main__":
    main()
