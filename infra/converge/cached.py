"""What runs of Ansible work out and later ones find again, as bytes by the hash of all that they depend on.

A cache that cannot be written is done without.
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from infra import ROOT
from infra.files import cache_folder

MOST_KEPT = 20_000
"""So many stay of one subject; where there are more, a run that starts throws the older half away."""

DIGEST_BYTES = 16
OURS = (ROOT / "playbooks", ROOT / "roles")
VARIABLES = {"group_vars", "host_vars"}


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
    """One subject's."""

    def __init__(self, subject: str) -> None:
        self._subject = subject

    @property
    def folder(self) -> Path:
        """Where they stand, for this user alone."""
        return cache_folder() / self._subject

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
            there = list(self.folder.iterdir())
            if len(there) > MOST_KEPT:
                for old in sorted(there, key=lambda path: path.stat().st_mtime)[: len(there) // 2]:
                    old.unlink()


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()[:DIGEST_BYTES]
