"""A command on a host behind jump hosts, by OpenSSH itself, and what is said where one does not lead on."""

import asyncio
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from infra import stack
from infra.declaration import ClusterSpec
from infra.drift import trip
from infra.drift.trip import TripError, Trips
from infra.errors import CausewayError
from infra.ground import login, ssh
from infra.ground.contract import Contract
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from infra.process import EndedError
from infra.providers.existing.resources import UNREACHED, ExistingPoolLifecycle
from infra.stack import contract_file
from infra.verify.expectations import Expectation, Expectations
from infra.verify.verdicts import Verdict
from infra.verify.verification import Checking

FIRST, SECOND, CLOSED, MACHINE = (f"127.0.0.{number}" for number in range(2, 6))
"""Two jump hosts, one that leads nowhere, and the machine: servers at one port."""
OTHER_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG1pbmltYWwta2V5LWZvci10aGUtdGVzdC1vbmx5LTEy"
HOST = "hall-control-0"


class Server(asyncssh.SSHServer):
    """Lets root in without a question, and nobody else."""

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self.at = conn.get_extra_info("sockname")[0]

    def begin_auth(self, username: str) -> bool:
        return username != "root"

    def public_key_auth_supported(self) -> bool:
        return True

    def connection_requested(self, *_from_and_to: Any) -> bool:
        if self.at in (FIRST, SECOND):
            return True
        raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, "open failed")


async def _answer(process: "asyncssh.SSHServerProcess[str]") -> None:
    if process.get_extra_info("sockname")[0] != MACHINE:
        process.exit(1)  # as a jump host on which nobody may run anything
        return
    process.stdout.write(f"{process.command}, given {await process.stdin.read()}")
    process.exit(3 if process.command == "fails" else 0)


@dataclass(frozen=True)
class Site:
    """Where the servers listen, with whose key, and the folder of the stack."""

    port: int
    host_key: str
    folder: Path

    def jump(self, address: str, **other: Any) -> dict[str, Any]:
        return {"address": address, "ssh_port": self.port, "host_key": self.host_key, **other}

    def stands(self, *jumps: dict[str, Any], **machine: Any) -> Contract:
        """A stack of the machine behind these jump hosts, as ssh reads it."""
        host = {"address": MACHINE, "ssh_port": self.port, "host_key": self.host_key, **machine}
        pool = {"name": "control", "role": "control", "count": 1, "hosts": [host]}
        provider = {"kind": "existing", "ssh_key_file": str(self.folder / "key"), "ssh_jump": jumps}
        region = {"name": "hall", "provider": provider, "cidr": "127.0.0.0/8", "pools": [pool]}
        spec = ClusterSpec.model_validate({"name": "c", "regions": [region]})
        contract = build_contract(spec, make_plan(spec), "unit")
        known, config = self.folder / contract.known_hosts_file, ssh.ssh_config_file("unit")
        known.parent.mkdir(parents=True, exist_ok=True)
        known.write_text(ssh.known_hosts(contract, {HOST: self.host_key}))
        contract_file("unit").write_text(contract.model_dump_json())
        # A connection that outlives the test would be left behind.
        config.write_text(ssh.ssh_config(contract).replace("ControlMaster auto", "ControlMaster no"))
        return contract


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[int, str]]:
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    loop = asyncio.new_event_loop()

    async def listen() -> int:
        options: dict[str, Any] = {
            "server_host_keys": [host_key],
            "server_factory": Server,
            "process_factory": _answer,
        }
        port = int((await asyncssh.listen(FIRST, 0, **options)).get_port())
        for address in (SECOND, CLOSED, MACHINE):
            await asyncssh.listen(address, port, **options)
        return port

    port = loop.run_until_complete(listen())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield port, " ".join(host_key.export_public_key().decode().split()[:2])
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


@pytest.fixture
def site(served: tuple[int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(ssh, "ROOT", tmp_path)
    monkeypatch.setattr(ssh, "CONNECT_TIMEOUT_S", 1)
    monkeypatch.setattr(login, "HOP_LIMIT_S", 3)
    monkeypatch.setattr(trip, "ROOT", tmp_path)
    monkeypatch.setattr(trip, "CONNECT_TIMEOUT_S", 1)
    monkeypatch.setattr(stack, "ROOT", tmp_path)
    (tmp_path / "key").write_text(ssh.new_key())
    (tmp_path / "key").chmod(0o600)
    return Site(*served, tmp_path)


@pytest.fixture(scope="module")
def silent() -> Iterator[int]:
    """The port of a server that takes connections and says nothing."""
    with socket.create_server((FIRST, 0)) as listening:
        yield listening.getsockname()[1]


@pytest.mark.parametrize("through", [(), (FIRST,), (FIRST, SECOND)])
def test_a_command_goes_by_all_jump_hosts_and_what_fails_there_is_its_own(
    site: Site, through: tuple[str, ...]
) -> None:
    contract = site.stands(*map(site.jump, through))
    assert login.on(contract, HOST, "says 'a  b'", stdin="this", timeout_s=20) == "says 'a  b', given this"
    with pytest.raises(EndedError, match="fails` ended with status 3"):
        login.on(contract, HOST, "fails", timeout_s=20)


FAULTS: tuple[tuple[list[dict[str, Any]], dict[str, Any], str], ...] = (
    ([{"ssh_user": "eve"}], {}, f"jump host {FIRST}, .* does not let eve in; hand this line out, to ~eve/"),
    ([{"host_key": OTHER_KEY}], {}, f"jump host {FIRST}, .* has another host key than the declared one; com"),
    ([{"ssh_port": 1}], {}, f"jump host {FIRST}, .* is not reached: .*Connection refused; see whether it is"),
    ([{"ssh_port": "silent"}], {}, f"jump host {FIRST}, .* is not reached: .*(timed out|no answer)"),
    ([{}, {"address": SECOND, "ssh_user": "eve"}], {}, f"jump host {SECOND}, .* not let eve in; "),
    ([{}, {"address": SECOND, "host_key": OTHER_KEY}], {}, f"jump host {SECOND}, .* has another host key"),
    (
        [{}, {"address": SECOND, "ssh_port": 1}],
        {},
        f"jump host {FIRST}, .* does not reach jump host {SECOND}, port 1: .*; see whether that is up, and",
    ),
    (
        [{"address": CLOSED}],
        {},
        rf"jump host {CLOSED}, .* does not reach {HOST} \({MACHINE}\), port .*prohibited.*; sshd there has",
    ),
    ([{}], {"ssh_port": 1}, rf"jump host {FIRST}, .* does not reach {HOST} \({MACHINE}\), port 1: "),
    ([{}], {"ssh_port": "silent", "address": FIRST}, f"jump host {FIRST}, .* does not lead on to {HOST}"),
)  # fmt: skip


def by_command(contract: Contract) -> str:
    """What `status`, `logs` and `wan measure` say."""
    with pytest.raises(CausewayError) as caught:
        login.on(contract, HOST, "says", timeout_s=20)
    return caught.value.message


def by_trip(contract: Contract) -> str:
    """What scans and `doctor` say."""

    async def open_it() -> None:
        await Trips(contract).open(HOST)

    with pytest.raises(TripError) as caught:
        asyncio.run(open_it())
    return str(caught.value)


def by_verification(contract: Contract) -> str:
    region = contract.regions["hall"]
    way, known = ssh.Way.to(region), str(ssh.ssh_config_file("unit").with_name("known_hosts"))
    options = {"HostName": MACHINE, "Port": str(contract.hosts[HOST].ssh_port), "User": region.ssh_user}
    options |= {"UserKnownHostsFile": known, **way.keys(), **way.command("unit", "hall")}
    host = Expectation(HOST, (), {}, "ssh", MACHINE, options, False, "unit")
    with Checking(Expectations((host,), {})) as checking:
        (check,) = checking.look().checks
    assert check.verdict == Verdict.UNREACHABLE
    return check.message


@pytest.mark.parametrize("said_by", [by_command, by_trip, by_verification])
@pytest.mark.parametrize(("jumps", "machine", "said"), FAULTS)
def test_whoever_connects_names_the_hop_that_fails_and_what_to_do(
    site: Site,
    silent: int,
    jumps: list[dict[str, Any]],
    machine: dict[str, Any],
    said: str,
    said_by: Callable[[Contract], str],
) -> None:
    ways = [{"address": FIRST, **jump} for jump in jumps]
    parts: list[dict[str, Any]] = [
        {key: silent if value == "silent" else value for key, value in part.items()}
        for part in (*ways, machine)
    ]
    *way, end = parts
    found = said_by(site.stands(*(site.jump(**jump) for jump in way), **end))
    assert re.search(said, found)
    assert f"on the way to {HOST}, " in found


def test_a_jump_host_that_fails_is_tried_once_for_all_who_wait(
    site: Site, silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract, tried = site.stands(site.jump(FIRST, ssh_port=silent)), []
    connect = asyncssh.connect

    async def count(*words: Any, **options: Any) -> Any:
        tried.append(words)
        return await connect(*words, **options)

    monkeypatch.setattr(asyncssh, "connect", count)

    async def many() -> list[Any]:
        trips = Trips(contract)
        return await asyncio.gather(*(trips.open(HOST) for _ in range(20)), return_exceptions=True)

    assert {type(error) for error in asyncio.run(many())} == {TripError}
    assert tried == [(FIRST, silent)]


def test_up_says_of_a_machine_which_hop_is_in_its_way(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    machine = {"address": MACHINE, "port": float(site.port), "host_key": site.host_key}
    pool = {"stack": "s", "region": "hall", "pool": "row", "ssh_user": "root", "hosts": {"n0": machine}}
    jump = site.jump(FIRST, ssh_user="eve")
    made = {**pool, "ssh_key_file": str(site.folder / "key"), "access": {"ssh_jump": [jump]}}
    assert ExistingPoolLifecycle().ensure(made, {})["instances"]["n0"]["id"] == UNREACHED
    assert f"n0: no answer by SSH: jump host {FIRST}, on the way to" in capsys.readouterr().out
