"""What a scan says, to people, to programs and by its exit status; and when a manifest is stale."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from infra.commands import drift as command
from infra.components import leaving
from infra.components import wave as component
from infra.converge.progress import HostResult
from infra.converge.runner import RunResult
from infra.declaration import ClusterSpec
from infra.drift import manifest as manifests
from infra.drift import report
from infra.drift.findings import Difference, HostReport, RoleReport, explain, moment, text_diff
from infra.drift.manifest import NODE_COPY, Entry, Manifest, RoleManifest, save_manifest
from infra.drift.repair import host_plan
from infra.drift.scan import Scanner
from infra.errors import ExitCode
from infra.ground.contract import Contract
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from tests.unit.test_configuration import ALL_PLAYS

EXPLAINED = [
    ("file", {"digest": "a"}, {"digest": "b"}, "its content differs"),
    ("file", {"mode": "0644"}, {"mode": "0600"}, "mode is 0600, expected 0644"),
    ("file", {"immutable": False}, {"immutable": True}, "immutable is yes, expected no"),
    (
        "file",
        {"attributes": ["user.a 1", "user.b 1"]},
        {"attributes": ["user.b 2", "user.c 1"]},
        "attributes: added: user.c; missing: user.a; user.b has another value",
    ),
    (
        "unit",
        {"contents": ["/usr/lib/x.service as its package brought it"], "active": "active"},
        {"contents": ["/usr/lib/x.service 1f"], "active": "failed"},
        "active is failed, expected active; edited: /usr/lib/x.service",
    ),
    (
        "directory",
        {"mode": "0755", "attributes": []},
        {"mode": "0775", "attributes": ["append-only"]},
        "mode is 0775, expected 0755; attributes: added: append-only",
    ),
    (
        "file",
        {"type": "file", "mode": "0644"},
        {"type": "absent", "mode": None},
        "is absent, expected a file",
    ),
    ("absent", {"type": "absent"}, {"type": "file"}, "is a file, expected absent"),
    ("listing", {"names": ["a", "b"]}, {"names": ["b", "c"]}, "added: c; missing: a"),
    ("listing", {"names": ["a"]}, {"names": None}, "is gone"),
    ("effective", {"output": ["x 1"]}, {"output": ["x 2"]}, "added: x 2; missing: x 1"),
    (
        "effective",
        {"lines": ["f: a"]},
        {"lines": ["f: a", "f: Match all"]},
        "in its files added: f: Match all",
    ),
    (
        "effective",
        {"output": ["x 1"], "lines": []},
        {"output": [], "lines": ["f: a"]},
        "missing: x 1; in its files added: f: a",
    ),
    ("package", {"version": "2"}, {"version": "1"}, "version is 1, expected 2"),
    ("unit", {"enabled": "enabled"}, {"enabled": ""}, "enabled is none, expected enabled"),
    ("user", {"password": "a"}, {"password": "b"}, "its password was changed"),
    ("mount", {}, {"error": "Permission denied"}, "cannot be read: Permission denied"),
]


@pytest.mark.parametrize(("kind", "expected", "found", "text"), EXPLAINED)
def test_a_difference_is_said_in_words(
    kind: str, expected: dict[str, Any], found: dict[str, Any], text: str
) -> None:
    assert explain(kind, expected, found) == text


def difference(**changes: Any) -> Difference:
    values: dict[str, Any] = {
        "role": "base",
        "task": "Write the hosts file",
        "kind": "file",
        "key": "/etc/hosts",
        "expected": {"digest": "a"},
        "found": {"digest": "b"},
        "since": moment(1.0),
        "diff": text_diff("/etc/hosts", "one\n", "two\n"),
    }
    return Difference(**(values | changes))


def host(
    state: Any = "clean", *differences: Difference, role: Any = "clean", message: str = ""
) -> HostReport:
    roles = {"base": RoleReport(role, list(differences)), "tcp_tuning": RoleReport("clean")}
    return HostReport("tokyo-gpu-0", "tokyo", state, roles, message)


@pytest.mark.parametrize(
    ("reports", "code"),
    [
        ([host()], ExitCode.OK),
        ([host(), host("drift", difference())], ExitCode.DRIFT),
        ([host("stale", role="stale")], ExitCode.DRIFT),
        ([host("not sealed", role="not sealed")], ExitCode.DRIFT),
        ([host(), host("unreachable", message="no answer")], ExitCode.FAILED),
        ([host("drift", difference()), host("unreachable")], ExitCode.DRIFT),
    ],
)
def test_the_exit_status_says_the_worst(reports: list[HostReport], code: ExitCode) -> None:
    summary = report.Summary()
    for found in reports:
        summary.add(found)
    assert summary.exit_code == code


def test_people_read_what_differs_since_when_and_how_it_is_repaired() -> None:
    lines = "\n".join(report.host_lines("local", host("drift", difference(), role="drift")))
    assert "file /etc/hosts: its content differs" in lines
    assert "since 1970-01-01T00:00:01+00:00; made by task “Write the hosts file”" in lines
    assert "| -one" in lines
    assert "| +two" in lines
    assert "-i inventories/local --limit tokyo-gpu-0 --tags base" in lines


def test_the_copy_on_the_node_alone_is_repaired_by_all_roles() -> None:
    found = host("drift")
    found.roles["manifest"] = RoleReport("drift", [difference(role="manifest")])
    assert found.drifted_roles == ["base", "tcp_tuning"]


def test_programs_read_json() -> None:
    data = json.loads(json.dumps(report.as_json("local", host("drift", difference()))))
    assert data["roles"]["base"]["differences"][0]["key"] == "/etc/hosts"
    assert data["repair"].endswith("--tags base")
    assert "repair" not in report.as_json("local", host())


def cluster(**changes: Any) -> Contract:
    region = {
        "name": "tokyo",
        "provider": {"kind": "local"},
        "cidr": "10.81.0.0/16",
        "timezone": "Asia/Tokyo",
        "pools": [{"name": "control", "role": "control", "count": 1}],
    }
    spec = ClusterSpec.model_validate({"name": "c", "regions": [region | changes]})
    return build_contract(spec, make_plan(spec), "s")


def test_unknown_names_are_bad_input() -> None:
    assert command.hosts_of(cluster(), ["tokyo"], []) == ["tokyo-control-0"]
    for regions, hosts in ((["tokio"], []), ([], ["tokyo-control-9"])):
        with pytest.raises(Exception, match=r"no (region|host) tok.*"):
            command.hosts_of(cluster(), regions, hosts)


def test_up_converges_the_hosts_that_drifted_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (component, leaving):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    runs: list[list[str]] = []

    def run_playbook(_playbook: str, *, limit: list[str], **_more: Any) -> RunResult:
        runs.append(limit)
        return RunResult({name: HostResult("ok") for name in limit}, tmp_path / "log", 1.0, ALL_PLAYS)

    monkeypatch.setattr(component, "run_playbook", run_playbook)
    hosts = {name: {"instance": name, "roles": {"base": "r1"}} for name in "ab"}
    wave = {"stack": "s", "wave": "tokyo", "hosts": hosts}
    lifecycle = component.ConfigurationLifecycle()
    lifecycle.ensure(wave, {})
    lifecycle.ensure(wave, {"drift": []})
    lifecycle.ensure(wave, {"drift": ["b: base: file /etc/hosts: its content differs"]})
    assert runs == [["a", "b"], ["b"]]


def test_a_repair_runs_what_differs_or_was_not_sealed_and_rolls_nothing_out() -> None:
    report = HostReport("n", "r", "drift")
    report.roles["base"] = RoleReport("stale")
    report.roles["roce"] = RoleReport("not sealed", ran=False)
    report.roles["tcp_tuning"] = RoleReport("not sealed", notes=["No space left"])
    assert report.drifted_roles == ["tcp_tuning"]
    report.roles["drift_watch"] = RoleReport("drift", [Difference("drift_watch", "t", "file", "/f", {}, {})])
    assert report.drifted_roles == ["tcp_tuning", "drift_watch"]
    plan = host_plan(report, Manifest(host="n"))
    assert plan.roles == ["tcp_tuning", "drift_watch"]
    assert plan.lines == ["drift_watch: file /f: ", "tcp_tuning is not sealed: No space left"]


def test_up_sees_the_roles_that_are_not_sealed_or_stale_and_only_hosts_of_the_contract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract = cluster()
    for module in (component, leaving):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(component, "standing_contract", lambda _stack, _asked_for="": contract)
    asked: list[str] = []

    def scan_stack(_stack: str, hosts: list[str], *, anew: bool) -> list[HostReport]:
        assert anew, "what was so a moment ago decides nothing"
        asked.extend(hosts)
        found = HostReport(hosts[0], "tokyo", "not sealed")
        found.roles["base"] = RoleReport("not sealed", notes=["No space left"])
        found.roles["roce"] = RoleReport("stale", notes=["the role changed"])
        found.roles["drift_watch"] = RoleReport("clean")
        return [found]

    monkeypatch.setattr(component, "scan_stack", scan_stack)
    wave = {"stack": "s", "wave": "tokyo", "hosts": {"tokyo-control-0": {"roles": {}}, "gone": {"roles": {}}}}
    assert component.ConfigurationLifecycle().observe(wave).drift == [
        "tokyo-control-0: base is not sealed: No space left; roce is stale: the role changed"
    ]
    assert asked == ["tokyo-control-0"]


def test_where_the_nodes_own_copy_differs_every_role_runs() -> None:
    report = HostReport("n", "r", "drift")
    report.roles["base"] = RoleReport("clean")
    report.roles["drift_watch"] = RoleReport("drift", [Difference("drift_watch", "t", "file", "/f", {}, {})])
    assert report.drifted_roles == ["drift_watch"]
    copy = Difference("manifest", "t", "file", "/var/lib/causeway/manifest.json", {}, {})
    report.roles["manifest"] = RoleReport("drift", [copy])
    assert report.drifted_roles == ["base", "drift_watch"]


class Answering:
    """Stands for the way to a node that finds the last thing it is asked for changed."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.anew = False

    async def open(self, _host: str) -> "Answering":
        return self

    async def __aenter__(self) -> "Answering":
        return self

    async def __aexit__(self, *_error: object) -> None:
        pass

    async def ask(self, _connection: object, _host: str, request: dict[str, Any]) -> dict[str, Any]:
        self.asked = [key for _kind, key, _how, _want in request["entries"]]
        self.anew = request["anew"]
        return {"machine": "m", "values": [[len(self.asked) - 1, {"found": {"digest": "b"}}]]}


def test_a_role_that_is_no_longer_declared_is_named_and_neither_compared_nor_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "ROOT", tmp_path)
    name = "tokyo-control-0"
    parts = {
        "base": [Entry(kind="file", key="/etc/hosts", task="t", want={"digest": "a"})],
        "consul": [
            Entry(kind="unit", key="consul.service", task="t", want={}),
            Entry(kind="file", key="/etc/consul.d/x", task="t", want={}),
        ],
    }
    roles = {role: RoleManifest(inputs="i", sealed_at="now", entries=part) for role, part in parts.items()}
    save_manifest("s", Manifest(host=name, machine="m", roles=roles))
    scanner, trips = Scanner(cluster(), {name: {"base": "i"}}), Answering()
    scanner.trips = trips  # type: ignore[assignment]
    report = asyncio.run(scanner.host(name))
    assert trips.asked == ["/etc/hosts", NODE_COPY]
    assert not trips.anew
    assert report.roles["consul"].state == "orphaned"
    left = "no longer declared; it left the units consul.service and 1 files"
    assert report.roles["consul"].notes == [left]
    assert report.unsettled_roles == []
    assert report.drifted_roles == ["base"], "the node's copy differs: all roles run that the node has"
