"""Which machine was sealed: a new one starts afresh, one whose /etc/machine-id was changed does not."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import stack
from infra.components import inventory_files
from infra.components import wave as component
from infra.components.inventory_files import InventoryLifecycle
from infra.components.wave import ConfigurationLifecycle
from infra.converge.runner import RunResult
from infra.drift import manifest as manifests
from infra.drift import owed as notes
from infra.drift.manifest import NODE_COPY, Entry, Manifest, RoleManifest, load_manifest, save_manifest
from infra.drift.merge import HostSeal
from infra.drift.owed import Owed
from infra.drift.scan import Scanner
from infra.ground import identities, ssh
from infra.ground.contract import Contract
from infra.ground.identities import identities_of, load_identities
from tests.unit.test_drift_report import Answering, cluster
from tests.unit.test_drift_seal import claim, record
from tests.unit.test_ssh import KEY
from tests.unit.test_ssh import contract as contract

HOST = "tokyo-control-0"
OURS, EVIL = {"exists": True, "shell": "/bin/sh"}, {"exists": True, "shell": "/bin/evil"}


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (component, inventory_files, ssh, stack, manifests, notes, identities):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    return tmp_path


def sealed(identity: str, machine: str) -> Manifest:
    made = HostSeal("s", HOST, {"base": record(claim("user", "ops"))}, {"base": "i1"}, identity)
    made.merge({"machine": machine, "values": [OURS]})
    return made.manifest


@given(st.sampled_from(["", "a"]), st.sampled_from(["", "a", "b"]), st.sampled_from(["m1", "m2", ""]))
def test_only_another_machine_starts_afresh(before: str, now: str, machine: str) -> None:
    made = HostSeal("s", HOST, {"base": record(claim("user", "ops"))}, {"base": "i1"}, now)
    made.manifest = sealed(before, "m1")
    made.merge({"machine": machine, "values": [EVIL]})
    wanted = made.manifest.roles["base"].entries[0].want
    if {before, now} == {"a", "b"} and machine != "m1":
        assert (wanted, made.not_repaired, made.manifest.machine) == (EVIL, [], machine)
    else:
        assert (wanted, made.manifest.machine) == (OURS, "m1")
        named = [line.split(" is ")[0] for line in made.not_repaired]
        assert named == ["/etc/machine-id"] * (machine != "m1") + ["user ops: shell"]
    assert made.manifest.identity == (now or before)


def test_a_machine_id_that_is_empty_takes_no_check_away() -> None:
    manifest = sealed("a", "")
    assert asked(manifest, {}, "") == ["ops", NODE_COPY]
    made = HostSeal("s", HOST, {"base": record(claim("user", "ops"))}, {"base": "i1"}, "a")
    made.manifest = manifest
    made.merge({"machine": "m1", "values": [EVIL]})
    assert (made.manifest.roles["base"].entries[0].want, made.manifest.machine) == (OURS, "m1")


class Here(Answering):
    """A node that says which machine it is, and on which nothing else differs."""

    def __init__(self, machine: str) -> None:
        super().__init__()
        self.machine = machine

    async def ask(self, connection: object, host: str, request: dict[str, Any]) -> dict[str, Any]:
        await super().ask(connection, host, request)
        return {"machine": self.machine, "values": []}


def scanned(manifest: Manifest, known: dict[str, str], machine: str) -> tuple[Any, Here]:
    save_manifest("s", manifest)
    scanner, trips = Scanner(cluster(), {HOST: {"base": "i1"}}), Here(machine)
    scanner.trips, scanner.identities = trips, known  # type: ignore[assignment]
    return asyncio.run(scanner.host(HOST)), trips


def asked(manifest: Manifest, known: dict[str, str], machine: str) -> list[str]:
    return scanned(manifest, known, machine)[1].asked


@pytest.mark.parametrize("known", [{}, {HOST: "a"}])
@pytest.mark.parametrize("identity", ["", "a"])
@pytest.mark.parametrize("machine", ["m2", ""])
def test_a_scan_names_a_machine_id_that_was_changed(
    known: dict[str, str], identity: str, machine: str
) -> None:
    report, _ = scanned(sealed(identity, "m1"), known, machine)
    assert [str(difference) for difference in report.differences] == [
        f"machine /etc/machine-id: id is {machine or 'none'}, expected m1"
    ]
    assert (report.state, report.message) == ("drift", "")


def test_a_scan_compares_nothing_with_a_machine_that_was_made_anew() -> None:
    report, _ = scanned(sealed("a", "m1"), {HOST: "b"}, "m2")
    assert (report.state, report.differences) == ("failed", [])
    assert "./run up" in report.message
    report, _ = scanned(sealed("a", "m1"), {HOST: "b"}, "m1")
    assert report.state == "clean", "its host key was declared anew"


def test_a_manifest_of_an_older_version_is_taken_as_it_is() -> None:
    manifest = sealed("", "m1")
    older = json.loads(manifest.model_dump_json())
    del older["identity"]
    path = manifests.manifest_path("s", HOST)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(older))
    loaded = load_manifest("s", HOST)
    assert loaded is not None
    loaded.identity = "a"
    assert loaded.node_copy() == manifest.node_copy(), "the node's copy is as it was"
    assert b"identity" not in loaded.node_copy()
    report, _ = scanned(loaded, {HOST: "a"}, "m1")
    assert report.state == "clean"


def test_an_instance_is_the_engines_word_and_a_host_key_the_declarations(contract: Contract) -> None:
    instances = {name: {"id": "i1", "host_key": f"{KEY} comment"} for name in contract.hosts}
    assert identities_of(contract, instances) == {HOST: "instance i1", "old-control-0": f"host key {KEY}"}


def test_up_writes_the_identities_and_misses_none_of_an_older_state(
    contract: Contract,
) -> None:
    older = {"contract": contract.model_dump(mode="json"), "host_keys": dict.fromkeys(contract.hosts, KEY)}
    lifecycle = InventoryLifecycle()
    lifecycle.ensure(older, {})
    assert lifecycle.observe(older) == []
    assert load_identities("unit") == {}
    known = dict.fromkeys(contract.hosts, "instance i1")
    lifecycle.ensure(older | {"identities": known}, {})
    assert load_identities("unit") == known
    lifecycle.remove(older)
    assert load_identities("unit") == {}


def test_up_learns_from_its_state_which_node_an_older_manifest_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    save_manifest("s", Manifest(host=HOST, roles={"base": RoleManifest(entries=[entry("/a")])}))
    identities.identities_file("s").write_text(
        json.dumps({HOST: "instance new", "old-control-0": "host key"})
    )
    save_manifest("s", Manifest(host="old-control-0"))
    monkeypatch.setattr(component, "run_playbook", lambda *_, **__: RunResult({}, Path("log"), 1.0))
    wave = {"stack": "s", "wave": "w", "hosts": {}, "roles": {}}
    last = {name: {"instance": "old", "variables": "v"} for name in (HOST, "old-control-0")}
    ConfigurationLifecycle().ensure(wave, wave | {"hosts": last})
    made, existing = load_manifest("s", HOST), load_manifest("s", "old-control-0")
    assert made is not None
    assert made.identity == "instance old"
    assert made.renewed("instance new")
    assert existing is not None
    assert existing.identity == "", "the state has its machine-id, which is its own word"


def entry(key: str) -> Entry:
    return Entry(kind="file", key=key, task="t", want={"type": "file"})


def test_a_role_to_which_a_run_owes_handlers_is_to_run_again() -> None:
    due = Owed("s")
    due.begin(HOST, "base", "1", ["Restart sshd"])
    report, _ = scanned(sealed("a", "m1"), {HOST: "a"}, "m1")
    assert (report.state, report.drifted_roles) == ("not sealed", ["base"])
    said = "base is not sealed: a run ended before this was done there: Restart sshd"
    assert report.unsettled("base") == said
    due.end(HOST, "base", "1", [], unclear=False)
    assert scanned(sealed("a", "m1"), {HOST: "a"}, "m1")[0].state == "clean"
