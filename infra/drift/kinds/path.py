"""file, directory, link, absent: what is at a path. A path is one of them at a time."""

from __future__ import annotations

import os
import posixpath
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from infra.drift.kind import (
    Claim,
    Found,
    How,
    Kind,
    Recorder,
    Shape,
    Task,
    Uncovered,
    Value,
    added,
    in_words,
    is_flag,
    is_list,
    is_text,
    new_or_gone,
)
from infra.drift.looks import TEXT_LIMIT_BYTES, Look, parent_change, sha256

if TYPE_CHECKING:
    from infra.drift.findings import Difference
    from infra.drift.manifest import Entry, Manifest
    from infra.drift.repair import Obstacles

CHUNK_BYTES = 1 << 20
LARGE_BYTES = 4 << 20
IMMUTABLE, APPEND_ONLY = 0x10, 0x20
LABELS = ("security.selinux", "security.ima", "security.evm", "security.apparmor", "trusted.overlay.")
"""Extended attributes that the system itself keeps."""
FS_IOC_GETFLAGS = 0x80086601
WORLD_READABLE = 0o004


def look_at_path(node: Look, key: str, how: How) -> Found:
    """File, directory, link or nothing at all: type, mode, owner, group, content, bits and attributes."""
    try:
        status = os.lstat(key)
    except (FileNotFoundError, NotADirectoryError):
        return {"type": "absent", "_since": parent_change(key)}
    found: Found = {"mode": f"{stat.S_IMODE(status.st_mode):04o}", "_since": status.st_ctime}
    found.update(owner=node.name_of("passwd", status.st_uid), group=node.name_of("group", status.st_gid))
    if stat.S_ISLNK(status.st_mode):
        found.update(type="link", target=os.readlink(key))
    elif stat.S_ISDIR(status.st_mode):
        handle = os.open(key, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found.update(type="directory", **bits(node, handle))
        finally:
            os.close(handle)
    elif stat.S_ISREG(status.st_mode):
        found.update(type="file")
        if how.get("content", True):
            found.update(file_content(node, key, status, how))
    else:
        found.update(type="special")
    return found


def file_content(node: Look, key: str, status: os.stat_result, how: How) -> Found:
    """Hash, bits and attributes of a regular file; its text where that is no secret.

    A large file is read only when its size, times or place differ from those it was sealed with: nothing
    changes a file and leaves its ctime but a clock that was set back. Mode `thorough` reads it always.
    """
    whole, plain, kept = sha256(node.salt), None, b""
    large = status.st_size > LARGE_BYTES
    stamp = [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    sealed = how.get("sealed") if large and node.mode == "scan" else None
    handle = os.open(key, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        beside = bits(node, handle)
        if sealed and sealed[:-1] == stamp:
            return {"digest": sealed[-1], **beside}
        if large or how.get("sha1"):
            import hashlib  # OpenSSL is six times as fast, and takes 5 ms to load

            whole = hashlib.sha256(node.salt) if large else whole
            plain = hashlib.sha1() if how.get("sha1") else None  # noqa: S324 - what Ansible reports
        while True:
            data = os.read(handle, CHUNK_BYTES)
            if not data:
                break
            whole.update(data)
            if plain:
                plain.update(data)
            if len(kept) <= TEXT_LIMIT_BYTES:
                kept += data
    finally:
        os.close(handle)
    found: Found = {"digest": whole.hexdigest()[:32], **beside}
    if large:
        found["_inputs"] = [*stamp, found["digest"]]
    if plain:
        found["_sha1"] = plain.hexdigest()
    if len(kept) <= TEXT_LIMIT_BYTES and how.get("text", True) and is_public(key, status):
        found["_text"] = kept
    return found


def bits(node: Look, handle: int) -> Found:
    """Whether the immutable bit is set, and what else a file or directory has beside its mode.

    ACLs and capabilities are extended attributes. What is in one is hashed; that it is there says enough.
    """
    import fcntl

    try:
        flags = int.from_bytes(fcntl.ioctl(handle, FS_IOC_GETFLAGS, b"\0" * 8)[:4], sys.byteorder)
    except OSError:  # a file system that has none
        flags = 0
    try:
        names = [name for name in os.listxattr(handle) if not name.startswith(LABELS)]
    except OSError:
        names = []
    more = [f"{name} {node.digest(os.getxattr(handle, name))}" for name in sorted(names)]
    more += ["append-only"] if flags & APPEND_ONLY else []
    return {"immutable": bool(flags & IMMUTABLE), "attributes": more}


def is_public(key: str, status: os.stat_result) -> bool:
    """Whether every user may read a file: its own mode, and x on all directories above."""
    if not status.st_mode & WORLD_READABLE:
        return False
    while key not in ("", "/"):
        key = os.path.dirname(key)
        if not os.stat(key).st_mode & stat.S_IXOTH:
            return False
    return True


# On the controller

OWNERSHIP = ("mode", "owner", "group")
BESIDE = ("immutable", "attributes")
FILE_ASPECTS = ("type", "digest", *OWNERSHIP, *BESIDE)
WHOLE = frozenset(f"ansible.builtin.{name}" for name in ("copy", "template", "assemble"))
"""Modules whose reported checksum is that of the text they were to write."""
SHAPES: Mapping[str, Shape] = {
    **dict.fromkeys(("type", "digest", *OWNERSHIP, "target"), is_text),
    "immutable": is_flag,
    "attributes": is_list,
}


def _path(task: Task) -> str:
    path = (
        task.result.get("dest") or task.result.get("path") or task.args.get("dest") or task.args.get("path")
    )
    if not path:
        raise Uncovered
    return posixpath.normpath(str(path))


def _owned(task: Task) -> dict[str, Value]:
    owned = {aspect: task.result[aspect] for aspect in OWNERSHIP if task.result.get(aspect)}
    if "mode" in owned:  # Ansible writes a zero before whatever it is, also before 1777
        owned["mode"] = f"{int(str(owned['mode']), 8):04o}"
    return owned


def content(task: Task) -> Iterator[Claim]:
    """A file whose text the task decides, wholly or in part."""
    path, result = _path(task), task.result
    if result.get("state") == "directory" or (result.get("src") and task.args.get("src", "").endswith("/")):
        raise Uncovered  # a whole tree: its files are not in the result
    if task.args.get("state") == "absent" and task.module.endswith("deb822_repository"):
        yield Claim("absent", path)
        return
    reported = _owned(task)
    if checksum := result.get("checksum"):
        reported["sha1"] = str(checksum)
    yield Claim("file", path, reported)
    asked = posixpath.normpath(str(task.args.get("dest") or task.args.get("path") or path))
    if asked != path and not path.startswith(asked + "/"):
        yield Claim("link", asked)  # written through a link, as with /etc/default/locale


def file_state(task: Task) -> Iterator[Claim]:
    """`file`: directories, links, absent things; the attributes of a file somebody else writes."""
    path, state = _path(task), task.result.get("state") or task.args.get("state") or "file"
    if state == "absent":
        yield Claim("absent", path)
    elif state == "link":
        target = task.result.get("src") or task.args.get("src")
        yield Claim("link", path, {"target": target} if target else {})
    elif state == "directory":
        if task.args.get("recurse"):
            raise Uncovered
        yield Claim("directory", path, _owned(task))
    else:
        yield Claim("file", path, _owned(task), {"content": False}, ("type", *OWNERSHIP))


def timezone(_task: Task) -> Iterator[Claim]:
    """community.general.timezone: where /etc/localtime leads."""
    yield Claim("link", "/etc/localtime")


class Path(Kind):
    """What is at a path."""

    def asked(self, task: Task, what: str, known: bool) -> bool:
        """`copy` without a mode reports the one that it met, `lineinfile` a file of which it read a line."""
        if what == "sha1":
            return task.module in WHOLE
        return what not in OWNERSHIP or not known or task.args.get(what) is not None

    def compared(self, task: Task, claim: Claim) -> dict[str, Value]:
        """`file` compares what the path is."""
        if self.name == "file" or task.module != "ansible.builtin.file":
            return {}
        return {"type": claim.kind}

    def untouched(self, task: Task) -> set[str]:
        """Mode, owner and group that the task does not name, the immutable bit, extended attributes."""
        if self.name not in ("file", "directory"):
            return set()
        return {*BESIDE, *OWNERSHIP} - {what for what in OWNERSHIP if task.args.get(what) is not None}

    def shown_as(self, what: str) -> str:
        """A checksum shows in the hash."""
        return "digest" if what == "sha1" else what

    def value(self, what: str, found: Mapping[str, Any]) -> Value:
        """The probe reads the checksum as well, while it seals."""
        return found.get("_sha1" if what == "sha1" else what)

    def asking(self, claim: Mapping[str, Any]) -> How:
        """With the checksum that Ansible reports, where it did."""
        return dict(claim["how"]) | ({"sha1": True} if "sha1" in claim["reported"] else {})

    def replaced(self, before: Entry, entry: Entry) -> bool:
        """What was a file is none: a task that edits one may follow a link that somebody put there."""
        return self.name == "file" and before.want.get("type") == "file" != entry.want.get("type")

    def explain(self, expected: Mapping[str, Any], found: Mapping[str, Any]) -> str:
        """Where it is of another type, nothing else matters."""
        if "type" in found:
            return f"is {_type(found['type'])}, expected {_type(expected.get('type'))}"
        plain = {aspect: value for aspect, value in found.items() if aspect != "attributes"}
        said = [super().explain(expected, plain)] if plain else []
        if "attributes" in found:
            said.append(_attributes(expected.get("attributes") or (), found["attributes"] or ()))
        return "; ".join(said)

    def obstacle(self, found: Obstacles, difference: Difference, manifest: Manifest) -> None:
        """Bits, attributes, ownership that tasks leave open, and what stands in the path's place."""
        if self.name == "absent":
            return
        strange = [line.split()[0] for line in added(difference, "attributes")]
        if difference.found.get("immutable") or "append-only" in strange:
            found.thaw.append(difference.key)
        if names := [name for name in strange if name != "append-only"]:
            found.attributes[difference.key] = names
        owned = {a: str(difference.expected[a]) for a in OWNERSHIP if a in difference.found}
        if owned and "type" not in difference.found:
            found.ownership[difference.key] = owned
        kind, expected = difference.found.get("type"), difference.expected.get("type")
        if kind == "absent":
            found.parents.append(difference.key)
        elif kind and expected != "absent":
            found.wrong_type.append(difference.key)


def _attributes(expected: Sequence[str], found: Sequence[str]) -> str:
    """How two lists of them differ; of one that has another value only that."""
    old, new = ({line.split()[0]: line for line in lines} for lines in (expected, found))
    changed = [f"{name} has another value" for name in new if name in old and old[name] != new[name]]
    named = [new_or_gone(list(old), list(new))] if old.keys() != new.keys() else []
    return f"attributes: {'; '.join(named + changed)}"


def _type(value: Any) -> str:
    names = {"absent": "absent", "special": "neither file, directory nor link"}
    return names.get(value, f"a {in_words(value)}")


RECORDERS: Mapping[str, Mapping[str, Recorder]] = {
    "file": dict.fromkeys(
        (
            *(f"ansible.builtin.{name}" for name in (
                "copy", "template", "lineinfile", "blockinfile", "replace", "get_url", "assemble",
                "deb822_repository")),
            *("community.general.ini_file", "community.general.xml"),
        ),
        content,
    ) | {"ansible.builtin.file": file_state},
    "link": {"community.general.timezone": timezone},
}  # fmt: skip
ASPECTS = {
    "file": FILE_ASPECTS,
    "directory": ("type", *OWNERSHIP, *BESIDE),
    "link": ("type", "target"),
    "absent": ("type",),
}
KINDS = tuple(
    Path(
        name,
        look_at_path,
        {aspect: SHAPES[aspect] for aspect in aspects},
        modules=RECORDERS.get(name, {}),
        shapes=SHAPES,
        always=("type",),
        what_it_is="type",
        said={"digest": "its content differs"},
        stands_alone=True,
        one_of=frozenset(ASPECTS),
        in_part=("content",),
        knows_others=name != "absent",
    )
    for name, aspects in ASPECTS.items()
)
