"""What `down` leaves of a stack whose machines were there before it, and finds again."""

import json
from pathlib import Path
from typing import Any

import pytest

from infra import pulumi_cli, stack
from infra.components import access_key, inventory_files, kept, secret
from infra.drift import manifest
from infra.files import value_hash
from infra.ground import secrets

PROJECT = "name: causeway\nruntime: python\n"
DECLARED = {
    "pools": {"hall-control": {"region": "hall"}, "tokyo-gpu": {"region": "tokyo"}},
    "regions": {"hall": {"provider": "existing"}, "tokyo": {"provider": "local"}},
    "hosts": {
        "hall-control-0": {"pool": "hall-control", "address": "10.9.1.0"},
        "tokyo-gpu-0": {"pool": "tokyo-gpu", "address": "10.8.1.0"},
    },
}
STAYS = {"hall-control-0": DECLARED["hosts"]["hall-control-0"]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the stack `s`, in a checkout and with a backend of this test's own."""
    for module in (kept, stack, manifest, access_key, inventory_files, secret, pulumi_cli):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    for module in (kept, pulumi_cli):
        monkeypatch.setattr(module, "CAUSEWAY_DIR", tmp_path / ".causeway")
    (tmp_path / "state").mkdir()
    (tmp_path / "Pulumi.yaml").write_text(PROJECT)
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/state")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "of this test")
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE_FILE", raising=False)
    monkeypatch.setenv("USER", "somebody")
    return tmp_path / ".causeway" / "stacks" / "s"


def fill(folder: Path, declared: dict[str, Any]) -> dict[str, str]:
    """A folder as `up` leaves it; returns what is in its files."""
    files = {
        "contract.json": json.dumps(declared),
        "secrets/consul-ca": "the key",
        "ssh/id_ed25519": "another key",
        "drift/hall-control-0.json": "{}",
        "drift/tokyo-gpu-0.json": "{}",
        "drift/texts/0a": "a text",
        "runs/hall/artifacts/1/stdout": "a log",
        "converged/hall-control-0": "a hash",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return files


def files_of(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_what_machines_need_outlives_a_destroy_and_the_rest_does_not(folder: Path) -> None:
    files = fill(folder, DECLARED)
    assert kept.machines("s") == STAYS
    with kept.out_of_the_way("s"):
        assert not folder.exists(), "a resource that is deleted finds nothing to delete"
    kept.leave_only_what_they_need("s", STAYS)
    gone = ("drift/tokyo-gpu-0.json", "runs/hall/artifacts/1/stdout", "converged/hall-control-0")
    assert files_of(folder) == {name: text for name, text in files.items() if name not in gone}
    assert kept.machines("s") == STAYS, "a second `down` finds them, too"


def test_machines_stay_by_what_their_provider_is_and_not_by_its_name(folder: Path) -> None:
    regions = {
        "hall": {"provider": "of tomorrow", "makes_nodes": False},
        "tokyo": {"provider": "another", "makes_nodes": True},
    }
    fill(folder, DECLARED | {"regions": regions})
    assert kept.machines("s") == STAYS


def test_a_down_that_was_killed_or_failed_loses_nothing(folder: Path) -> None:
    files = fill(folder, DECLARED)
    with pytest.raises(RuntimeError), kept.out_of_the_way("s"):
        raise RuntimeError("pulumi could not")
    assert files_of(folder) == files
    killed = kept.out_of_the_way("s")
    killed.__enter__()  # and nothing comes after it
    folder.mkdir(parents=True)
    (folder / "contract.json").write_text("newer")
    kept.put_back("s")
    assert files_of(folder) == files | {"contract.json": "newer"}
    kept.put_back("s")
    assert files_of(folder) == files | {"contract.json": "newer"}


def test_a_stack_of_local_nodes_keeps_nothing(folder: Path) -> None:
    hosts = {"tokyo-gpu-0": DECLARED["hosts"]["tokyo-gpu-0"]}
    fill(folder, DECLARED | {"hosts": hosts})
    assert kept.machines("s") == {}


def test_another_controller_gets_the_files_from_the_state_before_they_go(
    folder: Path, tmp_path: Path
) -> None:
    """With the real CLI, and a state as it encrypts it."""
    parts = secrets.authority()
    state: dict[str, Any] = {
        "version": 3,
        "deployment": {
            "manifest": {"time": "2026-01-01T00:00:00Z", "magic": "", "version": ""},
            "resources": [
                {
                    "urn": "urn:pulumi:s::causeway::pulumi-python:dynamic/causeway:Secret::consul-ca",
                    "custom": True,
                    "id": "secret/s/consul-ca",
                    "type": "pulumi-python:dynamic/causeway:Secret",
                    "inputs": {"stack": "s", "secret": "consul-ca", "kind": "authority"},
                    "outputs": {
                        "stack": "s",
                        "secret": "consul-ca",
                        "kind": "authority",
                        "parts": {
                            kept.PULUMI_SECRET: "1b47061264138c4ac30d75fd1eb44270",
                            "plaintext": json.dumps(parts),
                        },
                    },
                },
                {
                    "urn": "urn:pulumi:s::causeway::pulumi-python:dynamic/causeway:InventoryFiles::inventory",
                    "custom": True,
                    "id": "inventory/s",
                    "type": "pulumi-python:dynamic/causeway:InventoryFiles",
                    "inputs": {"contract": DECLARED, "host_keys": {}},
                    "outputs": {"contract": DECLARED, "host_keys": {}},
                },
            ],
        },
    }
    pulumi_cli.require(["stack", "init", "s"])
    salt = (tmp_path / "Pulumi.s.yaml").read_text().partition(pulumi_cli.SALT)[2].strip()
    state["deployment"]["secrets_providers"] = {"type": "passphrase", "state": {"salt": salt}}
    (tmp_path / "state.json").write_text(json.dumps(state))
    pulumi_cli.require(["stack", "import", "--stack", "s", "--file", str(tmp_path / "state.json")])
    assert not folder.exists()
    assert kept.machines("s") == STAYS
    found = {ending: (folder / "secrets" / f"consul-ca{ending}").read_text() for ending in parts}
    assert found == parts, "the state is what counts"
    again = secret.SecretLifecycle().ensure({"stack": "s", "secret": "consul-ca", "kind": "authority"}, {})
    assert again["fingerprint"] == value_hash(parts), "a new stack adopts what was kept"


def test_the_words_name_every_machine_and_where_what_is_kept(folder: Path) -> None:
    fill(folder, DECLARED)
    sealed = {"host": "hall-control-0", "roles": {"base": {}, "consul": {}}}
    (folder / "drift" / "hall-control-0.json").write_text(json.dumps(sealed))
    said = "\n".join(kept.in_words("s", STAYS))
    assert "hall-control-0 (10.9.1.0): base, consul" in said
    assert "tokyo" not in said
    assert ".causeway/stacks/s" in said
