"""Failures, checkpoints and spares: against published cases, by properties, and against a simulation."""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from infra.capabilities.fabric.capability import CAPABILITY as FABRIC
from infra.capabilities.reliability import rates as rates_module
from infra.capabilities.reliability.capability import CAPABILITY, ReliabilityPlan
from infra.capabilities.reliability.checkpoint import (
    SECONDS_A_DAY,
    daly_s,
    efficiency,
    enough,
    longest_cost_s,
    mtbf_s,
    spares_for,
    young_s,
)
from infra.capabilities.reliability.outlook import Job, gains, outlook
from infra.capabilities.reliability.rates import Rates, load_rates
from infra.capabilities.reliability.simulation import Ways, simulate, spread
from infra.checks import check
from infra.checks.load import load_spec
from infra.declaration import ClusterSpec
from infra.declaration.reliability import RepairDaysSpec
from infra.errors import BadInputError
from infra.planning.plan import make_plan

ROOT = Path(__file__).resolve().parents[2]
LLAMA = load_rates("default")
MINUTE_S = 60

NODES = st.integers(1, 20_000)
RATES = st.floats(0.05, 50)
COSTS = st.floats(0.1, 3600)
MTBFS = st.floats(60, 1e9)


def job(nodes: int = 1250, cost_s: float = 60, restart_s: float = 600, **changes: Any) -> Job:
    return replace(Job(nodes, 18, LLAMA, cost_s, restart_s, RepairDaysSpec()), **changes)


def test_the_default_rates_are_what_was_counted() -> None:
    assert LLAMA.total == pytest.approx(3.79, abs=0.005)
    assert mtbf_s(2048, LLAMA.total) * 419 == pytest.approx(54 * SECONDS_A_DAY), (
        "419 interruptions in 54 days"
    )
    assert set(LLAMA.by_cause) == {"gpu", "hbm", "nic", "link", "host", "software", "power"}


@pytest.mark.parametrize(
    ("name", "nodes", "hours"), [("llama3", 1250, 5.1), ("llama3", 128, 49), ("rsc-1", 1000, 3.7)]
)
def test_published_rates_give_published_times(name: str, nodes: int, hours: float) -> None:
    assert mtbf_s(nodes, load_rates(name).total) / 3600 == pytest.approx(hours, rel=0.02)


@pytest.mark.parametrize(
    ("cost_s", "restart_min", "young", "daly", "percent"),
    [(10, 5, 604, 597, 95.1), (60, 10, 1480, 1440, 89.1), (300, 30, 3309, 3111, 75.1)],
)
def test_intervals_and_efficiencies_of_1250_nodes(
    cost_s: float, restart_min: float, young: float, daly: float, percent: float
) -> None:
    found = job(cost_s=cost_s, restart_s=restart_min * MINUTE_S)
    assert found.young_s == pytest.approx(young, abs=1)
    assert found.interval_s == pytest.approx(daly, abs=1)
    assert 100 * found.efficiency == pytest.approx(percent, abs=0.06)


@pytest.mark.parametrize(("share", "days", "spares"), [(1.0, 1, 10), (0.3, 7, 18), (0.3, 14, 31)])
def test_spares_of_1250_nodes(share: float, days: float, spares: int) -> None:
    assert spares_for(1250 * 3.79 / 1000 * share * days, 0.99) == spares


@given(NODES, RATES, st.integers(0, 5000))
def test_more_nodes_never_fail_less(nodes: int, rate: float, more: int) -> None:
    assert mtbf_s(nodes + more, rate) <= mtbf_s(nodes, rate)


@given(COSTS, MTBFS, st.floats(1, 100))
def test_youngs_interval_grows_with_the_root_of_the_cost(cost_s: float, mtbf: float, factor: float) -> None:
    assert young_s(cost_s * factor, mtbf) == pytest.approx(young_s(cost_s, mtbf) * factor**0.5)


@given(COSTS, MTBFS)
def test_dalys_interval_is_the_best_one(cost_s: float, mtbf: float) -> None:
    best = daly_s(cost_s, mtbf)
    here = efficiency(best, cost_s, 0, mtbf)
    for other in (best / 2, best * 2, young_s(cost_s, mtbf)):
        # To first order only: where a checkpoint takes as long as the next failure, no interval is good.
        assert here >= efficiency(other, cost_s, 0, mtbf) * (1 - 0.02 * min(1, cost_s / mtbf) - 1e-6)


@given(COSTS, MTBFS, st.floats(0, 7200))
def test_efficiency_is_a_share_and_falls_with_every_cost(
    cost_s: float, mtbf: float, restart_s: float
) -> None:
    interval = daly_s(cost_s, mtbf)
    found = efficiency(interval, cost_s, restart_s, mtbf)
    assert 0 <= found <= 1
    assert efficiency(interval, cost_s * 1.5, restart_s, mtbf) <= found
    assert efficiency(interval, cost_s, restart_s + 60, mtbf) <= found


@given(st.floats(0, 3000), st.sampled_from([0.5, 0.9, 0.99, 0.999]))
def test_spares_are_the_fewest_that_do(mean: float, target: float) -> None:
    found = spares_for(mean, target)
    assert enough(found, mean) >= target - 1e-9
    assert found == 0 or enough(found - 1, mean) < target + 1e-9


@given(st.floats(0, 1e5), st.floats(0.5, 1, exclude_max=True))
def test_spares_are_found_for_any_target(mean: float, target: float) -> None:
    assert spares_for(mean, target) <= mean + 40 * mean**0.5 + 41


@given(st.floats(60, 1e9))
def test_the_longest_checkpoint_is_as_long_as_its_interval(mtbf: float) -> None:
    longest = longest_cost_s(mtbf)
    assert daly_s(longest, mtbf) == pytest.approx(longest, rel=1e-6)
    assert daly_s(longest * 1.01, mtbf) < longest * 1.01


@given(st.integers(0, 60), st.integers(1, 20))
def test_more_spares_never_lower_the_goodput(spares: int, more: int) -> None:
    assert job(spares=spares + more).goodput >= job(spares=spares).goodput


@given(NODES, st.floats(1, 1800), st.floats(60, 3600), st.sampled_from([1, 2]))
def test_nothing_that_one_buys_makes_it_worse(
    nodes: int, cost_s: float, restart_s: float, planes: int
) -> None:
    known = outlook(declared())
    assert known
    mine = job(nodes=nodes, cost_s=cost_s, restart_s=restart_s)
    found = gains(replace(known, job=mine, leaf_nodes=4, planes=planes))
    assert min(found.values()) >= -1e-9
    assert ("two planes of the fabric" in found) == (planes == 1)


def test_what_never_fails_needs_no_checkpoint() -> None:
    quiet = job(rates=Rates("none", {}, 0.3))
    assert quiet.mtbf_s == inf
    assert quiet.spares_needed(0.99) == 0


# The simulation

DALYS = Ways(spares_matter=False)
"""Exponential, independent failures of a job that always has its nodes."""


@pytest.mark.parametrize(("cost_s", "restart_min"), [(10, 5), (60, 10), (300, 30)])
def test_simulation_and_daly_agree_where_his_assumptions_hold(cost_s: float, restart_min: float) -> None:
    found = job(cost_s=cost_s, restart_s=restart_min * MINUTE_S)
    seen = spread(found, 30, 1000, 1, DALYS)
    assert seen.mean == pytest.approx(found.efficiency, rel=0.02)
    assert seen.p5 < seen.p50 < seen.p95


def test_simulation_and_poisson_agree_where_no_repair_waits() -> None:
    found = job(spares=12)
    assert spread(found, 365, 40, 1).mean == pytest.approx(found.goodput, rel=0.05)


def test_one_seed_is_one_run() -> None:
    assert simulate(job(), 30, 7) == simulate(job(), 30, 7) != simulate(job(), 30, 8)


@pytest.mark.parametrize(
    "worse",
    [Ways(leaf_nodes=64), Ways(repairs_at_once=8)],
    ids=["a leaf takes all of its nodes", "few hands repair"],
)
def test_what_the_formulas_leave_out_costs_more(worse: Ways) -> None:
    tight = job(spares=14)
    assert spread(tight, 180, 40, 1, worse).mean < spread(tight, 180, 40, 1).mean


def test_bursts_cost_less_than_as_many_single_failures() -> None:
    """They keep the mean rate: what follows within minutes has little progress to take."""
    costly = job(cost_s=300, restart_s=60)
    assert (
        spread(costly, 60, 200, 1, replace(DALYS, burst_share=0.5)).mean
        > spread(costly, 60, 200, 1, DALYS).mean
    )


# What is declared and shown


def test_the_large_examples_plan() -> None:
    spec = load_spec(ROOT / "examples" / "training-two-planes.yaml")
    plan = make_plan(spec).of(CAPABILITY)
    assert plan
    assert plan.outlook.job.nodes == 3024
    assert plan.outlook.checkpoint_gib == pytest.approx(405e9 * 14 / 2**30)
    assert "link" not in plan.outlook.job.rates.by_cause, "the other plane carries on"
    (leaf,) = (domain for domain in plan.domains if domain.what == "a leaf")
    assert leaf.gpus == 0
    text = CAPABILITY.report(plan).text
    assert "2.3 h" in text
    assert len(text.splitlines()) <= 13


def declared(**changes: Any) -> ClusterSpec:
    data = load_spec(ROOT / "tests" / "golden" / "good" / "reliability.yaml").model_dump(mode="json")
    data["reliability"] |= changes
    return ClusterSpec.model_validate(data)


def planned(spec: ClusterSpec) -> ReliabilityPlan:
    found = make_plan(spec).of(CAPABILITY)
    assert found
    return found


def test_a_link_without_another_path_parts_its_regions() -> None:
    (link,) = (domain for domain in planned(declared()).domains if domain.what == "link sea")
    assert "shanghai and tokyo are parted" in link.stays


FABRICS = st.fixed_dictionaries(
    {"kind": st.sampled_from(["rail_optimized", "fat_tree"]), "radix": st.sampled_from([16, 32, 64])},
    optional={"planes": st.sampled_from([1, 2]), "oversubscription": st.sampled_from([1, 2])},
)


def on_a_fabric(fabric: dict[str, Any], nodes: int, **changes: Any) -> ClusterSpec:
    data = declared(**changes).model_dump(mode="json")
    region = data["regions"][0]
    region["fabric"] = {"rails": 8, "link_gbps": 400, "planes": 1} | fabric
    ports = {"nics": 8, "nic_gbps": 400 * region["fabric"]["planes"], "count": nodes}
    region["pools"][1] |= ports
    return ClusterSpec.model_validate(data)


@given(FABRICS, st.integers(5, 64), st.floats(1, 99))
@settings(deadline=None)
def test_domains_are_as_the_fabric_is_planned(fabric: dict[str, Any], nodes: int, limit: float) -> None:
    spec = on_a_fabric(fabric, nodes, largest_loss_pct=limit)
    plan = make_plan(spec)
    found = plan.of(CAPABILITY)
    assert found
    on_leafs = Counter(
        (port.plane, port.leaf)
        for _, ports in plan.of(FABRIC)["tokyo"].node_nics()  # type: ignore[index] # it is declared
        for port in {(port.plane, port.leaf): port for port in ports}.values()
    )
    assert found.outlook.leaf_nodes == max(on_leafs.values())
    largest = max(found.outlook.leaf_gpus, 8)
    warned = [one for one in check(spec) if one.rule == "failure-domain"]
    assert bool(warned) == (largest > int(found.outlook.job_gpus * limit / 100))


def test_what_a_domain_may_take_is_enough_when_it_is_declared() -> None:
    fabric = {"kind": "rail_optimized", "radix": 64}
    (problem,) = (
        one for one in check(on_a_fabric(fabric, 64, largest_loss_pct=25)) if one.rule == "failure-domain"
    )
    enough_pct = float(problem.allowed.split()[2])
    spec = on_a_fabric(fabric, 64, largest_loss_pct=enough_pct)
    assert not [one for one in check(spec) if one.rule == "failure-domain"]
    fewer = int(problem.hint.split()[-3])
    spec = on_a_fabric(fabric | {"leaf_down_ports": fewer}, 64, largest_loss_pct=25)
    assert not [one for one in check(spec) if one.rule == "failure-domain"]


def test_only_disks_of_the_nodes_lose_a_checkpoint() -> None:
    nvme, shared = {"name": "nvme", "write_gib_s_per_node": 5}, {"name": "storage", "write_gib_s": 100}
    for tiers, over, warned in (
        ([nvme], None, True),
        ([nvme, shared], None, False),
        ([nvme], "sea", False),
    ):
        spec = declared(checkpoint={"parameters_b": 70, "tiers": tiers, "replicate_over": over})
        assert bool([one for one in check(spec) if one.rule == "checkpoint-lost"]) == warned


def test_each_pool_has_its_own_spares() -> None:
    data = declared().model_dump(mode="json")
    data["regions"][0]["pools"].append(data["regions"][0]["pools"][1] | {"name": "more", "count": 8})
    found = planned(ClusterSpec.model_validate(data)).outlook
    spares = {pool.pool: (pool.nodes, pool.spares_needed) for pool in found.pools}
    large, small = (spares_for(nodes * LLAMA.total / 1000 * (0.3 * 7 + 0.7 * 0.1), 0.99) for nodes in (64, 8))
    assert spares == {"tokyo-gpu": (64, large), "tokyo-more": (8, small)}
    assert "tokyo-more 1 of 8" in CAPABILITY.report(planned(ClusterSpec.model_validate(data))).text


def test_a_sites_own_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates_module, "ROOT", tmp_path)
    (tmp_path / "ours.yaml").write_text("source: ours\nrates: {gpu: 1.5, link: 0.5}\nhardware_pct: 50\n")
    found = load_rates("ours.yaml")
    assert (found.total, found.hardware_share, found.source) == (2.0, 0.5, "ours")
    assert found.without("link").total == 1.5


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from([*rates_module.KEYS, "moon"])
FILES = VALUES | st.dictionaries(KEYS, VALUES | st.dictionaries(st.sampled_from(["gpu", "moon"]), VALUES))


@given(FILES)
def test_any_file_is_rates_or_bad_input(content: Any) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(content, file)
        file.flush()
        try:
            found = load_rates(file.name)
        except BadInputError:
            return
    assert found.total > 0
    assert 0 <= found.hardware_share <= 1


def test_check_loads_neither_simulation_nor_page() -> None:
    program = (
        "import sys; from infra.cli import main; main(['check', 'examples/training-two-planes.yaml'])\n"
        "import infra.inventory.groups\n"
        "loaded = {name for name in sys.modules if name.endswith(('.simulation', '.page'))}\n"
        "sys.exit(str(loaded) if loaded else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


class Page(HTMLParser):
    """What stands in a page: tags, texts of figures, and whatever would load something else."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.labels: list[str] = []
        self.points: list[list[tuple[float, float]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        known = dict(attrs)
        assert not {"src", "href", "onload"} & set(known), "it stands alone"
        if tag == "svg":
            self.labels.append(known.get("aria-label") or "")
        if tag == "polyline":
            pairs = (pair.split(",") for pair in (known["points"] or "").split())
            self.points.append([(float(x), float(y)) for x, y in pairs])


def test_the_page_stands_alone_and_its_curves_are_the_plan(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    words = ["plan", "examples/training-two-planes.yaml", "--html", str(file)]
    subprocess.run([sys.executable, "-m", "infra.cli", *words], cwd=ROOT, check=True)
    text = file.read_text()
    page = Page(text)
    assert "script" not in page.tags
    assert "prefers-color-scheme:dark" in text
    assert [label.partition(":")[0] for label in page.labels] == [
        "Efficiency against the interval between checkpoints",
        "Goodput against spares",
    ]
    interval, spares = page.points
    best = min(range(len(interval)), key=lambda number: interval[number][1])
    assert 0 < best < len(interval) - 1, "a hill: too often costs, and too seldom"
    assert [y for _, y in spares] == sorted((y for _, y in spares), reverse=True), "never less with more"


def test_without_anything_to_show_there_is_no_page(tmp_path: Path) -> None:
    words = ["plan", "examples/two-regions.yaml", "--html", str(tmp_path / "page.html")]
    done = subprocess.run(
        [sys.executable, "-m", "infra.cli", *words], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "nothing that is declared has a page" in done.stderr


def test_outlook_is_none_where_nothing_is_declared() -> None:
    assert outlook(load_spec(ROOT / "Pulumi.local.yaml")) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("source: a\nrates: {gpu: 1}\nrates: {gpu: 2}\nhardware_pct: 1\n", "twice"),
        ("source: a\x07\n", "character"),
        (
            "source: a\ncounts: {gpu: 5}\nnodes: 1.0e-300\ndays: 1.0e-300\nhardware_pct: 1\n",
            ":3: counts need nodes",
        ),
        ("source: a\nhardware_pct: 1\nrates: {gpu: .nan}\n", ":3: the rate of gpu"),
        ("source: a\nhardware_pct: 1\nrates: {gpu: 24001}\n", "more than once an hour"),
        ("x: " + "a" * 200_000, "larger than"),
    ],
    ids=["a key twice", "a control character", "next to no time", "no number", "always", "large"],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates_module, "ROOT", tmp_path)
    (tmp_path / "ours.yaml").write_text(text)
    with pytest.raises(BadInputError) as caught:
        load_rates("ours.yaml")
    assert said in str(caught.value)
    assert "ours.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("wan_links", 0, "bandwidth_mbps"), 0),
        (("reliability", "job_nodes"), 10**400),
        (("reliability", "checkpoint", "tiers", 0, "write_gib_s_per_node"), 5e-324),
        (("reliability", "checkpoint", "parameters_b"), 1e9),
        (("reliability", "checkpoint", "interval"), 10**400),
        (("reliability", "availability_target_pct"), 99.99999999999999),
    ],
)
def test_extreme_numbers_are_answered(path: tuple[str | int, ...], value: Any, tmp_path: Path) -> None:
    data = YAML(typ="safe").load((ROOT / "tests" / "golden" / "good" / "reliability.yaml").read_text())
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    file = tmp_path / "odd.yaml"
    YAML().dump(data, file)
    done = subprocess.run(
        [sys.executable, "-m", "infra.cli", "check", str(file)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 2)
    assert "Traceback" not in done.stderr


def test_a_suggested_first_tier_would_do() -> None:
    def with_speed(speed: float) -> ClusterSpec:
        tier = {"name": "nvme", "write_gib_s_per_node": speed}
        return declared(checkpoint={"parameters_b": 70000, "tiers": [tier]})

    (problem,) = (one for one in check(with_speed(0.02)) if one.rule == "checkpoint-time")
    speed = float(problem.allowed.split()[2].replace(",", ""))
    assert not [one for one in check(with_speed(speed)) if one.rule == "checkpoint-time"]


def test_what_never_fails_is_said_in_words_and_json() -> None:
    plan = planned(declared())
    quiet = replace(plan, outlook=replace(plan.outlook, job=job(rates=Rates("none", {}, 0.3))))
    report = CAPABILITY.report(quiet)
    assert "nan" not in report.text
    assert "stopped never" in report.text
    json.dumps(report.data, allow_nan=False)


@pytest.mark.parametrize(("cost_s", "hours", "minutes"), [(300, 24, 117), (300, 6, 57), (300, 0.25, 9.1)])
def test_dalys_own_examples(cost_s: float, hours: float, minutes: float) -> None:
    assert daly_s(cost_s, 3600 * hours) / 60 == pytest.approx(minutes, rel=0.01)


def test_12500_nodes_for_a_year_with_queues_and_leafs() -> None:
    large = job(12500, spares=150)
    assert 0 < simulate(large, 365, 1, Ways(leaf_nodes=2, repairs_at_once=140)) < simulate(large, 365, 1)
    assert simulate(large, 365, 1, Ways(leaf_nodes=640, repairs_at_once=1)) < 0.05, "and it comes to an end"
