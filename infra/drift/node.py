"""Reading files and asking programs on a node, without modules that are slow to import. See `looks.py`."""

from __future__ import annotations

import os


def bytes_of(path: str) -> bytes:
    """A file's content."""
    with open(path, "rb") as handle:
        return handle.read()


def text_of(path: str, missing: str | None = None) -> str:
    """A file's text; `missing` where it is not there, if that is given."""
    try:
        return bytes_of(path).decode("utf-8", "replace")
    except FileNotFoundError:
        if missing is None:
            raise
        return missing


def words_of(path: str) -> str:
    """A file's words, single spaces between them."""
    return " ".join(text_of(path).split())


def run(argv: list[str]) -> str:
    """A command's output. ValueError with what it said when it fails; `subprocess` is slow to import."""
    reader, writer = os.pipe()
    path = "/usr/sbin:/usr/bin:/sbin:/bin"
    actions = [(os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_DUP2, writer, 2)]
    environment = {"PATH": path, "LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0"}
    os.environ["PATH"] = path
    pid = os.posix_spawnp(argv[0], argv, environment, file_actions=actions)
    os.close(writer)
    with os.fdopen(reader, "rb") as handle:
        said = handle.read().decode("utf-8", "replace")
    status = os.waitpid(pid, 0)[1]
    if status:
        raise ValueError(f"{' '.join(argv)} fails: {said.strip()[-300:] or 'it said nothing'}")
    return said
