"""effective: what a program makes of all its files. Each program is a kind of its own, under its key."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from infra.drift.kind import Claim, Found, How, Kind, is_list, new_or_gone
from infra.drift.kinds.package import at_least, look_at_package
from infra.drift.kinds.unit import is_brought, owners_of
from infra.drift.looks import LEFT_OVER, Look, shown_key
from infra.drift.node import bytes_of, run, text_of

if TYPE_CHECKING:
    from infra.drift.findings import Difference
    from infra.drift.manifest import Entry, Manifest
    from infra.drift.merge import HostSeal, Turn
    from infra.drift.repair import Obstacles

UCF = "/var/lib/ucf/hashfile"


def look_at_effective(node: Look, key: str, how: How) -> Found:
    """What a program makes of the files at its inputs."""
    return settings_of(node, how, program_files(node, how))


def program_files(node: Look, how: How) -> dict[str, bytes]:
    """The files at a program's inputs."""

    def read() -> dict[str, bytes]:
        return {path: bytes_of(path) for start in how["inputs"] for path in files_below(start)}

    files: dict[str, bytes] = node.once("settings " + " ".join(how["inputs"]), read)
    return files


def settings_of(node: Look, how: How, files: dict[str, bytes]) -> Found:
    """What a program makes of its files; asked again only when one of the files changed.

    With `lines`, also what the files say: there is more in them than a program tells of itself, as sshd's
    `Match` blocks, and what it reads when it starts the next time.
    """
    inputs = {path: node.digest(data) for path, data in files.items()}
    if how.get("package"):
        inputs[how["package"]] = look_at_package(node, how["package"], {})["version"] or ""
    if node.mode != "seal" and is_as_sealed(node, inputs, files, how):
        return {}
    since = max([os.stat(path).st_ctime for path in files] or [0])
    found: Found = {
        "output": shown_lines(node, run(how["argv"]) if how["argv"] else "", how),
        "_inputs": inputs,
        "_since": since,
    }
    if how.get("lines"):
        lines = [f"{path}: {shown_key(line)}" for path in files for line in lines_of(files[path])]
        found["lines"] = shown_lines(node, "\n".join(lines), {})
        if found["lines"] == node.want.get("lines") and is_newer(inputs, how):
            return {}
    if how.get("package") or how.get("shipped"):
        found["_packaged"] = [path for path in files if is_packaged(node, path, files[path])]
    return found


def is_as_sealed(node: Look, inputs: dict[str, str], files: dict[str, bytes], how: How) -> bool:
    """Whether a program's files are those that were sealed, or what updates of packages made of them."""
    if "sealed" not in how:
        return False
    sealed, package = how["sealed"], how.get("package")
    changed = [name for name in {**inputs, **sealed} if inputs.get(name) != sealed.get(name)]
    for name in changed:
        if name == package and is_newer(inputs, how):
            continue
        if name not in files or name not in how.get("packaged", ()):
            return False
        if not is_packaged(node, name, files[name]):
            return False
    return bool(changed) or node.mode == "scan"


def is_newer(inputs: dict[str, str], how: How) -> bool:
    """Whether a program was updated since: what it makes of the same files is the update's."""
    package, sealed = how.get("package", ""), how.get("sealed") or {}
    version, before = inputs.get(package, ""), sealed.get(package, "")
    return version != before and at_least(version, before)


def is_packaged(node: Look, path: str, data: bytes) -> bool:
    """Whether a file of settings is as its package brought it, by what dpkg and ucf keep of it."""
    from _md5 import md5  # type: ignore[import-not-found,unused-ignore] # without OpenSSL, which loads slowly

    if path.startswith("/usr/lib/"):
        return is_brought(node, path, data, owners_of(node, [path]).get(path, ""))
    known = md5(data).hexdigest()
    lines: set[bytes] = node.once("packaged", lambda: set(node.dpkg().split(b"\n")))
    kept: str = node.once("ucf", lambda: text_of(UCF, ""))
    said = f" {path} {known}"  # "obsolete" behind it: an update no longer brings it, and leaves it
    return not lines.isdisjoint((said.encode(), f"{said} obsolete".encode())) or f"{known}  {path}\n" in kept


def files_below(start: str) -> list[str]:
    """The files at or below a path."""
    if not os.path.isdir(start):
        return [start] if os.path.exists(start) else []
    files = [entry for entry in entries_below(start) if not (entry.is_symlink() and leads_to_folder(entry))]
    return sorted(entry.path for entry in files if not entry.name.endswith(LEFT_OVER))


def entries_below(start: str) -> list[os.DirEntry[str]]:
    """What lies below a directory and is none itself; as os.walk() has it, in half the time."""
    found, todo = [], [start]
    while todo:
        try:
            entries = list(os.scandir(todo.pop()))
        except OSError:  # gone meanwhile
            continue
        todo += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        found += [entry for entry in entries if not entry.is_dir(follow_symlinks=False)]
    return found


def leads_to_folder(link: os.DirEntry[str]) -> bool:
    """Whether a link leads to a directory."""
    try:
        return link.is_dir()
    except OSError:  # to itself
        return False


def lines_of(data: bytes) -> list[str]:
    """What a file of settings says: its lines without comments, empty ones, and space that means nothing."""
    lines = [" ".join(line.split()) for line in data.decode("utf-8", "replace").splitlines()]
    return [line for line in lines if line and line[0] not in "#;"]


def shown_lines(node: Look, text: str, how: How) -> list[str]:
    """A program's lines; one that may carry a password is replaced by its hash."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not how.get("keep") or line.startswith(tuple(how["keep"]))]
    return ["hidden " + node.digest(x.encode()) if "://" in x and "@" in x else x for x in lines]


# On the controller


class Effective(Kind):
    """A program's settings."""

    def check(self, found: Mapping[str, Any]) -> None:
        """Its inputs are files and their hashes."""
        if not isinstance(found.get("_inputs", {}), dict):
            raise ValueError("_inputs is unknown")

    def settled(self, run: HostSeal, before: Entry, entry: Entry, turn: Turn) -> Entry:
        """New settings count where the files that changed are as they were sealed."""
        if before.want == entry.want:
            return entry
        files, changed = entry.how.get("sealed", {}), changed_inputs(before, entry)
        foreign = {path for path in changed if files.get(path) not in run.contents(path)}
        if not foreign:
            return entry
        run.not_repaired.append(f"{entry.kind} {entry.key} ({', '.join(sorted(foreign))})")
        return before

    def explain(self, expected: Mapping[str, Any], found: Mapping[str, Any]) -> str:
        """What the program says, and what is in its files, whatever it says itself."""
        if "lines" not in found:
            return super().explain(expected, found)
        in_files = f"in its files {new_or_gone(expected.get('lines'), found['lines'])}"
        if len(found) == 1:
            return in_files
        return f"{new_or_gone(expected.get('output'), found.get('output'))}; {in_files}"

    def obstacle(self, found: Obstacles, difference: Difference, manifest: Manifest) -> None:
        """Files that somebody put beside the role's own."""
        entries = [entry for part in manifest.roles.values() for entry in part.entries]
        for entry in entries:
            if (entry.kind, entry.key) != (difference.kind, difference.key):
                continue
            starts = tuple(str(start) for start in entry.how.get("inputs", ()))
            own = [e.key for e in entries if e.kind == "file" and e.key.startswith(starts)]
            known = list(entry.how.get("sealed", ()))
            if not any(same["inputs"] == list(starts) for same in found.added_to):
                read_again = own if entry.how.get("argv", True) else []  # no program has read them
                found.added_to.append(
                    {"inputs": list(starts), "known": sorted({*known, *own}), "own": read_again}
                )


def changed_inputs(before: Entry, entry: Entry) -> set[str]:
    """The files of a program that are not as sealed, and that no update of a package brought."""
    files, known = entry.how.get("sealed", {}), before.how.get("sealed", {})
    if "include" not in before.how:  # sealed before included files were looked at
        files = {path: digest for path, digest in files.items() if path in known or _is_below(path, entry)}
    updated = set(before.how.get("packaged", ())) & set(entry.how.get("packaged", ()))
    changed = {path for path in {*files, *known} if files.get(path) != known.get(path)}
    return {path for path in changed - updated if path.startswith("/") and not path.endswith(LEFT_OVER)}


def _is_below(path: str, entry: Entry) -> bool:
    """Whether a file is at or below one of a program's own places."""
    return any(f"{path}/".startswith(f"{start}/") for start in entry.how["inputs"])


@dataclass(frozen=True, eq=False)
class Program(Effective):
    """One program's settings. `how`: `inputs`, `argv` and what else the look takes."""

    key: str = ""
    files: str = ""
    """The beginning of the paths of its files."""
    how: How = field(default_factory=dict)

    def following(self, claim: Claim) -> Iterator[Claim]:
        """Its settings, from one of its files."""
        if claim.kind in ("file", "link", "absent") and claim.key.startswith(self.files):
            yield Claim("effective", self.key, {}, self.how)


ASPECTS = {"output": is_list, "lines": is_list}
SUM: Mapping[str, Any] = {
    "always": ("output",),
    "list_aspect": "output",
    "stands_alone": True,
    "is_sum": True,
}


def program(
    key: str, files: str, how: How, *, look: Any = look_at_effective, folders: tuple[str, ...] = ()
) -> Program:
    """The kind of a program's settings. FILES begins the paths of its files, FOLDERS are those of many.

    HOW: `inputs`, its files and directories; `argv`, what makes it say its settings; `package`, that brings
    it; `keep`, how those lines begin that count; `lines`, where it does not say all that its files do;
    `shipped`, where packages have files among them that are no settings of theirs.
    """
    name = f"effective {key}"
    return Program(name, look, ASPECTS, **SUM, folders=folders, key=key, files=files, how=how)


KINDS = (Effective("effective", look_at_effective, ASPECTS, **SUM),)
