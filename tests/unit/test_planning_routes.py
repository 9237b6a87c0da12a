"""Ways between regions: which links carry them, what they add up to, and what stands in for them."""

from itertools import combinations
from random import Random
from typing import Any

import pytest

from infra.capabilities.wan.capability import CAPABILITY as WAN
from infra.capabilities.wan.plan import WanPlan
from infra.capabilities.wan.routes import Route
from infra.checks import parse_spec
from infra.declaration import ClusterSpec
from infra.planning.plan import make_plan
from tests.seed import SEED


def link(name: str, a: str, b: str, rtt_ms: float = 20, **more: Any) -> dict[str, Any]:
    return {"name": name, "a": a, "b": b, "rtt_ms": rtt_ms, "bandwidth_mbps": 1000, **more}


def cluster(*links: dict[str, Any], regions: str = "abc", gateways: int = 1) -> ClusterSpec:
    pools = [{"name": "control", "role": "control", "count": 1}]
    pools += [{"name": "edge", "role": "gateway", "count": gateways}] if gateways else []
    places = [
        {"name": name, "cidr": f"10.{90 + index}.0.0/16", "pools": pools}
        for index, name in enumerate(regions)
    ]
    return parse_spec({"name": "c", "regions": places, "wan_links": list(links)})


def planned_wan(spec: ClusterSpec) -> WanPlan:
    planned = make_plan(spec).of(WAN)
    assert planned
    return planned


def route(spec: ClusterSpec, source: str, target: str) -> Route:
    return planned_wan(spec).routes[source][target]


def ways(spec: ClusterSpec, source: str, target: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The links of the primary path and of the backup path."""
    planned = route(spec, source, target)
    return planned.primary.links, planned.backup.links if planned.backup else ()


def test_a_way_through_a_region_adds_up() -> None:
    spec = cluster(
        link("ab", "a", "b", 30, bandwidth_mbps=500, loss_pct=0.2, mtu_bytes=1400, flows=4),
        link("bc", "b", "c", 50, bandwidth_mbps=200, loss_pct=0.1, kind="sdwan"),
    )
    way = route(spec, "a", "c").primary
    assert way.links == ("ab", "bc")
    assert (way.rtt_ms, way.bandwidth_mbps, way.mtu_bytes, way.mss_bytes) == (80, 200, 1400, 1360)
    assert way.loss_pct == pytest.approx(100 * (1 - 0.998 * 0.999))
    assert way.bdp_bytes == 2_000_000
    assert way.reason.startswith("4 CUBIC flows carry ")
    assert route(spec, "c", "a").primary.links == ("bc", "ab")


def test_the_shortest_round_trip_wins_over_the_fewest_links() -> None:
    spec = cluster(link("ac", "a", "c", 100), link("ab", "a", "b", 30), link("bc", "b", "c", 40))
    assert ways(spec, "a", "c") == (("ab", "bc"), ("ac",))
    nearer = cluster(link("ac", "a", "c", 70), link("ab", "a", "b", 30), link("bc", "b", "c", 40))
    assert ways(nearer, "a", "c") == (("ac",), ("ab", "bc"))


def test_of_two_equal_links_the_first_declared_carries() -> None:
    spec = cluster(link("one", "a", "b"), link("two", "b", "a"), regions="ab")
    assert ways(spec, "a", "b") == ways(spec, "b", "a") == (("one",), ("two",))


def test_a_backup_carries_only_while_its_link_is_down() -> None:
    short = link("spare", "b", "a", 5, backup_of="main")
    for links in ((link("main", "a", "b", 50), short), (short, link("main", "a", "b", 50))):
        assert ways(cluster(*links, regions="ab"), "a", "b") == (("main",), ("spare",))


@pytest.mark.parametrize("gateways", [0, 1])
def test_of_two_backups_the_first_declared_stands_in(gateways: int) -> None:
    spares = [link(name, "a", "b", rtt, backup_of="main") for name, rtt in (("one", 90), ("two", 60))]
    spec = cluster(link("main", "a", "b", 50), *spares, regions="ab", gateways=gateways)
    assert ways(spec, "a", "b") == (("main",), ("one",))


def test_a_backup_is_taken_rather_than_a_way_through_another_region() -> None:
    spec = cluster(
        link("ab", "a", "b", 50),
        link("ac", "a", "c", 30),
        link("cb", "c", "b", 30),
        link("spare", "a", "b", 400, backup_of="ab"),
    )
    assert ways(spec, "a", "b") == (("ab",), ("spare",))
    assert ways(spec, "a", "c") == (("ac",), ("ab", "cb"))


def test_a_way_keeps_the_links_that_nothing_stands_in_for() -> None:
    spec = cluster(
        link("ab", "a", "b", 50), link("bc", "b", "c", 30), link("spare", "a", "b", 90, backup_of="ab")
    )
    assert ways(spec, "a", "c") == (("ab", "bc"), ("spare", "bc"))
    assert ways(spec, "b", "c") == (("bc",), ())


def test_only_gateways_find_a_way_around() -> None:
    triangle = (link("ab", "a", "b"), link("bc", "b", "c"), link("ac", "a", "c"))
    spare = link("spare", "a", "b", 90, backup_of="ab")
    assert ways(cluster(*triangle), "a", "b") == (("ab",), ("ac", "bc"))
    assert ways(cluster(*triangle, gateways=0), "a", "b") == (("ab",), ())
    assert ways(cluster(*triangle, spare, gateways=0), "a", "b") == (("ab",), ("spare",))


def test_settings_hold_on_the_backup_too() -> None:
    spare = link("spare", "a", "b", 200, bandwidth_mbps=2000, loss_pct=0.1, kind="vpn", backup_of="main")
    planned = route(cluster(link("main", "a", "b", 50), spare, regions="ab"), "a", "b")
    assert planned.backup is not None
    assert planned.primary.congestion_control == "cubic"
    assert planned.congestion_control == "bbr"
    assert planned.reason == f"on the backup path, {planned.backup.reason}"
    assert planned.tcp_buffer_max_bytes == planned.backup.tcp_buffer_max_bytes == 128 * 2**20
    assert (planned.primary.mtu_bytes, planned.backup.mtu_bytes) == (1500, 1440)


def test_what_is_near_keeps_cubic_however_far_its_backup() -> None:
    spare = link("spare", "a", "b", 200, loss_pct=1, backup_of="main")
    planned = route(cluster(link("main", "a", "b", 5), spare, regions="ab"), "a", "b")
    assert (planned.congestion_control, planned.reason) == ("cubic", "RTT 5 ms is under 10 ms")


def test_regions_without_a_chain_of_links_have_no_route() -> None:
    planned = planned_wan(cluster(link("ab", "a", "b"), link("cd", "c", "d"), regions="abcd"))
    assert {source: list(routes) for source, routes in planned.routes.items()} == {
        "a": ["b"],
        "b": ["a"],
        "c": ["d"],
        "d": ["c"],
    }


def hops(plan: WanPlan, spec: ClusterSpec, source: str, target: str) -> list[str]:
    """The regions a packet passes when each one forwards it over the first link of its own route."""
    ends = {each.name: {each.a, each.b} for each in spec.wan_links}
    passed = [source]
    while passed[-1] != target:
        first = plan.routes[passed[-1]][target].primary.links[0]
        passed.append(next(iter(ends[first] - {passed[-1]})))
        assert len(passed) <= len(spec.regions), f"a loop: {passed}"
    return passed


@pytest.mark.parametrize("seed", range(20))
def test_forwarding_hop_by_hop_follows_the_plan_and_is_the_same_both_ways(seed: int) -> None:
    random, names = Random(SEED + seed), "abcdefg"  # noqa: S311 - no secret, and the same every time
    pairs = random.sample(list(combinations(names, 2)), 14) + [("a", name) for name in names[1:]]
    links = [link(f"l{i}", *pair, rtt_ms=random.choice((10, 20, 30.1))) for i, pair in enumerate(pairs)]
    spec = cluster(*links, regions=names)
    plan = planned_wan(spec)
    for source, target in combinations(names, 2):
        there = hops(plan, spec, source, target)
        assert len(there) == len(plan.routes[source][target].primary.links) + 1
        assert hops(plan, spec, target, source) == there[::-1]
        back = plan.routes[target][source].primary
        assert back.links == plan.routes[source][target].primary.links[::-1]


def test_links_are_dealt_to_the_gateways_of_a_region() -> None:
    links = (link("l0", "a", "b"), link("l1", "b", "c"), link("l2", "a", "c"), link("l3", "c", "a"))
    plan = planned_wan(cluster(*links, gateways=2))
    at = {
        name: {region: node.name for region, node in ends.items() if node} for name, ends in plan.ends.items()
    }
    assert at == {
        "l0": {"a": "a-edge-0", "b": "b-edge-0"},
        "l1": {"b": "b-edge-1", "c": "c-edge-0"},
        "l2": {"a": "a-edge-1", "c": "c-edge-1"},
        "l3": {"a": "a-edge-0", "c": "c-edge-0"},
    }
    assert planned_wan(cluster(*links, gateways=0)).ends["l0"] == {"a": None, "b": None}
