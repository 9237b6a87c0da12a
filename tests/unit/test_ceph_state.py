"""What the watch over drift is told of a Ceph cluster, and that the role's steps bring all of it back."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra import ROOT
from tests.loaded import load
from tests.unit.test_drift_repair import plan_for

FOLDER = ROOT / "roles/ceph/files/causeway_ceph"
ADMIN, EXPORT = "client.admin", "client.export.a"
ANYTHING = {"mon": "allow *", "osd": "allow *"}
MEASURES = "osd_mclock_max_capacity_iops_hdd"
OPTIONS = {"global": {"debug_ms": "0"}, "osd": {"osd_memory_target": "4", MEASURES: "9"}}
WANTED: dict[str, Any] = {
    "options": OPTIONS,
    "ratios": {},
    "modules": {"prometheus": True, "restful": False, "balancer": True},
    "pools": [],
    "filesystem": {"name": "files", "data_pools": ["data"], "metadata_pool": "meta", "folders": []},
}


class Cluster:
    """A cluster as declared, as far as its state tells of it; it does what it is told."""

    def __init__(self) -> None:
        self.identities = {ADMIN: ("k1", ANYTHING), EXPORT: ("k2", {"mon": "allow r"})}
        self.options = {("global", "debug_ms", ""): "0", ("osd", "osd_memory_target", ""): "4"}
        self.options["osd", MEASURES, ""] = "9"
        self.modules, self.mdsmap = ["prometheus"], {"fs_name": "files", "flags": 18, "max_mds": 1}

    def __call__(self, prefix: str, _inbuf: bytes = b"", **fields: Any) -> Any:
        self.told(prefix, fields)
        dump = [{"entity": name, "key": key, "caps": caps} for name, (key, caps) in self.identities.items()]
        options = [
            {"section": who, "name": name, "mask": mask, "value": value}
            for (who, name, mask), value in self.options.items()
        ]
        ratios = {f"{name}_ratio": 0.9 for name in ("nearfull", "backfillfull", "full")}
        return {
            "auth ls": {"auth_dump": dump},
            "config dump": options,
            "osd dump": {**ratios, "osds": [{"osd": 0}]},
            "osd pool ls": [],
            "osd crush rule dump": [],
            "mgr module ls": {"enabled_modules": self.modules, "always_on_modules": ["balancer"]},
            "fs ls": [{"name": "files", "data_pools": ["data"]}],
            "fs dump": {"filesystems": [{"mdsmap": self.mdsmap}]},
        }.get(prefix)

    def told(self, prefix: str, fields: Any) -> None:
        if prefix == "config rm":
            who, _, mask = fields["who"].partition("/")
            del self.options[who, fields["name"], mask]
        elif prefix == "fs set" and fields["var"] == "joinable":
            self.mdsmap["flags"] = int(str(self.mdsmap["flags"])) & ~1
        elif prefix == "fs set":
            self.mdsmap["max_mds"] = {"false": 1, "true": 0}[fields["val"]]
        elif prefix == "mgr module enable":
            self.modules.append(fields["module"])
        elif prefix == "mgr module disable":
            self.modules.remove(fields["module"])


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """cluster.py; what it takes from state.py finds a keyring with two identities."""
    monkeypatch.syspath_prepend(str(FOLDER))
    program = load(FOLDER / "cluster.py")
    keyring = tmp_path / "keyring"
    keyring.write_text("".join(f"[{name}]\nkey = x\n" for name in ("mon.", ADMIN, EXPORT)))
    monkeypatch.setattr(sys.modules["state"], "KEYRING", keyring)
    monkeypatch.setattr(sys.modules["state"], "USERS", tmp_path / "none")
    return program


def told(programs: Any, ask: Cluster) -> set[str]:
    return {line for state in programs.STATES.values() for line in state(ask, WANTED)}


DRIFTS: dict[str, Any] = {
    "a key": (
        lambda c: c.identities.update({ADMIN: ("other", ANYTHING)}),
        f"key of {ADMIN}: d9298a10",
    ),
    "an export's key": (
        lambda c: c.identities.update({EXPORT: ("other", {"mon": "allow r"})}),
        f"key of {EXPORT}: d9298a10",
    ),
    "a module off": (lambda c: c.modules.clear(), "module prometheus: off"),
    "a module on": (lambda c: c.modules.append("restful"), "module restful: on"),
    "one OSD's option": (
        lambda c: c.options.update({("osd.3", "osd_memory_target", ""): "1"}),
        "option osd_memory_target of osd.3: 1",
    ),
    "a monitor's": (
        lambda c: c.options.update({("mon.a", "debug_ms", ""): "20"}),
        "option debug_ms of mon.a: 20",
    ),
    "a mask": (
        lambda c: c.options.update({("osd", "osd_memory_target", "host:n"): "1"}),
        "option osd_memory_target of osd/host:n: 1",
    ),
    "a file system failed": (lambda c: c.mdsmap.update(flags=19), "file system files is failed"),
    "a file system down": (lambda c: c.mdsmap.update(max_mds=0), "file system files is down"),
}


@pytest.mark.parametrize("what", DRIFTS)
def test_what_somebody_changed_is_told_and_a_run_brings_it_back(
    programs: Any, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, (change, line) = Cluster(), DRIFTS[what]
    before = told(programs, ask)
    assert not any(word in str(before) for word in ("k1", "k2")), "no key is told"
    change(ask)
    assert told(programs, ask) - before == {line}
    wanted = programs.Wanted(ask, WANTED)
    monkeypatch.setattr(wanted, "modules_known", lambda: True)
    monkeypatch.setattr(wanted, "folders", lambda _: None)
    wanted.options()
    wanted.modules()
    wanted.filesystem()
    assert bool(wanted.changes) == ("key" not in what), "that keys are compared is tried elsewhere"
    if "key" not in what:
        assert told(programs, ask) == before
    wanted.dry_run = True
    made = list(wanted.changes)
    wanted.options()
    assert wanted.changes == made, "all is as declared"


@pytest.mark.parametrize(
    ("disabled", "enabled", "known"),
    [
        (["restful", "prometheus"], [], True),
        (["prometheus"], [], True),
        ([], ["prometheus"], True),
        ([], ["restful"], False),
        ([], [], False),
    ],
)
def test_a_module_that_is_to_be_off_need_not_be_there(
    programs: Any, disabled: list[str], enabled: list[str], known: bool
) -> None:
    """Ceph 20 has no `restful` any more (its release notes, MGR); what is to be on has to be known."""
    listed = {"disabled_modules": [{"name": name} for name in disabled], "enabled_modules": enabled}
    ask = {"mgr module ls": listed | {"always_on_modules": ["balancer"]}}.get
    assert programs.Wanted(ask, WANTED).modules_known() == known


def test_what_is_nobodys_declaration_and_no_narrower_one_is_left_alone(programs: Any) -> None:
    ask = Cluster()
    before = told(programs, ask)
    for who, name in (("osd.3", "osd_max_backfills"), ("osd.3", MEASURES), ("mon", "osd_memory_target")):
        ask.options[who, name, ""] = "7"
    assert told(programs, ask) == before
    declared = WANTED | {"options": {**OPTIONS, "osd.3": {"osd_memory_target": "8"}}}
    wanted = programs.Wanted(ask, declared)
    ask.options["osd.3", "osd_memory_target", ""] = "8"
    wanted.options()
    assert wanted.changes == []


@pytest.mark.parametrize(
    ("name", "caps", "named"),
    [
        ("client.mallory", ANYTHING, True),
        ("client.mallory", {"osd": "allow *"}, True),
        ("client.mallory", {"mon": "profile rbd", "osd": "profile rbd"}, False),
        ("osd.0", {"mon": "allow profile osd", "osd": "allow *"}, False),
        ("osd.0", {"mon": "allow *", "osd": "allow *"}, True),
        ("osd.99", {"mon": "allow profile osd", "osd": "allow *"}, True),
        ("mgr.n", {"mds": "allow *", "mon": "profile mgr", "osd": "allow *"}, False),
        ("mds.n", {"mon": "profile mds", "osd": "allow *"}, False),
        ("mgr.evil", ANYTHING, True),
        ("client.osd-lockbox.1f", {"mon": "allow command \"config-key get\" with key=\"x\""}, False),
        ("client.bootstrap-osd", {"mon": "profile bootstrap-osd"}, False),
    ],
)  # fmt: skip
def test_who_may_do_anything_is_told_beside_but_for_daemons_own(
    programs: Any, name: str, caps: dict[str, str], named: bool
) -> None:
    ask = Cluster()
    before = list(programs.STATES["ground"](ask, WANTED))
    ask.identities[name] = ("k3", caps)
    after = list(programs.STATES["ground"](ask, WANTED))
    assert [line.split()[:3] for line in after if line not in before] == [
        ["beside", "identity", name]
    ] * named
    assert programs.own_lines(iter(after)) == before, "no step answers for it"


def test_an_identity_that_was_added_is_named_and_one_that_was_there_is_not_taken_away() -> None:
    sealed = ["identity client.known 1 mon allow *"]
    more = ["identity client.mallory 2 mon allow *", "identity client.known 3 mon allow *"]
    plan = plan_for("identities", "x", {"beside": sealed}, {"beside": [*sealed, *more]})
    assert [command["argv"] for command in plan.obstacles.undone] == [
        ["ceph", "auth", "rm", "client.mallory"]
    ]


def test_the_step_of_identities_says_that_it_governs_others_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = load(ROOT / "roles/ceph/library/causeway_ceph.py")
    governs = dict[str, Any]()
    for step in ("ground", "objects"):
        params: dict[str, Any] = {"step": step, "kind": None, "hosts": [], "after": "", "lossy": False}
        answer = json.dumps({"changes": [], "state": ["a"]})
        fake = SimpleNamespace(
            params=params,
            check_mode=False,
            run_command=lambda _, answer=answer: (0, answer, ""),
            exit_json=lambda step=step, **told: governs.update({step: told["governs"]}),
        )
        monkeypatch.setattr(module, "AnsibleModule", lambda fake=fake, **_: fake)
        module.main()
    assert [one["kind"] for one in governs["objects"]] == ["check"]
    assert [one["kind"] for one in governs["ground"]] == ["check", "identities"]
    assert governs["ground"][0]["how"] == governs["ground"][1]["how"], "asked once for both"
    assert "want" not in governs["ground"][1], "what somebody added no step answers for"
