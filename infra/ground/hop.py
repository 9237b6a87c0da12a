"""What is said of a jump host that does not lead on: which one, on the way to whom, why, and what to do.

OpenSSH and asyncssh fail in words of their own; whoever connects by either says it by this.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from infra.ground import ssh
from infra.ground.contract import Contract, JumpContract

PROHIBITED = "administratively prohibited"
"""OpenSSH's words for a channel that a server's settings do not allow (RFC 4254, section 5.1)."""
ITS_KEY = "/etc/ssh/ssh_host_ed25519_key.pub"


@dataclass(frozen=True)
class Stop:
    """Where a jump host leads to next: another one, or the machine."""

    name: str
    address: str
    port: int

    def __str__(self) -> str:
        where = self.name if self.address in self.name else f"{self.name} ({self.address})"
        return f"{where}, port {self.port}"


@dataclass(frozen=True)
class Hop:
    """One jump host on the way to a machine."""

    jump: JumpContract
    onward: Stop
    machine: str
    key_file: str

    def denied(self) -> str:
        """It does not let the user in."""
        user = self.jump.ssh_user
        hand_out = ssh.to_hand_out(user, self.key_file) or f"give ~{user} there a key of the agent's"
        return self._in_words(f"does not let {user} in", hand_out)

    def other_key(self) -> str:
        """It has another host key than the declared one."""
        do = f"compare `host_key` of this `ssh_jump` with {ITS_KEY} on its console"
        return self._in_words("has another host key than the declared one", do)

    def unreached(self, said: str) -> str:
        """There is no connection to it."""
        do = f"see whether it is up, and sshd there listens at port {self.jump.ssh_port}"
        return self._in_words(f"is not reached: {said}", do)

    def not_on(self, said: str) -> str:
        """It opens no connection to the next."""
        if PROHIBITED in said:
            do = "sshd there has to allow it: AllowTcpForwarding, PermitOpen, options in authorized_keys"
        else:
            do = f"see whether that is up, and lets {self.jump.address} connect"
        return self._in_words(f"does not reach {self.onward}: {said}", do)

    def silent(self, limit: str) -> str:
        """What it leads to says nothing."""
        do = f"see whether that is up, and lets {self.jump.address} connect"
        return self._in_words(f"does not lead on to {self.onward}, within {limit}", do)

    def no_server(self) -> str:
        """What it leads to is no SSH server."""
        return self._in_words(f"reaches no SSH server at {self.onward}", "see what listens there")

    def _in_words(self, what: str, do: str) -> str:
        return f"jump host {self.jump.address}, on the way to {self.machine}, {what}; {do}"


def hops(jumps: Sequence[JumpContract], machine: Stop, key_file: str) -> list[Hop]:
    """The jump hosts of a way, the first one first."""
    stops = [Stop(f"jump host {jump.address}", jump.address, jump.ssh_port) for jump in jumps[1:]]
    return [
        Hop(jump, onward, machine.name, key_file)
        for jump, onward in zip(jumps, [*stops, machine][: len(jumps)], strict=True)
    ]


def hops_to(contract: Contract, host: str) -> list[Hop]:
    """The same for a host of a contract."""
    region, node = contract.regions[contract.region_of(host)], contract.hosts[host]
    machine = Stop(host, str(node.address), node.ssh_port)
    return hops(region.ssh_jump, machine, region.ssh_private_key_file)
