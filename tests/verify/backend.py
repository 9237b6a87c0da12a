"""Testinfra's ways to a node, by SSH and into a container: one session for all commands of a host.

Testinfra's own start a client for each command, and the node a shell for it, which costs more than nearly
all that is asked, and two round trips where the node is far away.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterable
from typing import ClassVar

import testinfra.backend
from testinfra.backend.base import BaseBackend, CommandResult
from testinfra.backend.podman import PodmanBackend
from testinfra.backend.ssh import SshBackend

from infra.ground.sudo import Become
from infra.verify.expectations import Expectation

READY = b"causeway: ready\n"
# On the node: a command a line, as JSON; its status, and how long what it said is, then that. It gets the
# session's environment as it was: Python has its own idea of a locale, and would hand it on.
SERVER = f"""
import json, os, subprocess, sys
environment = dict(
    one.split(b"=", 1) for one in open("/proc/self/environ", "rb").read().split(b"\\0") if b"=" in one
)
told, say = sys.stdin.buffer, sys.stdout.buffer
say.write({READY!r})
say.flush()
for line in iter(told.readline, b""):
    done = subprocess.run(
        ["/bin/sh", "-c", json.loads(line)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
    )
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode
    say.write(json.dumps([status, len(done.stdout), len(done.stderr)]).encode() + b"\\n")
    say.write(done.stdout + done.stderr)
    say.flush()
"""
START = f"exec({SERVER!r})"
"""In one line, which every login shell takes."""


class Session:
    """What runs commands on a node, one after the other. RuntimeError where the way there is lost."""

    def __init__(self, command: str, ahead: str) -> None:
        """COMMAND starts `SERVER`, by a shell; AHEAD goes to its standard input first."""
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the session
        self._process = subprocess.Popen(  # deadline: the check's own
            ["/bin/sh", "-c", f"exec {command}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
        )
        assert self._process.stdin
        assert self._process.stdout
        self._tell, self._said = self._process.stdin, self._process.stdout
        try:
            self._send(ahead.encode())
            while (line := self._said.readline()) != READY:  # a login shell may greet
                if not line:
                    raise self._lost()
        except BaseException:
            self.close()
            raise

    @property
    def lasts(self) -> bool:
        """Whether it is there, as our own child. After a fork it is not, nor once a deadline has ended it."""
        return self._process.poll() is None

    def run(self, command: str) -> tuple[int, bytes, bytes]:
        """A command's status, and what it said."""
        try:
            self._send(json.dumps(command).encode() + b"\n")
            return self._answer()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End it, whatever it waits for."""
        self._process.kill()
        self._process.wait()  # deadline: it was killed

    def _send(self, data: bytes) -> None:
        try:
            self._tell.write(data)
            self._tell.flush()
        except BrokenPipeError:
            raise self._lost() from None

    def _answer(self) -> tuple[int, bytes, bytes]:
        """What `SERVER` says of a command, all of it: half of it would be taken for what a command said."""
        if (head := self._said.readline()).endswith(b"\n"):
            status, *lengths = json.loads(head)
            said, complained = (self._said.read(length) for length in lengths)
            if [len(said), len(complained)] == lengths:
                return status, said, complained
        raise self._lost()

    def _lost(self) -> RuntimeError:
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").strip().splitlines()
        return RuntimeError(f"the way to the node is lost: {(lines or ['it said nothing'])[-1]}")


class InSession(BaseBackend):  # type: ignore[misc] # testinfra has no types
    """A backend with one session for all commands of its host."""

    _session: Session | None = None

    def way(self, command: str) -> str:
        """The words for a shell of this machine that run a command on the host."""
        raise NotImplementedError

    def ahead(self) -> str:
        """What the command gets on its standard input before its own."""
        return ""

    def run(self, command: str, *args: str, **_: object) -> CommandResult:
        """A command's result; `%s` in it are arguments, which are quoted."""
        words = self.quote(command, *args)
        if self._session is None or not self._session.lasts:
            self._session = Session(self.way(self.get_command("python3 -c %s", START)), self.ahead())
        status, said, complained = self._session.run(words)
        return self.result(status, words.encode(), said, complained)


class ByPodman(InSession, PodmanBackend):  # type: ignore[misc] # likewise
    """Into a container."""

    def way(self, command: str) -> str:
        """By a shell, whose quoting `get_command` counts on."""
        user = self.quote("--user %s ", self.user) if self.user else ""
        return f"podman exec --interactive {user}{self.quote('%s /bin/sh -c %s', self.name, command)}"


class BySsh(InSession, SshBackend):  # type: ignore[misc] # likewise
    """To hosts also whose sudo asks for a password; it was tried before (infra.verify.verification)."""

    passwords: ClassVar[dict[str, Become]] = {}
    """Host → how commands become root there, of those that want a password."""

    def way(self, command: str) -> str:
        """With the options that Testinfra takes."""
        words, values = self._build_ssh_command(command)
        return str(self.quote(" ".join(words), *values))

    def get_command(self, command: str, *args: str) -> str:
        """The command for the host's shell; nothing secret is in it."""
        if self.host.name not in self.passwords:
            return str(super().get_command(command, *args))
        shell = self.quote("/bin/sh -c %s", self.quote(command, *args))
        return self.passwords[self.host.name].command(shell, proven=True)

    def ahead(self) -> str:
        """The password, where one is wanted."""
        way = self.passwords.get(self.host.name)
        return way.ahead if way else ""


def install(hosts: Iterable[Expectation]) -> None:
    """Have Testinfra go by these ways."""
    BySsh.passwords = {host.host: host.becoming for host in hosts if host.becoming.source}
    for way in (BySsh, ByPodman):
        testinfra.backend.BACKENDS[way.NAME] = f"{__name__}.{way.__name__}"
