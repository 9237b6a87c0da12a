"""A command on a host of the stack, by OpenSSH and the way that is declared; where a hop fails, which one.

Whoever asks a service on a node has a program on the node ask it: then what is declared for SSH (jump hosts,
agent, authority) is the only way there has to be, and no service needs to be reached from the controller.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from infra.errors import CausewayError, sentence
from infra.ground import ssh
from infra.ground.contract import Contract
from infra.ground.hop import Hop, hops_to
from infra.ground.sudo import Become
from infra.process import EndedError, run

SSHS_OWN = 255
"""Status of an ssh that did not get in; a command may end with it, too."""
HOP_LIMIT_S = 2 * ssh.CONNECT_TIMEOUT_S
"""For one jump host to let us in and to connect to the next: its own two deadlines."""
BANNER = "SSH-"
"""What every SSH server says first (RFC 4253, section 4.2)."""
DENIED = "Permission denied"
OTHER_KEY = "Host key verification failed"
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
        if lost := hop_at_fault(contract, host):
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


def hop_at_fault(contract: Contract, host: str) -> str:
    """What is said of the jump host that does not lead on to a host; empty where each one does."""
    return lost_at(ssh.ssh_config_file(contract.stack), contract.region_of(host), hops_to(contract, host))


def lost_at(config: Path, region: str, way: Sequence[Hop]) -> str:
    """What is said of the first jump host that does not lead on; empty where each one does.

    `config` has their blocks (`Way.blocks`) by the name `region`. Each is asked to connect to the next only:
    where a command or a terminal is refused, that is still allowed.
    """
    names = [ssh.jump_name(region, number) for number in range(len(way))]
    found = next(filter(None, (_fault_of(config, *step) for step in zip(names, way, strict=True))), "")
    for name in names:
        _share_no_more(config, name)
    return sentence(found)


def _share_no_more(config: Path, name: str) -> None:
    """Have the next command connect anew: a connection may only do what was allowed when it was opened."""
    with suppress(CausewayError):  # where none is shared
        run(["ssh", "-F", str(config), "-O", "stop", name], timeout_s=HOP_LIMIT_S)


def _fault_of(config: Path, name: str, hop: Hop) -> str:
    # A connection that commands share may be an old one, to a host that would let nobody in any more.
    options = ("-o", "ControlPath=none", "-o", "LogLevel=INFO")  # at which it says why a channel is not open
    words = ["ssh", "-F", str(config), *options, "-W", f"[{hop.onward.address}]:{hop.onward.port}", name]
    try:
        return "" if run(words, timeout_s=HOP_LIMIT_S).startswith(BANNER) else hop.no_server()
    except EndedError as error:
        return _in_words(hop, error.said.strip().splitlines() or ["it said nothing"])
    except CausewayError:
        return hop.silent(f"{HOP_LIMIT_S} s")


def _in_words(hop: Hop, said: Sequence[str]) -> str:
    """What OpenSSH's lines say of a jump host."""
    if not_open := [line for line in said if NOT_ON in line]:
        return hop.not_on(not_open[0].split(NOT_ON, 1)[1])
    if DENIED in said[-1]:
        return hop.denied()
    return hop.other_key() if OTHER_KEY in said[-1] else hop.unreached(said[-1])
