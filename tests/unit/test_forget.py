"""Nodes that are gone for good, or about to go: who counts, and what Consul and Ceph are told of them."""

import re
from argparse import Namespace
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, strategies

from infra import capabilities
from infra.capabilities.storage.section import StorageSection
from infra.checks.load import load_spec, parse
from infra.commands import forget as command
from infra.components import departures, holding, leaving
from infra.converge.progress import HostResult
from infra.converge.runner import RunResult
from infra.declaration import ClusterSpec
from infra.drift.manifest import Manifest, RoleManifest, forget_host, load_manifest, save_manifest
from infra.errors import BadInputError, CausewayError
from infra.ground.contract import Contract
from infra.inventory.roles import role_hosts, role_order
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from tests.loaded import load

ROOT = Path(__file__).resolve().parents[2]

ONE_STORAGE_NODE = "{name: storage, role: storage, count: 1}"
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


class Racks:
    """A cluster of `hosts` in racks of two, an OSD of 100 GiB each, that notes what changes it."""

    def __init__(self, hosts: int, used_gib: int, size: int, busy: int = 0) -> None:
        self.hosts, self.used_gib, self.size, self.busy = hosts, used_gib, size, busy
        self.out: set[int] = set()
        self.away: set[str] = set()
        self.mons = [f"storage-{number}" for number in range(min(hosts, 3))]
        self.down: dict[int, int] = {}
        """OSD → how often it is still told to be down."""
        self.told: list[str] = []
        self.unknown: Exception | None = None
        """What it answers every other time, as a manager that was started a moment ago."""

    def __call__(self, prefix: str, _inbuf: bytes = b"", **fields: Any) -> Any:
        numbers = range(self.hosts)
        if prefix in ("osd out", "osd in"):
            self.told.append(f"{prefix} {' '.join(fields['ids'])}")
            (self.out.update if prefix == "osd out" else self.out.difference_update)(map(int, fields["ids"]))
        elif prefix == "mon remove":
            self.told.append(f"mon remove {fields['name']}")
            self.mons.remove(fields["name"])
        if prefix == "osd tree":
            self.down = {number: times - 1 for number, times in self.down.items() if times}
        osds = [
            {"id": n, "name": f"osd.{n}", "type": "osd", "reweight": float(n not in self.out)}
            | {"status": "down" if n in self.down else "up"}
            for n in numbers
        ]
        hosts = [{"id": -2 - n, "name": f"storage-{n}", "type": "host", "children": [n]} for n in numbers]
        racks = [
            {"id": -1000 - n, "name": f"rack-{n}", "type": "rack", "children": [-2 - m for m in (n, n + 1)]}
            for n in numbers[::2]
        ]
        return {
            "osd tree": {"nodes": [*racks, *hosts, *osds]},
            "osd pool ls": [{"pool_name": "data", "size": self.size}],
            "osd dump": {"nearfull_ratio": 0.775, "backfillfull_ratio": 0.825, "full_ratio": 0.875},
            "quorum_status": {
                "monmap": {"mons": [{"name": name} for name in self.mons]},
                "quorum_names": [name for name in self.mons if name not in self.away],
            },
        }.get(prefix)

    def mgr(self, prefix: str, **fields: Any) -> Any:
        """What the manager says of OSDs; `busy` times that they are not empty yet."""
        if prefix == "osd safe-to-destroy":
            numbers = [int(number) for number in fields["ids"]]
            self.busy, empty = self.busy - 1, self.busy <= 0
            if self.unknown and self.busy % 2:
                raise self.unknown
            return {"safe_to_destroy": numbers if empty else [], "active": [] if empty else numbers}
        each = {"kb": 100 << 20, "kb_used": self.used_gib << 20}
        return {"nodes": [{"id": number, **each} for number in range(self.hosts)]}


def drained(
    ceph: ModuleType,
    ask: Racks,
    hosts: list[str],
    domain: str = "host",
    let_go: Collection[str] = (),
    patience_s: float = 60,
) -> list[str]:
    """What is told a cluster that is to have hosts drained."""
    ceph.Wanted(ask, {"failure_domain": domain, "pools": [], "mons": []}).drain(
        hosts, let_go, ceph.time.time() + patience_s
    )
    return ask.told


@given(
    hosts=strategies.integers(1, 9),
    size=strategies.integers(1, 4),
    used_gib=strategies.integers(0, 100),
    domain=strategies.sampled_from(["host", "rack"]),
    going=strategies.sets(strategies.integers(0, 8)),
)
def test_a_node_is_drained_exactly_where_the_others_have_places_and_room(
    ceph: ModuleType, hosts: int, size: int, used_gib: int, domain: str, going: set[int]
) -> None:
    ask = Racks(hosts, used_gib, size)
    there = sorted(going & set(range(hosts)))
    staying = set(range(hosts)) - going
    places = len({number // 2 for number in staying}) if domain == "rack" else len(staying)
    voices = set(range(min(hosts, 3)))
    fits = size <= places and used_gib * hosts <= 100 * len(staying) * 0.825 and voices - going
    names = [f"storage-{number}" for number in sorted(going)]
    if there and not fits:
        with pytest.raises(ceph.RefusedError, match=r"copies or parts|GiB are held|no majority"):
            drained(ceph, ask, names, domain)
        assert ask.told == []
        return
    told = drained(ceph, ask, names, domain)
    assert [line for line in told if line[:3] == "osd"] == [f"osd out {number}" for number in there]
    left = [name for name in ask.mons if name in names]
    assert not left or not staying or len(ask.mons) > 2 * len(left), "the rest has no majority"
    if staying:
        assert set(ask.mons) >= {f"storage-{number}" for number in staying if number < 3}


def test_draining_waits_for_the_last_placement_group_and_is_taken_back(
    ceph: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceph.time, "sleep", lambda _s: None)
    ask = Racks(4, 10, 3, busy=3)
    assert drained(ceph, ask, ["storage-3"]) == ["osd out 3"]
    assert ask.busy == -1
    ask.busy, ask.unknown = 5, ceph.NotYetError("5 pgs have unknown state")
    assert drained(ceph, ask, ["storage-3"]) == ["osd out 3"]
    assert ask.busy <= 0
    ask.unknown = None
    assert drained(ceph, ask, ["storage-3"]) == ["osd out 3"], "a second time there is nothing to do"
    ceph.Wanted(ask, {}).refill(["storage-3", "storage-0"])
    assert ask.told == ["osd out 3", "osd in 3"]
    with pytest.raises(ceph.RefusedError, match=r"osd\.3; it goes on by itself"):
        drained(ceph, Racks(4, 10, 3, busy=1 << 30), ["storage-3"], patience_s=-1)


def test_draining_waits_for_osds_that_are_down_for_a_moment_and_names_those_that_stay_down(
    ceph: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceph.time, "sleep", lambda _s: None)
    ask = Racks(4, 10, 3)
    ask.down = {0: 5, 1: 7}
    assert drained(ceph, ask, ["storage-3"]) == ["osd out 3"]
    ask = Racks(5, 10, 3)
    ask.down = {0: 1 << 30}
    assert drained(ceph, ask, ["storage-4"]) == ["osd out 4"], "three are up: that is enough"
    ask = Racks(4, 10, 3)
    ask.down = {1: 1 << 30}
    with pytest.raises(ceph.RefusedError, match=r"2 would be left: bring osd\.1 back, which is down; or add"):
        drained(ceph, ask, ["storage-3"], patience_s=-1)
    ask.down, ask.out = {1: 1 << 30}, {1}
    with pytest.raises(ceph.RefusedError, match="2 would be left: add one"):
        drained(ceph, ask, ["storage-3"])  # given up: nobody waits for it
    assert ask.told == []


def test_what_a_manager_cannot_tell_yet_is_asked_again_and_what_is_refused_is_not(
    ceph: ModuleType,
) -> None:
    """By the status of librados: -EAGAIN is no refusal."""
    answers: dict[int, type[Exception]] = {-11: ceph.NotYetError, -22: ceph.RefusedError}
    told = import_module("asked").Cluster._told
    for status, kind in answers.items():
        with pytest.raises(kind, match="ceph osd safe-to-destroy: unknown") as refused:
            told(None, lambda *_, s=status: (s, b"", "unknown"), "osd safe-to-destroy", b"", {})
        assert type(refused.value) is kind


def test_what_may_be_lost_is_not_drained_and_the_others_keep_a_majority(ceph: ModuleType) -> None:
    going = ["storage-1", "storage-2"]
    with pytest.raises(ceph.RefusedError, match="3 copies or parts"):
        drained(ceph, Racks(3, 10, 3), going)
    told = drained(ceph, Racks(3, 10, 3), [], let_go=going)
    assert told == ["mon remove storage-1", "mon remove storage-2"]
    assert drained(ceph, Racks(4, 10, 2), ["storage-2"], let_go=["storage-3"]) == ["osd out 2"]


@given(away=strategies.sets(strategies.integers(0, 2)), going=strategies.sets(strategies.integers(0, 2)))
def test_no_monitor_goes_where_the_others_would_be_no_majority(
    ceph: ModuleType, away: set[int], going: set[int]
) -> None:
    ask = Racks(3, 0, 1)
    ask.away = {f"storage-{number}" for number in away}
    rest, alive = {0, 1, 2} - going, {0, 1, 2} - going - away
    names = [f"storage-{number}" for number in going]
    if going and 2 * len(alive) <= len(rest):
        with pytest.raises(ceph.RefusedError, match="which is no majority"):
            drained(ceph, ask, [], let_go=names)
        assert ask.told == []
        return
    drained(ceph, ask, [], let_go=names)
    assert {f"storage-{number}" for number in rest} <= set(ask.mons)
    assert not alive or not going or 2 * len(alive) > len(ask.mons)


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
    assert leaving.gone_nodes(contract) == ["was-0"]


@pytest.mark.parametrize("name", ["tokyo-gpu-99", "", "..", "../contract", "all", "*", "a:!b"])
def test_a_name_that_nobody_knows_is_refused(
    name: str, contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_manifest(contract.stack, Manifest(host="was-0"))
    monkeypatch.setattr(command, "load_contract", lambda _path: contract)
    with pytest.raises(BadInputError, match=re.escape(f"no host {name}")):
        command.run(Namespace(stack=contract.stack, host=[name]))


@dataclass
class Runs:
    """What was asked of nodes, in order: the playbook's step, and with which hosts it has to do."""

    told: list[tuple[str, Any]] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)
    refilled: list[str] = field(default_factory=list)
    let_go: list[str] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)
    failing: str = ""

    def __call__(self, playbook: str, *, limit: list[str], extra_vars: dict[str, Any], **_: Any) -> RunResult:
        """A run in which every host does well, but for a step that fails."""
        step = extra_vars.get("forget_step", "good-bye")
        hosts = extra_vars["forget_hosts"] if "forget_hosts" in extra_vars else sorted(limit)
        self.told.append((step, hosts))
        if step == "drain":
            self.asked, self.refilled = set(limit), extra_vars["forget_refill"]
            self.let_go = extra_vars["forget_let_go"]
        assert (
            (playbook == "playbooks/leave.yml") == (step == "good-bye") == ("leave_node_goes" in extra_vars)
        )
        result = HostResult(state="failed" if step == self.failing else "ok")
        silent = dict.fromkeys(self.silent.intersection(limit), HostResult(state="unreachable"))
        return RunResult(dict.fromkeys(limit, result) | silent, Path("log"), 1.0)


@pytest.fixture(scope="module")
def wide() -> Contract:
    """The default stack, with three storage nodes in Tokyo and one in Shanghai."""
    text = (ROOT / "Pulumi.local.yaml").read_text()
    assert text.count(ONE_STORAGE_NODE) == 2
    before, _, rest = text.partition(ONE_STORAGE_NODE)
    spec = parse(
        before + ONE_STORAGE_NODE.replace("count: 1", "count: 3") + rest, ROOT / "Pulumi.local.yaml"
    ).spec
    return build_contract(spec, make_plan(spec), "local")


@pytest.fixture
def runs(wide: Contract, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    """The nodes stand, and have their roles."""
    runs = Runs()
    for module in ("infra.drift.manifest", "infra.components.holding", "infra.components.leaving"):
        monkeypatch.setattr(f"{module}.ROOT", tmp_path)
    monkeypatch.setattr(departures, "standing_contract", lambda _stack: wide)
    monkeypatch.setattr(leaving, "run_playbook", runs)
    monkeypatch.setattr("infra.providers.local.nodes.standing", lambda _stack: set(wide.hosts))
    file = tmp_path / "contract.json"
    file.write_text(wide.model_dump_json())
    monkeypatch.setattr(departures, "contract_file", lambda _stack: file)
    for name in wide.hosts:
        roles = {role: RoleManifest() for role in role_order() if name in role_hosts(wide, role)}
        save_manifest(wide.stack, Manifest(host=name, identity=f"instance {name}", roles=roles))
    return runs


def depart(
    contract: Contract,
    gone: Collection[str],
    leave: Mapping[str, list[str]] | None = None,
    without: Collection[str] = (),
) -> None:
    """An `up` by a declaration without these hosts, and with others that are to hold no data any more."""
    consent = holding.consent(ClusterSpec.model_construct(name="pacific", regions=(), leave=()))
    for role, hosts in (leave or {}).items():
        consent[role]["hosts"] = hosts
    hosts = [name for name in contract.hosts if name not in gone]
    keeps = {role: set(names).difference(gone, without) for role, names in holding.kept_by(contract).items()}
    inputs = {"stack": contract.stack, "hosts": hosts, "keeps": keeps, "machines": {}, "leave": consent}
    departures.DepartureLifecycle().ensure(inputs, {})


def test_nodes_are_drained_before_they_say_good_bye(wide: Contract, runs: Runs) -> None:
    depart(wide, [])
    assert runs.told == []
    depart(wide, ["tokyo-gpu-1"])
    assert runs.told == [("good-bye", ["tokyo-gpu-1"])], "it holds nothing"
    depart(wide, ["tokyo-storage-2", "tokyo-gpu-1"])
    assert runs.told[1:] == [("drain", ["tokyo-storage-2"]), ("good-bye", ["tokyo-gpu-1", "tokyo-storage-2"])]
    assert runs.asked == {"tokyo-storage-0", "tokyo-storage-1"}, "no other cluster's monitors"


@pytest.mark.parametrize(
    "gone",
    [
        ["shanghai-storage-0"],
        ["tokyo-storage-2", "shanghai-storage-0"],
        ["tokyo-storage-0", "tokyo-storage-1", "tokyo-storage-2"],
    ],
)
def test_what_nobody_can_take_over_goes_with_consent_only(
    wide: Contract, runs: Runs, gone: list[str]
) -> None:
    with pytest.raises(CausewayError, match="not taken away without consent: ceph on") as refused:
        depart(wide, gone)
    assert refused.value.hint
    assert "leave: [{role: ceph, hosts: [" in refused.value.hint
    assert runs.told == []
    depart(wide, gone, {"ceph": gone})
    assert runs.told[-1] == ("good-bye", sorted(gone))
    assert runs.told[:-1] == ([("drain", [])] if "tokyo-storage-0" not in gone and len(gone) > 1 else [])
    assert runs.let_go == (sorted(gone) if len(runs.told) > 1 else [])


def test_one_monitor_that_answers_is_enough_and_another_clusters_is_not(wide: Contract, runs: Runs) -> None:
    gone = ["tokyo-storage-2", "shanghai-storage-0"]
    runs.silent = {"tokyo-storage-0"}
    depart(wide, ["tokyo-storage-2"])
    assert runs.told[-1][0] == "good-bye"
    runs.silent = {"tokyo-storage-0", "tokyo-storage-1"}
    with pytest.raises(CausewayError, match="unreachable"):
        depart(wide, gone, {"ceph": ["shanghai-storage-0"]})
    groups = [{"tokyo-storage-0", "tokyo-storage-1"}, {"shanghai-storage-0"}]
    hosts = {name: HostResult(state="unreachable") for name in groups[0]}
    assert leaving.silent_in(
        RunResult(hosts | {"shanghai-storage-0": HostResult(state="ok")}, Path("log"), 1.0), groups
    )


def test_nodes_of_an_unknown_contract_do_not_go(
    wide: Contract, runs: Runs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(departures, "standing_contract", lambda _stack: None)
    depart(wide, [])
    with pytest.raises(CausewayError, match="tokyo-gpu-1: declared no more, and another version"):
        depart(wide, ["tokyo-gpu-1"])
    for nonsense in ("", "{", "[]", '{"hosts": 1}', "{}"):
        (tmp_path / "contract.json").write_text(nonsense)
        depart(wide, ["tokyo-gpu-1"])
    assert runs.told == []


def test_a_drain_that_failed_keeps_every_node_and_is_taken_back(wide: Contract, runs: Runs) -> None:
    runs.failing = "drain"
    with pytest.raises(CausewayError, match="failed") as refused:
        depart(wide, ["tokyo-storage-2"])
    assert "nothing was taken away" in (refused.value.hint or "")
    assert [step for step, _ in runs.told] == ["drain"]
    lifecycle, inputs = departures.DepartureLifecycle(), {"stack": wide.stack, "hosts": list(wide.hosts)}
    assert lifecycle.observe(inputs) == ["tokyo-storage-2: was to go, and may hold no data any more"]
    runs.failing = ""
    depart(wide, [])
    assert runs.told[1:] == [("drain", [])]
    assert runs.refilled == ["tokyo-storage-2"]
    assert lifecycle.observe(inputs) == []


def test_a_node_whose_first_run_was_killed_is_drained_and_who_is_gone_already_is_not(
    wide: Contract, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_host(wide.stack, "tokyo-storage-2")
    depart(wide, ["tokyo-storage-2"])
    assert runs.told == [("drain", ["tokyo-storage-2"])], "no role of it is known that could say good-bye"
    monkeypatch.setattr("infra.providers.local.nodes.standing", lambda _stack: set())
    depart(wide, ["tokyo-storage-2"])
    assert len(runs.told) == 1


def test_a_role_that_leaves_a_node_alone_hands_over_first_and_waits_for_nobody_then(
    wide: Contract, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, others = "tokyo-storage-2", {"tokyo-storage-0", "tokyo-storage-1"}
    depart(wide, [], without=[host])
    assert runs.told == [("drain", [host])]
    assert runs.asked == others
    consent = holding.consent(ClusterSpec.model_construct(name="pacific", regions=(), leave=()))
    declared = {host: [role for role in role_order() if role != "ceph" and host in role_hosts(wide, role)]}
    assert leaving.leaving_roles_of(wide.stack, declared, consent) == ({host: ["ceph"]}, {})
    assert leaving.left_behind(wide) == {}, "it has not left yet"

    record = load_manifest(wide.stack, host)
    assert record
    del record.roles["ceph"]
    save_manifest(wide.stack, record)
    smaller = wide_without(wide, host)
    monkeypatch.setattr(departures, "standing_contract", lambda _stack: smaller)
    depart(smaller, [])
    assert len(runs.told) == 1, "nothing more is moved"
    assert leaving.left_behind(smaller) == {"ceph": [host]}
    leaving.forget_left_behind(smaller, print)
    assert runs.told[1:] == [("forget", [host])]
    assert leaving.left_behind(smaller) == {}
    leaving.forget_left_behind(smaller, print)
    assert len(runs.told) == 2


def wide_without(contract: Contract, host: str) -> Contract:
    """The contract of an `up` after which a node is of no cluster any more."""
    section = contract.need(StorageSection)
    clusters = tuple(
        cluster.model_copy(
            update={
                "osds": {name: osds for name, osds in cluster.osds.items() if name != host},
                "mons": tuple(name for name in cluster.mons if name != host),
            }
        )
        for cluster in section.clusters
    )
    changed = section.model_copy(update={"clusters": clusters})
    return contract.model_copy(update={"sections": contract.sections | {"storage": changed}})


def test_a_role_that_nobody_can_take_over_from_stays_until_consent(wide: Contract, runs: Runs) -> None:
    """It alone, or all of a cluster at once: the rest of the `up` goes on."""
    alone, all_of_them = ["shanghai-storage-0"], [f"tokyo-storage-{number}" for number in range(3)]
    depart(wide, [], without=[*alone, *all_of_them])
    assert runs.told == []
    consent = holding.consent(ClusterSpec.model_construct(name="pacific", regions=(), leave=()))
    declared = {name: ["base"] for name in alone}
    _, waiting = leaving.leaving_roles_of(wide.stack, declared, consent)
    assert "ceph" in waiting[alone[0]]


def test_a_role_that_is_to_stay_after_all_holds_data_again(wide: Contract, runs: Runs) -> None:
    host = "tokyo-storage-2"
    depart(wide, [], without=[host])
    depart(wide, [])
    assert runs.told == [("drain", [host]), ("drain", [])]
    assert runs.refilled == [host]
    assert holding.drained(wide.stack) == {}


def test_what_may_be_lost_on_a_node_that_stays_is_no_place_for_others(wide: Contract, runs: Runs) -> None:
    going = ["tokyo-storage-1", "tokyo-storage-2"]
    depart(wide, [], {"ceph": going[:1]}, without=going)
    assert runs.told == [("drain", going[1:])]
    assert runs.let_go == going[:1]


def test_what_an_older_version_wrote_of_drained_nodes_is_of_roles_that_are_drained(
    wide: Contract, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(holding, "ROOT", tmp_path)
    holding.drained_file(wide.stack).parent.mkdir(parents=True, exist_ok=True)
    holding.drained_file(wide.stack).write_text('["tokyo-storage-2"]\n')
    assert holding.drained(wide.stack) == {"ceph": {"tokyo-storage-2"}}


def test_a_machine_that_was_not_given_back_is_named_until_it_is_forgotten(
    contract: Contract, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("infra.drift.manifest.ROOT", tmp_path)
    part = {"base": RoleManifest()}
    save_manifest(contract.stack, Manifest(host="hall-9", identity="host key", roles=part))
    save_manifest(contract.stack, Manifest(host="was-0", identity="instance 1", roles=part))
    save_manifest(contract.stack, Manifest(host=next(iter(contract.hosts)), identity="host key", roles=part))
    (line,) = leaving.not_given_back(contract)
    assert line.startswith("hall-9 is declared no more, and keeps base: ")
    forget_host(contract.stack, "hall-9")
    assert list(leaving.not_given_back(contract)) == []


def test_every_role_that_holds_data_says_who_takes_it_over(wide: Contract) -> None:
    """Where somebody can, there are the tasks that have it done."""
    for name, role in capabilities.roles().items():
        if role.takers and any(role.takers(wide, host) for host in wide.hosts):
            assert (ROOT / "roles" / name / "tasks" / "drain.yml").is_file()
            assert role.leaves
