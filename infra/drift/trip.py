"""One SSH trip to a node: send the probe with its request, read one line of JSON.

Host keys are checked against the stack's known hosts. Controller CPU is dominated by the key exchange, so the
quickest algorithms that every OpenSSH since 7.0 offers stand first.
"""

import ast
import asyncio
import marshal
import os
import shlex
import zlib
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import asyncssh

from infra import ROOT
from infra.drift.answer import MOST_BYTES, most_bytes, read_answer
from infra.drift.looks import KINDS
from infra.errors import CausewayError, sentence, why
from infra.ground.contract import Contract, load_contract
from infra.stack import stack_dir

CONNECT_TIMEOUT_S = 10
PROBE_LIMIT_S = 20
NOT_FOUND = 127
"""A shell's exit status for a command that is not there."""
# Reads the probe and its request from standard input: Python is slow in parsing long literals.
BOOTSTRAP = (
    "import os,zlib,marshal;d=os.fdopen(0,'rb').read();n=int.from_bytes(d[:4],'big');"
    "exec(zlib.decompress(d[4:n+4]));serve(*marshal.loads(zlib.decompress(d[n+4:])))"
)
PYTHON = f"python3 -ISBc {shlex.quote(BOOTSTRAP)}"
ALGORITHMS: Mapping[str, Any] = {
    "kex_algs": ["curve25519-sha256", "ecdh-sha2-nistp256", "diffie-hellman-group14-sha256"],
    "encryption_algs": ["aes128-gcm@openssh.com", "aes128-ctr", "aes256-ctr"],
    "mac_algs": ["hmac-sha2-256"],
    "compression_algs": ["none"],
}


class TripError(Exception):
    """A node did not answer as it should; the text says how. `reached`: it could be logged in to."""

    def __init__(self, message: str, reached: bool) -> None:
        super().__init__(sentence(message))
        self.reached = reached


@cache
def probe_source(kinds: frozenset[str] | None = None) -> str:
    """The probe as one file; with `kinds`, as it travels through ssh: to look at these and no others."""
    folder, names = ROOT / "infra" / "drift", ("node.py", "looks.py", "probe.py")
    modules = [ast.parse((folder / name).read_text()) for name in names]
    bodies = [statement for module in modules for statement in module.body if not _is_ours(statement)]
    whole = _Bare().visit(ast.Module(bodies, []))
    return ast.unparse(whole if kinds is None else _Reached(whole, kinds).visit(whole))


def _is_ours(statement: ast.stmt) -> bool:
    """Imports that make no sense on a node."""
    return isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith(
        ("infra", "__future__")
    )


class _Bare(ast.NodeTransformer):
    """Leaves out docstrings and annotations: a node compiles what it gets at every scan."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.returns = None
        for argument in node.args.args:
            argument.annotation = None
        node.body = [s for s in node.body if not _is_docstring(s)] or [ast.Pass()]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.generic_visit(node)
        node.body = [s for s in node.body if not _is_docstring(s)]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        assert node.value is not None  # noqa: S101 - the probe declares nothing without a value
        return ast.copy_location(ast.Assign([node.target], node.value), node)


class _Reached(ast.NodeTransformer):
    """Leaves out functions that nothing on the way from `serve` to the looks at these kinds names."""

    def __init__(self, whole: ast.Module, kinds: frozenset[str]) -> None:
        functions = {node.name: node for node in ast.walk(whole) if isinstance(node, ast.FunctionDef)}
        self.looks = {kind: KINDS[kind].__name__ for kind in sorted(kinds) if kind in KINDS}
        self.names, todo = {"__init__"}, {"serve", *self.looks.values()}
        while todo:
            self.names |= todo
            parts = [part for name in todo if name in functions for part in ast.walk(functions[name])]
            todo = {str(getattr(part, "id", getattr(part, "attr", ""))) for part in parts} - self.names

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        return node if node.name in self.names else None

    def visit_If(self, _node: ast.If) -> None:
        """Outside of functions: what is for the type checker, and for the call by the timer."""

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if ast.unparse(node.targets[0]) != "KINDS":
            return node
        pairs = ", ".join(f"{kind!r}: Look.{look}" for kind, look in self.looks.items())
        return ast.parse(f"KINDS = {{{pairs}}}").body[0]


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


@cache
def _packed_probe(kinds: frozenset[str]) -> bytes:
    packed = zlib.compress(probe_source(kinds).encode(), 9)
    return len(packed).to_bytes(4, "big") + packed


def script(request: Mapping[str, Any], limit_s: int = PROBE_LIMIT_S) -> bytes:
    """What `PYTHON` on the node reads: the probe and its request; marshal 2 is alike in every Python 3."""
    kinds = frozenset(entry[0] for entry in request["entries"])
    return _packed_probe(kinds) + zlib.compress(marshal.dumps((dict(request), limit_s), 2), 1)


class Trips:
    """Connections to the nodes of one stack; the keys are read once."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract

    @cached_property
    def known_hosts(self) -> asyncssh.SSHKnownHosts:
        """The host keys of all nodes that have one. CausewayError when there is no such file."""
        path = ROOT / self.contract.known_hosts_file
        try:
            lines = path.read_text(errors="replace").splitlines()
            # One line without a key, and asyncssh would read none.
            return asyncssh.import_known_hosts("\n".join(line for line in lines if len(line.split()) > 2))
        except (OSError, ValueError) as error:
            raise CausewayError(f"no known hosts: {error}", hint="./run up writes them") from None

    def key(self, file: str) -> asyncssh.SSHKey:
        """A private key, read once. CausewayError when it cannot be."""
        return _key(str(ROOT / Path(file).expanduser()))

    async def open(self, host: str) -> asyncssh.SSHClientConnection:
        """A connection to a host of the contract. TripError when it cannot be had."""
        node = self.contract.hosts[host]
        region = self.contract.regions[self.contract.region_of(host)]
        try:
            return await asyncio.wait_for(
                asyncssh.connect(
                    str(node.address),
                    node.ssh_port,
                    username=region.ssh_user,
                    client_keys=[self.key(region.ssh_private_key_file)],
                    known_hosts=self.known_hosts,
                    config=None,
                    agent_path=None,
                    gss_host=None,
                    preferred_auth="publickey",
                    keepalive_interval=0,
                    **ALGORITHMS,
                ),
                CONNECT_TIMEOUT_S,
            )
        except asyncssh.HostKeyNotVerifiable as error:
            raise TripError(f"its host key is not the known one ({error})", reached=False) from None
        except asyncssh.PermissionDenied:
            raise TripError(f"it does not let {region.ssh_user} in with the stack's key", False) from None
        except TimeoutError:
            raise TripError(f"no answer within {CONNECT_TIMEOUT_S} s", reached=False) from None
        except OSError as error:
            raise TripError(os.strerror(error.errno) if error.errno else str(error), reached=False) from None
        except asyncssh.Error as error:
            raise TripError(error.reason or type(error).__name__, reached=False) from None

    def as_root(self, host: str, command: str) -> str:
        """The command, through sudo where the login is not root."""
        user = self.contract.regions[self.contract.region_of(host)].ssh_user
        return command if user == "root" else f"sudo -n {command}"

    async def ask(
        self, connection: asyncssh.SSHClientConnection, host: str, request: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Run the probe and return its answer. TripError when there is none."""
        command = self.as_root(host, PYTHON)
        said, complaint, status = await execute(
            connection, command, script(request), PROBE_LIMIT_S + 10, most_bytes(request)
        )
        if not said and status == NOT_FOUND:
            raise TripError("it has no python3: install it there", reached=True)
        if not said:
            cause = complaint.decode(errors="replace").strip().splitlines()[-1:] or [f"exit status {status}"]
            raise TripError(f"the probe did not run: {cause[0]}", reached=True)
        try:
            return read_answer(said, request)
        except ValueError as error:
            beginning = said[:80].decode(errors="replace").strip()
            nonsense = f"the probe's answer makes no sense: {error}; it begins with “{beginning}”"
            raise TripError(nonsense, reached=True) from None


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


def login_fingerprint(stack: str, host: str) -> str:
    """The fingerprint of the key that logs in to a host. CausewayError when the key cannot be read."""
    contract = load_contract(ROOT / stack_dir(stack) / "contract.json")
    region = contract.regions[contract.region_of(host)]
    return str(Trips(contract).key(region.ssh_private_key_file).get_fingerprint())


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
def _key(path: str) -> asyncssh.SSHKey:
    try:
        return asyncssh.read_private_key(path)
    except (OSError, ValueError) as error:
        raise CausewayError(f"the key {path} cannot be used: {error}", hint="./run up writes it") from None
