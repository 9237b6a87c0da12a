"""A verification that stands by for a repair ends with it, however that ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60
"""Python starts, and looks at its parent every second."""
PROGRAM = (
    "import sys; from infra.verify.verification import _told_by as told; "
    "print(*told(int(sys.argv[1])), sep='|')"
)
"""The lines that it was told, once it is told no more."""


def test_it_is_told_lines_until_nobody_holds_its_input() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(os.getpid())],
        cwd=ROOT,
        input=b"one\n[two]\nhalf",
        stdout=subprocess.PIPE,
        check=True,
        timeout=LIMIT_S,
    )
    assert done.stdout == b"one|[two]|half\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_its_parent_though_somebody_else_holds_its_input(number: signal.Signals) -> None:
    """As a worker does that Ansible has forked, and that hangs when Ansible is killed."""
    read, write = os.pipe()
    parent = subprocess.Popen(
        ["sh", "-c", 'exec 3<&0; "$0" -c "$1" $$ <&3 & echo $!; wait', sys.executable, PROGRAM],
        cwd=ROOT,
        stdin=read,
        stdout=subprocess.PIPE,
    )
    assert parent.stdout
    try:
        os.close(read)
        os.write(write, b"ready\n")
        assert int(parent.stdout.readline()) > 0
        parent.send_signal(number)
        # Its output closes once it has ended; it may have been told nothing yet.
        assert parent.communicate(timeout=LIMIT_S)[0] in (b"\n", b"ready\n")
    finally:
        os.close(write)
        parent.wait(LIMIT_S)
