"""package: what dpkg has installed, in which version, and what is held."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from infra.drift.kind import Claim, Found, How, Kind, Task, Uncovered, is_flag
from infra.drift.looks import Look

if TYPE_CHECKING:
    from infra.drift.findings import Difference
    from infra.drift.manifest import Entry, Manifest
    from infra.drift.merge import HostSeal, Turn
    from infra.drift.repair import Obstacles

INSTALLED = ("installed", "triggers-awaited", "triggers-pending")
"""What dpkg says of a package that is there and configured; the last two while another one is at work."""
BETWEEN = ("unpacked", "half-configured", "half-installed")
"""What it says between unpacking a package and having configured it."""
LOCK = "/var/lib/dpkg/lock-frontend"
"""Held by apt and dpkg as long as they are at work (dpkg's frontend.txt)."""
DIGITS = "0123456789"
VERSION_END: list[Any] = [([0], 0, "")]
"""What stands, as often as needed, behind the end of a version."""


def look_at_package(node: Look, key: str, how: How) -> Found:
    """Installed version and hold, from dpkg's own file: quicker than starting dpkg-query.

    An update is no difference: a newer version is as sealed, unless the sealed one and no other is meant.
    """
    data = node.dpkg()
    name = key.partition(":")[0]
    at = data.find(b"\n\nPackage: " + name.encode() + b"\n")
    fields = {}
    if at >= 0:
        for line in data[at + 2 : data.find(b"\n\n", at + 2)].decode("utf-8", "replace").splitlines():
            field, colon, value = line.partition(": ")
            if colon and field in ("Status", "Version"):
                fields[field] = value
    status = fields.get("Status", "").split()
    held = status[:1] == ["hold"]
    if not status or not (status[-1] in INSTALLED or (status[-1] in BETWEEN and is_locked(LOCK))):
        return {"installed": False, "version": None, "hold": held}
    version, sealed = fields.get("Version", ""), node.want.get("version") or ""
    if version != sealed and not exact_version(how, node.want) and at_least(version, sealed):
        version = sealed
    return {"installed": True, "version": version, "hold": held}


def is_locked(path: str) -> bool:
    """Whether a process holds the lock of a file (fcntl(2), struct flock of Linux on 64 bits)."""
    from fcntl import F_GETLK, F_UNLCK, F_WRLCK, fcntl

    def asked(kind: int) -> bytes:
        return kind.to_bytes(2, sys.byteorder) + bytes(30)

    try:
        with open(path, "rb") as file:
            found = fcntl(file, F_GETLK, asked(F_WRLCK))
    except OSError:
        return False
    return int.from_bytes(found[:2], sys.byteorder) != F_UNLCK


def exact_version(how: How, want: Found) -> bool:
    """Whether a package has to have the version that was sealed: a task names it, or it is held."""
    return bool(how.get("pinned") or want.get("hold"))


def at_least(version: str, sealed: str) -> bool:
    """Whether a package's version is the sealed one or newer, as dpkg compares them (deb-version(7))."""
    if not version or not sealed:
        return False
    for ours, theirs in zip(version_parts(version), version_parts(sealed)):
        missing = len(theirs) - len(ours)
        ours, theirs = ours + VERSION_END * missing, theirs + VERSION_END * -missing
        if ours != theirs:
            return ours > theirs
    return True


def version_parts(version: str) -> list[list[Any]]:
    """Epoch, upstream version and revision, each in pieces of letters and a number."""
    epoch, colon, rest = version.partition(":")
    upstream, dash, revision = (rest if colon else version).rpartition("-")
    parts = (epoch if colon else "", upstream if dash else revision, revision if dash else "")
    return [version_pieces(part) for part in parts]


def version_pieces(text: str) -> list[Any]:
    """Letters and the number behind them, again and again, so that lists compare as dpkg does.

    `~` is less than the end, the end less than a letter, a letter less than anything else.
    """
    found: list[Any] = []
    while text:
        at = next((at for at, letter in enumerate(text) if letter in DIGITS), len(text))
        order = [-1 if c == "~" else ord(c) if c.isalpha() else ord(c) + 256 for c in text[:at]]
        rest = text[at:].lstrip(DIGITS)
        number = text[at : len(text) - len(rest)].lstrip("0")
        found.append(([*order, 0], len(number), number))
        text = rest
    return found


# On the controller

VERSION_CHARS = 256
"""Debian's own are below 100; comparing them takes time that grows with the square of their length."""


def packages(task: Task) -> Iterator[Claim]:
    """apt, package: what is installed. A path, a pattern or an upgrade of everything says too little."""
    names = task.args.get("name") or task.args.get("package") or task.args.get("pkg") or []
    names = [names] if isinstance(names, str) else names
    if task.args.get("deb") or task.args.get("upgrade") not in (None, False, "no"):
        raise Uncovered
    installed = task.args.get("state", "present") not in ("absent", "removed")
    for name in names:
        text = str(name)
        name = re.split(r"[=<>/]", text)[0]
        if "*" in name:
            raise Uncovered
        pinned = {"pinned": True} if installed and text.removeprefix(name).startswith("=") else {}
        yield Claim("package", name, {"installed": installed}, pinned)


def selections(task: Task) -> Iterator[Claim]:
    """dpkg_selections: a hold, or none."""
    yield Claim("package", str(task.args["name"]), {"hold": task.args.get("selection") == "hold"})


def is_version(value: Any) -> bool:
    """A version that can be compared."""
    return isinstance(value, str) and len(value) <= VERSION_CHARS


class Package(Kind):
    """A package of the distribution."""

    def settled(self, run: HostSeal, before: Entry, entry: Entry, turn: Turn) -> Entry:
        """An update needs no task to account for it."""
        if before.want == entry.want:
            return entry
        if turn.changed or (not _pinned(run, entry) and _is_updated(before, entry)):
            return _with_own_hold(run, before, entry, turn)
        return run.accounted(before, entry, turn)

    def obstacle(self, found: Obstacles, difference: Difference, manifest: Manifest) -> None:
        """A version, and a hold."""
        if version := difference.expected.get("version"):
            sealed = (e for part in manifest.roles.values() for e in part.entries if e.kind == "package")
            exact = any(exact_version(e.how, e.want) for e in sealed if e.key == difference.key)
            (found.packages if exact else found.updates)[difference.key] = str(version)
        if "hold" in difference.expected:
            verb = "hold" if difference.expected["hold"] else "unhold"
            found.run(f"{verb} {difference.key}", "apt-mark", verb, difference.key)


def _is_updated(before: Entry, entry: Entry) -> bool:
    """Whether a package is newer by an update: that needs no task to account for it, where nothing holds it.

    Of a version that a task names, the task has seen to it that it is this one.
    """
    now, then = (str(sealed.want.get("version") or "") for sealed in (entry, before))
    is_another = entry.want.get("installed") and now != then
    return bool(is_another and not before.want.get("hold") and at_least(now, then))


def _pinned(run: HostSeal, entry: Entry) -> bool:
    """Whether a task that had no turn in this run names the package's version."""
    at = (entry.kind, entry.key)
    ran = {role for role, record in run.records.items() if record["whole"]}
    ran |= {role for role, claim in run.claims if (claim["kind"], claim["key"]) == at}
    parts = (part for role, part in run.manifest.roles.items() if role not in ran and part.declared)
    return any(old.how.get("pinned") for part in parts for old in part.entries if (old.kind, old.key) == at)


def _with_own_hold(run: HostSeal, before: Entry, entry: Entry, turn: Turn) -> Entry:
    """The package with the hold it had, unless a task sets it: the task installed another package."""
    hold = before.want.get("hold")
    if any("hold" in claim["reported"] for claim in turn.claims) or entry.want.get("hold") == hold:
        return entry
    run.not_repaired.append(f"{entry.key} is {'no longer ' if hold else ''}held")
    return entry.model_copy(update={"want": entry.want | {"hold": hold}})


KINDS = (
    Package(
        "package",
        look_at_package,
        {"installed": is_flag, "version": is_version, "hold": is_flag},
        modules={
            "ansible.builtin.apt": packages,
            "causeway_apt": packages,
            "ansible.builtin.package": packages,
            "ansible.builtin.dpkg_selections": selections,
        },
        what_it_is="installed",
        knows_others=True,
    ),
)
