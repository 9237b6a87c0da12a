"""Calling the real Pulumi CLI, and keeping two of them off one stack."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlparse

from infra import ROOT
from infra.errors import CausewayError
from infra.stack import check_stack

CAUSEWAY_DIR = ROOT / ".causeway"
SALT = "encryptionsalt:"
SECURE = "secure:"
"""Stands before each encrypted value of a stack's file."""
OTHERS_SALT = "incorrect passphrase"
"""What Pulumi says of it where it has no state."""


def pulumi(
    arguments: Sequence[str], *, quiet: bool = False, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `pulumi` in the checkout. Its output goes to the terminal, or with `quiet` into the result."""
    pipe = subprocess.PIPE if quiet else None
    try:
        process = subprocess.Popen(  # deadline: none, an update takes its time and a user's Ctrl-C ends it
            ["pulumi", *arguments],
            cwd=ROOT,
            text=True,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=pipe,
            stderr=pipe,
        )
    except FileNotFoundError:
        raise CausewayError(
            "the Pulumi CLI is not on the PATH", hint="start this through ./run, which sets it up"
        ) from None
    with interrupts_go_to(process, signal.SIGINT):
        said, complained = process.communicate(stdin)  # deadline: none, likewise
    return subprocess.CompletedProcess(process.args, process.returncode, said, complained)


@contextmanager
def interrupts_go_to(process: "subprocess.Popen[Any]", request: signal.Signals) -> Iterator[None]:
    """Let a program end in its own way: Pulumi finishes the step in hand and saves the state.

    A terminal's Ctrl-C reaches it directly; a SIGTERM meant for us is handed on as `request`.
    """
    handlers = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: process.send_signal(request)),
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def require(arguments: Sequence[str], *, stdin: str | None = None) -> str:
    """Standard output of a `pulumi` command that has to succeed; CausewayError with its last words."""
    done = pulumi([*arguments, "--non-interactive"], quiet=True, stdin=stdin)
    if done.returncode:
        raise CausewayError(f"`pulumi {' '.join(arguments)}` failed: {done.stderr.strip()}")
    return done.stdout


def stack_exists(stack: str) -> bool:
    """Whether the backend knows the stack."""
    return any(entry["name"] == stack for entry in json.loads(require(["stack", "ls", "--json"])))


def select_stack(stack: str, declaration: Path) -> None:
    """Select the stack, made if need be; of what Pulumi writes into the declaration only the salt stays.

    It rewrites the whole file to add that line: indentation and comments are the user's.
    """
    before = declaration.read_text()
    selecting = ["stack", "select", "--create", stack]
    done = pulumi([*selecting, "--non-interactive"], quiet=True)
    if OTHERS_SALT in (done.stderr or ""):
        _forget_others_salt(declaration)
        require(selecting)
    elif done.returncode:
        raise CausewayError(f"`pulumi {' '.join(selecting)}` failed: {done.stderr.strip()}")
    after = declaration.read_text()
    if after != before:
        lines = [line for line in after.splitlines() if line.startswith(SALT)]
        declaration.write_text("\n".join([without_salt(before).rstrip("\n"), *lines, ""]))


def _forget_others_salt(declaration: Path) -> None:
    """Take a salt out that somebody committed with the file, where nothing is encrypted with it."""
    text = declaration.read_text()
    if SECURE in text:
        raise CausewayError(
            f"{declaration.name}: its secrets are encrypted with another passphrase than ours",
            hint="give that one by PULUMI_CONFIG_PASSPHRASE_FILE; else ./run takes .causeway/passphrase",
        )
    declaration.write_text(without_salt(text))
    print(f"{declaration.name}: its encryptionsalt was of another passphrase, and is made anew")


def without_salt(text: str) -> str:
    """A stack's file without the line by which Pulumi encrypts the stack's secrets."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(SALT))


@contextmanager
def only_one(stack: str) -> Iterator[None]:
    """Hold the stack against a second `up` or `down`; CausewayError says who has it.

    The kernel lets go of the lock when its holder ends, also by `kill -9`. A lock of Pulumi's own that
    such a death left behind is lifted; one whose process still runs is respected, and so is one of another
    machine, of whose processes this one knows nothing.
    """
    path = CAUSEWAY_DIR / "locks" / check_stack(stack)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as lock:
        _take(lock, stack)
        _lift_stale_locks(stack)
        yield


def _take(lock: IO[str], stack: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        raise CausewayError(
            f"stack {stack} is being worked on by process {lock.read().strip() or 'unknown'}",
            hint="wait until it has ended, or end it; nothing was changed",
        ) from None
    lock.truncate(0)
    lock.write(f"{os.getpid()} since {time.strftime('%H:%M:%S')}\n")
    lock.flush()


def _lift_stale_locks(stack: str) -> None:
    for path in _pulumi_locks(stack):
        holder = json.loads(path.read_text())
        if (host := holder.get("hostname")) != socket.gethostname():
            raise CausewayError(
                f"stack {stack} is being worked on by pulumi on {host}, process {holder['pid']},"
                f" since {holder['timestamp']}",
                hint="wait until it has ended; when you know that it died there, or that this machine was"
                f" called so: ./run exec pulumi cancel --yes --stack {stack}",
            )
        if _runs_pulumi(int(holder["pid"])):
            raise CausewayError(
                f"stack {stack} is being worked on by pulumi, process {holder['pid']},"
                f" since {holder['timestamp']}",
                hint="wait until it has ended, or end it; nothing was changed",
            )
        path.unlink()


def _pulumi_locks(stack: str) -> list[Path]:
    """Lock files of a file backend; other backends look after their own."""
    backend = urlparse(os.environ.get("PULUMI_BACKEND_URL", ""))
    if backend.scheme != "file":
        return []
    return list((Path(unquote(backend.path)) / ".pulumi" / "locks").glob(f"**/{stack}/*.json"))


def _runs_pulumi(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "pulumi"
    except OSError:
        return False
