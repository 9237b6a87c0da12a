"""Which roles a wave runs on which hosts: those whose converge record is not current, and no others."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra import files
from infra.components import leaving
from infra.components import wave as component
from infra.components.wave import ConfigurationLifecycle
from infra.converge.progress import HostResult
from infra.converge.runner import RunResult
from infra.drift.findings import Difference, HostReport, RoleReport
from infra.drift.manifest import Manifest, RoleManifest
from infra.errors import CausewayError
from infra.files import write_file
from infra.inventory.roles import ORDER
from infra.inventory.steps import read_yaml
from infra.providers.lifecycle import Observed
from infra.stack import stack_dir
from infra.verify import verdicts
from infra.verify.verdicts import Check, Verdict, VerificationResult

State = Callable[[Observed], dict[str, Any]]
HOSTS = ("tokyo-control-0", "tokyo-gpu-0", "tokyo-gpu-1")
ALL_PLAYS = frozenset(play["name"] for play in read_yaml(ORDER))


class Playbooks:
    """Stands in for Ansible: notes the hosts and roles of each run, and fails those it is told to."""

    def __init__(self) -> None:
        self.runs: list[list[str]] = []
        self.roles: list[dict[str, list[str]]] = []
        self.states: dict[str, Any] = {}
        self.plays: frozenset[str] = ALL_PLAYS

    def __call__(
        self, playbook: str, *, limit: list[str], extra_vars: dict[str, Any], **_arguments: Any
    ) -> RunResult:
        assert playbook == "playbooks/site.yml"
        self.runs.append(list(limit))
        self.roles.append(extra_vars["causeway_due"])
        hosts = {
            name: HostResult(self.states.get(name, "ok"), task="Set the time zone", message="no such zone")
            for name in limit
        }
        return RunResult(hosts, Path("log"), 1.0, self.plays)


@pytest.fixture
def playbooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Playbooks:
    fake = Playbooks()
    monkeypatch.setattr(component, "run_playbook", fake)
    for module in (component, leaving):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    return fake


def wave(**roles: str) -> dict[str, Any]:
    wanted = {"base": "r1", "consul": "c1"} | roles
    hosts = {name: {"instance": f"id of {name}", "roles": dict(wanted)} for name in HOSTS}
    return {"stack": "s", "wave": "tokyo", "hosts": hosts}


def ensure(inputs: dict[str, Any]) -> dict[str, Any]:
    return ConfigurationLifecycle().ensure(inputs, {})


def told(inputs: dict[str, Any]) -> list[str]:
    return ConfigurationLifecycle().observe(inputs).drift


def kept(seen: Observed) -> dict[str, Any]:
    """What a state holds of a look."""
    return {**seen.outputs, "drift": seen.drift}


def kept_by_an_older_version(seen: Observed) -> dict[str, Any]:
    """It had sentences only."""
    return {"drift": seen.drift}


STATES = pytest.mark.parametrize("state", [kept, kept_by_an_older_version])


def test_a_converged_host_is_not_touched_again(playbooks: Playbooks) -> None:
    assert ensure(wave())["unreachable"] == []
    assert told(wave()) == []
    ensure(wave())
    assert playbooks.runs == [list(HOSTS)]


def test_a_role_runs_where_its_inputs_changed_and_nowhere_else(playbooks: Playbooks) -> None:
    ensure(wave())
    assert playbooks.roles == [{"base": list(HOSTS), "consul": list(HOSTS)}]
    changed = wave()
    changed["hosts"]["tokyo-gpu-0"]["roles"]["base"] = "r2"
    changed["hosts"]["tokyo-gpu-1"]["roles"] |= {"base": "r2", "consul": "c2"}
    assert told(changed) == [f"{name}: not configured as declared" for name in HOSTS[1:]]
    ensure(changed)
    ensure(changed)
    assert playbooks.runs[1:] == [list(HOSTS[1:])]
    assert playbooks.roles[1:] == [{"base": list(HOSTS[1:]), "consul": ["tokyo-gpu-1"]}]


def test_a_verdict_is_forgotten_before_its_role_runs(
    playbooks: Playbooks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """However the run ends."""
    monkeypatch.setattr(verdicts, "ROOT", tmp_path)
    ensure(wave())
    checks = tuple(
        Check(name, role, "it", Verdict.EFFECTIVE) for name in HOSTS for role in ("base", "consul")
    )
    write_file(verdicts.kept_file("s"), VerificationResult(checks, None).dump())
    changed = wave()
    changed["hosts"][HOSTS[1]]["roles"]["base"] = "r2"
    playbooks.states = {HOSTS[1]: "failed"}
    with pytest.raises(CausewayError):
        ensure(changed)
    assert verdicts.read_result("s").good() == {(c.host, c.role) for c in checks} - {(HOSTS[1], "base")}
    playbooks.states = {HOSTS[1]: "unreachable"}
    ensure(changed)
    assert not [found for found in verdicts.read_result("s").good() if found[0] == HOSTS[1]]


def test_what_roles_make_no_more_leaves_in_the_same_run(
    playbooks: Playbooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    took: list[dict[str, list[str]]] = []
    records = {name: Manifest(host=name, roles={"consul": RoleManifest()}) for name in HOSTS}
    monkeypatch.setattr(leaving, "record_of", lambda _stack, host: records[host])

    def run(playbook: str, **arguments: Any) -> RunResult:
        result = playbooks(playbook, **arguments)
        records[HOSTS[1]].roles["consul.parts"] = RoleManifest(declared=False)
        return result

    def take(_stack: str, leave: dict[str, list[str]], *_: Any) -> RunResult:
        took.append(leave)
        for name in leave:
            del records[name].roles["consul.parts"]
        return RunResult({name: HostResult("ok") for name in leave}, Path("log"), 1.0)

    monkeypatch.setattr(component, "run_playbook", run)
    monkeypatch.setattr(component, "take_leave", take)
    ensure(wave())
    assert took == [{HOSTS[1]: ["consul.parts"]}]
    assert told(wave()) == []
    records[HOSTS[2]].roles["consul.parts"] = RoleManifest(declared=False)  # a run that was killed left it
    assert told(wave()) == [f"{HOSTS[2]}: what consul makes no more is to leave"]
    ensure(wave())
    assert took[1:] == [{HOSTS[2]: ["consul.parts"]}]
    assert playbooks.runs == [list(HOSTS)]


def test_a_changed_role_touches_every_host_and_no_other_role(playbooks: Playbooks) -> None:
    ensure(wave())
    ensure(wave(base="r2"))
    assert playbooks.roles[1:] == [{"base": list(HOSTS)}]


def test_a_role_that_is_new_runs_alone(playbooks: Playbooks) -> None:
    ensure(wave())
    ensure(wave(ceph="s1"))
    ensure(wave())
    ensure(wave(ceph="s1"))
    assert playbooks.roles[1:] == [{"ceph": list(HOSTS)}]


@pytest.mark.parametrize("waiting", [(), ("consul",), ("roce",)])
def test_a_role_waits_while_the_one_before_it_may_not_leave(waiting: tuple[str, ...]) -> None:
    due = {"tokyo-gpu-0": ["names"], "tokyo-gpu-1": ["base", "names"], "tokyo-gpu-2": ["base", "names"]}
    held = dict.fromkeys(("tokyo-gpu-0", "tokyo-gpu-1"), waiting)
    runs = leaving.without_successors(due, held)
    waits = {"tokyo-gpu-1": ["base"], "tokyo-gpu-2": ["base", "names"]}
    assert runs == (waits if "consul" in waiting else due)


def test_of_a_record_of_an_older_version_all_roles_run(playbooks: Playbooks, tmp_path: Path) -> None:
    ensure(wave())
    for name, older in zip(HOSTS, ("0123456789abcdef", "1234567890123456", "null"), strict=True):
        (tmp_path / stack_dir("s") / "converged" / name).write_text(older)
    ensure(wave())
    assert playbooks.roles == [{"base": list(HOSTS), "consul": list(HOSTS)}] * 2
    older_inputs = {**wave(), "hosts": {HOSTS[0]: {"instance": "i", "variables": "v"}}, "roles": {}}
    assert told(older_inputs) == [f"{HOSTS[0]}: not configured as declared"], "a refresh before the first up"


def test_a_failed_host_is_named_and_the_next_up_runs_it_alone(playbooks: Playbooks) -> None:
    playbooks.states["tokyo-gpu-1"] = "failed"
    with pytest.raises(CausewayError, match=r"tokyo-gpu-1 failed at “Set the time zone”: no such zone"):
        ensure(wave())
    playbooks.states.clear()
    ensure(wave())
    assert playbooks.runs == [list(HOSTS), ["tokyo-gpu-1"]]


def test_a_role_of_which_the_play_never_began_is_due_again_on_hosts_that_did_not_fail(
    playbooks: Playbooks,
) -> None:
    """Where all hosts of a play fail, Ansible ends there, for the hosts of other plays too."""
    playbooks.plays = frozenset(["What every node needs"])
    playbooks.states["tokyo-control-0"] = "failed"
    with pytest.raises(CausewayError):
        ensure(wave())
    playbooks.states.clear()
    playbooks.plays = ALL_PLAYS
    ensure(wave())
    assert playbooks.roles[1] == {"base": ["tokyo-control-0"], "consul": list(HOSTS)}
    ensure(wave())
    assert len(playbooks.runs) == 2


@STATES
def test_a_host_that_was_not_current_for_the_last_declaration_may_be_for_this_one(
    state: State, playbooks: Playbooks
) -> None:
    """After an `up` that failed half way, a refresh still compares with the declaration before it."""
    lifecycle = ConfigurationLifecycle()
    ensure(wave(base="r2"))
    seen = lifecycle.observe(wave())
    assert len(seen.drift) == len(HOSTS)
    lifecycle.ensure(wave(base="r2"), state(seen))
    assert playbooks.runs == [list(HOSTS)], "they took it already"
    differs = Observed(["tokyo-gpu-0: base: /etc/hosts differs"], {"found": {"tokyo-gpu-0": "differs"}})
    lifecycle.ensure(wave(base="r2"), state(differs))
    assert playbooks.runs[1:] == [["tokyo-gpu-0"]], "what really differs is converged"


def test_sentences_are_for_people_only(playbooks: Playbooks) -> None:
    ensure(wave())
    odd = ["tokyo-gpu-0 (base): in other words", "on tokyo-gpu-1: nothing: did not answer"]
    lifecycle = ConfigurationLifecycle()
    made = lifecycle.ensure(wave(), kept(Observed(odd, {"found": {HOSTS[0]: "differs"}})))
    assert playbooks.runs[1:] == [[HOSTS[0]]]
    lifecycle.ensure(wave(), made | {"drift": odd})
    assert playbooks.runs[2:] == []


def test_a_silent_host_does_not_hold_up_the_waves_behind(
    playbooks: Playbooks, capsys: pytest.CaptureFixture[str]
) -> None:
    playbooks.states["tokyo-gpu-0"] = "unreachable"
    made = ensure(wave())
    assert made["unreachable"] == ["tokyo-gpu-0"]
    assert made["drift"] == ["tokyo-gpu-0: did not answer"], "the next up would see nothing to do"
    assert "tokyo-gpu-0 unreachable" in capsys.readouterr().out
    assert told(wave()) == ["tokyo-gpu-0: not configured as declared"]


def report(host: str, message: str = "", *differences: str) -> HostReport:
    found = [
        Difference("base", "task", "file", key, {"mode": "0644"}, {"mode": "0600"}) for key in differences
    ]
    return HostReport(
        host,
        "tokyo",
        "unreachable" if message else "drift" if found else "clean",
        {"base": RoleReport("drift" if found else "clean", found)},
        message,
    )


@STATES
def test_a_current_host_that_is_silent_is_asked_again_and_converged_only_where_it_differs(
    state: State, playbooks: Playbooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is off has nothing to converge, and yet an `up` must not call the stack proven."""
    scans: dict[str, HostReport] = {name: report(name, "no answer within 10 s") for name in HOSTS}
    asked: list[list[str]] = []

    def scan(_stack: str, hosts: list[str]) -> Iterator[HostReport]:
        asked.append(list(hosts))
        yield from (scans[name] for name in hosts)

    monkeypatch.setattr(component, "_reports", scan)
    lifecycle = ConfigurationLifecycle()
    ensure(wave())
    seen = lifecycle.observe(wave())
    assert seen.drift == [f"{name}: did not answer" for name in HOSTS], (
        "a difference, so that `up` comes to it"
    )

    scans |= {HOSTS[0]: report(HOSTS[0]), HOSTS[1]: report(HOSTS[1], "", "/etc/hosts")}
    made = lifecycle.ensure(wave(), state(seen))
    assert set(asked[-2]) == set(HOSTS)
    assert playbooks.runs[1:] == [[HOSTS[1]]], "the first has nothing to do, the last is still silent"
    assert playbooks.roles[1:] == [{"base": [HOSTS[1]]}], "Consul is as it was sealed"
    assert made == {
        "unreachable": [HOSTS[2]],
        "found": {HOSTS[2]: "did not answer"},
        "differing": {},
        "drift": [f"{HOSTS[2]}: did not answer"],
    }
    scans[HOSTS[1]] = report(HOSTS[1])
    assert told(wave()) == [f"{HOSTS[2]}: did not answer"], "its record is as it was"


def test_a_run_that_dies_half_way_has_converged_nothing(
    playbooks: Playbooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure(wave())

    def dies(*_words: object, **_named: object) -> RunResult:
        raise KeyboardInterrupt

    monkeypatch.setattr(component, "run_playbook", dies)
    with pytest.raises(KeyboardInterrupt):
        ensure(wave(base="r2"))
    assert len(told(wave())) == 3, "not even the old roles are known to be there"
    assert playbooks.runs == [list(HOSTS)]


def test_a_forgotten_wave_is_configured_anew(playbooks: Playbooks) -> None:
    ensure(wave())
    ConfigurationLifecycle().remove(wave())
    ConfigurationLifecycle().remove(wave())
    ensure(wave())
    assert playbooks.runs == [list(HOSTS)] * 2


def test_a_wave_by_another_name_keeps_what_is_known_of_its_hosts(
    playbooks: Playbooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new one has sealed them by the time that Pulumi takes the old one away."""
    ensure(wave())
    renamed = wave() | {"wave": "tokyo+shanghai"}
    ensure(renamed)
    standing = SimpleNamespace(hosts=dict.fromkeys(HOSTS[:2]), waves=(("tokyo", "shanghai"),))
    forgotten: list[str] = []
    monkeypatch.setattr(component, "standing_contract", lambda _stack: standing)
    monkeypatch.setattr(component, "forget_host", lambda _stack, name: forgotten.append(name))
    ConfigurationLifecycle().remove(wave())
    monkeypatch.setattr(component, "standing_contract", lambda *_: None)
    ensure(renamed)
    assert forgotten == []
    assert playbooks.runs == [list(HOSTS), [HOSTS[2]]], "which is in no wave any more"


def test_a_hash_follows_every_file_that_reaches_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ROOT", tmp_path)
    task = tmp_path / "roles" / "base" / "tasks" / "main.yml"
    task.parent.mkdir(parents=True)
    task.write_text("---\n")
    empty, first = files.tree_hash("inventories/s"), files.tree_hash("roles/base")
    scenario = tmp_path / "roles" / "base" / "molecule" / "default" / "molecule.yml"
    scenario.parent.mkdir(parents=True)
    scenario.write_text("---\n")
    assert files.tree_hash("roles/base") == first, "a scenario changes no node"
    task.rename(task.with_name("more.yml"))
    assert files.tree_hash("roles/base") != first, "a name counts as well as a content"
    source = tmp_path / "inventories" / "s" / "causeway.yml"
    source.parent.mkdir(parents=True)
    source.write_text("---\n")
    assert files.tree_hash("inventories/s") == empty, "`up` writes it: a preview after it shows no change"
    (source.parent / "host_vars.yml").write_text("---\n")
    assert files.tree_hash("inventories/s") != empty
