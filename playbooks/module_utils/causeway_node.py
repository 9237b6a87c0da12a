"""What modules share that change a node: one change after the other, and where things are put aside.

A module sees nothing of the checkout, so what the probe has as well stands here once more. Python 3.8.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

ASIDE = Path("/var/lib/causeway/aside")
PART = ".causeway-part"


class Steps:
    """Does, or in check mode only says, one thing after the other."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.aside = ASIDE / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        self.changes: list[str] = []
        self.left: list[str] = []
        self.failed: list[str] = []

    def leave(self, what: str, why: str) -> None:
        """Note what stays."""
        line = f"{what}: {why}"
        if line not in self.left:
            self.left.append(line)

    def fail(self, what: str, why: str) -> None:
        """Note what stays, and may go another time."""
        self.failed.append(f"{what}: {why}")

    def do(self, what: str, action: Callable[[], Any]) -> None:
        """Make a change, unless in check mode, and note it. What goes wrong ends the module."""
        if not self.module.check_mode:
            action()
        self.changes.append(what)

    def attempt(self, what: str, action: Callable[[], Any]) -> bool:
        """The same; of what goes wrong only that it stays is noted. Whether it went well."""
        try:
            self.do(what, action)
        except OSError as error:
            self.fail(what, f"failed: {error}")
            return False
        return True

    def run(self, what: str, *argv: str) -> None:
        """Have a command change something; where it fails, that is noted."""
        self.attempt(what, lambda: self._succeed(argv))

    def _succeed(self, argv: tuple[str, ...]) -> None:
        status, out, complaint = self.command(*argv)
        if status:
            raise OSError((complaint or out).strip()[-300:])

    def command(self, *argv: str) -> tuple[int, str, str]:
        """Run a command that asks nothing: exit status, what it printed, what it complained of."""
        quietly = {"DEBIAN_FRONTEND": "noninteractive"}
        status, out, complaint = self.module.run_command(list(argv), environ_update=quietly)
        return int(status), str(out), str(complaint)

    def put_aside(self, path: str) -> Path:
        """Where a path lies once it was moved away."""
        return self.aside / path.lstrip("/")


def setting_path(key: str) -> str:
    """A sysctl's path below /proc/sys."""
    return key if "/" in key.partition(".")[0] else key.translate({ord("."): "/", ord("/"): "."})


def make_room(target: Path) -> None:
    """The directory for a thing that is put aside; for root only."""
    ASIDE.mkdir(mode=0o700, parents=True, exist_ok=True)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)


def move(path: str, target: Path) -> None:
    """Move, also from one file system to another."""
    make_room(target)
    shutil.move(path, target)


def keep_copy(path: str, target: Path) -> None:
    """Copy a file to where nothing reads it."""
    make_room(target)
    shutil.copy2(path, target, follow_symlinks=False)


def replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; owner and mode stay where there was one."""
    part = path.with_name(f".{path.name}{PART}")
    with suppress(
        FileNotFoundError
    ):  # of a run that was killed; or a link, where the directory is an account's
        part.unlink()
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as handle:
        handle.write(data)
        with suppress(FileNotFoundError):
            status = os.stat(path)
            os.fchown(handle.fileno(), status.st_uid, status.st_gid)
            os.fchmod(handle.fileno(), stat.S_IMODE(status.st_mode))
    try:
        part.replace(path)
    except OSError:  # a mounted file, as /etc/hosts in a container, can only be written into
        path.write_bytes(data)
        part.unlink()
