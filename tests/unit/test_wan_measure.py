"""Which pairs of regions are measured, and how what was found is shown."""

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from infra.checks import parse_spec
from infra.commands.wan import measured_json, print_measured
from infra.handoff.build_contract import build_contract
from infra.handoff.contract import Contract
from infra.handoff.measure import Measurement, Rate, measure_wan
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
