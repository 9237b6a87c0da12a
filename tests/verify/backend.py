"""Testinfra's way by SSH to hosts whose sudo asks for a password, which comes by standard input."""

import subprocess
from collections.abc import Iterable
from typing import ClassVar

import testinfra.backend
from testinfra.backend.base import CommandResult
from testinfra.backend.ssh import SshBackend

from infra.ground.sudo import Become
from infra.verify.expectations import Expectation


class SudoBackend(SshBackend):  # type: ignore[misc] # testinfra has no types
    """Commands as root; the password was tried when the connection was opened (infra.verify.verification)."""

    ways: ClassVar[dict[str, Become]] = {}
    """Host → how commands become root there, of those that want a password."""

    def get_command(self, command: str, *args: str) -> str:
        """The command for the host's shell; nothing secret is in it."""
        if self.host.name not in self.ways:
            return str(super().get_command(command, *args))
        shell = self.quote("/bin/sh -c %s", self.quote(command, *args))
        return self.ways[self.host.name].command(shell, proven=True)

    def run_local(self, command: str, *args: str) -> CommandResult:
        """ssh, on this machine."""
        if self.host.name not in self.ways:
            return super().run_local(command, *args)
        argv = self.encode(self.quote(command, *args))
        ahead = self.ways[self.host.name].ahead.encode()
        done = subprocess.run(argv, shell=True, input=ahead, capture_output=True)  # noqa: S602 - as testinfra does; deadline: the check's own
        return self.result(done.returncode, argv, done.stdout, done.stderr)


def install(hosts: Iterable[Expectation]) -> None:
    """Have Testinfra go by this way to the hosts that need it."""
    SudoBackend.ways = {host.host: host.becoming for host in hosts if host.becoming.source}
    if SudoBackend.ways:
        testinfra.backend.BACKENDS["ssh"] = f"{__name__}.{SudoBackend.__name__}"
