"""One trip to a node: what is said of a program that does not do what it should."""

import asyncio
import errno
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import asyncssh
import pytest
from asyncssh.encryption import get_encryption_algs
from asyncssh.kex import get_kex_algs
from asyncssh.mac import get_mac_algs

from infra import ROOT
from infra.checks.load import load_spec
from infra.drift import trip
from infra.drift.answer import MOST_BYTES, most_bytes
from infra.drift.looks import TEXT_LIMIT_BYTES
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan


async def answer(ends: int | None, says: bytes = b"", most: int = 1000) -> tuple[bytes, bytes, int | None]:
    """What a trip brings from a node whose program ends at once with a status, or whose connection breaks."""
    key = asyncssh.generate_private_key("ssh-ed25519")

    class Open(asyncssh.SSHServer):
        def begin_auth(self, username: str) -> bool:  # noqa: ARG002 - asyncssh names it
            return False

    def program(process: "asyncssh.SSHServerProcess[bytes]") -> None:
        if ends is None:
            process.channel.get_connection().abort()
        else:
            process.stdout.write(says)
            process.exit(ends)

    server = await asyncssh.listen(
        "127.0.0.1", 0, server_factory=Open, server_host_keys=[key], process_factory=program, encoding=None
    )
    connection = await asyncssh.connect("127.0.0.1", server.get_port(), known_hosts=None, config=None)
    try:
        return await trip.execute(connection, "python3", b"x" * 100_000, 20, most)
    finally:
        connection.abort()
        server.close()


def test_a_program_that_ends_before_it_reads_tells_by_its_status_why() -> None:
    assert asyncio.run(answer(127)) == (b"", b"", 127)


def test_a_connection_that_breaks_is_no_program_that_failed() -> None:
    with pytest.raises(trip.TripError, match="the connection broke"):
        asyncio.run(answer(None))


def test_what_a_node_says_is_read_to_its_limit_and_no_further() -> None:
    assert asyncio.run(answer(0, b"x" * 999 + b"\n")) == (b"x" * 999 + b"\n", b"", None)
    with pytest.raises(trip.TripError, match="it said more than"):
        asyncio.run(answer(0, b"x" * 100_000, most=1000))


def test_an_answer_may_be_as_long_as_what_was_asked_for() -> None:
    few, many = ({"entries": [["file", "/x", {}, {}]] * number} for number in (1, 100))
    assert 100 * 2 * TEXT_LIMIT_BYTES < most_bytes(many) < MOST_BYTES
    assert most_bytes(few) < most_bytes(many)


NO_ROUTE, REFUSED = OSError(errno.EHOSTUNREACH, ""), ConnectionRefusedError(errno.ECONNREFUSED, "")


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        ([TimeoutError()], None),
        ([TimeoutError(), TimeoutError()], "twice"),
        ([OSError(errno.ENETUNREACH, "")], None),
        ([NO_ROUTE, TimeoutError()], None),
        ([NO_ROUTE, TimeoutError(), TimeoutError()], "twice"),
        ([NO_ROUTE, NO_ROUTE], "No route to host"),
        ([REFUSED], "Connection refused"),
    ],
)
def test_a_node_that_does_not_answer_is_asked_twice(
    monkeypatch: pytest.MonkeyPatch, fails: list[OSError], said: str | None
) -> None:
    left = list(fails)

    async def connect(*_: Any, **__: Any) -> Any:
        if left and isinstance(left[0], TimeoutError):
            left.pop(0)
            await asyncio.Event().wait()
        if left:
            raise left.pop(0)
        return "connected"

    monkeypatch.setattr(trip, "CONNECT_TIMEOUT_S", 0.01)
    monkeypatch.setattr(trip, "AGAIN_S", 0)
    monkeypatch.setattr(asyncssh, "connect", connect)
    monkeypatch.setattr(trip.Trips, "known_hosts", None)
    monkeypatch.setattr(trip.Trips, "keys", lambda *_: {})
    spec = load_spec(ROOT / "Pulumi.local.yaml")
    trips = trip.Trips(build_contract(spec, make_plan(spec), "local"))
    if said is None:
        opened: Any = asyncio.run(trips.open("tokyo-gpu-0"))
        assert opened == "connected"
    else:
        with pytest.raises(trip.TripError, match=said):
            asyncio.run(trips.open("tokyo-gpu-0"))
    assert left == []


@pytest.mark.parametrize(
    ("word", "ours", "known"),
    [
        ("kexalgorithms", "kex_algs", get_kex_algs),
        ("ciphers", "encryption_algs", get_encryption_algs),
        ("macs", "mac_algs", get_mac_algs),
    ],
)
def test_what_openssh_offers_is_offered(word: str, ours: str, known: Callable[[], list[bytes]]) -> None:
    """As far as asyncssh has it: who lets in ssh and Ansible lets in scans."""
    command = ("ssh", "-F", "none", "-G", "host.example.org")
    shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout
    said = dict(line.split(" ", 1) for line in shown.splitlines() if " " in line)
    here = {name.decode() for name in known()}
    assert {*said[word].split(",")} & here <= {*trip.offered()[ours]} <= here


def test_who_connects_to_nobody_does_not_load_asyncssh() -> None:
    """Its start is a fifth of theirs: it even runs a compiler, to look for libraries."""
    program = "import infra.commands.up, infra.components, sys; sys.exit('asyncssh' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, timeout=60).returncode == 0
