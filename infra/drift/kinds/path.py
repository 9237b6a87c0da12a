"""file, directory, link, absent: what is at a path. A path is one of them at a time."""

from __future__ import annotations

import os
import posixpath
import stat
import sys
from collections.abc import Iterator, Mapping
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
    in_words,
    is_flag,
    is_text,
)
from infra.drift.looks import TEXT_LIMIT_BYTES, Look, parent_change, sha256

if TYPE_CHECKING:
    from infra.drift.findings import Difference
    from infra.drift.manifest import Entry, Manifest
    from infra.drift.repair import Obstacles

CHUNK_BYTES = 1 << 20
LARGE_BYTES = 4 << 20
IMMUTABLE = 0x10
FS_IOC_GETFLAGS = 0x80086601
WORLD_READABLE = 0o004


def look_at_path(node: Look, key: str, how: How) -> Found:
    """File, directory, link or nothing at all: type, mode, owner, group, content, immutable bit."""
    try:
        status = os.lstat(key)
    except (FileNotFoundError, NotADirectoryError):
        return {"type": "absent", "_since": parent_change(key)}
    found: Found = {"mode": f"{stat.S_IMODE(status.st_mode):04o}", "_since": status.st_ctime}
    found.update(owner=node.name_of("passwd", status.st_uid), group=node.name_of("group", status.st_gid))
    if stat.S_ISLNK(status.st_mode):
        found.update(type="link", target=os.readlink(key))
    elif stat.S_ISDIR(status.st_mode):
        found.update(type="directory")
    elif stat.S_ISREG(status.st_mode):
        found.update(type="file")
        if how.get("content", True):
            found.update(file_content(node, key, status, how))
    else:
        found.update(type="special")
    return found


def file_content(node: Look, key: str, status: os.stat_result, how: How) -> Found:
    """Hash and immutable bit of a regular file; its text where that is no secret.

    A large file is read only when its size, times or place differ from those it was sealed with: nothing
    changes a file and leaves its ctime but a clock that was set back. Mode `thorough` reads it always.
    """
    whole, plain, kept = sha256(node.salt), None, b""
    large = status.st_size > LARGE_BYTES
    stamp = [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    sealed = how.get("sealed") if large and node.mode == "scan" else None
    handle = os.open(key, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        immutable = is_immutable(handle)
        if sealed and sealed[:-1] == stamp:
            return {"digest": sealed[-1], "immutable": immutable}
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
    found: Found = {"digest": whole.hexdigest()[:32], "immutable": immutable}
    if large:
        found["_inputs"] = [*stamp, found["digest"]]
    if plain:
        found["_sha1"] = plain.hexdigest()
    if len(kept) <= TEXT_LIMIT_BYTES and how.get("text", True) and is_public(key, status):
        found["_text"] = kept
    return found


def is_immutable(handle: int) -> bool:
    """Whether the immutable bit is set; False where the file system has none."""
    import fcntl

    try:
        flags = fcntl.ioctl(handle, FS_IOC_GETFLAGS, b"\0" * 8)
    except OSError:
        return False
    return bool(int.from_bytes(flags[:4], sys.byteorder) & IMMUTABLE)


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
FILE_ASPECTS = ("type", "digest", *OWNERSHIP, "immutable")
WHOLE = frozenset(f"ansible.builtin.{name}" for name in ("copy", "template", "assemble"))
"""Modules whose reported checksum is that of the text they were to write."""
SHAPES: Mapping[str, Shape] = {
    **dict.fromkeys(("type", "digest", *OWNERSHIP, "target"), is_text),
    "immutable": is_flag,
}


def _path(task: Task) -> str:
    path = (
        task.result.get("dest") or task.result.get("path") or task.args.get("dest") or task.args.get("path")
    )
    if not path:
        raise Uncovered
    return posixpath.normpath(str(path))


def _owned(task: Task) -> dict[str, Value]:
    return {aspect: task.result[aspect] for aspect in OWNERSHIP if task.result.get(aspect)}


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
        """Mode, owner and group that the task does not name, and the immutable bit."""
        if self.name not in ("file", "directory"):
            return set()
        return {"immutable", *OWNERSHIP} - {what for what in OWNERSHIP if task.args.get(what) is not None}

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
        return super().explain(expected, found)

    def obstacle(self, found: Obstacles, difference: Difference, manifest: Manifest) -> None:
        """The immutable bit, ownership that tasks leave open, and what stands in the path's place."""
        if self.name == "absent":
            return
        if difference.found.get("immutable"):
            found.thaw.append(difference.key)
        owned = {a: str(difference.expected[a]) for a in OWNERSHIP if a in difference.found}
        if owned and "type" not in difference.found:
            found.ownership[difference.key] = owned
        kind, expected = difference.found.get("type"), difference.expected.get("type")
        if kind == "absent":
            found.parents.append(difference.key)
        elif kind and expected != "absent":
            found.wrong_type.append(difference.key)


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
    "directory": ("type", *OWNERSHIP),
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
    )
    for name, aspects in ASPECTS.items()
)
