"""A command on a host behind jump hosts, by OpenSSH itself, and what is said where one does not lead on."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from infra.declaration import ClusterSpec
from infra.errors import CausewayError
from infra.ground import login, ssh
from infra.ground.contract import Contract
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from infra.process import EndedError
from infra.providers.existing.resources import UNREACHED, ExistingPoolLifecycle

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
        return self.at in (FIRST, SECOND)


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


@pytest.mark.parametrize(
    ("jumps", "machine", "said"),
    [
        ([{"ssh_user": "eve"}], {}, f"jump host {FIRST}, .* does not let eve in: .*Permission denied"),
        ([{"host_key": OTHER_KEY}], {}, f"jump host {FIRST}, .* is not reached: Host key verif"),
        ([{"ssh_port": 1}], {}, f"jump host {FIRST}, .* is not reached: .*Connection refused"),
        ([{"ssh_port": "silent"}], {}, f"jump host {FIRST}, .* is not reached: .*timed out"),
        ([{}, {"address": SECOND, "ssh_user": "eve"}], {}, f"jump host {SECOND}, .* not let eve in: "),
        (
            [{}, {"address": SECOND, "ssh_port": 1}],
            {},
            f"jump host {FIRST}, .* does not reach jump host {SECOND}, port 1: connect failed",
        ),
        ([{"address": CLOSED}], {}, rf"jump host {CLOSED}, .* does not reach {HOST} \({MACHINE}\), port "),
        ([{}], {"ssh_port": 1}, rf"jump host {FIRST}, .* does not reach {HOST} \({MACHINE}\), port 1: "),
        ([{}], {"ssh_port": "silent", "address": FIRST}, f"jump host {FIRST}, .* does not lead on to {HOST}"),
    ],
)
def test_the_hop_that_fails_is_named(
    site: Site, silent: int, jumps: list[dict[str, Any]], machine: dict[str, Any], said: str
) -> None:
    for each in (*jumps, machine):
        if each.get("ssh_port") == "silent":
            each["ssh_port"] = silent
    way = [site.jump(**{"address": FIRST, **jump}) for jump in jumps]
    contract = site.stands(*way, **machine)
    with pytest.raises(CausewayError, match=said) as caught:
        login.on(contract, HOST, "says", timeout_s=20)
    assert f"on the way to {HOST}, " in caught.value.message


def test_up_says_of_a_machine_which_hop_is_in_its_way(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    machine = {"address": MACHINE, "port": float(site.port), "host_key": site.host_key}
    pool = {"stack": "s", "region": "hall", "pool": "row", "ssh_user": "root", "hosts": {"n0": machine}}
    jump = site.jump(FIRST, ssh_user="eve")
    made = {**pool, "ssh_key_file": str(site.folder / "key"), "access": {"ssh_jump": [jump]}}
    assert ExistingPoolLifecycle().ensure(made, {})["instances"]["n0"]["id"] == UNREACHED
    assert f"n0: no answer by SSH: jump host {FIRST}, on the way to" in capsys.readouterr().out
