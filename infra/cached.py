"""What one process works out and later ones find again, as bytes by the name of all that they depend on.

A cache that cannot be written is done without.
"""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from infra import ROOT

DIGEST_BYTES = 16
OURS = (ROOT / "playbooks", ROOT / "roles")
VARIABLES = {"group_vars", "host_vars"}


def cache_folder() -> Path:
    """What all checkouts share."""
    return Path(os.environ.get("CAUSEWAY_CACHE") or Path.home() / ".cache" / "causeway")


def name_of(*depends_on: object) -> str:
    """The name of what depends on these values."""
    return hashlib.sha256(repr(depends_on).encode()).hexdigest()


def may_last(path: str) -> bool:
    """Whether what is made of a file may outlive the run: of the checkout's playbooks and roles.

    What else Ansible reads may hold secrets, and be there for one run alone (`-e @FILE`).
    """
    file = Path(path)
    return any(file.is_relative_to(top) for top in OURS) and not VARIABLES & {*file.parts}


class Cached:
    """One subject's, of which no more than MOST stay for long."""

    def __init__(self, subject: str, most: int = 500) -> None:
        self._subject, self.most = subject, most

    @property
    def folder(self) -> Path:
        """Where they stand, for this user alone."""
        return cache_folder() / "worked-out" / self._subject

    def known(self, name: str, work_out: Callable[[], bytes]) -> bytes:
        """What any process of this machine worked out before, or this one does now."""
        content = self.find(name)
        if content is None:
            content = work_out()
            self.keep(name, content)
            self.throw_away()
        return content

    def known_text(self, name: str, work_out: Callable[[], str]) -> str:
        """The same of a text."""
        return self.known(name, lambda: work_out().encode()).decode()

    def find(self, name: str) -> bytes | None:
        """What is kept by a name. Power that went may have left the name, and something else by it."""
        with suppress(OSError):
            kept = (self.folder / name).read_bytes()
            digest, content = kept[:DIGEST_BYTES], kept[DIGEST_BYTES:]
            if digest == _digest(content):
                return content
        return None

    def keep(self, name: str, content: bytes) -> None:
        """Keep it for all later runs, and for processes beside this one."""
        part = self.folder / f".{name}.{os.getpid()}"
        with suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            part.write_bytes(_digest(content) + content)
            part.replace(self.folder / name)

    def throw_away(self) -> None:
        """The older half, where too much is kept."""
        with suppress(OSError):
            there = [path for path in self.folder.iterdir() if not path.name.startswith(".")]
            if len(there) > self.most:
                for old in sorted(there, key=lambda path: path.stat().st_mtime)[: len(there) // 2]:
                    old.unlink()


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()[:DIGEST_BYTES]
