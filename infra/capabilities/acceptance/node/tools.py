"""Runs tools and looks, each with a deadline: a driver that hangs must not hang what asks it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

MOST_BYTES = 16 << 20


class HangsError(Exception):
    """No answer within the time; the text says of what."""


class Tools:
    """The tools of this machine. Tests have others, of the same form."""

    def has(self, name: str) -> bool:
        """Whether it is installed."""
        return shutil.which(name) is not None

    def run(self, argv: Sequence[str], limit_s: float, at_home: bool = False) -> str:
        """What it printed, whatever its status. OSError where it cannot be started.

        `at_home`: in the folder where it is installed, for one that finds its own files from there.
        What hangs in the kernel does not even die: it is killed, and not waited for.
        """
        home = Path(shutil.which(argv[0]) or "/").resolve().parent if at_home else None
        with tempfile.TemporaryFile() as out:
            child = subprocess.Popen(  # deadline: below
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.DEVNULL,
                cwd=home,
                start_new_session=True,
            )
            try:
                child.wait(timeout=limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.returncode = -9  # or its end would be waited for
                raise HangsError(f"{argv[0]} does not answer within {limit_s:g} s")  # noqa: B904
            out.seek(0)
            said = out.read(MOST_BYTES + 1)
        if len(said) > MOST_BYTES:
            raise ValueError(f"{argv[0]} says more than {MOST_BYTES >> 20} MiB")
        return said.decode(errors="replace")


def within(limit_s: float, what: str, work: Callable[[], Any]) -> Any:
    """What some work returns. HangsError after so many seconds; its thread is left to itself."""
    found = []  # type: list[Any]
    failed = []  # type: list[Exception]

    def go() -> None:
        try:
            found.append(work())
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    thread.join(timeout=limit_s)
    if failed:
        raise failed[0]
    if not found:
        raise HangsError(f"{what}: no end within {limit_s:g} s")
    return found[0]
