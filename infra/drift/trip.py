"""One SSH trip to a node: send the probe with its request, read one line of JSON.

Host keys are checked against the stack's known hosts. Controller CPU is dominated by the key exchange, so the
quickest algorithms that every OpenSSH since 7.0 has stand first, and all others that its client offers after.
"""

from __future__ import annotations  # a type is no use that would load asyncssh

import asyncio
import errno
import os
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra import ROOT
from infra.drift.answer import MOST_BYTES, most_bytes, read_answer
from infra.drift.assembly import PYTHON, script
from infra.errors import CausewayError, sentence, why
from infra.ground import ssh, sudo
from infra.ground.contract import Contract, RegionContract, load_contract
from infra.ground.hop import PROHIBITED, Hop, hops_to
from infra.stack import contract_file

if TYPE_CHECKING:
    import asyncssh
else:

    class _Late:
        """asyncssh, loaded by its first use: a fifth of the start of `up`, and of Pulumi's program."""

        def __getattr__(self, name: str) -> Any:
            return getattr(import_module("asyncssh"), name)

    asyncssh = _Late()

CONNECT_TIMEOUT_S = 10
NO_WAY = (errno.EHOSTUNREACH, errno.ENETUNREACH)
AGAIN_S = 2
"""A link that fails over, or a neighbour that is asked for again, takes a moment."""
COMPILED = "/var/lib/causeway/compiled"
"""Where a seal keeps its probe on the node: for root only."""
ANSWER_LIMIT_S = 80
"""Longest for all looks of a request together: on an emulated machine beside others they take half of it."""
BEGINNING_BYTES = 80
NOT_FOUND = 127
"""A shell's exit status for a command that is not there."""
ALGORITHMS = {
    "kex": """curve25519-sha256 curve25519-sha256@libssh.org ecdh-sha2-nistp256 ecdh-sha2-nistp384
        ecdh-sha2-nistp521 mlkem768x25519-sha256 sntrup761x25519-sha512 sntrup761x25519-sha512@openssh.com
        diffie-hellman-group14-sha256 diffie-hellman-group16-sha512 diffie-hellman-group18-sha512
        diffie-hellman-group-exchange-sha256""",
    "encryption": """aes128-gcm@openssh.com aes128-ctr aes256-gcm@openssh.com aes256-ctr aes192-ctr
        chacha20-poly1305@openssh.com""",
    "mac": """hmac-sha2-256 hmac-sha2-256-etm@openssh.com hmac-sha2-512 hmac-sha2-512-etm@openssh.com
        umac-128-etm@openssh.com umac-64-etm@openssh.com umac-128@openssh.com umac-64@openssh.com
        hmac-sha1 hmac-sha1-etm@openssh.com""",
}
"""What OpenSSH's client offers; what costs least comes first."""


@cache
def offered() -> dict[str, list[str]]:
    """The algorithms that asyncssh has: for a few it needs libraries that not every machine has."""
    found = {"compression_algs": ["none"]}
    for kind, names in ALGORITHMS.items():
        known = {*getattr(import_module(f"asyncssh.{kind}"), f"get_{kind}_algs")()}
        found[f"{kind}_algs"] = [name for name in names.split() if name.encode() in known]
    return found


class TripError(Exception):
    """A node did not answer as it should; the text says how. `reached`: it could be logged in to."""

    def __init__(self, message: str, reached: bool) -> None:
        super().__init__(sentence(message))
        self.reached = reached


class Trips:
    """Connections to the nodes of one stack; the keys are read once.

    Whoever may be asked for a password is asked before (`infra.ground.sudo.ready`), not between answers.
    `declared`: the text of known hosts, for a stack that has no such file yet.
    """

    def __init__(self, contract: Contract, declared: str | None = None) -> None:
        self.contract, self.declared = contract, declared
        self.tunnels: dict[tuple[str, int], _Tunnel] = {}

    @cached_property
    def known_hosts(self) -> asyncssh.SSHKnownHosts:
        """The host keys of all nodes that have one. CausewayError when there is no such file."""
        path = ROOT / self.contract.known_hosts_file
        try:
            text = path.read_text(errors="replace") if self.declared is None else self.declared
            lines = text.splitlines()
            # One line without a key, and asyncssh would read none.
            return asyncssh.import_known_hosts("\n".join(line for line in lines if len(line.split()) > 2))
        except (OSError, ValueError) as error:
            raise CausewayError(f"no known hosts: {error}", hint="./run up writes them") from None

    def keys(self, region: RegionContract) -> dict[str, Any]:
        """Which keys are shown to a region's machines, as asyncssh has it. CausewayError without any."""
        file = region.ssh_private_key_file
        if not region.ssh_agent:
            return {"client_keys": _keypairs(str(ssh.key_path(file))), "agent_path": None}
        socket = ssh.agent_socket()
        if socket is None:
            hint = "start one and load the key (ssh-add); through sudo ./run keeps it"
            raise CausewayError("no SSH agent answers: SSH_AUTH_SOCK is not set", hint=hint)
        chosen = [f"{ssh.key_path(file)}.pub"] if file else None
        return {"client_keys": (), "agent_path": socket, "agent_identities": chosen}

    async def open(self, host: str) -> asyncssh.SSHClientConnection:
        """A connection to a host of the contract, tried twice. TripError when it cannot be had."""
        region = self.contract.regions[self.contract.region_of(host)]
        try:
            with suppress(TimeoutError):
                return await self._connect(host)
            return await self._connect(host)
        except _LostError as lost:
            raise TripError(_in_words(hops_to(self.contract, host), lost), reached=False) from None
        except asyncssh.HostKeyNotVerifiable as error:
            raise TripError(f"its host key is not the known one ({error})", reached=False) from None
        except asyncssh.PermissionDenied:
            out = ssh.to_hand_out(region.ssh_user, region.ssh_private_key_file)
            key = "a key of the agent's" if region.ssh_agent else "the stack's key"
            refused = f"it does not let {region.ssh_user} in with {key}"
            raise TripError(f"{refused}; {out}" if out else refused, False) from None
        except TimeoutError:
            limit, way = f"{CONNECT_TIMEOUT_S} s, twice", hops_to(self.contract, host)
            said = way[-1].silent(limit) if way else f"no answer within {limit}"
            raise TripError(said, reached=False) from None
        except OSError as error:
            said = os.strerror(error.errno) if error.errno else str(error)
            raise TripError(f"{said}{self._authority_alone(host, error)}", reached=False) from None
        except asyncssh.Error as error:
            said = error.reason or type(error).__name__
            raise TripError(f"{said}{self._authority_alone(host, error)}", reached=False) from None

    def _authority_alone(self, host: str, error: Exception) -> str:
        """A machine that has no certificate says nothing: it closes or resets the connection, as it comes."""
        if not isinstance(error, ConnectionResetError | asyncssh.Error):
            return ""
        node = self.contract.hosts[host]
        keys, authorities, *_ = self.known_hosts.match(str(node.address), "", node.ssh_port)
        return (
            "; its host key has to be signed by the region's ssh_host_ca" if authorities and not keys else ""
        )

    async def _connect(self, host: str) -> asyncssh.SSHClientConnection:
        node = self.contract.hosts[host]
        name = self.contract.region_of(host)
        region = self.contract.regions[name]
        jumps = len(region.ssh_jump)
        through = await self._tunnel(name, jumps)
        login = self._login(str(node.address), node.ssh_port, region.ssh_user, region, through)
        try:
            return await asyncio.wait_for(login, CONNECT_TIMEOUT_S)
        except asyncssh.ChannelOpenError as error:
            raise _LostError(jumps, error) from None

    async def _tunnel(self, name: str, jumps: int) -> asyncssh.SSHClientConnection | None:
        """The one connection to a region's jump host number `jumps` that all trips share; None for 0.

        _LostError where it cannot be had: for all who waited as well, or each would wait as long again.
        """
        if not jumps:
            return None
        tunnel = self.tunnels.setdefault((name, jumps), _Tunnel())
        before = tunnel.lost
        async with tunnel.lock:
            if tunnel.lost and tunnel.lost is not before:
                raise tunnel.lost
            if tunnel.connection is None or tunnel.connection.is_closed():
                try:
                    tunnel.connection, tunnel.lost = await self._to_jump_host(name, jumps), None
                except _LostError as lost:
                    tunnel.lost = lost
                    raise
        return tunnel.connection

    async def _to_jump_host(self, name: str, jumps: int) -> asyncssh.SSHClientConnection:
        region = self.contract.regions[name]
        jump = region.ssh_jump[jumps - 1]
        through = await self._tunnel(name, jumps - 1)
        login = self._login(jump.address, jump.ssh_port, jump.ssh_user, region, through)
        try:
            return await asyncio.wait_for(login, CONNECT_TIMEOUT_S)
        except (OSError, asyncssh.Error) as error:
            raise _LostError(jumps - 1, error) from None

    async def _login(
        self,
        address: str,
        port: int,
        user: str,
        region: RegionContract,
        through: asyncssh.SSHClientConnection | None,
    ) -> asyncssh.SSHClientConnection:
        """Connect to a node or a jump host; once more where there was no way to it for a moment."""
        connect = partial(
            asyncssh.connect,
            address,
            port,
            tunnel=through,
            username=user,
            **self.keys(region),
            known_hosts=self.known_hosts,
            config=None,
            gss_host=None,
            preferred_auth="publickey",
            keepalive_interval=0,
            **offered(),
        )
        try:
            return await connect()
        except OSError as error:
            if error.errno not in NO_WAY:
                raise
        await asyncio.sleep(AGAIN_S)
        return await connect()

    def as_root(self, host: str, command: str) -> str:
        """The command as root. What it reads has to follow `ahead`, and that `require_sudo`."""
        return self.becoming(host).command(command)

    def becoming(self, host: str) -> sudo.Become:
        """How commands become root on a host."""
        return sudo.Become.on(self.contract, host)

    def ahead(self, host: str) -> bytes:
        """What goes to a command of root's before what it reads."""
        return self.becoming(host).ahead.encode()

    async def prove(self, connection: asyncssh.SSHClientConnection, host: str) -> str:
        """Before `ahead`: try a password here alone, unless that is done; sudo's complaint, or nothing."""
        becoming = self.becoming(host)
        with closing(becoming.turns()) as turns:
            for is_mine in turns:
                if is_mine:
                    data = becoming.ahead.encode()
                    said, _, _ = await execute(connection, becoming.trial, data, sudo.TRIAL_LIMIT_S)
                    return becoming.learn(said.decode(errors="replace"))
                await asyncio.sleep(sudo.TURN_S)
        return ""

    async def require_sudo(self, connection: asyncssh.SSHClientConnection, host: str) -> None:
        """The same. TripError where sudo complains."""
        if complaint := await self.prove(connection, host):
            raise TripError(self.becoming(host).in_words(complaint), reached=True)

    def cause(self, host: str, complaint: bytes) -> str | None:
        """Why a command did not run as root, by sudo or its own last words; None where it said none."""
        text = complaint.decode(errors="replace").strip()
        return self.becoming(host).refusal(text) or next(iter(text.splitlines()[-1:]), None)

    async def ask(
        self, connection: asyncssh.SSHClientConnection, host: str, request: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Run the probe and return its answer. TripError when there is none."""
        await self.require_sudo(connection, host)
        command = self.as_root(host, PYTHON)
        data = self.ahead(host) + script(request, kept=COMPILED)
        most = most_bytes(request)
        said, complaint, status = await execute(connection, command, data, ANSWER_LIMIT_S, most)
        if not said and status == NOT_FOUND:
            raise TripError("it has no python3: install it there", reached=True)
        if not said:
            cause = self.cause(host, complaint) or f"exit status {status}"
            raise TripError(f"the probe did not run: {cause}", reached=True)
        try:
            return read_answer(said, request)
        except ValueError as error:
            raise nonsense("the probe's answer", said, error) from None


def nonsense(what: str, said: bytes, error: ValueError) -> TripError:
    """What came in place of an answer, which is JSON: often words that a login prints before any command."""
    beginning = said[:BEGINNING_BYTES].decode(errors="replace").strip()
    text = f"{what} makes no sense: {error}; it begins with “{beginning}”"
    if not said.lstrip().startswith(b"{"):
        text += ": let nothing but the command print there (~/.bashrc, the login's shell, ForceCommand)"
    return TripError(text, reached=True)


class _LostError(Exception):
    """The way ended: at the `passed`th jump host, which did not open a connection, or behind that one."""

    def __init__(self, passed: int, cause: Exception) -> None:
        super().__init__(passed, cause)
        self.passed, self.cause = passed, cause


@dataclass
class _Tunnel:
    """The connection to one jump host, and what became of the last attempt to have it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: asyncssh.SSHClientConnection | None = None
    lost: _LostError | None = None


def _in_words(way: Sequence[Hop], lost: _LostError) -> str:
    """Which jump host it was, from what asyncssh says: one that leads on to nothing, or the next one."""
    error = lost.cause
    if isinstance(error, asyncssh.ChannelOpenError):
        prohibited = error.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED
        return way[lost.passed - 1].not_on(
            f"{PROHIBITED if prohibited else 'connect failed'}: {error.reason}"
        )
    if isinstance(error, TimeoutError) and lost.passed:
        return way[lost.passed - 1].silent(f"{CONNECT_TIMEOUT_S} s")
    hop = way[lost.passed]
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return hop.other_key()
    if isinstance(error, asyncssh.PermissionDenied):
        return hop.denied()
    if isinstance(error, TimeoutError):
        return hop.unreached(f"no answer within {CONNECT_TIMEOUT_S} s")
    number = error.errno if isinstance(error, OSError) else None
    return hop.unreached(os.strerror(number) if number else str(error))


async def failure_of(trip: Awaitable[None], limit_s: float) -> TripError | None:
    """Await what is done with one node; what went wrong, whatever it was: the others are not to suffer."""
    try:
        async with asyncio.timeout(limit_s):
            await trip
    except TripError as error:
        return error
    except TimeoutError:
        return TripError(f"not through after {limit_s:g} s", reached=True)
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) and task.cancelling():
            raise
        return TripError("its connection was given up in the middle", reached=True)  # by a library
    except Exception as error:
        return TripError(why(error), reached=True)
    return None


def login_of(stack: str, host: str) -> tuple[str, str]:
    """The user that logs in to a host, and the key's fingerprint. CausewayError when it cannot be read."""
    return login_by(load_contract(contract_file(stack)), host)


def login_by(contract: Contract, host: str) -> tuple[str, str]:
    """The same, by a contract."""
    region = contract.regions[contract.region_of(host)]
    if not region.ssh_private_key_file:
        return region.ssh_user, ""  # any key of the agent's: nobody knows which will be taken next time
    return region.ssh_user, _fingerprint(ssh.key_path(region.ssh_private_key_file))


async def execute(
    connection: asyncssh.SSHClientConnection,
    command: str,
    data: bytes,
    limit_s: float,
    most: int = MOST_BYTES,
) -> tuple[bytes, bytes, int | None]:
    """A command's output, complaint and exit status. TripError when it takes too long or says too much."""
    try:
        async with asyncio.timeout(limit_s):
            process = await connection.create_process(command, encoding=None)
            with suppress(OSError):  # it may have ended already, for want of a Python: its status says so
                process.stdin.write(data)
                process.stdin.write_eof()
            said = bytearray()
            while not said.endswith(b"\n") and (more := await process.stdout.read(1 << 18)):
                said += more  # one line is all: a process whose look hangs in the kernel does not end
                if len(said) > most:
                    raise TripError(f"it said more than {most >> 20} MiB", reached=True)
            if said:
                return bytes(said), b"", None
            complaint = await process.stderr.read(1 << 16)
            await process.wait_closed()
            if process.exit_status is None and not process.exit_signal:
                raise TripError("the connection broke", reached=True)
            return b"", complaint, process.exit_status
    except TimeoutError:
        raise TripError(f"logged in, then no answer within {limit_s:g} s", reached=True) from None
    except (OSError, asyncssh.Error) as error:
        raise TripError(f"the connection broke: {error}", reached=True) from None


@cache
def _fingerprint(path: Path) -> str:
    public = path.with_name(f"{path.name}.pub")
    if not path.exists() and public.exists():  # the agent has the private half
        return str(asyncssh.read_public_key(public).get_fingerprint())
    try:
        return str(asyncssh.read_private_key(path).get_fingerprint())
    except (OSError, ValueError) as error:
        raise CausewayError(f"the key {path} cannot be used: {error}", hint="./run up writes it") from None


@cache
def _keypairs(path: str) -> Sequence[asyncssh.SSHKeyPair]:
    """A key, and with its certificate where `KEY-cert.pub` lies beside it; read once."""
    try:
        return asyncssh.load_keypairs(path)
    except (OSError, ValueError) as error:
        raise CausewayError(f"the key {path} cannot be used: {error}", hint="./run up writes it") from None
