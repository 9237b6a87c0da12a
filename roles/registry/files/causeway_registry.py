#!/usr/bin/python3
"""Looks after a region's registry of images.

causeway-registry password USER FILE   who may push, in a line, salted by FILE; the password by standard input
causeway-registry retain SETTINGS      take away what is old, then what nothing names; nobody pushes meanwhile
causeway-registry look SETTINGS        leave the registry's state as metrics

SETTINGS is a JSON file. Distribution's own `garbage-collect --delete-untagged` takes the images that an index
is made of for untagged ones (distribution issue 3178): what is untagged is told here, and blobs are its work.
"""

from __future__ import annotations

import ctypes
import hashlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, "/usr/local/lib/causeway")
from causeway_clock import Clock, look

DAY_S = 86_400
ROUNDS = 10
"""Of bcrypt, as its logarithm: a tenth of a second."""
ALPHABET = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
SEEN = "causeway-untagged.json"
"""In the images' folder: repository → digest → since when no tag names it."""
CLOCK = "causeway-clock.json"
"""Beside it: whether the clock has jumped."""


# Who pushes


def hashed(password: bytes, salt: str) -> str:
    """bcrypt, by the system's own library."""
    crypt = ctypes.CDLL("libcrypt.so.1").crypt
    crypt.restype = ctypes.c_char_p
    found: bytes | None = crypt(password, salt.encode())
    if found is None or not found.startswith(b"$2b$"):
        raise OSError("this system has no bcrypt")
    return found.decode()


def password(user: str, authority: Path) -> str:
    """The same line each time, so that one that somebody changed can be brought back.

    The salt is of the authority, which is another one in each stack; one of the password would tell of it.
    """
    given = sys.stdin.buffer.read().rstrip(b"\r\n")
    mixed = hashlib.sha256(user.encode() + b"\0" + authority.read_bytes()).digest()
    salt = "".join(ALPHABET[byte % 64] for byte in mixed[:21]) + "."
    return f"{user}:{hashed(given, f'$2b${ROUNDS:02}${salt}')}"


# What goes


def repositories(top: Path) -> Iterator[Path]:
    """Every folder in which a repository's manifests are; names of repositories have slashes inside."""
    for folder, below, _ in os.walk(top):
        if "_manifests" in below:
            yield Path(folder)
        below[:] = sorted(name for name in below if not name.startswith("_"))


def linked(link: Path) -> str:
    """The digest that a link names; empty where there is none, or a write of it was cut off."""
    try:
        found = link.read_text()
    except FileNotFoundError:
        return ""
    return found if found.startswith("sha256:") and len(found) == 71 else ""


def manifest(blobs: Path, digest: str) -> dict[str, Any]:
    """What a digest names; OSError or ValueError where it cannot be read."""
    name = digest.removeprefix("sha256:")
    found = json.loads((blobs / "sha256" / name[:2] / name / "data").read_bytes())
    if not isinstance(found, dict):
        raise ValueError(f"{digest} is no manifest")
    return found


def named(blobs: Path, tagged: set[str], present: set[str]) -> set[str]:
    """What tags name, with the images of an index, and what says that it is about one of these."""
    known = {digest: manifest(blobs, digest) for digest in present}
    found = set[str]()
    coming = list(tagged & present)
    while coming:
        digest = coming.pop()
        if digest in found:
            continue
        found.add(digest)
        parts = known[digest].get("manifests")
        coming += [part["digest"] for part in parts if part["digest"] in present] if parts else []
        coming += [one for one, has in known.items() if (has.get("subject") or {}).get("digest") == digest]
    return found


def old_tags(tags: Path, days: int, clock: Clock) -> list[Path]:
    """Those that nobody has pushed for so long; those of which a removal was cut off, too."""
    found = []
    for tag in sorted(tags.iterdir()) if tags.is_dir() else ():
        current = tag / "current" / "link"
        if not linked(current) or (days and clock.age_s(current.stat().st_mtime) > days * DAY_S):
            found.append(tag)
    return found


def take_away(repository: Path, digest: str) -> None:
    """An image, as a repository has it; its content goes with the blobs."""
    name = digest.removeprefix("sha256:")
    for index in repository.glob(f"_manifests/tags/*/index/sha256/{name}"):
        shutil.rmtree(index)
    shutil.rmtree(repository / "_manifests" / "revisions" / "sha256" / name)


def retain_one(
    repository: Path, blobs: Path, seen: dict[str, float], days: tuple[int, int], clock: Clock
) -> None:
    """One repository: `days` for what no tag names, and for tags; `seen` is what was untagged before."""
    untagged_days, tagged_days = days
    tags = repository / "_manifests" / "tags"
    for tag in old_tags(tags, tagged_days, clock):
        # What says where it leads goes first: half a tag is none.
        (tag / "current" / "link").unlink(missing_ok=True)
        shutil.rmtree(tag)
    revisions = repository / "_manifests" / "revisions" / "sha256"
    links = [one / "link" for one in sorted(revisions.iterdir())] if revisions.is_dir() else []
    present = {found for found in map(linked, links) if found}
    tagged = {linked(tag / "current" / "link") for tag in tags.iterdir()} if tags.is_dir() else set[str]()
    unnamed = present - named(blobs, tagged, present)
    for digest in set(seen) - unnamed:
        del seen[digest]
    for digest in sorted(unnamed):
        if clock.age_s(seen.setdefault(digest, clock.now)) > untagged_days * DAY_S:
            take_away(repository, digest)
            del seen[digest]


def write_whole(path: Path, text: str) -> None:
    """Whole or not at all."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text)
    beside.chmod(0o644)
    beside.replace(path)


def retain(settings: dict[str, Any]) -> int:
    """Every repository, then the blobs that nothing names; 1 where something could not be read."""
    images, failed = Path(settings["images"]), 0
    top = images / "docker" / "registry" / "v2"
    if not (top / "repositories").is_dir():
        return done(images)
    try:
        seen = json.loads((images / SEEN).read_text())
    except (FileNotFoundError, ValueError):
        seen = {}
    clock, found = look(images / CLOCK), dict[str, dict[str, float]]()
    for repository in repositories(top / "repositories"):
        name = str(repository.relative_to(top / "repositories"))
        found[name] = dict(seen.get(name, {}))
        try:
            days = (int(settings["untagged_days"]), int(settings["tagged_days"]))
            retain_one(repository, top / "blobs", found[name], days, clock)
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"{name}: {error}: all that no tag names stays", file=sys.stderr)
            failed = 1
    write_whole(images / SEEN, json.dumps(found))
    if failed:
        return failed  # a manifest that cannot be read names blobs that nobody knows
    subprocess.run(
        ["/usr/bin/docker-registry", "garbage-collect", settings["configuration"]],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return done(images)


def done(images: Path) -> int:
    """Say when it was."""
    images.mkdir(parents=True, exist_ok=True)
    (images / "causeway-retained").touch()
    return 0


# What is told


class Local(http.client.HTTPConnection):
    """HTTP by a socket of this node's."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=20)
        self._path = path

    def connect(self) -> None:
        """As HTTPConnection does."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def answers(path: str) -> bool:
    """Whether a process answers; the one that takes pushes asks for a password."""
    connection = Local(path)
    try:
        connection.request("GET", "/v2/")
        return connection.getresponse().status in (200, 401)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def metrics(settings: dict[str, Any]) -> str:
    """Prometheus' text."""
    images = Path(settings["images"])
    room = os.statvfs(images.parent)
    try:
        retained = (images / "causeway-retained").stat().st_mtime
    except FileNotFoundError:
        retained = 0.0
    lines = [
        f'causeway_registry_up{{process="{name}"}} {int(answers(path))}'
        for name, path in settings["sockets"].items()
    ]
    lines += [
        f"causeway_registry_size_bytes {room.f_blocks * room.f_frsize}",
        f"causeway_registry_free_bytes {room.f_bavail * room.f_frsize}",
        f"causeway_registry_retained_timestamp_seconds {retained:.0f}",
        f"causeway_registry_looked_timestamp_seconds {time.time():.0f}",
    ]
    return "".join(f"{line}\n" for line in lines)


def main(words: list[str]) -> int:
    """As the head of this file says."""
    if words[0] == "password":
        print(password(words[1], Path(words[2])))
        return 0
    settings = json.loads(Path(words[1]).read_text())
    if words[0] == "retain":
        return retain(settings)
    write_whole(Path(settings["metrics"]), metrics(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
