"""Differences that meet: a stranger's beside a task's or an update's, one node's nonsense beside others."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from infra.drift import manifest as manifests
from infra.drift import repair
from infra.drift.answer import read_answer
from infra.drift.findings import Difference, HostReport, RoleReport
from infra.drift.journal import journal_path, note_changes, noted_changes
from infra.drift.kind import Task
from infra.drift.kinds.effective import files_below
from infra.drift.looks import shown_key
from infra.drift.manifest import Manifest, save_manifest
from infra.drift.merge import HostSeal
from infra.drift.record import Recorder, as_json
from infra.drift.seal import _problems
from tests.loaded import load
from tests.unit.test_drift_seal import FOUND, claim, record, seal, wants

ROOT = Path(__file__).resolve().parents[2]
KEYS_FILE = "/root/.ssh/authorized_keys"
OURS = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA ours"
PACKAGE = {"installed": True, "version": "1.0", "hold": False}


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "ROOT", tmp_path)


def recorded(*tasks: Task, **declared: Any) -> dict[str, Any]:
    """What the callback records of these tasks, and of one that says what it governs."""
    recorder = Recorder()
    if declared:
        recorder.take("node", "base", Task("Say", "ansible.builtin.debug", {}, {}), declared=[declared])
    for task in tasks:
        recorder.take("node", "base", task)
    return as_json(recorder.hosts["node"]["base"]) | {"whole": True, "handlers": []}


def test_a_strangers_key_stays_named_when_the_first_key_is_declared() -> None:
    let_in = Task(
        name="Let keys in", module="ansible.posix.authorized_key", changed=True,
        args={"user": "root", "key": OURS, "state": "present"}, result={"keyfile": KEYS_FILE},
    )  # fmt: skip

    def run(records: dict[str, Any], *lines: str) -> list[str]:
        made = HostSeal("s", "node", {"base": records}, {"base": str(lines)}, "instance 1")
        of_root = [f"{KEYS_FILE}: {line}" for line in lines]
        answers = {"root": {"keys": of_root}, KEYS_FILE: {"keys": list(lines)}, "all": {}}
        values = [FOUND if one["kind"] == "file" else answers[one["key"]] for _, one in made.claims]
        made.merge({"machine": "m1", "values": values})
        save_manifest("s", made.manifest)
        return made.not_repaired

    nobody = {"kind": "authorized_keys", "key": "root"}
    assert run(recorded(**nobody), "colleague", "gone") == []
    assert "evil" in run(recorded(**nobody), "colleague", "evil")[0]
    for _ in range(2):
        assert "evil" in run(recorded(let_in, **nobody), "colleague", "evil", shown_key(OURS))[0]
    assert wants()["authorized_keys", KEYS_FILE] == {"keys": sorted(["colleague", shown_key(OURS)])}


def test_what_an_update_leaves_beside_settings_keeps_nothing_of_a_role_from_being_sealed() -> None:
    own, shipped = "/etc/apt/apt.conf.d/52ours", "/etc/apt/apt.conf.d/50unattended-upgrades"
    how = {"inputs": ["/etc/apt/apt.conf.d"], "package": "apt", "argv": ["apt-config", "dump"]}
    settings = claim("effective", "apt-config dump", how=how)
    inputs = {own: "o1", shipped: "u1", "apt": "2.6"}
    found = {"output": ["a 1"], "_inputs": inputs, "_packaged": [shipped]}
    seal({"base": record(claim("file", own), settings)}, FOUND | {"digest": "o1"}, found)
    inputs = inputs | {own: "o2", f"{shipped}.ucf-dist": "u2"}
    found = {"output": ["a 2"], "_inputs": inputs, "_packaged": [shipped]}
    made = seal({"base": record(claim("file", own, changed=True), settings)}, FOUND | {"digest": "o2"}, found)
    assert made.not_repaired == []
    assert wants()["effective", "apt-config dump"] == {"output": ["a 2"]}


def test_what_updates_leave_is_no_programs_input(tmp_path: Path) -> None:
    for name in ("50.conf", "50.conf.dpkg-dist", "60.conf.ucf-old"):
        (tmp_path / name).touch()
    assert files_below(str(tmp_path)) == [str(tmp_path / "50.conf")]


def test_what_a_role_pins_is_not_sealed_newer_by_a_run_of_another() -> None:
    pins, takes = claim("package", "p", how={"pinned": True}), claim("package", "p")
    seal({"a": record(pins), "b": record(takes)}, PACKAGE, PACKAGE)
    made = seal({"b": record(takes)}, PACKAGE | {"version": "2.0"})
    assert made.not_repaired
    assert wants("a")["package", "p"]["version"] == "1.0"
    assert seal({"a": record(pins), "b": record(takes)}, *[PACKAGE | {"version": "2.0"}] * 2)
    assert wants("a")["package", "p"]["version"] == "2.0", "the task that pins has had its turn"


def test_a_groups_members_are_those_whom_tasks_let_in() -> None:
    group = {"exists": True, "gid": "9", "members": []}
    account = {
        "exists": True,
        "uid": "1",
        "gid": "1",
        "home": "/",
        "shell": "/",
        "groups": [],
        "password": "!",
    }
    made = Task("g", "ansible.builtin.group", {"name": "x", "gid": 9}, {"name": "x"}, changed=True)
    same = Task("g", "ansible.builtin.group", {"name": "x", "gid": 9}, {"name": "x"})
    joins = Task("u", "ansible.builtin.user", {"name": "y", "groups": ["x"]}, {"name": "y"}, changed=True)
    seal({"base": recorded(made)}, group)
    seal({"base": recorded(same, joins)}, group | {"members": ["y"]}, account | {"groups": ["x"]})
    assert wants()["group", "x"]["members"] == ["y"]
    again = seal({"base": recorded(made)}, group | {"members": ["evil", "y"]})
    assert wants()["group", "x"]["members"] == ["y"]
    assert "evil" in again.not_repaired[0]


def test_a_version_of_a_megabyte_is_refused_before_it_is_compared() -> None:
    answer = {"machine": "m", "values": [PACKAGE | {"version": "1." * 500_000}]}
    request = {"mode": "seal", "salt": "s", "entries": [["package", "x", {}, {}]]}
    with pytest.raises(ValueError, match="version"):
        read_answer(json.dumps(answer).encode(), request)


def test_a_host_that_cannot_be_planned_keeps_no_other_from_being_repaired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    differences = {
        "odd": Difference("base", "t", "mount", "/m", {"mounted": 7}, {"mounted": "b"}),
        "other": Difference("base", "t", "file", "/etc/x", {"mode": "0644"}, {"mode": "0600"}),
    }
    reports = [
        HostReport(name, "tokyo", "drift", {"base": RoleReport("drift", [difference])})
        for name, difference in differences.items()
    ]
    asked: list[dict[str, Any]] = []

    def scan_stack(*_: object, **how: Any) -> Iterator[HostReport]:
        asked.append(how)
        return iter(reports)

    monkeypatch.setattr(repair, "scan_stack", scan_stack)
    monkeypatch.setattr(repair, "load_manifest", lambda _stack, host: Manifest(host=host))
    monkeypatch.setattr(repair, "host_plan", fails_for("odd", repair.host_plan))
    planned = repair.plan("s", None, [])
    assert "cannot be planned" in planned["unreachable"]["odd"]
    assert set(planned["hosts"]) == {"other"}
    assert asked == [{"roles": [], "anew": True}], "a repair acts on no old answer"


def fails_for(name: str, real: Any) -> Any:
    def plan(report: HostReport, manifest: Manifest, *changes: Any) -> Any:
        if report.host == name:
            raise IndexError("of nonsense")
        return real(report, manifest, *changes)

    return plan


def test_a_line_of_the_journal_that_was_cut_off_is_passed_over() -> None:
    path = journal_path("s", "node")
    path.parent.mkdir(parents=True)
    path.write_text('["base", "file", "/etc/a"]\n["base", "fil')
    note_changes("s", "node", [("base", "file", "/etc/x")])
    assert noted_changes("s", "node") == {("base", "file", "/etc/a"), ("base", "file", "/etc/x")}


def test_another_nodes_broken_manifest_is_that_nodes_failure() -> None:
    shared = claim("check", "c", how={"shared": True, "argv": []})
    seal({"base": record(shared)}, {"output": ["a"]})
    (manifests.drift_dir("s") / "other.json").write_text("{")
    assert seal({"base": record(shared)}, {"output": ["b"]}).not_repaired


def test_what_is_named_at_the_end_of_a_run_is_a_line_that_can_be_read() -> None:
    listing = claim("listing", "/etc/cron.d")
    seal({"base": record(listing)}, {"names": []})
    made = seal({"base": record(listing)}, {"names": [f"n{number:060}" for number in range(20_000)]})
    assert max(len(line) for line in _problems(made, None)) < 1000


def prepare_module() -> ModuleType:
    path = ROOT / "playbooks" / "library" / "causeway_drift_prepare.py"
    return load(path)


def test_keys_are_taken_out_without_writing_through_what_lies_in_the_users_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, victim, folder = prepare_module(), tmp_path / "passwd", tmp_path / "home" / ".ssh"
    monkeypatch.setattr("ansible.module_utils.causeway_node.ASIDE", tmp_path / "aside")
    folder.mkdir(parents=True)
    victim.write_text("root:x:0:0\n")
    keys = folder / "authorized_keys2"
    keys.write_text(f"evil::0:0::/root:/bin/sh\n{OURS}\n")
    keys.chmod(0o640)
    (folder / ".authorized_keys2.part").symlink_to(victim)
    obstacles = {"added_keys": {str(keys): [shown_key(OURS)]}}
    asked = SimpleNamespace(
        params={"obstacles": obstacles, "remove_added": True}, check_mode=False,
        run_command=lambda *_, **__: (0, "", ""), warn=print,
    )  # fmt: skip
    module.Preparation(asked).all()
    assert victim.read_text() == "root:x:0:0\n"
    assert keys.read_text() == "evil::0:0::/root:/bin/sh\n"
    assert (keys.is_symlink(), keys.stat().st_mode & 0o777) == (False, 0o640)
