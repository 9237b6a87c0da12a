"""What a node was before its roles: looked at once, before a role first runs there, and kept on the node.

Beside what is there, it keeps the content of what is small and lies where roles write: enough to give back
what a role replaced. A later look, for roles that come later, is another one; each role has its own.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import tarfile
import zlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from ansible.module_utils.causeway_paths import look_at_paths, then

KEPT = Path("/var/lib/causeway/before")
RECORD = Path("/var/lib/causeway/manifest.json")
"""The node's copy of its record."""
EXTENDED_STATES = Path("/var/lib/apt/extended_states")
"""Where apt keeps which packages came for others."""
RUNS = ("active", "activating", "reloading")
"""What systemd calls a unit that runs, or is about to."""
TMPFS_SIZE = "50%"
"""Of one that says nothing else (tmpfs(5))."""
LINKS = Path("/etc/systemd/system")
"""Where systemctl links what is enabled."""
LARGEST_BYTES = 256 << 10
MOST_BYTES = 64 << 20


def said(*argv: str) -> str:
    """What a command prints; nothing where it fails or is not there."""
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


class Prior:
    """One look: the facts, and the archive of contents beside them."""

    def __init__(self, number: int, facts: dict[str, Any]) -> None:
        self.number, self.facts = number, facts
        self._contents: dict[str, bytes] | None = None

    @classmethod
    def load(cls, number: int) -> Prior:
        """A look that was kept. OSError or ValueError where it cannot be read."""
        try:
            return cls(number, json.loads(gzip.decompress((KEPT / f"{number}.json.gz").read_bytes())))
        except (EOFError, zlib.error) as error:  # cut off, or damaged
            raise ValueError(str(error)) from None

    def path(self, path: str) -> list[Any] | str | None:
        """What was at a path: [type, mode, uid, gid, target]; None for nothing, or UNKNOWN."""
        return then(self.facts, path)[1]

    def content(self, path: str) -> bytes | None:
        """What was in a file; None where that was not kept."""
        if self._contents is None:
            self._contents = dict(contents(KEPT / f"{self.number}.tar.gz"))
        return self._contents.get(then(self.facts, path)[0].lstrip("/"))


def contents(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Name → content of the files of an archive: a compressed one is read from its beginning for each."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                if handle := tar.extractfile(member):
                    yield member.name, handle.read()
    except (OSError, EOFError, zlib.error, tarfile.TarError):
        return


def look() -> dict[str, Any]:
    """The facts of today."""
    known = accounts("passwd")
    return {
        **look_at_paths(fields[5] for fields in known.values() if len(fields) > 5),
        "packages": packages(),
        "removed": removed(),
        "units": units(),
        "accounts": known,
        "groups": accounts("group"),
        "sysctls": sysctls(),
        "interfaces": interfaces(),
        "tables": tables(),
        "mounts": mounts(),
        "hostname": os.uname().nodename,
    }


def packages() -> dict[str, dict[str, Any]]:
    """Name → version, whether it is held, whether it came for others."""
    came = came_for_others()
    return {
        name: {"version": version, "held": want == "hold", "auto": name in came}
        for name, version, want, status in known_to_dpkg()
        if status == "installed"
    }


def removed() -> list[str]:
    """Packages that somebody removed, and of which dpkg keeps the settings."""
    return [name for name, _version, _want, status in known_to_dpkg() if status == "config-files"]


def known_to_dpkg() -> Iterator[list[str]]:
    """Name, version, what is wanted of it and what it is, of all packages that dpkg knows."""
    shown = "${Package}\t${Version}\t${db:Status-Want}\t${db:Status-Status}\n"
    for line in said("dpkg-query", "--show", f"--showformat={shown}").splitlines():
        yield line.split("\t")


def came_for_others() -> set[str]:
    """Packages that nobody asked for by name; `apt-mark` works out all lists before it says them."""
    try:
        stanzas = EXTENDED_STATES.read_text().split("\n\n")
    except OSError:
        return set()
    fields = [dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line) for stanza in stanzas]
    return {field["Package"] for field in fields if field.get("Auto-Installed") == "1"}


def units() -> dict[str, list[str]]:
    """Unit → whether it is enabled, and active, in systemd's words."""
    found: dict[str, list[str]] = {}
    for line in said("systemctl", "list-unit-files", "--no-legend", "--no-pager", "--plain").splitlines():
        name, enabled, *_ = line.split()
        found[name] = [enabled, "inactive"]
    # Of a template's instances nothing but their links is in that list.
    for link in LINKS.glob("*.*/*@?*.*"):
        if link.parent.suffix in (".wants", ".requires"):
            found[link.name] = ["enabled", "inactive"]
    for line in said("systemctl", "list-units", "--all", "--no-legend", "--no-pager", "--plain").splitlines():
        name, load, active, *_ = line.split()
        if load not in ("not-found", "masked"):
            found.setdefault(name, ["", ""])[1] = active
    return found


def accounts(table: str) -> dict[str, list[str]]:
    """Name → its fields in /etc/passwd or /etc/group."""
    lines = Path("/etc", table).read_text(errors="replace").splitlines()
    return {line.split(":")[0]: line.split(":") for line in lines if ":" in line}


def sysctls() -> dict[str, str]:
    """Path below /proc/sys → value, of all that can be read and written."""
    found = {}
    for top, _folders, names in os.walk("/proc/sys"):
        for path in (Path(top, name) for name in names):
            try:
                if path.stat().st_mode & 0o200:
                    found[str(path.relative_to("/proc/sys"))] = path.read_text().strip()
            except (OSError, UnicodeDecodeError):
                continue
    return found


def interfaces() -> list[str]:
    """The names of all network interfaces."""
    return sorted(path.name for path in Path("/sys/class/net").iterdir())


def tables() -> list[str]:
    """nftables' tables, as `inet filter`."""
    return [line.partition(" ")[2].strip() for line in said("nft", "list", "tables").splitlines()]


def mounts() -> dict[str, str]:
    """Where something is mounted → the size of a tmpfs, else nothing. Older looks have a list of places."""
    found = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        kind, *_source, options = fields[fields.index("-") + 1 :]
        sizes = [option[5:] for option in options.split(",") if option.startswith("size=")]
        size = (*sizes, TMPFS_SIZE)[0] if kind == "tmpfs" else ""
        found[fields[4].replace("\\040", " ")] = size
    return found


class Index:
    """Which look was before what.

    `roles`: role → number; None for a role that was there before anybody looked. `handed`: kind and key of
    what a role had that has left, and another one still has → number. `folders`: role that is leaving →
    directories that systemd and accounts have made for it. `asked`: role → services that were asked for here
    before the role might set them up. `left`: roles that were given back and have not run here since, with
    what they had alone, and when the node's record was written last. `going`: packages that leave with them,
    `back`: those that come back then, as they were.
    """

    def __init__(self) -> None:
        self.roles: dict[str, int | None] = {}
        self.handed: dict[str, int | None] = {}
        self.folders: dict[str, list[str]] = {}
        self.asked: dict[str, list[str]] = {}
        self.left: dict[str, dict[str, Any]] = {}
        self.going: list[str] = []
        self.back: dict[str, dict[str, Any]] = {}
        try:
            known = json.loads((KEPT / "roles.json").read_text())
            self.roles, self.handed = dict(known["roles"]), dict(known["handed"])
            self.folders = dict(known["folders"])
            self.asked = dict(known.get("asked", {}))  # older ones do not say
            self.left, self.going = dict(known.get("left", {})), list(known.get("going", []))
            self.back = dict(known.get("back", {}))
        except (OSError, ValueError, KeyError):
            return

    def before(self, kind: str, key: str, roles: Iterable[str]) -> int | None:
        """The look before the first role that had a thing; None where there is none."""
        numbers = [self.roles.get(role) for role in roles]
        if (at := f"{kind} {key}") in self.handed:
            numbers.append(self.handed[at])
        if not numbers or None in numbers:
            return None
        return min(number for number in numbers if number is not None)

    def leave(
        self,
        roles: Iterable[str],
        handed: Iterable[tuple[str, str, list[str]]],
        alone: Iterable[tuple[str, str, list[str]]],
        data: dict[str, int],
    ) -> None:
        """These roles were given back, and are forgotten once no record has them: a run may end before.

        `handed`: kind, key and roles of what others have, too, who keep the look before it. `alone`: the same
        of what nobody else has. `data`: directory that stays → the look before it.
        """
        for kind, key, had in handed:
            self.handed[f"{kind} {key}"] = self.before(kind, key, had)
        kept = {f"directory {path}": number for path, number in data.items()}
        self.handed.update(kept)
        for role in roles:
            own = [f"{kind} {key}" for kind, key, had in alone if role in had]
            self.left[role] = {"alone": [at for at in own if at not in kept], "record": written(RECORD)}

    def forget(self, roles: Iterable[str]) -> None:
        """No record has these roles any more."""
        for role in roles:
            for at in self.left.get(role, {}).pop("alone", ()):
                self.handed.pop(at, None)
            self.roles.pop(role, None)
            self.folders.pop(role, None)
        folders = (at for at in self.handed if at.startswith("directory "))
        for at in [at for at in folders if not os.path.isdir(at.partition(" ")[2])]:
            del self.handed[at]

    def come_back(self, roles: Iterable[str], recorded: Collection[str]) -> list[str]:
        """Those of these roles that had left: what was before them is what is there now.

        One that the node's record has, and has been written since, was made again by a repair.
        """
        left, now = [role for role in roles if role in self.left], written(RECORD)
        back = [role for role in left if role not in recorded or self.left[role]["record"] == now]
        self.forget(back)
        for role in left:
            del self.left[role]
        return back

    def next(self) -> int:
        """The number of a new look."""
        known = (*self.roles.values(), *self.handed.values())
        return max((number for number in known if number is not None), default=0) + 1

    def save(self) -> None:
        """Keep it, and the looks that it needs."""
        write(KEPT / "roles.json", json.dumps(vars(self), sort_keys=True).encode())
        used = {str(number) for number in (*self.roles.values(), *self.handed.values()) if number is not None}
        for path in KEPT.glob("[0-9]*.*"):
            if path.name.partition(".")[0] not in used:
                path.unlink()


def written(path: Path) -> int:
    """When a file was written last, in nanoseconds; 0 where there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def keep_facts(number: int, facts: dict[str, Any]) -> None:
    """Write a look down."""
    write(KEPT / f"{number}.json.gz", gzip.compress(json.dumps(facts, separators=(",", ":")).encode(), 3))


def write(path: Path, data: bytes) -> None:
    """Whole or not at all, for root only."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f".{path.name}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
    part.replace(path)
