"""The session in which a host's checks run their commands."""

import os
import shlex
import signal
from collections.abc import Iterator

import pytest

from tests.verify.backend import READY, START, InSession
from tests.verify.side_by_side import Hung, deadline


class Here(InSession):
    """By a shell of this machine, as one on a node; its login greets."""

    NAME = "here"
    started = 0

    def way(self, command: str) -> str:
        self.started += 1
        return f"sh -c {shlex.quote(f'echo welcome; {command}')}"


@pytest.fixture
def node() -> Iterator[Here]:
    here = Here("n")
    yield here
    if here._session:
        here._session.close()


def test_what_is_said_comes_whole_and_apart(node: Here) -> None:
    done = node.run("printf 'a\\377\\n[1, 2]\\n'; printf %s >&2; exit 3", "it's $HOME")
    assert (done.rc, done.stdout_bytes, done.stderr) == (3, b"a\xff\n[1, 2]\n", "it's $HOME")
    assert node.run("head --bytes=3000000 /dev/zero").stdout_bytes == b"\0" * 3_000_000
    assert node.run("cat").stdout == "", "nothing is on its standard input"
    assert node.run("kill -9 $$").rc == 128 + signal.SIGKILL
    assert node.run("true").succeeded
    assert node.started == 1


def test_commands_get_the_environment_of_the_session(node: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LANG", "LC_ALL", "LC_CTYPE"):
        monkeypatch.delenv(name, raising=False)
    assert "LC_CTYPE" not in node.run("env").stdout, "as Python sets it for itself"


def test_a_deadline_ends_a_session_and_the_next_command_has_another(node: Here) -> None:
    with pytest.raises(Hung), deadline(0.5):
        node.run("sleep 60")
    assert node.run("echo on").stdout == "on\n"
    assert node.started == 2


def test_a_way_that_is_lost_is_said_and_tried_again(node: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="the way to the node is lost"):
        node.run("kill -9 $PPID")
    assert node.run("true").succeeded
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(RuntimeError, match="not found"):
        Here("n").run("true")


@pytest.mark.parametrize("half", ["[0, 2", "[0, 200, 0]\nhal"])
def test_half_an_answer_is_none(node: Here, monkeypatch: pytest.MonkeyPatch, half: str) -> None:
    said = f"echo {shlex.quote(READY.decode().strip())}; read -r _; printf %s {shlex.quote(half)}"
    monkeypatch.setattr(node, "way", lambda _: f"sh -c {shlex.quote(said)}")
    with pytest.raises(RuntimeError, match="the way to the node is lost"):
        node.run("true")


def test_a_process_that_was_forked_has_a_session_of_its_own(node: Here) -> None:
    first = node.run("echo $PPID").stdout
    read, write = os.pipe()
    if not (child := os.fork()):
        os.write(write, node.run("echo $PPID").stdout.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100).decode() != first
    assert node.run("echo $PPID").stdout == first


def test_what_starts_it_is_one_line() -> None:
    assert "\n" not in START
