"""Where gateways have no link, they take no traffic away from the ways that machines have anyway."""

from io import StringIO
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from infra.capabilities.wan.section import WanSection
from infra.checks import check, parse_spec
from infra.declaration import ClusterSpec
from infra.ground.contract import Contract
from infra.inventory.variables import role_variables
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from infra.planning.report import plan_json, print_plan

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG1pbmltYWwta2V5LWZvci10aGUtdGVzdC1vbmx5LTEy"
NAMES = "abc"

providers = st.sampled_from(["local", "existing"])
gateways = st.integers(0, 2)


def region(number: int, provider: str, count: int, shared: bool) -> dict[str, Any]:
    """Region number so and so, with a control node and this many gateways."""
    net = f"10.{number + 1}.0"
    pools: list[dict[str, Any]] = [{"name": "control", "role": "control", "count": 1}]
    pools += [{"name": "edge", "role": "gateway", "count": count}] if count else []
    made: dict[str, Any] = {"name": NAMES[number], "cidr": f"{net}.0/24", "pools": pools}
    if provider == "existing":
        made["provider"] = {"kind": provider, **({"gateway_address": f"{net}.77"} if shared else {})}
        for index, pool in enumerate(pools):
            pool["hosts"] = [
                {"address": f"{net}.{10 * (index + 1) + host}", "host_key": KEY}
                for host in range(pool["count"])
            ]
    return made


def link(number: int, handed_over: bool) -> dict[str, Any]:
    """From a region to the next."""
    ends = {
        f"{side}_end": {"address": f"192.0.2.{8 * number + 1 + host}/30"} for host, side in enumerate("ab")
    }
    joined = {"name": f"link-{number}", "a": NAMES[number], "b": NAMES[number + 1]}
    return {**joined, "rtt_ms": 20, "bandwidth_mbps": 100, **(ends if handed_over else {})}


@st.composite
def clusters(draw: st.DrawFn) -> ClusterSpec:
    """Three regions in a row, of either provider, with and without gateways and what those need."""
    kinds = [draw(providers) for _ in NAMES]
    regions = [region(n, kind, draw(gateways), draw(st.booleans())) for n, kind in enumerate(kinds)]
    links = [link(n, kinds[n] == kinds[n + 1] == "existing" and draw(st.booleans())) for n in range(2)]
    return parse_spec({"name": "c", "regions": regions, "wan_links": links})


def contract_of(spec: ClusterSpec) -> Contract:
    return build_contract(spec, make_plan(spec), "test")


def linked(contract: Contract, source: str) -> set[str]:
    """The regions to which links lead from a region that are emulated or handed over at both ends."""
    found, todo = set(), [source]
    while todo:
        here = todo.pop()
        found.add(here)
        for each in contract.need(WanSection).links.values():
            made = all(end.address for end in each.ends.values())
            far = {each.a: each.b, each.b: each.a}.get(here)
            todo += [far] if made and far is not None and far not in found else []
    return found - {source}


@given(clusters())
def test_gateways_send_and_refuse_only_what_their_links_lead_to(spec: ClusterSpec) -> None:
    contract = contract_of(spec)
    variables = role_variables(contract)
    for name, found in contract.regions.items():
        wan = contract.need(WanSection).regions[name]
        if not wan.gateways:
            continue
        reached = {str(contract.regions[far].cidr) for far in linked(contract, name)}
        routes = variables[f"region_{name}"]["tcp_tuning_wan_routes"]
        if wan.gateway_address is not None:
            assert {route["cidr"] for route in routes if "via" in route} == reached
        only_roads = {str(far.cidr) for far in contract.regions.values() if far.makes_links}
        mine = {str(found.cidr)} if found.makes_links else only_roads
        rejected = variables[f"pool_{name}_edge"]["wan_gateway_far_cidrs"]
        assert set(rejected) == reached | (only_roads - mine)


@given(clusters())
def test_what_passes_the_checks_leaves_no_gateway_without_link_and_address(spec: ClusterSpec) -> None:
    if any(problem.severity == "error" for problem in check(spec)):
        return
    contract = contract_of(spec)
    for name, found in contract.need(WanSection).regions.items():
        ends = [each.ends[name] for each in contract.need(WanSection).links.values() if name in each.ends]
        if found.gateways:
            assert found.gateway_address is not None
            assert all(end.address is not None for end in ends)


def test_the_plan_says_which_address_several_gateways_share() -> None:
    regions = [region(0, "existing", 2, shared=True), region(1, "existing", 1, shared=False)]
    made = parse_spec({"name": "c", "regions": regions, "wan_links": [link(0, handed_over=True)]})
    console = Console(file=StringIO(), width=200)
    print_plan(made, make_plan(made), "test", console)
    assert isinstance(console.file, StringIO)
    said = console.file.getvalue()
    assert "to other regions by 10.1.0.77, which 2 gateways share" in said
    assert "to other regions by 10.2.0.20\n" in said


@given(clusters())
def test_the_plan_shows_where_nodes_send_what_is_for_others(spec: ClusterSpec) -> None:
    contract, shown = contract_of(spec), plan_json(spec, make_plan(spec), "test")["regions"]
    for name, found in contract.need(WanSection).regions.items():
        assert shown[name]["gateway_address"] == (
            str(found.gateway_address) if found.gateway_address else None
        )
