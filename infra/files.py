"""Files of the controller: written whole or not at all; hashes over them and over values."""

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from infra import ROOT

NOT_HASHED = {"molecule", "__pycache__", "causeway.yml", "README.md"}
"""Files and folders that change nothing on a node; the last one is written by `up` itself."""

MOST_KNOWN = 500
"""So many texts of one subject stay in the cache."""


def tree_hash(*paths: str) -> str:
    """One hash over the files below these paths of the checkout, but for `NOT_HASHED`."""
    digest = hashlib.sha256()
    for start in paths:
        top = ROOT / start
        files = [top] if top.is_file() else sorted(p for p in top.rglob("*") if p.is_file())
        for file in files:
            relative = file.relative_to(ROOT)
            if not NOT_HASHED & set(relative.parts):
                digest.update(f"{relative}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def value_hash(value: Any) -> str:
    """One hash over a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def content_hash(path: Path) -> str:
    """SHA-256 of a file, which is read again only when it was written since: for each node somebody asks."""
    now = path.stat()
    seen = value_hash([str(path.resolve()), now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino])
    return known_as("checksums", seen, lambda: checksum(path))


def known_as(subject: str, name: str, work_out: Callable[[], str]) -> str:
    """A text that any process of this machine worked out before; the name says what it depends on.

    The newest `MOST_KNOWN` of a subject stay. A cache that cannot be written is done without.
    """
    noted = cache_folder() / subject / name
    with suppress(OSError):
        return noted.read_text()
    text = work_out()
    part = noted.with_name(f".{name}.{os.getpid()}")  # Ansible's workers come together
    with suppress(OSError):
        noted.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text)
        part.replace(noted)
        there = [path for path in noted.parent.iterdir() if not path.name.startswith(".")]
        for old in sorted(there, key=lambda path: path.stat().st_mtime)[:-MOST_KNOWN]:
            old.unlink()
    return text


def checksum(file: Path) -> str:
    """SHA-256 of a file, as 64 hex digits."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def given_file(declared: str) -> Path:
    """A file on this machine that a declaration names, from the checkout or from the user's home."""
    return ROOT / Path(declared).expanduser()


def given_path(declared: str | None) -> str:
    """Of such a file as a role's variable has it; empty where none is declared."""
    return str(given_file(declared)) if declared else ""


def given_files(*declared: str | None) -> dict[str, str]:
    """Each of those files → its SHA-256, empty for one that is not there: by that their readers run again."""
    paths = {one: given_file(one) for one in declared if one}
    return {one: content_hash(path) if path.is_file() else "" for one, path in paths.items()}


def cache_folder() -> Path:
    """What all checkouts share."""
    return Path(os.environ.get("CAUSEWAY_CACHE") or Path.home() / ".cache" / "causeway")


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
