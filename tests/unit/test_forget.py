"""Nodes that are gone for good: who counts as gone, and what Consul and Ceph are told of them."""

import re
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infra.checks.load import load_spec
from infra.commands import forget as command
from infra.components import departures
from infra.drift.manifest import Manifest, save_manifest
from infra.errors import BadInputError
from infra.ground.contract import Contract
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from tests.loaded import load

ROOT = Path(__file__).resolve().parents[2]

GONE, LIKE_IT = "tokyo-gpu-1", "tokyo-gpu-10"
STATUS = {"alive": 1, "failed": 4}


@pytest.fixture(scope="module")
def consul() -> ModuleType:
    return load(ROOT / "roles/consul/library/causeway_consul_forget.py")


class Agent:
    """A server that knows members, votes and a catalog, and does as it is told."""

    def __init__(self, status: str = "failed") -> None:
        self.lan = dict.fromkeys((GONE, LIKE_IT), STATUS[status])
        self.wan = {f"{GONE}.tokyo": STATUS[status], "far-control-0.far": STATUS["alive"]}
        self.servers = {"id-1": GONE, "id-2": "tokyo-control-0"}
        self.catalog = {GONE, LIKE_IT}

    def get(self, path: str) -> Any:
        if path.startswith("/v1/agent/members"):
            known = self.wan if "wan" in path else self.lan
            return [{"Name": name, "Status": status} for name, status in known.items()]
        if path.startswith("/v1/operator/raft"):
            return {"Servers": [{"ID": key, "Node": name} for key, name in self.servers.items()]}
        name = path.removeprefix("/v1/catalog/node/")
        return {"Node": name} if name in self.catalog else None

    def put(self, path: str, value: Any = None) -> None:
        if value:
            self.catalog.remove(value["Node"])
        else:
            name, _, query = path.removeprefix("/v1/agent/force-leave/").partition("?")
            assert "prune=1" in query
            del (self.wan if "wan=1" in query else self.lan)[name]

    def delete(self, path: str) -> None:
        del self.servers[path.removeprefix("/v1/operator/raft/peer?id=")]


def test_consul_forgets_a_member_with_its_vote_and_nobody_else(consul: ModuleType) -> None:
    agent = Agent()
    said = list(consul.Memory(agent, [GONE], False).forget(0))
    assert said == [
        f"member {GONE}", f"member {GONE}.tokyo", f"vote of {GONE}", f"{GONE} in the catalog",
    ]  # fmt: skip
    assert (set(agent.lan), set(agent.wan)) == ({LIKE_IT}, {"far-control-0.far"})
    assert (set(agent.servers), agent.catalog) == ({"id-2"}, {LIKE_IT})
    assert list(consul.Memory(agent, [GONE], False).forget(0)) == []


def test_consul_says_what_it_would_forget_and_refuses_who_is_alive(consul: ModuleType) -> None:
    agent = Agent("alive")
    assert len(list(consul.Memory(agent, [GONE], True).forget(0))) == 4
    with pytest.raises(consul.ConsulError, match=f"{GONE} is alive"):
        list(consul.Memory(agent, [GONE], False).forget(0))
    assert GONE in agent.lan


@pytest.fixture(scope="module")
def ceph() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "roles/ceph/files/causeway_ceph"))
        return load(ROOT / "roles/ceph/files/causeway_ceph/cluster.py")


class Monitors:
    """A cluster of two hosts, that notes what changes it."""

    def __init__(self, status: str, states: tuple[str, ...]) -> None:
        self.status, self.states = status, states
        self.told: list[tuple[str, Any]] = []

    def __call__(self, prefix: str, _inbuf: bytes = b"", **fields: Any) -> Any:
        osds = [
            {"id": 0, "name": "osd.0", "type": "osd", "status": "up"},
            {"id": 1, "name": "osd.1", "type": "osd", "status": self.status},
        ]
        hosts = [{"id": -2, "name": LIKE_IT, "type": "host", "children": [0]}]
        hosts.append({"id": -3, "name": GONE, "type": "host", "children": [1]})
        answers: dict[str, Any] = {
            "osd tree": {"nodes": [*hosts, *osds]},
            "status": {"pgmap": {"pgs_by_state": [{"state_name": one, "count": 8} for one in self.states]}},
            "mon dump": {"mons": [{"name": GONE}, {"name": LIKE_IT}]},
        }
        if prefix not in answers:
            self.told.append((prefix, fields.get("id", fields.get("name"))))
        return answers.get(prefix)


SERVED = ("active+clean", "active+undersized+degraded", "undersized+degraded+peered")
PURGED = [("osd purge-actual", 1), ("osd crush rm", GONE)]


@pytest.mark.parametrize(
    ("declared", "told"), [([GONE, LIKE_IT], PURGED), ([LIKE_IT], [*PURGED, ("mon remove", GONE)])]
)
def test_ceph_forgets_osds_and_monitors_that_are_declared_no_more(
    ceph: ModuleType, declared: list[str], told: list[tuple[str, Any]]
) -> None:
    ask = Monitors("down", SERVED)
    ceph.Wanted(ask, {"mons": [{"name": name} for name in declared]}).forget([GONE], False)
    assert ask.told == told


@pytest.mark.parametrize(
    ("status", "states", "why"),
    [
        ("up", SERVED, "the host is not gone"),
        ("down", (*SERVED, "stale+active+clean"), "8 placement groups have no copy elsewhere"),
        ("down", (*SERVED, "down"), "8 placement groups have no copy elsewhere"),
        ("down", ("peering",), "8 placement groups have no copy elsewhere"),
        ("down", ("unknown",), "8 placement groups have no copy elsewhere"),
    ],
)
def test_ceph_refuses_what_would_lose_data(
    ceph: ModuleType, status: str, states: tuple[str, ...], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceph, "PATIENCE_S", 0)
    ask = Monitors(status, states)
    with pytest.raises(ceph.RefusedError, match=why):
        ceph.Wanted(ask, {"mons": []}).forget([GONE], False)
    assert ask.told == []
    if status == "down":
        ceph.Wanted(ask, {"mons": []}).forget([GONE], True)
        assert ask.told[:2] == PURGED


@pytest.fixture
def contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Contract:
    monkeypatch.setattr("infra.drift.manifest.ROOT", tmp_path)
    spec = load_spec(ROOT / "Pulumi.local.yaml")
    return build_contract(spec, make_plan(spec), "local")


def test_gone_is_a_node_of_ours_that_is_declared_no_more(
    contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    stays = next(iter(contract.hosts))
    monkeypatch.setattr("infra.providers.local.nodes.standing", lambda _stack: {stays, "goes-0"})
    ours = [(stays, "instance 1"), ("was-0", "instance 2"), ("goes-0", "instance 3")]
    for name, identity in (*ours, ("theirs-0", "host key ssh A")):
        save_manifest(contract.stack, Manifest(host=name, identity=identity))
    assert departures.gone_nodes(contract) == ["was-0"]


@pytest.mark.parametrize("name", ["tokyo-gpu-99", "", "..", "../contract", "all", "*", "a:!b"])
def test_a_name_that_nobody_knows_is_refused(
    name: str, contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_manifest(contract.stack, Manifest(host="was-0"))
    monkeypatch.setattr(command, "load_contract", lambda _path: contract)
    with pytest.raises(BadInputError, match=re.escape(f"no host {name}")):
        command.run(Namespace(stack=contract.stack, host=[name]))
