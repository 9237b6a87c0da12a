"""Monitoring as planned, handed on and looked at: who watches whom, what is sent, what nodes may answer."""

import itertools
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from infra.capabilities import host_variables, roles, variables
from infra.capabilities.monitoring import commands, state
from infra.capabilities.monitoring.page import page
from infra.capabilities.monitoring.section import MonitoringSection
from infra.capabilities.wan.section import WanSection
from infra.declaration import ClusterSpec
from infra.drift.inputs import role_inputs
from infra.errors import HARMFUL, BadInputError, CausewayError, ExitCode
from infra.ground.contract import Contract
from infra.inventory.roles import role_hosts
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from tests.loaded import load

ROOT = Path(__file__).resolve().parents[2]
MONITORING = {"kind": "prometheus", "receivers": [{"name": "ops", "kind": "webhook", "url_secret": "hook"}]}


def spec_of(
    regions: dict[str, tuple[int, int]], links: list[tuple[str, str]], **monitoring: Any
) -> ClusterSpec:
    """Region → control and GPU nodes."""
    gpu = {"gpus": 8, "gpu_model": "h100-sxm"}
    declared = {
        "name": "pacific",
        "regions": [
            {
                "name": name,
                "cidr": f"10.{number}.0.0/16",
                "pools": [
                    {"name": "control", "role": "control", "count": control},
                    {"name": "gpu", "role": "gpu", "count": count, **gpu},
                ],
            }
            for number, (name, (control, count)) in enumerate(regions.items(), 60)
        ],
        "wan_links": [
            {
                "name": f"{a}-{b}",
                "a": a,
                "b": b,
                "rtt_ms": 10 + n,
                "bandwidth_mbps": 100 * (n + 1),
                "loss_pct": 1,
            }
            for n, (a, b) in enumerate(links)
        ],
        "monitoring": MONITORING | monitoring,
    }
    return ClusterSpec.model_validate(declared)


def contract_of(
    regions: dict[str, tuple[int, int]], links: list[tuple[str, str]], **monitoring: Any
) -> Contract:
    """The contract of such a cluster, as stack `s`."""
    spec = spec_of(regions, links, **monitoring)
    return build_contract(spec, make_plan(spec), "s")


def chain(count: int, nodes: int = 2) -> Contract:
    """Regions r0, r1 … in a row; r0 sees all."""
    names = [f"r{number}" for number in range(count)]
    return contract_of(dict.fromkeys(names, (3, nodes)), list(itertools.pairwise(names)))


@given(count=st.integers(1, 5), chosen=st.integers(0, 4))
def test_every_region_is_watched_by_another_and_sends_within_its_class(count: int, chosen: int) -> None:
    names = [f"r{number}" for number in range(count)]
    seer = names[chosen % count]
    contract = contract_of(dict.fromkeys(names, (1, 1)), list(itertools.pairwise(names)), global_region=seer)
    section, wan = contract.need(MonitoringSection), contract.need(WanSection)
    own = host_variables(contract)
    for name, region in section.regions.items():
        others = set(names) - {name}
        assert region.watched_by in others if others else region.watched_by is None
        given_to = own[region.server]
        assert given_to["prometheus_receives"] == (name == seer and count > 1)
        assert bool(given_to["prometheus_sends_to"]) == (name != seer)
        if name != seer:
            route = wan.route(name, seer)
            assert route
            shares = [
                wan.links[link].bandwidth_mbps * wan.links[link].classes.scavenger_pct for link in route.path
            ]
            assert 0 < given_to["prometheus_send_bytes_s"] * 8 <= min(shares) / 100 * 1e6
        heard = given_to["prometheus_watched_regions"]
        assert all(section.regions[other].watched_by == name for other in heard)
    every = [
        other
        for region in section.regions.values()
        for other in own[region.server]["prometheus_watched_regions"]
    ]
    assert sorted(every) == sorted(names if count > 1 else [])


@given(count=st.integers(1, 3), known=st.booleans(), shared=st.booleans())
def test_every_region_sends_to_the_sites_own_receiver_itself(count: int, known: bool, shared: bool) -> None:
    names = [f"r{number}" for number in range(count)]
    by_name = {"username": "causeway", "password_secret": "hook" if shared else "metrics"} if known else {}
    far = {"url": "https://metrics.example.org:8443/api/v1/write", "ca_file": "keys/ca.pem", **by_name}
    spec = spec_of(dict.fromkeys(names, (1, 1)), list(itertools.pairwise(names)), remote_write=far)
    plan = make_plan(spec)
    contract = build_contract(spec, plan, "s")
    section, own = contract.need(MonitoringSection), host_variables(contract)
    servers = tuple(region.server for region in section.regions.values())
    (outside,) = plan.destinations
    assert (outside.host, outside.port, outside.sources.hosts) == ("metrics.example.org", 8443, servers)
    secret = f"given-{by_name['password_secret']}" if known else ""
    for server in servers:
        assert own[server]["prometheus_remote_write_url"] == far["url"]
        assert own[server]["prometheus_remote_write_password_file"].endswith(f"/{secret}" if secret else "")
        assert bool(own[server]["prometheus_remote_write_password_file"]) == known
        assert (secret in roles()["prometheus"].secrets(contract, server)) == known
    assert set(plan.secrets) == {"monitoring-ca", "given-hook", *([secret] if secret else [])}
    assert plan.resources["monitoring"] == len(plan.secrets)


def test_targets_are_what_is_declared_and_each_once() -> None:
    contract = chain(2, nodes=3)
    own = host_variables(contract)
    seen = [
        (job["name"], target["host"])
        for server in ("r0-control-0", "r1-control-0")
        for job in own[server]["prometheus_jobs"]
        for pool in job["pools"]
        for target in pool["targets"]
    ]
    assert len(seen) == len(set(seen))
    assert {host for job, host in seen if job == "node-exporter"} == set(contract.hosts)
    assert {host for job, host in seen if job == "alertmanager"} == {
        f"r{r}-control-{n}" for r in (0, 1) for n in range(3)
    }
    assert {host for job, host in seen if job == "dead-man"} == {"r0-control-0", "r1-control-0"}


def test_every_declared_node_is_counted_by_its_pool() -> None:
    own = host_variables(chain(2, nodes=3))
    declared = {
        (one["name"], one["labels"].get("pool", one["labels"].get("target_region"))): one["value"]
        for one in own["r0-control-0"]["prometheus_declared"]
    }
    assert declared == {
        ("causeway_declared_nodes", "control"): 3,
        ("causeway_declared_nodes", "gpu"): 3,
        ("causeway_declared_node_gpus", "gpu"): 8,
        ("causeway_declared_path_rtt_seconds", "r1"): 0.01,
        ("causeway_declared_path_loss_ratio", "r1"): pytest.approx(1 - 0.99**2),
    }


def test_a_cluster_without_monitoring_is_given_none_of_it() -> None:
    contract = chain(2)
    without = contract.model_copy(
        update={"sections": {k: v for k, v in contract.sections.items() if k != "monitoring"}}
    )
    assert not [
        name for own in host_variables(without).values() for name in own if name.startswith("prometheus")
    ]
    assert "node_exporter" not in variables(without)
    with pytest.raises(BadInputError, match="declares no monitoring"):
        state.cluster_state(without)


@pytest.fixture(scope="module")
def fingerprints() -> Any:
    return lambda name, _kind: f"of {name}"


def test_a_node_more_concerns_its_regions_server_and_nobody_elses(fingerprints: Any) -> None:
    before, after = (role_inputs(chain(2, nodes), {}, fingerprints) for nodes in (2, 3))
    changed = {
        (host, role)
        for host, roles in before.items()
        for role, value in roles.items()
        if role in ("node_exporter", "prometheus", "alertmanager") and after[host][role] != value
    }
    # Both, for the new node is in the second region as well.
    assert changed == {("r0-control-0", "prometheus"), ("r1-control-0", "prometheus")}


def test_another_secret_concerns_those_who_tell() -> None:
    contract = chain(2)

    def inputs(value: str) -> dict[str, dict[str, str]]:
        return role_inputs(contract, {}, lambda name, _kind: value if "hook" in name else name)

    before, after = inputs("one"), inputs("two")
    changed = {
        (host, role)
        for host, roles in before.items()
        for role, inputs_of in roles.items()
        if after[host][role] != inputs_of
    }
    assert changed == {(f"r{r}-control-{n}", "alertmanager") for r in (0, 1) for n in range(3)}


def sample(value: object, **labels: str) -> dict[str, Any]:
    return {"metric": labels, "value": [1, str(value)]}


def answers(**changes: Any) -> dict[str, Any]:
    hosts = ("r0-control-0", "r0-control-1", "r0-control-2", "r0-gpu-0")
    found: dict[str, Any] = {name: [] for name in state.QUERIES}
    found["up"] = [sample(1, instance=host) for host in hosts]
    found["path_rtt"] = [sample(0.0123, target_region="r1")]
    found["path_loss"] = [sample("NaN", target_region="r1")]
    return found | {"alerts": []} | changes


ALERT: dict[str, Any] = {
    "labels": {"alertname": "NodeGone", "severity": "ticket", "region": "r0", "instance": "r0-gpu-1\x1b[2J"},
    "annotations": {"summary": "gone\nfor good", "command": "./run up", "runbook": "x#nodegone"},
    "activeAt": "2026-01-01T00:00:00Z",
    "state": "firing",
}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What each server answers, or what asking it ends in."""
    given_answers: dict[str, Any] = {}

    def ask(_contract: Contract, server: str, _history: bool) -> dict[str, Any]:
        answer = given_answers.get(server, answers())
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return] # odd ones among them

    monkeypatch.setattr(state, "_ask", ask)
    return given_answers


def test_the_state_says_who_is_gone_what_fires_and_what_is_slow(seen: dict[str, Any]) -> None:
    paged = {**ALERT, "labels": {**ALERT["labels"], "severity": "page", "alertname": "PathDown"}}
    info = {**ALERT, "labels": {**ALERT["labels"], "severity": "info"}}
    seen["r0-control-0"] = answers(
        alerts=[ALERT, info, paged],
        drift=[sample(3, instance="r0-gpu-0"), sample(1, instance="somebody's")],
        link_up=[sample(0, link="r0-r1")],
    )
    first, _ = state.cluster_state(chain(2))
    assert first.gone == ("r0-gpu-1",)
    assert (first.up, first.declared) == (4, 5)
    assert [(one.name, one.severity) for one in first.alerts] == [
        ("PathDown", "page"),
        ("NodeGone", "ticket"),
    ]
    assert first.alerts[1].instance == "r0-gpu-1\\x1b[2J"
    assert first.alerts[1].summary == "gone\\nfor good"
    assert first.drifted == {"r0-gpu-0": 3}
    assert first.links == {"r0-r1": False}
    (way,) = first.ways
    assert (way.rtt_ms, way.loss_ratio, way.declared_rtt_ms) == (12.3, None, 10)
    assert commands.verdict([first]) == ExitCode.FAILED


ODD: list[Any] = [
    None,
    [],
    {},
    "x",
    {"up": None},
    answers(up=[1]),
    answers(up=[sample("x")]),
    answers(alerts=[{}]),
    answers(cpu=[{}]),
]


@pytest.mark.parametrize(
    "odd", [*ODD, CausewayError("no route"), ValueError("not JSON"), RecursionError()], ids=repr
)
def test_one_servers_nonsense_is_that_regions_problem(seen: dict[str, Any], odd: Any) -> None:
    seen["r0-control-0"] = odd
    first, second = state.cluster_state(chain(2))
    assert first.problem
    assert "r0-control-0" in first.problem
    assert second.problem is None
    assert commands.verdict([first]) == ExitCode.FAILED
    assert commands.verdict([second]) == ExitCode.OK
    assert json.loads(json.dumps(commands.as_json(chain(2), [first, second])))["regions"]["r0"]["up"] is None
    assert "not seen" in drawn(chain(2), [first, second])


def drawn(contract: Contract, states: list[state.RegionState], width: int = 120) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(commands.screen(contract, states))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


TEXT = st.sampled_from(["[/x]", "[red]", "[link=x]", "\\[", "<b>", "\x1b[2J", "\u202e", "NaN"]) | st.text(
    max_size=9
)
"""What a node may call something: rich's markup, HTML, a terminal's commands."""
NUMBER = st.sampled_from(["NaN", "+Inf", "-Inf", "1e400", "-1"]) | st.floats(-1e9, 1e9).map(str)
LABELS = ("instance", "link", "target_region")


@given(data=st.data())
def test_nothing_that_a_node_says_keeps_the_others_from_being_seen(data: st.DataObject) -> None:
    labels = st.fixed_dictionaries(dict.fromkeys(LABELS, TEXT))
    samples = st.lists(st.builds(lambda value, named: sample(value, **named), NUMBER, labels), max_size=2)
    alert = st.fixed_dictionaries(
        {
            "labels": st.fixed_dictionaries(
                {**dict.fromkeys(("alertname", *LABELS), TEXT), "severity": st.just("page")}
            ),
            "annotations": st.fixed_dictionaries(dict.fromkeys(("summary", "command"), TEXT)),
        }
    )
    said = {name: data.draw(samples, name) for name in state.QUERIES}
    said |= {"alerts": data.draw(st.lists(alert, max_size=2), "alerts")}
    contract = chain(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "_ask", lambda *_words: said)
        states = state.cluster_state(contract)
    assert [one.problem for one in states] == [None, None]
    json.dumps(commands.as_json(contract, states), allow_nan=False)
    text = drawn(contract, states, width=500) + page("c", "s", states)
    assert not HARMFUL.search(text)
    down = [name for one in states for name, up in one.links.items() if not up and name.strip()]
    assert all(name in text for name in down if name.isprintable())


def test_a_large_site_in_ruins_fits_on_one_screen(seen: dict[str, Any]) -> None:
    many = [{**ALERT, "labels": {**ALERT["labels"], "instance": f"r0-gpu-{n}"}} for n in range(1250)]
    seen["r0-control-0"] = answers(up=[], alerts=many)
    contract = chain(1, nodes=1250)
    text = drawn(contract, state.cluster_state(contract), width=100)
    assert len(text.splitlines()) < 60
    assert "0 of 1253" in text
    assert "and 1238 more" in text
    assert "\x1b[2J" not in text


def test_a_page_says_what_the_screen_says_and_no_node_writes_it(
    seen: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = {**ALERT, "annotations": {"summary": "<script>alert(1)</script>", "command": "'\"&"}}
    curve = [{"metric": {}, "values": [[0, "1"], [60, "NaN"], [120, "3"]]}]
    history = {"nodes that answer": curve, "share of the processors' time": []}
    seen["r0-control-0"] = answers(alerts=[odd], history=history)
    contract = chain(2, nodes=3)
    commands.write_page(contract, tmp_path / "state.html")
    assert str(tmp_path / "state.html") in capsys.readouterr().out
    text = (tmp_path / "state.html").read_text()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "\x1b" not in text
    assert text.count('<rect class="gone"') == text.count('class="cross"') == 2 + 6
    assert text.count("<polyline") == 1
    with pytest.raises(CausewayError, match="cannot be written"):
        commands.write_page(contract, tmp_path / "none" / "state.html")


dead_man = load(ROOT / "roles/prometheus/files/causeway_dead_man.py")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["alerts", "labels", "region", "status"]), inner)
    ),
)


@given(JSON.map(json.dumps).map(str.encode) | st.binary())
def test_whatever_is_posted_to_the_dead_mans_switch_is_a_webhook_or_refused(body: bytes) -> None:
    try:
        found = dead_man.regions_in(body)
    except ValueError:
        return
    assert all(isinstance(name, str) for name in found)


def test_the_switch_hears_its_regions_and_no_others_and_remembers(tmp_path: Path) -> None:
    file = tmp_path / "seen.json"
    switch = dead_man.Seen(file, ["tokyo", "osaka"])
    assert 'from_region="tokyo"} 0.000' in switch.metrics()
    body = {"alerts": [{"status": "firing", "labels": {"region": name}} for name in ("tokyo", "mars")]}
    body["alerts"] += [{"status": "resolved", "labels": {"region": "osaka"}}]
    switch.heard(dead_man.regions_in(json.dumps(body).encode()))
    assert switch.at["tokyo"] > 0
    assert switch.at["osaka"] == 0
    assert "mars" not in switch.metrics()
    again = dead_man.Seen(file, ["tokyo", "kyoto"])
    assert again.at == {"tokyo": switch.at["tokyo"], "kyoto": 0}
    file.write_text("nonsense")
    assert dead_man.Seen(file, ["tokyo"]).at == {"tokyo": 0}


def machines(exclude: tuple[str, ...] = (), **monitoring: Any) -> Contract:
    """A region of machines that somebody has, and one that is made."""
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHaSw601QLuAPAILOu5mzYiHEjI06gxucUPArdc/9DHt"
    made = spec_of({"made": (1, 1)}, []).model_dump(mode="json")
    pools = [
        {"name": name, "role": role, "count": 1, "hosts": [{"address": f"10.9.0.{number}", "host_key": key}]}
        | ({"roles": {"exclude": exclude}} if role == "gpu" else {})
        for number, (name, role) in enumerate((("control", "control"), ("work", "gpu")), 10)
    ]
    region = {"name": "hall", "provider": {"kind": "existing"}, "cidr": "10.9.0.0/16", "pools": pools}
    link = {"name": "a", "a": "hall", "b": "made", "rtt_ms": 1, "bandwidth_mbps": 100}
    declared = {
        "name": "pacific",
        "regions": [region, *made["regions"]],
        "wan_links": [link],
        "monitoring": {"kind": "prometheus", "global_region": "hall"} | monitoring,
    }
    spec = ClusterSpec.model_validate(declared)
    return build_contract(spec, make_plan(spec), "s")


def asked_for_bmcs(contract: Contract, server: str) -> dict[str, Any] | None:
    """The job by which a server asks BMCs' exporters."""
    jobs = host_variables(contract)[server]["prometheus_jobs"]
    return next((job for job in jobs if job["name"] == "ipmi-exporter"), None)


def test_machines_are_asked_for_their_bmc_and_nodes_that_are_made_are_not() -> None:
    contract = machines()
    assert set(role_hosts(contract, "ipmi_exporter")) == {"hall-control-0", "hall-work-0"}
    job = asked_for_bmcs(contract, "hall-control-0")
    assert job
    assert {target["host"] for pool in job["pools"] for target in pool["targets"]} == {
        "hall-control-0", "hall-work-0",
    }  # fmt: skip
    assert (job["interval_s"], job["told_by"]) == (60, "causeway_bmc_present")
    elsewhere = asked_for_bmcs(contract, "made-control-0")
    assert elsewhere is None or elsewhere["pools"] == []
    told = variables(contract)["ipmi_exporter"]
    assert set(told) == {"pool_hall_control", "pool_hall_work"}
    assert all(set(own) == {"ipmi_exporter_authority"} for own in told.values())
    assert "monitoring-ca" in roles()["ipmi_exporter"].secrets(contract, "hall-work-0")


def test_bmcs_are_left_alone_where_that_is_declared() -> None:
    declared = machines(bmc="none")
    excluded = machines(exclude=("ipmi_exporter",))
    required = machines(bmc="required")
    assert not list(role_hosts(declared, "ipmi_exporter"))
    assert asked_for_bmcs(declared, "hall-control-0") is None
    assert set(role_hosts(excluded, "ipmi_exporter")) == {"hall-control-0"}
    job = asked_for_bmcs(excluded, "hall-control-0")
    assert job
    assert [target["host"] for pool in job["pools"] for target in pool["targets"]] == ["hall-control-0"]
    told = variables(required)["ipmi_exporter"]
    assert {own["ipmi_exporter_bmc"] for own in told.values()} == {"required"}


def test_a_cluster_that_is_made_knows_nothing_of_bmcs() -> None:
    contract = chain(2)
    assert contract.need(MonitoringSection).bmcs is None
    assert "ipmi_exporter" not in variables(contract)
    assert asked_for_bmcs(contract, "r0-control-0") is None
