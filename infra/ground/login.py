"""A command on a host of the stack, by OpenSSH and the way that is declared; where a hop fails, which one.

Whoever asks a service on a node has a program on the node ask it: then what is declared for SSH (jump hosts,
agent, authority) is the only way there has to be, and no service needs to be reached from the controller.
"""

from collections.abc import Sequence
from pathlib import Path

from infra.errors import CausewayError, sentence
from infra.ground import ssh
from infra.ground.contract import Contract, JumpContract
from infra.ground.sudo import Become
from infra.process import EndedError, run

SSHS_OWN = 255
"""Status of an ssh that did not get in; a command may end with it, too."""
HOP_LIMIT_S = 2 * ssh.CONNECT_TIMEOUT_S
"""For one jump host to let us in and to connect to the next: its own two deadlines."""
BANNER = "SSH-"
"""What every SSH server says first (RFC 4253, section 4.2)."""
DENIED = "Permission denied"
NOT_ON = "open failed: "
"""OpenSSH's word for a channel to the next host that a server did not open; the reason follows."""


def by_ssh(stack: str, host: str, command: str, *, stdin: str = "", timeout_s: float) -> str:
    """What a command of a shell's printed on a host, as the user who logs in. CausewayError as of `run`."""
    return run(
        ["ssh", "-F", str(ssh.ssh_config_file(stack)), host, command], stdin=stdin, timeout_s=timeout_s
    )


def on(contract: Contract, host: str, command: str, *, stdin: str = "", timeout_s: float) -> str:
    """The same on a host of the contract.

    CausewayError when it failed, took longer, or the host was not reached: then with the jump host at fault.
    """
    try:
        return by_ssh(contract.stack, host, command, stdin=stdin, timeout_s=timeout_s)
    except CausewayError as error:
        if isinstance(error, EndedError) and error.status != SSHS_OWN:
            raise
        region, node = contract.region_of(host), contract.hosts[host]
        jumps = contract.regions[region].ssh_jump
        config = ssh.ssh_config_file(contract.stack)
        if lost := lost_at(config, region, jumps, (host, str(node.address), node.ssh_port)):
            raise CausewayError(lost) from None
        raise


def as_root(contract: Contract, host: str, command: str, *, stdin: str = "", timeout_s: float) -> str:
    """The same as root; sudo's password, where it asks for one, is tried by one host alone first."""
    becoming = Become.on(contract, host)

    def ask(words: str, text: str) -> str:
        return on(contract, host, words, stdin=text, timeout_s=timeout_s)

    if complaint := becoming.prove(ask):
        raise CausewayError(becoming.in_words(complaint))
    try:
        return ask(becoming.command(command), becoming.ahead + stdin)
    except CausewayError as error:
        raise CausewayError(becoming.refusal(error.message) or error.message, error.hint) from None


def lost_at(config: Path, region: str, jumps: Sequence[JumpContract], machine: tuple[str, str, int]) -> str:
    """The first jump host that does not lead on, and why; empty where each one does.

    `config` has their blocks (`Way.blocks`) by the name `region`; `machine`: its name, address and port. Each
    is asked to connect to the next only: where a command or a terminal is refused, that is still allowed.
    """
    if not jumps:
        return ""
    stops = [(f"jump host {jump.address}", jump.address, jump.ssh_port) for jump in jumps[1:]]
    for number, (jump, onward) in enumerate(zip(jumps, [*stops, machine], strict=True)):
        if why := _not_on(config, ssh.jump_name(region, number), jump, onward):
            return sentence(f"jump host {jump.address}, on the way to {machine[0]}, {why}")
    return ""


def _not_on(config: Path, name: str, jump: JumpContract, onward: tuple[str, str, int]) -> str:
    called, address, port = onward
    where = called if address in called else f"{called} ({address})"
    # A connection that commands share may be an old one, to a host that would let nobody in any more.
    options = ("-o", "ControlPath=none", "-o", "LogLevel=INFO")  # at which it says why a channel is not open
    words = ["ssh", "-F", str(config), *options, "-W", f"[{address}]:{port}", name]
    try:
        if run(words, timeout_s=HOP_LIMIT_S).startswith(BANNER):
            return ""
    except EndedError as error:
        lines = error.said.strip().splitlines() or ["it said nothing"]
        if DENIED in lines[-1]:
            return f"does not let {jump.ssh_user} in: {lines[-1]}"
        if not_open := [line for line in lines if NOT_ON in line]:
            return f"does not reach {where}, port {port}: {not_open[0].split(NOT_ON, 1)[1]}"
        return f"is not reached: {lines[-1]}"
    except CausewayError:
        return f"does not lead on to {where} within {HOP_LIMIT_S} s"
    return f"reaches no SSH server at {where}, port {port}"
