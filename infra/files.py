"""Files of the controller: written whole or not at all; hashes over them and over values."""

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from infra import ROOT
from infra.cached import Cached

NOT_HASHED = {"molecule", "__pycache__", "causeway.yml", "README.md"}
"""Files and folders that change nothing on a node; the last one is written by `up` itself."""

NOT_ENTERED = ("molecule", "__pycache__")
CHECKSUMS = Cached("checksums")
SETTLED_NS = 2 * 10**9
"""What changed within this may change again and keep its times: the clocks of file systems tick slowly."""


def tree_hash(*paths: str) -> str:
    """One hash over the files below these paths of the checkout, but for `NOT_HASHED`."""
    digest = hashlib.sha256()
    for start in paths:
        top = ROOT / start
        for file in [top] if top.is_file() else files_below(top):
            relative = file.relative_to(ROOT)
            if not NOT_HASHED & set(relative.parts):
                digest.update(f"{relative}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def files_below(top: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """The files below a folder, in order, also those that links to other folders lead to, as Ansible has it.

    `above`: the folders on the way there; a link back to one of them is not followed.
    """
    real = top.resolve()
    if real in above or not top.is_dir():
        return
    for path in sorted(top.iterdir()):
        if path.is_dir():
            yield from files_below(path, (*above, real))
        elif path.is_file():
            yield path


def tree_state(*paths: Path, until_ns: int | None = None) -> str:
    """One hash that another one follows on whatever changes below these paths, without a file being read.

    Each file and directory counts with its size, times and inode: nothing writes a file, or puts one in its
    place, and leaves its ctime. What only tests have is not entered. Empty while something is too young to
    tell, and with `until_ns` where something changed since.
    """
    seen: list[_State] = []
    try:
        for path in paths:
            _note_states(str(path), seen)
    except OSError:
        return ""  # whoever reads it says what it is
    newest = max((ctime_ns for _, _, _, ctime_ns, *_ in seen), default=0)
    now_ns = time.time_ns()
    settled = newest < min(now_ns, until_ns if until_ns is not None else now_ns) - SETTLED_NS
    return hashlib.sha256(repr(sorted(seen)).encode()).hexdigest()[:32] if settled else ""


_State = tuple[str, int, int, int, int, int, int]
"""Path, size, mtime, ctime, inode, device, mode."""


def _note_states(path: str, seen: list[_State]) -> None:
    """Of a path and of all below it, of links and of what they lead to; nothing of what is not there."""
    with suppress(FileNotFoundError, NotADirectoryError):
        seen.append(_state(path, Path(path).stat()))
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in NOT_ENTERED:
                        _note_states(entry.path, seen)
                    continue
                seen.append(_state(entry.path, entry.stat(follow_symlinks=False)))
                if entry.is_symlink():
                    with suppress(OSError):  # it leads to nothing
                        seen.append(_state(entry.path, entry.stat()))


def _state(path: str, stat: os.stat_result) -> _State:
    times = stat.st_mtime_ns, stat.st_ctime_ns
    return path, stat.st_size, *times, stat.st_ino, stat.st_dev, stat.st_mode


def value_hash(value: Any) -> str:
    """One hash over a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def content_hash(path: Path) -> str:
    """SHA-256 of a file, which is read again only when it was written since: for each node somebody asks."""
    now = path.stat()
    seen = value_hash([str(path.resolve()), now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino])
    return CHECKSUMS.known_text(seen, lambda: checksum(path))


def checksum(file: Path) -> str:
    """SHA-256 of a file, as 64 hex digits."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def given_file(declared: str, root: Path | None = None) -> Path:
    """A file on this machine that a declaration names, from the checkout or from the user's home."""
    return (root or ROOT) / Path(declared).expanduser()


def given_path(declared: str | None) -> str:
    """Of such a file as a role's variable has it; empty where none is declared."""
    return str(given_file(declared)) if declared else ""


def given_files(*declared: str | None) -> dict[str, str]:
    """Each of those files → its SHA-256, empty for one that is not there: by that their readers run again."""
    paths = {one: given_file(one) for one in declared if one}
    return {one: content_hash(path) if path.is_file() else "" for one, path in paths.items()}


def write_file(path: Path, text: str) -> None:
    """Write a file whole or not at all, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_text(text)
    part.replace(path)


def write_private(path: Path, text: str) -> None:
    """The same for what at no moment anybody else may read: the file is 0600, a folder made for it 0700."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    part.replace(path)
