"""Running other programs: the one place that starts a command and reads what it said."""

import os
import shlex
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from infra.errors import CausewayError

T = TypeVar("T")
STDERR_LINES = 5
"""How many of a failed command's last lines go into the error."""


class EndedError(CausewayError):
    """A program ended with another status than 0; `said` is what it complained of, else what it printed."""

    def __init__(self, message: str, hint: str, status: int, said: str) -> None:
        super().__init__(message, hint)
        self.status, self.said = status, said


def run(
    argv: Sequence[str],
    *,
    stdin: str = "",
    log: Path | None = None,
    timeout_s: float = 120,
    hint: str = "",
    env: Mapping[str, str] | None = None,
) -> str:
    """Run a command to its end and return its standard output.

    With `log`, both outputs go to that file instead and "" is returned: a daemon the command leaves behind
    must not hold a pipe to us. The command gets a session of its own, so a terminal's Ctrl-C ends us and not
    half of a change. Secrets go through `stdin`, never through `argv`. `env` is added to our environment.

    Raises CausewayError when the command is missing, fails (EndedError), or takes longer than `timeout_s`
    seconds.
    """
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as sink:
            done = _start(argv, stdin, sink.fileno(), timeout_s, hint, env or {})
        said = log.read_text(errors="replace")
    else:
        done = _start(argv, stdin, subprocess.PIPE, timeout_s, hint, env or {})
        said = done.stderr or done.stdout
    if done.returncode != 0:
        last = " / ".join(line.strip() for line in said.strip().splitlines()[-STDERR_LINES:])
        what = f"`{shlex.join(argv)}` ended with status {done.returncode}: {last or 'it said nothing'}"
        raise EndedError(what, hint, done.returncode, said)
    return done.stdout or ""


def _start(
    argv: Sequence[str], stdin: str, output: int, timeout_s: float, hint: str, env: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            list(argv),
            input=stdin,
            stdout=output,
            stderr=subprocess.PIPE if output == subprocess.PIPE else subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout_s,
            start_new_session=True,
            check=False,
            env=os.environ | env,
        )
    except FileNotFoundError:
        raise CausewayError(
            f"the program `{argv[0]}` is not installed", hint or "`./run up` installs what is missing"
        ) from None
    except subprocess.TimeoutExpired:
        raise CausewayError(f"`{shlex.join(argv)}` did not end within {timeout_s:g} s", hint) from None


def begun(work: Callable[[], T]) -> Future[T]:
    """Work in a thread that no program waits for at its end: an executor's threads are waited for, and Ctrl-C
    would take as long as a machine that does not answer."""
    future = Future[T]()

    def go() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=go, daemon=True).start()
    return future


def descendants(root: int) -> list[int]:
    """The PIDs of all processes below `root`, parents before children."""
    children: dict[int, list[int]] = {}
    for pid, parent, _command in processes():
        children.setdefault(parent, []).append(pid)
    found = list(children.get(root, []))
    for pid in found:
        found.extend(children.get(pid, []))
    return found


def processes() -> Iterator[tuple[int, int, str]]:
    """(PID, parent's PID, command) of every process that can be seen."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text(errors="replace")  # a program may call itself anything
        except OSError:  # it ended while we looked
            continue
        command, _, fields = text.partition("(")[2].rpartition(")")
        yield int(stat.parent.name), int(fields.split()[1]), command
