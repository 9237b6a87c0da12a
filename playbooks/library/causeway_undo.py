#!/usr/bin/python3
"""Ansible module: brings a node back to what it was before roles that leave it."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.causeway_block import without_block, without_keys
from ansible.module_utils.causeway_node import PART, Steps, keep_copy, move, replace, setting_path
from ansible.module_utils.causeway_packages import NO_DATA, Packages
from ansible.module_utils.causeway_paths import UNKNOWN, at
from ansible.module_utils.causeway_prior import (
    RUNS,
    Index,
    Prior,
    accounts,
    interfaces,
    mounts,
    said,
    tables,
    units,
)

DOCUMENTATION = r"""
---
module: causeway_undo
short_description: Bring a node back to what it was before roles that leave it
description:
  - Stops what the roles started, takes away what they brought, and gives back what they replaced, thing by
    thing, from their record and from the look before them (M(causeway_before)).
  - What somebody has changed since is copied to /var/lib/causeway/aside first. Directories with data
    stay, as does all of which nobody knows what was before it; both are named.
  - May be killed at any moment, and started again.
options:
  roles:
    description: The roles that leave.
    type: list
    elements: str
    required: true
  things:
    description: What they govern and no other role does. C(kind), C(key), C(want) as in the record, C(roles).
    type: list
    elements: dict
    required: true
  staying:
    description: Kind and key of what other roles govern.
    type: list
    elements: list
    default: []
  handed:
    description: Kind, key and leaving roles of what other roles govern as well.
    type: list
    elements: list
    default: []
  metrics:
    description: Files in which programs of these roles told node_exporter what they see.
    type: list
    elements: str
    default: []
  named:
    description: What stays, as the roles themselves have said.
    type: list
    elements: str
    default: []
  salt:
    description: Of the record's content hashes.
    type: str
    default: ""
  purge_data:
    description: Whether directories with data go as well.
    type: bool
    default: false
  forget:
    description: Only forget what was before these roles, once no record has them any more.
    type: bool
    default: false
  data:
    description: Directories that stay, as an earlier call said.
    type: list
    elements: str
    default: []
"""
EXAMPLES = r"""
- name: Bring the node back to what it was
  causeway_undo:
    roles: [consul]
    things: [{kind: file, key: /etc/default/consul, roles: [consul]}]
"""
RETURN = r"""
changes:
  description: What was done, in words.
  type: list
  returned: always
left:
  description: What stays, and why.
  type: list
  returned: always
data:
  description: Directories that stay.
  type: list
  returned: always
stuck:
  description: What was tried in vain, and why; it goes once that is mended.
  type: list
  returned: always
unknown:
  description: The roles of which nobody knows what was before them; they have not left.
  type: list
  returned: always
"""
PATHS = ("file", "directory", "link", "absent")
FSTAB, SYSCTLS = Path("/etc/fstab"), Path("/etc/sysctl.d")
STATES = {
    **{"enabled": ("enable",), "disabled": ("disable",), "masked": ("mask",)},
    **{"enabled-runtime": ("enable", "--runtime"), "masked-runtime": ("mask", "--runtime")},
}
"""What systemd says of a unit that somebody decided about → how that is decided."""
FOLDERS = {"StateDirectory": "/var/lib", "LogsDirectory": "/var/log", "CacheDirectory": "/var/cache"}


class Undo(Steps):
    """One kind of thing after the other, in an order in which one makes way for the next."""

    def __init__(self, module: AnsibleModule) -> None:
        super().__init__(module)
        self.given = module.params
        self.purge: bool = module.params["purge_data"]
        self.staying = {(kind, key) for kind, key in module.params["staying"]}
        self.kept_paths = {key for kind, key in self.staying if kind in PATHS}
        self.index = Index()
        self.priors: dict[int, Prior] = {}
        self.data: dict[str, int] = {}
        """Directory that stays → the look before it, which whoever comes next is told."""
        self.others: set[str] = set()
        """Files that are others' by now: ours was taken out of them."""
        self.gone: set[str] = set()
        """What was taken away, or would have been."""

    # What was before

    def prior(self, kind: str, key: str, roles: Iterable[str]) -> Prior | None:
        """The look before the first role that had a thing; None where there was none."""
        number = self.index.before(kind, key, roles)
        if number is not None and number not in self.priors:
            try:
                self.priors[number] = Prior.load(number)
            except (OSError, ValueError):
                return None
        return None if number is None else self.priors[number]

    def known_roles(self) -> list[str]:
        """Leaving roles before which somebody looked."""
        return [role for role in self.given["roles"] if role not in self.unknown()]

    def unknown(self) -> list[str]:
        """Roles of which nobody knows what was before them."""
        return [role for role in self.given["roles"] if self.index.roles.get(role) is None]

    def known(self, *kinds: str) -> Iterator[tuple[dict[str, Any], Prior]]:
        """The things of these kinds with what was before them; the others are named."""
        for thing in self.given["things"]:
            if thing["kind"] not in kinds:
                continue
            prior = self.prior(thing["kind"], thing["key"], thing["roles"])
            if prior is None:
                self.leave(f"{thing['kind']} {thing['key']}", "nobody knows what was before it")
            else:
                yield thing, prior

    def all(self) -> None:
        """Everything."""
        folders = self.note_folders()
        self.stop()
        self.network()  # while there are the programs that know how: they may go with their packages
        self.silence()
        self.set_aside()
        self.unmount()
        data = self.packages().uninstall()
        self.give_back_paths()
        for folder, prior in [*data.items(), *folders]:
            if prior.path(folder) is None:
                self.take_away(folder, prior)
        self.restart()
        self.accounts()
        self.kernel()
        self.name_the_rest()
        self.note()

    def stop(self) -> None:
        """Units that were not there, or did not run."""
        now = units()
        for thing, prior in self.known("unit"):
            unit = thing["key"]
            enabled, active = prior.facts["units"].get(unit, ["", "inactive"])
            if unit not in now:
                continue
            if now[unit][1] in (*RUNS, "failed") and active not in RUNS:
                self.run(f"stopped {unit}", "systemctl", "stop", unit)
            # A mask that stayed would keep from running whoever installs the package later.
            if now[unit][0].startswith("masked") and not enabled.startswith("masked"):
                self.run(f"unmasked {unit}", "systemctl", "unmask", "--quiet", unit)
                now[unit][0] = said("systemctl", "is-enabled", unit).strip()
            if now[unit][0].startswith("enabled") and not enabled.startswith("enabled"):
                self.run(f"disabled {unit}", "systemctl", "disable", "--quiet", unit)

    def silence(self) -> None:
        """What programs of these roles told last, which node_exporter would go on telling."""
        for file in self.given["metrics"]:
            if at(file) is not None:
                self.change(f"removed {file}", lambda file=file: os.unlink(file), gone=file)

    def note_folders(self) -> list[tuple[str, Prior]]:
        """Directories of units and accounts, with what was before them.

        Noted before anything goes: once the unit and the account are gone, nobody else tells of them, neither
        to a run that goes on after a kill nor to a role that comes again and finds its data.
        """
        for folder, roles in [*self.folders_of_units(), *self.homes()]:
            for role in roles:
                known = self.index.folders.setdefault(role, [])
                known += [folder] * (folder not in known)
        if not self.module.check_mode:
            self.index.save()
        noted = [(folder, role) for role in self.known_roles() for folder in self.index.folders.get(role, ())]
        folders = ((folder, self.prior("directory", folder, [role])) for folder, role in noted)
        governed = {(thing["kind"], thing["key"]) for thing in self.given["things"]}
        free = [(folder, prior) for folder, prior in folders if ("directory", folder) not in governed]
        return [(folder, prior) for folder, prior in free if prior and folder not in self.kept_paths]

    def homes(self) -> Iterator[tuple[str, list[str]]]:
        """Homes of accounts that were not there, with the roles that have those."""
        there = accounts("passwd")
        for thing, prior in self.known("user"):
            if thing["key"] in there and thing["key"] not in prior.facts["accounts"]:
                yield there[thing["key"]][5], thing["roles"]

    def folders_of_units(self) -> Iterator[tuple[str, list[str]]]:
        """Directories that systemd makes for units, with the roles that have those."""
        for thing, _prior in self.known("unit"):
            for what, top in FOLDERS.items():
                names = said("systemctl", "show", "--value", f"--property={what}", thing["key"]).split()
                yield from ((os.path.join(top, name), thing["roles"]) for name in names)

    def set_aside(self) -> None:
        """Files that are neither as the role left them nor as they were before."""
        for thing, prior in self.known("file"):
            path, want = thing["key"], thing.get("want") or {}
            if not self.is_changed(path, want) or self.is_as_before(path, prior):
                continue
            target = self.put_aside(path)
            what = f"{path}: somebody has changed it; as it is, it lies in {target}"
            if not self.attempt(what, lambda path=path, target=target: keep_copy(path, target)):
                self.others.add(path)  # what cannot be kept stays

    def is_changed(self, path: str, want: dict[str, Any]) -> bool:
        """Whether a file is another one than the record has; a link in its place is."""
        if not os.path.lexists(path) or os.path.isdir(path) or "digest" not in want:
            return False
        if os.path.islink(path) or not os.path.isfile(path):
            return os.path.islink(path)
        found = hashlib.sha256(self.given["salt"].encode())
        try:
            with open(path, "rb") as handle:
                for piece in iter(lambda: handle.read(1 << 20), b""):
                    found.update(piece)
        except OSError:
            return True  # a disk that fails: whether it can be kept is seen when it is
        return bool(found.hexdigest()[:32] != want["digest"])

    def is_as_before(self, path: str, prior: Prior) -> bool:
        """Whether a path is what it was before the role."""
        was, now = prior.path(path), at(path)
        if was == UNKNOWN or was != now:
            return False
        if was is None or was[0] != "file":
            return True
        content = prior.content(path)
        try:
            return content is not None and Path(path).read_bytes() == content
        except OSError:
            return False

    def unmount(self) -> None:
        """What was not mounted, and its line in fstab."""
        for thing, prior in self.known("mount"):
            place = thing["key"]
            if place in mounts() and place not in prior.facts["mounts"]:
                self.run(f"unmounted {place}", "umount", place)
            self.size_again(place, prior)
            text = FSTAB.read_bytes() if FSTAB.is_file() else b""
            if at(str(FSTAB)) and prior.content(str(FSTAB)) is None and prior.path(str(FSTAB)) is not None:
                self.leave(f"{FSTAB}: its line for {place}", "nobody knows what it was before")
                continue
            before = fstab(prior.content(str(FSTAB)) or b"").get(place)
            lines = text.splitlines(keepends=True)
            kept = [line for line in lines if place not in fstab(line)]
            if before is not None and fstab(text).get(place) != before:
                number = next((n for n, line in enumerate(lines) if place in fstab(line)), len(kept))
                kept.insert(number, before.encode(errors="surrogateescape") + b"\n")
            elif before is not None:
                continue
            if kept != lines:
                how = f"with the line for {place} as before" if before else f"without {place}"
                self.attempt(f"{FSTAB} {how}", lambda kept=kept: replace(FSTAB, b"".join(kept)))

    def size_again(self, place: str, prior: Prior) -> None:
        """A tmpfs that was there, such as /dev/shm."""
        was, now = prior.facts["mounts"], mounts()
        size = was.get(place) if isinstance(was, dict) else ""  # an older look does not say it
        if size and now.get(place) not in (size, None, ""):
            what = f"{place} has size {size} again"
            self.run(what, "mount", "--options", f"remount,size={size}", place)

    def packages(self) -> Packages:
        """Those that the roles have."""
        return Packages(
            self,
            self.known("package"),
            wanted={key for kind, key in self.staying if kind == "package"},
            folders={thing["key"]: prior for thing, prior in self.known("directory")},
            files={thing["key"] for thing in self.given["things"] if thing["kind"] in PATHS} - self.others,
            purge=self.purge,
            going=self.index.going,
            back=self.index.back,
            note=self.note_packages,
        )

    def note_packages(self, names: list[str], back: dict[str, dict[str, Any]]) -> None:
        """Keep which packages are about to go, and which come back then."""
        if not self.module.check_mode:
            self.index.going, self.index.back = names, back
            self.index.save()

    # Paths

    def give_back_paths(self) -> None:
        """Files, links and directories, what is below first."""
        self.take_blocks_out()
        self.take_keys_out()
        things = sorted(self.known(*PATHS), key=lambda pair: str(pair[0]["key"]), reverse=True)
        for thing, prior in things:
            self.give_back(thing["key"], prior)
        # Once all is gone: to a role that came later, what an earlier one has made is what was there before.
        for thing, prior in things:
            if prior.path(thing["key"]) is None:
                self.take_parents(thing["key"], prior)
        for thing, prior in self.known("mount"):
            if prior.path(thing["key"]) is None and not os.path.ismount(thing["key"]):
                self.take_away(thing["key"], prior)
                self.take_parents(thing["key"], prior)

    def take_blocks_out(self) -> None:
        """Blocks in files that are somebody's; a file goes that was not there and holds nothing else."""
        for thing, prior in self.known("managed_block"):
            path = thing["key"]
            text = Path(path).read_bytes() if os.path.isfile(path) else b""
            rest = without_block(text)
            if rest != text:
                self.change(
                    f"{path} without the block",
                    lambda path=path, rest=rest: replace(Path(os.path.realpath(path)), rest),
                )
            if text and not rest and prior.path(path) is None:
                self.take_away(path, prior)

    def take_keys_out(self) -> None:
        """Keys that tasks of these roles let in; where others' are left, the file is theirs."""
        for thing, prior in self.known("authorized_keys"):
            path, before = thing["key"], prior.content(thing["key"])
            # An account's other files nobody of ours wrote, nor what an account made a link to.
            if not os.path.isfile(path) or os.path.islink(path):
                continue
            if before is None and prior.path(path) is not None:
                self.leave(path, "nobody knows which keys were in it before")
                self.others.add(path)
                continue
            text, before = Path(path).read_bytes(), before or b""
            rest = without_keys(text, thing["own"], before)
            if not rest.strip() or rest == before:
                continue
            self.others.add(path)
            if rest != text:
                what = f"{path} without the keys of these roles"
                self.change(what, lambda path=path, rest=rest: replace(Path(path), rest))

    def give_back(self, path: str, prior: Prior) -> None:
        """One path, as it was."""
        if path in self.others:
            return
        was = prior.path(path)
        if was == UNKNOWN:
            self.leave(path, "nobody has looked what was there before")
        elif was is None:
            self.take_away(path, prior)
        elif not self.is_as_before(path, prior):
            self.restore(path, list(was), prior)

    def take_away(self, path: str, prior: Prior) -> None:
        """What was not there before."""
        now = at(path)
        if now is None or any(kept == path or kept.startswith(f"{path}/") for kept in self.kept_paths):
            return
        if now[0] != "directory":
            self.change(f"removed {path}", lambda: os.unlink(path), gone=path)
        elif not self.names_in(path):
            self.change(f"removed {path}", lambda: os.rmdir(path), gone=path)
        elif any(f"{mount}/".startswith(f"{path}/") for mount in mounts()):
            self.leave(path, "something is mounted there")
        elif self.names_in(path) == ["__pycache__"]:
            self.change(f"removed {path}", lambda: shutil.rmtree(path), gone=path)
        elif path.startswith(NO_DATA):
            target = self.put_aside(path)
            what = f"{path}: what is left in it lies in {target}"
            self.change(what, lambda: move(path, target), gone=path)
        elif self.purge:
            self.change(f"removed {path} with its data", lambda: shutil.rmtree(path), gone=path)
        else:
            self.leave(path, "has data, which goes only with -e leave_purge_data=true")
            self.data[path] = prior.number

    def take_parents(self, path: str, prior: Prior) -> None:
        """Directories that were made on the way to it, once nothing is in them."""
        for folder in map(str, Path(path).parents):
            if prior.path(folder) is not None or not os.path.isdir(folder) or self.names_in(folder):
                return
            self.take_away(folder, prior)

    def names_in(self, folder: str) -> list[str]:
        """What lies in a directory, without what would be gone by now."""
        return [name for name in os.listdir(folder) if os.path.join(folder, name) not in self.gone]

    def restore(self, path: str, was: list[Any], prior: Prior) -> None:
        """What was there before, with its owner and mode."""
        kind, mode, uid, gid, target = was
        content = prior.content(path) if kind == "file" else None
        now = at(path)
        if kind == "file" and content is None:
            if now is not None and now[0] == "file" and (now[1], now[2], now[3]) == (mode, uid, gid):
                return  # too large to be kept: of a package that is still there
            self.leave(path, "what was in it before was too large to be kept")
            return
        if kind not in ("file", "link", "directory"):
            self.leave(path, f"was a {kind} before")
            return
        self.change(f"gave {path} back", lambda: self.make(path, kind, mode, uid, gid, target, content))

    def make(
        self, path: str, kind: str, mode: int, uid: int, gid: int, target: str, content: bytes | None
    ) -> None:
        """Put something at a path in the place of what is there."""
        now = at(path)
        if now is not None and now[0] == "directory" and kind != "directory":
            move(path, self.put_aside(path))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if kind == "directory":
            if now is not None and now[0] != "directory":
                os.unlink(path)
            os.makedirs(path, exist_ok=True)
        elif kind == "link":
            part = f"{path}{PART}"
            with suppress(FileNotFoundError):
                os.unlink(part)
            os.symlink(target, part)
            os.rename(part, path)
            return
        else:
            replace(Path(path), content or b"")
        os.chown(path, uid, gid)
        os.chmod(path, mode)

    def change(self, what: str, action: Callable[[], Any], gone: str = "") -> None:
        """Change something in the file system. GONE: what is not there any more afterwards."""
        if self.attempt(what, action):
            self.gone.add(gone)

    # What runs, who is there, what the kernel has

    def restart(self) -> None:
        """Units that were there, as they were."""
        if not self.module.check_mode:
            self.command("systemctl", "daemon-reload")
        now = units()
        for thing, prior in self.known("unit"):
            unit = thing["key"]
            if unit not in now:
                self.module.run_command(["systemctl", "reset-failed", unit])
            was = prior.facts["units"].get(unit)
            if was is None or unit not in now:
                continue
            enabled, active = was
            if enabled != now[unit][0] and enabled in STATES:
                if now[unit][0].startswith("masked"):
                    self.run(f"unmasked {unit}", "systemctl", "unmask", "--quiet", unit)
                if now[unit][0] == "enabled" and enabled.endswith("-runtime"):  # the longer one counts
                    self.run(f"disabled {unit}", "systemctl", "disable", "--quiet", unit)
                words = STATES[enabled]
                self.run(f"{' '.join(words)} {unit}", "systemctl", *words, "--quiet", unit)
            if active in RUNS and not enabled.startswith("masked"):
                # Also one that runs: what it reads was given back.
                self.run(f"restarted {unit}", "systemctl", "restart", unit)

    def accounts(self) -> None:
        """Users and groups that were not there; those that were, as they were."""
        for thing, prior in self.known("user"):
            name, was = thing["key"], prior.facts["accounts"].get(thing["key"])
            now = accounts("passwd").get(name)
            if was is None and now is not None:
                self.run(f"removed the user {name}", "userdel", name)
                self.group_again(name, prior)
            elif was is not None and now is not None:
                self.as_it_was(thing, was, now, prior)
        for thing, prior in self.known("group"):
            name, there = thing["key"], accounts("group")
            if name not in prior.facts["groups"] and name in there:
                if any(fields[3] == there[name][2] for fields in accounts("passwd").values()):
                    self.leave(f"group {name}", "is a user's own")
                else:
                    self.run(f"removed the group {name}", "groupdel", name)

    def group_again(self, name: str, prior: Prior) -> None:
        """A group that was there: userdel takes one of the user's name along that nobody else is in."""
        was = prior.facts["groups"].get(name)
        if was is not None and name not in accounts("group"):
            self.run(f"the group {name} is there again", "groupadd", "--gid", was[2], name)

    def as_it_was(self, thing: dict[str, Any], was: list[str], now: list[str], prior: Prior) -> None:
        """A user who was there: home, shell and groups, but for what somebody has changed since the role."""
        name, sealed = thing["key"], thing.get("want") or {}
        home, shell = (
            old if sealed.get(what, new) == new else new
            for what, old, new in zip(("home", "shell"), was[5:7], now[5:7])
        )
        if [home, shell] != now[5:7]:
            self.run(f"user {name} as before", "usermod", "--home", home, "--shell", shell, name)
        before, today = groups_of(name, prior.facts["groups"]), groups_of(name, accounts("group"))
        ours = set(sealed.get("groups", today))
        wanted = (before | (today - ours)) - (ours - today)
        if wanted != today:
            groups = ",".join(sorted(wanted & accounts("group").keys()))
            self.run(f"user {name} in the groups of before", "usermod", "--groups", groups, name)

    def network(self) -> None:
        """Interfaces, tables of rules."""
        for thing, prior in self.known("interface"):
            name = thing["key"]
            if name in interfaces() and name not in prior.facts["interfaces"]:
                self.run(f"removed the interface {name}", "ip", "link", "delete", name)
        for thing, prior in self.known("nft"):
            table = thing["key"]
            if table in tables() and table not in prior.facts["tables"]:
                self.run(f"removed the table {table}", "nft", "delete", "table", *table.split())

    def kernel(self) -> None:
        """Settings, and the host's name."""
        for thing, prior in self.known("sysctl"):
            key = thing["key"]
            path = setting_path(key)
            was, file = prior.facts["sysctls"].get(path), Path("/proc/sys", path)
            said_now = [one for one in settings_of(key) if one[0] not in self.gone]
            for source, value in said_now[-1:]:
                if not all(self.is_as_before(one, prior) for one in (source, os.path.realpath(source))):
                    was = value  # somebody wrote that since
            if was is not None and file.exists() and file.read_text().split() != was.split():
                self.change(f"{key} is {was} again", lambda file=file, was=was: file.write_text(was))
        for _thing, prior in self.known("hostname"):
            was = prior.facts["hostname"]
            for path in ("/etc/hostname", "/etc/machine-info"):
                self.give_back(path, prior)
            if os.uname().nodename != was:
                self.run(f"the host is called {was} again", "hostname", was)

    def name_the_rest(self) -> None:
        """Kernel modules stay loaded till the next boot."""
        for thing in self.given["things"]:
            if thing["kind"] == "module":
                self.leave(f"kernel module {thing['key']}", "stays loaded until the next boot")

    def note(self) -> None:
        """That all is given back: whichever of these roles runs here again is new, and looked at anew."""
        if not self.failed and not self.module.check_mode:
            alone = [(thing["kind"], thing["key"], thing["roles"]) for thing in self.given["things"]]
            self.index.going, self.index.back = [], {}
            self.index.leave(self.known_roles(), self.given["handed"], alone, self.data)
            self.index.save()

    def forget(self) -> None:
        """No record has these roles, and these parts, any more."""
        data = {f"directory {path}" for path in self.given["data"]}
        things = {f"{thing['kind']} {thing['key']}" for thing in self.given["things"]}
        for thing in things - data:
            self.index.handed.pop(thing, None)
        self.index.going, self.index.back = [], {}  # also of what was left where it is
        self.index.forget(self.known_roles())
        self.index.save()


def settings_of(key: str) -> Iterator[tuple[str, str]]:
    """The files that say what a sysctl is, the one that counts last, with the value (sysctl.d(5))."""
    for file in sorted(SYSCTLS.glob("*.conf")):
        for line in file.read_text(errors="replace").splitlines() if file.is_file() else ():
            name, equals, value = line.strip().lstrip("-").partition("=")
            if equals and not name.startswith(("#", ";")) and setting_path(name.strip()) == setting_path(key):
                yield str(file), value.strip()


def groups_of(user: str, groups: dict[str, list[str]]) -> set[str]:
    """The groups that name a user as a member."""
    return {name for name, fields in groups.items() if user in fields[3].split(",")}


def fstab(text: bytes) -> dict[str, str]:
    """Mount point → its line in fstab."""
    found = {}
    for line in text.decode(errors="surrogateescape").splitlines():
        fields = line.split()
        if len(fields) > 2 and not fields[0].startswith("#"):
            found[fields[1].replace("\\040", " ")] = line
    return found


def main() -> None:
    """Bring the node back, and say what stays."""
    options = {
        "roles": {"type": "list", "elements": "str", "required": True},
        "things": {"type": "list", "elements": "dict", "required": True},
        "staying": {"type": "list", "elements": "list", "default": []},
        "handed": {"type": "list", "elements": "list", "default": []},
        "metrics": {"type": "list", "elements": "str", "default": []},
        "named": {"type": "list", "elements": "str", "default": []},
        "salt": {"type": "str", "default": ""},
        "purge_data": {"type": "bool", "default": False},
        "forget": {"type": "bool", "default": False},
        "data": {"type": "list", "elements": "str", "default": []},
    }
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    undo = Undo(module)
    undo.left.extend(module.params["named"])
    if module.params["forget"]:
        if not module.check_mode:
            undo.forget()
        module.exit_json(changed=False)
    undo.all()
    # Of long diffs the beginning is shown: what does not go stands there. In check mode a folder empties
    # again for each of its files.
    stays = [*undo.failed, *undo.left]
    words = dict.fromkeys([f"stays: {line}\n" for line in stays] + [f"{line}\n" for line in undo.changes])
    module.exit_json(
        changed=bool(undo.changes),
        changes=undo.changes,
        diff={"prepared": "".join(words)},
        left=undo.left,
        stuck=undo.failed,
        data=list(undo.data),
        unknown=undo.unknown(),
    )


if __name__ == "__main__":
    main()
