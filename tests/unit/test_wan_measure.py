"""Which pairs of regions are measured, and how what was found is shown."""

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from infra.capabilities.wan import measure
from infra.capabilities.wan.commands import measured_json, print_measured
from infra.capabilities.wan.measure import Measurement, Rate, _Pair, measure_wan
from infra.capabilities.wan.section import WanSection
from infra.checks import parse_spec
from infra.commands.up import wants_measuring
from infra.declaration import TrafficClasses
from infra.ground.contract import Contract
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan


@pytest.fixture
def contract() -> Contract:
    """Three regions in a row, the last first by name; no node of it stands."""
    pools = [{"name": name, "role": role, "count": 1} for name, role in (("a", "gateway"), ("b", "control"))]
    regions = [
        {"name": name, "cidr": f"10.{90 + index}.0.0/16", "pools": pools}
        for index, name in enumerate(("tokyo", "shanghai", "osaka"))
    ]
    sea = {"rtt_ms": 70, "bandwidth_mbps": 100, "loss_pct": 0.2}
    links: list[dict[str, Any]] = [
        {"name": "trans-sea", "a": "tokyo", "b": "shanghai", **sea},
        {"name": "land", "a": "shanghai", "b": "osaka", **sea, "kind": "sdwan"},
    ]
    spec = parse_spec({"name": "c", "regions": regions, "wan_links": links})
    return build_contract(spec, make_plan(spec), "nothing-stands-here")


def pairs(found: list[Measurement]) -> list[tuple[str, str]]:
    return [(one.source_region, one.target_region) for one in found]


def printed(*measured: Measurement) -> str:
    console = Console(file=io.StringIO(), width=160)
    print_measured(list(measured), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_every_pair_is_measured_once_also_over_several_links(contract: Contract) -> None:
    found = measure_wan(contract)
    assert pairs(found) == [("tokyo", "shanghai"), ("tokyo", "osaka"), ("shanghai", "osaka")]
    assert found[1].declared.path == ("trans-sea", "land")
    neighbours = measure_wan(contract, neighbours_only=True)
    assert pairs(neighbours) == [("tokyo", "shanghai"), ("shanghai", "osaka")]


def test_hosts_that_use_the_gateways_are_measured(contract: Contract) -> None:
    found = measure_wan(contract)[0]
    assert (found.source, found.target) == ("tokyo-b-0", "shanghai-b-0")


def test_a_pair_that_cannot_be_measured_says_why_and_the_others_go_on(contract: Contract) -> None:
    found = measure_wan(contract)
    assert all(one.problem and f" {one.source} sh` ended with status 255" in one.problem for one in found)
    said = printed(*found)
    assert "tokyo – osaka: `ssh" in said
    assert "– (140)" in said


def test_what_was_found_stands_beside_what_is_declared(contract: Contract) -> None:
    found = replace(
        measure_wan(contract)[0],
        problem=None,
        rtt_ms=70.9,
        loss_pct=0.21,
        mtu_bytes=1500,
        configured=Rate(84.2, "bbr"),
        other=Rate(7.0, "cubic"),
    )
    said = printed(found)
    for cell in (
        "tokyo – shanghai",
        "70.9 (70)",
        "0.21 (0.2)",
        "1500 (1500)",
        "84.2 bbr (100 bbr)",
        "7 cubic",
    ):
        assert cell in said
    report = measured_json([found])["tokyo"]["shanghai"]
    assert report["configured"] == {"mbps": 84.2, "congestion_control": "bbr"}
    assert (report["declared"]["rtt_ms"], report["declared"]["path"]) == (70, ["trans-sea"])


def test_a_missing_tool_is_named_with_the_remedy(contract: Contract) -> None:
    lacking = "no iperf3 on tokyo-b-0: install it (apt-get install iperf3)"
    found = replace(measure_wan(contract)[0], problem=None, rtt_ms=70.9, lacking=lacking)
    said = printed(found)
    assert f"tokyo – shanghai: {lacking}" in said
    assert "70.9 (70)" in said


def of_machines(contract: Contract, *regions: str) -> Contract:
    """The same cluster, with regions of machines that people work on."""
    theirs = {name: contract.regions[name].model_copy(update={"makes_links": False}) for name in regions}
    return contract.model_copy(update={"regions": contract.regions | theirs})


def test_a_link_that_others_work_on_is_not_filled(contract: Contract) -> None:
    wan = contract.need(WanSection)
    links = {
        name: link.model_copy(update={"classes": TrafficClasses(replication_pct=share)})
        for (name, link), share in zip(wan.links.items(), (60, 25), strict=True)
    }
    contract = of_machines(
        contract.model_copy(
            update={"sections": contract.sections | {"wan": wan.model_copy(update={"links": links})}}
        ),
        *contract.regions,
    )
    held = {(one.source_region, one.target_region): one.held_to_mbps for one in measure_wan(contract)}
    share = {name: link.bandwidth_mbps * link.classes.replication_pct / 100 for name, link in links.items()}
    assert held["tokyo", "shanghai"] == share["trans-sea"]
    assert held["tokyo", "osaka"] == min(share.values())


def test_a_link_that_is_made_here_is(contract: Contract) -> None:
    assert {one.held_to_mbps for one in measure_wan(contract)} == {None}
    mixed = measure_wan(of_machines(contract, "osaka"))
    assert [one.held_to_mbps is None for one in mixed] == [True, False, False]


@pytest.mark.parametrize("held", [None, 25.0])
def test_streams_are_replication_s_and_hold_to_its_share(
    contract: Contract, held: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What iperf3 is told; that it does so is iperf3's."""
    said: list[str] = []
    answer = {"end": {"sum": {"lost_percent": 0}, "sum_received": {"bits_per_second": 1e6}}}

    def on(_stack: str, _host: str, script: str) -> str:
        said.append(script)
        return json.dumps(answer)

    monkeypatch.setattr("infra.capabilities.wan.measure._on", on)
    found = replace(measure_wan(contract)[0], held_to_mbps=held)
    said.clear()
    pair = _Pair(contract, found)
    pair._loss_pct()
    pair._tcp()
    pair._tcp("-C bbr")
    udp, *tcp = [script for script in said if "iperf3 --json" in script]
    assert all(" -S 40 " in script for script in (udp, *tcp))
    assert float(udp.split(" -b ")[1].split()[0]) == 20e6
    assert [" -b 25000000 --fq-rate 25000000 " in script for script in tcp] == [held is not None] * 2


def test_up_measures_links_of_others_only_when_it_is_asked_to(contract: Contract) -> None:
    theirs = of_machines(contract, "osaka")
    assert [wants_measuring(contract, asked) for asked in (None, True, False)] == [True, True, False]
    assert [wants_measuring(theirs, asked) for asked in (None, True, False)] == [False, True, False]


ENDS: dict[str, Any] = {
    "sum": {"lost_percent": 0.2},
    "sum_received": {"bits_per_second": 8e7},
    "sender_tcp_congestion": "bbr",
}
PING = "rtt min/avg/max/mdev = 1.0/1.5/2.0/0.1 ms"


def measured(contract: Contract, monkeypatch: pytest.MonkeyPatch, **says: str) -> Measurement:
    """One pair of which the source says what is given of ping, path MTU and iperf3."""
    said = {"ping -n -q -c": PING, "address=": "1500\n", "iperf3 --json": json.dumps({"end": ENDS})}
    said |= {"ping -n -q -c": says.get("ping", PING), "address=": says.get("mtu", "1500\n")}
    said["iperf3 --json"] = says.get("iperf", said["iperf3 --json"])

    def on(_stack: str, _host: str, script: str) -> str:
        return next((text for start, text in said.items() if script.startswith(start)), "")

    monkeypatch.setattr(measure, "_on", on)
    return measure_wan(contract)[0]


def test_sound_answers_are_measured(contract: Contract, monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(contract, monkeypatch)
    assert (found.rtt_ms, found.mtu_bytes, found.loss_pct) == (1.5, 1500, 0.2)
    assert (found.configured, found.problem, found.lacking) == (Rate(80.0, "bbr"), None, None)


GARBAGE = [
    "no JSON", "[]", "3", "null", '"end"', "{}", '{"end": []}', '{"end": {"sum": 3, "sum_received": 3}}',
    '{"end": {"sum": {"lost_percent": NaN}}}', '{"end": {"sum": {"lost_percent": "a"}}}',
    '{"end": {"sum": {"lost_percent": true}}}', '{"end": {"sum": {"lost_percent": 1e999}}}',
    '{"end": {"sum": {"lost_percent": 1}, "sum_received": {"bits_per_second": -1}}}',
    "[" * 100_000, "1" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("garbage", GARBAGE, ids=[text[:60] for text in GARBAGE])
def test_garbage_from_one_nodes_iperf3_is_said_of_that_node(
    contract: Contract, monkeypatch: pytest.MonkeyPatch, garbage: str
) -> None:
    found = measured(contract, monkeypatch, iperf=garbage)
    assert found.lacking is not None
    assert found.lacking.startswith("what iperf3 on tokyo-b-0 says makes no sense: ")
    assert (found.rtt_ms, found.mtu_bytes) == (1.5, 1500)
    printed(found)


def test_garbage_from_ping_is_said_of_that_node(contract: Contract, monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(contract, monkeypatch, ping="= 1.2.3/4.5.6/7 [/red]")
    assert found.problem is not None
    assert found.problem.startswith("tokyo-b-0 gets no answer")
    found = measured(contract, monkeypatch, mtu="a\x1b[2J[/red]")
    assert found.lacking == "tokyo-b-0 says no packet size: 'a\\x1b[2J[/red]'"
    assert "[2J[/red]" in printed(found)
    odd = json.dumps({"end": {**ENDS, "sender_tcp_congestion": "[/red]\x1b"}})
    assert measured(contract, monkeypatch, iperf=odd).configured == Rate(80.0, "")
