"""Energy as planned and handed on: what adds up, in which units, and what rules compare with."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.capabilities import host_variables
from infra.capabilities.energy.capability import CAPABILITY
from infra.capabilities.energy.power import HOURS_A_YEAR, PoolPower, Power, RegionPower, regions, total, watts
from infra.capabilities.energy.section import EnergySection
from infra.checks import check
from infra.declaration import ClusterSpec
from infra.declaration.energy import PoolEnergySpec, RegionEnergySpec
from infra.ground.contract import Contract
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan

ALERTS = Path(__file__).resolve().parents[2] / "infra" / "capabilities" / "energy" / "watch" / "alerts.yaml"
WATTS = st.integers(1, 20_000)
LOADS = st.floats(0, 1)
FACTORS = st.floats(0, 10_000)


@st.composite
def pools(draw: st.DrawFn, /, **more: Any) -> PoolPower:
    idle, above = draw(WATTS), draw(WATTS)
    size = draw(st.none() | st.integers(1, 100))
    figures = {"idle_w": idle, "max_w": idle + above, "nodes_per_rack": size} | more
    declared = PoolEnergySpec.model_validate({"region": "tokyo", "pool": "gpu"} | figures)
    return PoolPower(declared, draw(st.integers(0, 5_000)))


@st.composite
def sites(draw: st.DrawFn) -> RegionPower:
    figures = {
        "pue": draw(st.floats(1, 3)),
        "price_per_kwh": draw(FACTORS),
        "carbon_g_per_kwh": draw(FACTORS),
    }
    declared = RegionEnergySpec.model_validate({"region": "tokyo"} | figures)
    return RegionPower(declared, tuple(draw(st.lists(pools(), max_size=5))))


def test_a_kilowatt_for_a_year() -> None:
    """1 kW · 8,760 h, at 1.5 W of the site for each, 0.2 each kWh, and 400 g."""
    site = RegionEnergySpec(region="tokyo", pue=1.5, price_per_kwh=0.2, carbon_g_per_kwh=400)
    pool = PoolEnergySpec(region="tokyo", pool="gpu", idle_w=500, max_w=1000)
    year = RegionPower(site, (PoolPower(pool, 1),)).year(1)
    assert year.kwh == pytest.approx(1.5 * HOURS_A_YEAR) == pytest.approx(13_140)
    assert year.cost == pytest.approx(2628)
    assert year.carbon_kg == pytest.approx(5256)


@given(sites())
def test_a_region_draws_what_its_pools_draw(site: RegionPower) -> None:
    assert site.power.max_w == pytest.approx(sum(pool.nodes * pool.declared.max_w for pool in site.pools))
    assert site.power.idle_w == pytest.approx(sum(pool.nodes * pool.declared.idle_w for pool in site.pools))
    alone = [replace(site, pools=(pool,)).year(0.5) for pool in site.pools]
    year = site.year(0.5)
    assert year.kwh == pytest.approx(sum(one.kwh for one in alone))
    assert year.cost == pytest.approx(sum(one.cost or 0 for one in alone))
    assert year.carbon_kg == pytest.approx(sum(one.carbon_kg or 0 for one in alone))


@given(pools(), st.data())
def test_a_pool_that_is_split_draws_the_same(pool: PoolPower, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, pool.nodes))
    parts = total(replace(pool, nodes=count).power for count in (first, pool.nodes - first))
    assert (parts.idle_w, parts.max_w) == pytest.approx((pool.power.idle_w, pool.power.max_w))


@given(sites(), LOADS, LOADS)
def test_more_load_is_never_less_of_anything(site: RegionPower, one: float, other: float) -> None:
    low, high = sorted((one, other))
    less, more = site.year(low), site.year(high)
    slack = 1 + 1e-9
    assert less.kwh <= more.kwh * slack
    assert (less.cost or 0) <= (more.cost or 0) * slack
    assert (less.carbon_kg or 0) <= (more.carbon_kg or 0) * slack
    assert site.power.idle_w <= site.power.at(low) * slack
    assert site.power.at(high) <= site.power.max_w * slack
    assert site.power.max_w <= site.site.max_w * slack


def test_the_ends_of_the_line_are_what_is_declared() -> None:
    power = Power(1800, 10200)
    assert [power.at(load) for load in (0, 0.5, 1)] == [1800, 6000, 10200]


@given(pools(nodes_per_rack=7))
def test_every_node_stands_in_one_rack(pool: PoolPower) -> None:
    assert sum(pool.racks) == pool.nodes
    assert all(1 <= nodes <= 7 for nodes in pool.racks)
    assert len([nodes for nodes in pool.racks if nodes < 7]) <= 1, "only the last one is not full"
    assert (pool.rack is None) == (pool.nodes == 0)


@given(st.integers(1, 10_000_000))
def test_a_cap_in_kw_is_met_by_just_as_many_watts(power_w: int) -> None:
    assert watts(power_w / 1000) == power_w
    assert watts(float(f"{power_w / 1000}")) == power_w


def cluster(energy: dict[str, Any], gpus: int = 10, **more: Any) -> ClusterSpec:
    """Tokyo with so many GPU nodes, and Osaka without; figures for Tokyo."""
    gpu = {"name": "gpu", "role": "gpu", "count": gpus, "gpus": 8, "gpu_model": "h100-sxm"}
    control = {"name": "control", "role": "control", "count": 3}
    declared = {
        "name": "pacific",
        "regions": [
            {"name": "tokyo", "cidr": "10.81.0.0/16", "pools": [control, gpu]},
            {"name": "osaka", "cidr": "10.82.0.0/16", "pools": [control]},
        ],
        "wan_links": [{"name": "inland", "a": "tokyo", "b": "osaka", "rtt_ms": 9, "bandwidth_mbps": 100}],
        "monitoring": {"kind": "prometheus"},
        "energy": energy,
    }
    return ClusterSpec.model_validate(declared | more)


SITE: dict[str, Any] = {"region": "tokyo", "pue": 1.25}
CONTROL: dict[str, Any] = {"region": "tokyo", "pool": "control", "idle_w": 150, "max_w": 600}
GPU: dict[str, Any] = {"region": "tokyo", "pool": "gpu", "idle_w": 1800, "max_w": 10200, "nodes_per_rack": 4}


def errors(spec: ClusterSpec) -> list[str]:
    return [problem.path for problem in check(spec) if problem.severity == "error"]


@given(gpus=st.integers(1, 40), per_rack=st.integers(1, 8), spare_w=st.integers(-3, 3))
def test_a_cap_is_an_error_from_the_first_watt_that_is_too_much(
    gpus: int, per_rack: int, spare_w: int
) -> None:
    rack_w, region_w = min(gpus, per_rack) * 10200 + spare_w, gpus * 10200 + 3 * 600 + spare_w
    energy = {
        "regions": [SITE | {"cap_kw": region_w / 1000}],
        "pools": [
            CONTROL,
            GPU | {"cap_w": 10200 + spare_w, "nodes_per_rack": per_rack, "rack_cap_kw": rack_w / 1000},
        ],
    }
    paths = ["energy.regions[0].cap_kw", "energy.pools[1].cap_w", "energy.pools[1].rack_cap_kw"]
    assert sorted(errors(cluster(energy, gpus))) == (sorted(paths) if spare_w < 0 else [])


def contract_of(spec: ClusterSpec) -> Contract:
    return build_contract(spec, make_plan(spec), "s")


def series(contract: Contract, server: str) -> list[dict[str, Any]]:
    """What energy has the server of a region declare."""
    own = host_variables(contract)[server]["prometheus_declared"]
    others = (
        "causeway_declared_nodes",
        "causeway_declared_path_rtt_seconds",
        "causeway_declared_path_loss_ratio",
    )
    return [one for one in own if one["name"] not in others]


EVERYTHING: dict[str, Any] = {
    "currency": "JPY",
    "regions": [
        SITE | {"meter": "series", "price_per_kwh": 31.5, "carbon_g_per_kwh": 432, "cap_kw": 800},
    ],
    "pools": [CONTROL, GPU | {"cap_w": 11000, "rack_cap_kw": 44}],
}


def test_rules_compare_with_series_that_are_there_and_with_all_of_them() -> None:
    """A name that only one side knows makes a rule silent for ever."""
    asked = set(re.findall(r"causeway_declared_\w+", ALERTS.read_text()))
    declared = series(contract_of(cluster(EVERYTHING)), "tokyo-control-0")
    assert {one["name"] for one in declared} == asked
    assert {one["labels"]["region"] for one in declared} == {"tokyo"}


def test_caps_are_watts_and_factors_what_was_declared() -> None:
    declared = series(contract_of(cluster(EVERYTHING)), "tokyo-control-0")
    found = {
        (one["name"].removeprefix("causeway_declared_"), one["labels"].get("pool")): one["value"]
        for one in declared
        if one["name"] != "causeway_declared_node_rack"
    }
    assert found == {
        ("pue_ratio", None): 1.25,
        ("site_meter", None): 1,
        ("region_power_cap_watts", None): 800_000,
        ("energy_price_per_kwh", None): 31.5,
        ("carbon_grams_per_kwh", None): 432,
        ("node_power_idle_watts", "control"): 150,
        ("node_power_max_watts", "control"): 600,
        ("node_gpus", "gpu"): 8,
        ("node_power_idle_watts", "gpu"): 1800,
        ("node_power_max_watts", "gpu"): 10200,
        ("node_power_cap_watts", "gpu"): 11000,
        ("rack_power_cap_watts", "gpu"): 44_000,
    }
    (price,) = (one for one in declared if "price" in one["name"])
    assert price["labels"]["currency"] == "JPY"


def test_nodes_fill_racks_in_the_order_of_their_numbers() -> None:
    """Ten and more: `gpu-10` comes after `gpu-9`."""
    spec = cluster(EVERYTHING, gpus=11)
    declared = series(contract_of(spec), "tokyo-control-0")
    racks: dict[str, list[str]] = {}
    for one in declared:
        if one["name"] == "causeway_declared_node_rack":
            racks.setdefault(one["labels"]["rack"], []).append(one["labels"]["instance"])
    assert racks == {
        f"gpu-{rack}": [f"tokyo-gpu-{node}" for node in range(4 * rack, min(4 * rack + 4, 11))]
        for rack in range(3)
    }
    (tokyo,) = regions(spec)
    assert tuple(map(len, racks.values())) == tokyo.pools[1].racks


def test_a_region_without_figures_has_none_and_a_cluster_without_energy_no_rules() -> None:
    contract = contract_of(cluster(EVERYTHING))
    assert series(contract, "osaka-control-0") == []
    assert "energy" in host_variables(contract)["osaka-control-0"]["prometheus_rules"]
    without = contract_of(cluster({}).model_copy(update={"energy": None}))
    assert {one["name"] for one in series(without, "tokyo-control-0")} == {"causeway_declared_node_gpus"}
    assert "energy" not in host_variables(without)["tokyo-control-0"]["prometheus_rules"]


def test_the_contract_reads_back_what_was_planned() -> None:
    contract = contract_of(cluster(EVERYTHING))
    again = Contract.model_validate_json(contract.model_dump_json())
    assert again.need(EnergySection) == contract.need(EnergySection)


def test_the_plan_leaves_out_what_has_no_factor() -> None:
    plan = make_plan(cluster({"regions": [SITE], "pools": [CONTROL]})).of(CAPABILITY)
    assert plan
    text = CAPABILITY.report(plan).text
    assert "MWh" in text
    assert "CO2" not in text
    assert "None" not in text
    assert CAPABILITY.report(plan).data["energy"]["regions"]["tokyo"]["year"]["full"]["cost"] is None
