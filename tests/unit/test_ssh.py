"""SSH as the only way to a node: the key, the known hosts, and what OpenSSH makes of the ssh_config."""

import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from infra import stack
from infra.components import access_key, inventory_files
from infra.components.access_key import SshKeyLifecycle
from infra.components.inventory_files import InventoryLifecycle
from infra.declaration import ClusterSpec
from infra.drift import trip
from infra.ground import ssh
from infra.ground.contract import Contract, JumpContract
from infra.inventory.groups import inventory_data
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from infra.verify.expectations import ssh_options

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG1pbmltYWwta2V5LWZvci10aGUtdGVzdC1vbmx5LTEy"


@pytest.fixture
def contract() -> Contract:
    host = {"address": "10.93.0.5", "ssh_port": 2222, "host_key": KEY}
    pool = {"name": "control", "role": "control", "count": 1}
    spec = ClusterSpec.model_validate(
        {
            "name": "pacific",
            "regions": [
                {"name": "tokyo", "cidr": "10.91.0.0/16", "pools": [pool]},
                {
                    "name": "old",
                    "provider": {"kind": "existing", "ssh_user": "admin", "ssh_key_file": "/keys/old"},
                    "cidr": "10.93.0.0/16",
                    "pools": [{**pool, "hosts": [host]}],
                },
            ],
        }
    )
    return build_contract(spec, make_plan(spec), "unit")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (access_key, inventory_files, ssh, stack):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    return tmp_path


def effective(config: Path, host: str) -> dict[str, str]:
    """The settings OpenSSH uses for a host."""
    said = subprocess.run(
        ["ssh", "-G", "-F", config, host], check=True, text=True, capture_output=True
    ).stdout
    return dict(line.split(" ", 1) for line in said.splitlines() if " " in line)


def test_openssh_checks_the_host_key_of_every_host(contract: Contract, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(ssh.ssh_config(contract))
    for host in contract.hosts:
        found = effective(config, host)
        assert found["stricthostkeychecking"] in ("true", "yes")
        assert found["userknownhostsfile"].endswith(".causeway/stacks/unit/ssh/known_hosts")
        assert found["batchmode"] == "yes", "no question may hang a run"
        assert found["hostname"] == str(contract.hosts[host].address)
    assert effective(config, "old-control-0")["user"] == "admin"
    assert effective(config, "old-control-0")["port"] == "2222"
    assert effective(config, "old-control-0")["identityfile"] == "/keys/old"
    assert effective(config, "tokyo-control-0")["identityfile"].endswith("stacks/unit/ssh/id_ed25519")


def test_openssh_finds_every_host_key_also_behind_another_port(contract: Contract, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(ssh.known_hosts(contract, dict.fromkeys(contract.hosts, KEY)))
    for where in ("10.91.16.0", "[10.93.0.5]:2222"):
        found = subprocess.run(["ssh-keygen", "-F", where, "-f", known], capture_output=True, text=True)
        assert KEY in found.stdout, where


def behind(contract: Contract) -> Contract:
    """The machine behind two jump hosts, with a key of the agent's."""
    first = JumpContract(address="bastion.example.org", ssh_port=2222, ssh_user="eve", host_key=KEY)
    jumps = (first, JumpContract(address="10.93.0.1", ssh_port=22, ssh_user="admin", host_key=KEY))
    old = contract.regions["old"].model_copy(
        update={"ssh_jump": jumps, "ssh_agent": True, "ssh_private_key_file": ""}
    )
    return contract.model_copy(update={"regions": {**contract.regions, "old": old}})


def test_openssh_goes_through_each_jump_host_with_its_own_user_and_known_key(
    contract: Contract, tmp_path: Path
) -> None:
    there = behind(contract)
    config = tmp_path / "config"
    config.write_text(ssh.ssh_config(there))
    found = effective(config, "old-control-0")
    assert (found["proxyjump"], found["identitiesonly"]) == ("causeway_jump_old_1", "no")
    second, first = (effective(config, f"causeway_jump_old_{number}") for number in (1, 0))
    assert (second["proxyjump"], second["hostname"]) == ("causeway_jump_old_0", "10.93.0.1")
    assert "proxyjump" not in first
    assert (first["hostname"], first["port"], first["user"]) == ("bastion.example.org", "2222", "eve")
    assert "proxyjump" not in effective(config, "tokyo-control-0")
    known = ssh.known_hosts(there, dict.fromkeys(contract.hosts, KEY))
    assert f"[bastion.example.org]:2222 {KEY}\n" in known


def test_ansible_and_the_verification_go_the_same_way(contract: Contract, tmp_path: Path) -> None:
    """A ProxyCommand has spaces, and its quotes would be its own."""
    there = behind(contract)
    variables = inventory_data(there, tmp_path)["region_old"]["vars"]
    assert "ansible_ssh_private_key_file" not in variables
    options = ssh_options({**variables, "inventory_hostname": "old-control-0"})
    config = tmp_path / "config"
    config.write_text(ssh.config_text({"old-control-0": options}, tmp_path / "c"))
    found = effective(config, "old-control-0")
    stacks = ssh.ssh_config_file("unit")
    assert found["proxycommand"] == f"ssh -F {stacks} -W [%h]:%p causeway_jump_old_1"
    assert (found["identitiesonly"], found["stricthostkeychecking"]) == ("no", "true")


def test_an_authority_stands_for_a_hosts_key(contract: Contract, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(ssh.known_hosts(contract, {"old-control-0": ssh.signed_by(f"{KEY} its name")}))
    assert known.read_text() == f"@cert-authority [10.93.0.5]:2222 {KEY}\n"
    found = subprocess.run(
        ["ssh-keygen", "-F", "[10.93.0.5]:2222", "-f", known], capture_output=True, text=True
    )
    assert "CA" in found.stdout


def test_what_has_to_be_handed_out_is_the_public_half_alone(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(ssh.new_key())
    public = ssh.public_key(key.read_text())
    assert ssh.to_hand_out("ada", str(key)).endswith(f"to ~ada/.ssh/authorized_keys there: {public}")
    key.with_name("key.pub").write_text(f"{KEY} ada@desk and more\n")
    assert ssh.to_hand_out("ada", str(key)).endswith(f": {KEY} ada@desk")
    key.with_name("key.pub").write_text(key.read_text())
    assert ssh.to_hand_out("ada", str(key)) == ssh.to_hand_out("ada", "") == ""


def test_a_host_whose_key_is_unknown_is_not_listed(contract: Contract) -> None:
    assert ssh.known_hosts(contract, {}).strip() == ""


def test_a_key_is_made_once_and_only_its_owner_reads_it(checkout: Path) -> None:
    made = SshKeyLifecycle().ensure({"stack": "unit"}, {})
    path = checkout / ".causeway/stacks/unit/ssh/id_ed25519"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SshKeyLifecycle().ensure({"stack": "unit"}, {}) == made, "a killed create is adopted"
    assert made["private_key"].startswith("-----BEGIN OPENSSH PRIVATE KEY-----")


def test_a_controller_that_lost_its_files_gets_them_back_from_the_state(checkout: Path) -> None:
    state = {"stack": "unit", **SshKeyLifecycle().ensure({"stack": "unit"}, {})}
    path = checkout / ".causeway/stacks/unit/ssh/id_ed25519"
    for restore in (lambda: SshKeyLifecycle().ensure({"stack": "unit"}, state), lambda: _observe(state)):
        SshKeyLifecycle().remove(state)
        assert not path.exists()
        restore()
        assert path.read_text() == state["private_key"]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        derived = subprocess.run(["ssh-keygen", "-y", "-f", path], check=True, capture_output=True, text=True)
        assert derived.stdout.split()[:2] == path.with_suffix(".pub").read_text().split()[:2]


PAST = {
    "empty": b"",
    "half": b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbm",
    "binary": bytes(range(256)),
}


@pytest.mark.parametrize("name", ["id_ed25519", "id_ed25519.pub"])
@pytest.mark.parametrize("text", [*PAST.values(), b"foreign"], ids=[*PAST, "foreign"])
def test_a_key_that_is_not_the_states_is_named_and_written_again(
    checkout: Path, name: str, text: bytes
) -> None:
    """Half a file of a killed run, or another key that somebody put there."""
    state = {"stack": "unit", **SshKeyLifecycle().ensure({"stack": "unit"}, {})}
    folder = checkout / ".causeway/stacks/unit/ssh"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / name).write_bytes(ssh.new_key().encode() if text == b"foreign" else text)
    (said,) = SshKeyLifecycle().observe(state)
    assert said == f".causeway/stacks/unit/ssh/{name} is not what the state holds"
    made = SshKeyLifecycle().ensure({"stack": "unit"}, state)
    assert {"stack": "unit", **made} == state, "nothing foreign gets into the state"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert _observe(state) == []


@pytest.mark.parametrize("text", PAST.values(), ids=PAST)
def test_half_a_key_of_a_killed_create_is_none(checkout: Path, text: bytes) -> None:
    path = checkout / ".causeway/stacks/unit/ssh/id_ed25519"
    path.parent.mkdir(parents=True)
    path.write_bytes(text)
    made = SshKeyLifecycle().ensure({"stack": "unit"}, {})
    derived = subprocess.run(["ssh-keygen", "-y", "-f", path], check=True, capture_output=True, text=True)
    assert derived.stdout.split()[:2] == made["public_key"].split()[:2]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def _observe(state: dict[str, Any]) -> Any:
    return SshKeyLifecycle().observe(state)


def test_the_inventorys_files_are_seen_when_they_change_and_gone_when_removed(
    checkout: Path, contract: Contract
) -> None:
    inputs = {"contract": contract.model_dump(mode="json"), "host_keys": dict.fromkeys(contract.hosts, KEY)}
    lifecycle = InventoryLifecycle()
    lifecycle.ensure(inputs, {})
    assert lifecycle.observe(inputs) == []
    known = checkout / contract.known_hosts_file
    known.write_text("")
    assert lifecycle.observe(inputs) == [f"{contract.known_hosts_file} is not what `up` wrote"]
    lifecycle.remove(inputs)
    assert not list((checkout / ".causeway").rglob("*.json"))
    assert not (checkout / "inventories" / "unit").exists(), "`up` made it, so `down` takes it away"


def test_what_a_user_put_beside_the_inventory_stays(checkout: Path, contract: Contract) -> None:
    inputs = {"contract": contract.model_dump(mode="json"), "host_keys": {}}
    mine = checkout / "inventories" / "unit" / "causeway.yml"
    mine.parent.mkdir(parents=True)
    mine.write_text("plugin: causeway\nstack: unit\n")
    InventoryLifecycle().ensure(inputs, {})
    InventoryLifecycle().remove(inputs)
    assert mine.read_text() == "plugin: causeway\nstack: unit\n"


def test_what_another_version_wrote_is_drift_and_can_be_removed(checkout: Path, contract: Contract) -> None:
    inputs = {"contract": contract.model_dump(mode="json"), "host_keys": dict.fromkeys(contract.hosts, KEY)}
    lifecycle = InventoryLifecycle()
    lifecycle.ensure(inputs, {})
    del inputs["contract"]["waves"]
    assert lifecycle.observe(inputs) == ["the contract was written by another version of Causeway"]
    lifecycle.remove(inputs)
    assert not [path for path in (checkout / ".causeway").rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "odd", ["", " ", "ssh-ed25519", "ssh-ed25519 ", f"{KEY[:11]}\n10.93.0.5 {KEY}", "\x1b[2J x", "[ [", "# a"]
)
def test_a_host_without_a_usable_key_is_named_and_shuts_no_other_out(
    contract: Contract, checkout: Path, monkeypatch: pytest.MonkeyPatch, odd: str
) -> None:
    text = ssh.known_hosts(contract, {"tokyo-control-0": odd, "old-control-0": f"{KEY} a comment"})
    assert set(text.splitlines()) == {"# tokyo-control-0 has no host key", f"[10.93.0.5]:2222 {KEY}"}
    monkeypatch.setattr(trip, "ROOT", checkout)
    file = checkout / contract.known_hosts_file
    file.parent.mkdir(parents=True)
    for kept in (text, f"10.91.16.0 {odd.split(chr(10))[0]}\n{text}"):  # one that an older version wrote
        file.write_text(kept)
        found = trip.Trips(contract).known_hosts.match("10.93.0.5", "", 2222)
        assert [key.export_public_key().decode().strip() for key in found[0]] == [KEY]
