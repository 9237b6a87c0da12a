"""Addresses and names: the same in every run, and no pool moves another."""

from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.checks import check, parse_spec
from infra.declaration import ClusterSpec
from infra.ground import addresses
from infra.planning.plan import Plan, make_plan
from infra.planning.report import plan_json

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHaSw601QLuAPAILOu5mzYiHEjI06gxucUPArdc/9DHt"


def spec(*counts: int, cidr: str = "10.81.0.0/16", **pool: Any) -> ClusterSpec:
    pools = [
        {"name": f"p{index}", "role": "control", "count": count, **pool} for index, count in enumerate(counts)
    ]
    return parse_spec({"name": "c", "regions": [{"name": "r", "cidr": cidr, "pools": pools}]})


def by_name(plan: Plan) -> dict[str, IPv4Address]:
    return {node.name: node.address for node in plan.nodes}


def test_pools_start_at_their_own_sixteenth() -> None:
    planned = by_name(make_plan(spec(1, 2, 1)))
    assert {name: str(address) for name, address in planned.items()} == {
        "r-p0-0": "10.81.16.0",
        "r-p1-0": "10.81.32.0",
        "r-p1-1": "10.81.32.1",
        "r-p2-0": "10.81.48.0",
    }
    assert str(addresses.router_address(IPv4Network("10.81.0.0/16"))) == "10.81.0.1"


@pytest.mark.parametrize("changed", [0, 1, 2])
@pytest.mark.parametrize("count", [1, 4096])
def test_one_pools_count_renumbers_nobody(changed: int, count: int) -> None:
    before = by_name(make_plan(spec(3, 3, 3)))
    counts = [3, 3, 3]
    counts[changed] = count
    after = by_name(make_plan(spec(*counts)))
    assert {name: after[name] for name in before if name in after} == {
        name: address for name, address in before.items() if name in after
    }


def test_pool_at_the_end_renumbers_nobody() -> None:
    before, after = by_name(make_plan(spec(3, 3))), by_name(make_plan(spec(3, 3, 3)))
    assert before.items() <= after.items()


@pytest.mark.parametrize(
    ("cidr", "index", "capacity"),
    [
        ("10.0.0.0/8", 0, 1 << 20),
        ("10.81.0.0/16", 0, 4096),
        ("10.81.0.0/16", 14, 4095),
        ("10.81.0.0/16", 15, 0),
        ("10.81.0.0/27", 0, 2),
        ("10.81.0.0/27", 14, 1),
        ("10.81.0.0/28", 0, 0),  # blocks of one: pool 0's only address would be the router's
        ("10.81.0.0/30", 0, 0),
    ],
)
def test_capacity(cidr: str, index: int, capacity: int) -> None:
    assert addresses.pool_capacity(IPv4Network(cidr), index) == capacity


@pytest.mark.parametrize("cidr", ["10.81.0.0/16", "10.81.0.0/24", "10.81.0.0/27"])
def test_full_pools_share_no_address_with_each_other_or_the_region(cidr: str) -> None:
    network = IPv4Network(cidr)
    counts = [min(addresses.pool_capacity(network, index), 300) for index in range(addresses.MAX_POOLS)]
    planned = list(by_name(make_plan(spec(*counts, cidr=cidr))).values())
    special = {network.network_address, addresses.router_address(network), network.broadcast_address}
    assert len(set(planned) | special) == sum(counts) + 3
    assert all(address in network for address in planned)


def test_links_have_a_transfer_network_each() -> None:
    ends = [addresses.link_interfaces(index) for index in range(addresses.MAX_LINKS)]
    networks = {interface.network for pair in ends for interface in pair}
    assert len(networks) == addresses.MAX_LINKS
    assert all(a.network == b.network and a != b for a, b in ends)
    assert all(network.subnet_of(addresses.LINK_NETWORK) for network in networks)


def test_existing_machines_keep_their_addresses_and_ports() -> None:
    hosts = [
        {"address": "192.168.7.9", "host_key": "k", "ssh_port": 2222},
        {"address": "192.168.7.3", "host_key": "k"},
    ]
    pool = {"name": "p", "role": "gpu", "count": 2, "hosts": hosts}
    region = {"name": "r", "provider": {"kind": "existing"}, "cidr": "192.168.7.0/24", "pools": [pool]}
    nodes = make_plan(parse_spec({"name": "c", "regions": [region]})).nodes
    assert [(node.name, str(node.address), node.ssh_port) for node in nodes] == [
        ("r-p-0", "192.168.7.9", 2222),
        ("r-p-1", "192.168.7.3", 22),
    ]


def test_resources_grow_with_pools_and_not_with_nodes() -> None:
    few, many, more = (make_plan(made).resources for made in (spec(1, 1), spec(4000, 4000), spec(1, 1, 1)))
    assert few == many
    assert more["node_pools"] == few["node_pools"] + 2


def test_json_adds_up() -> None:
    made = spec(2, 3, role="gpu", gpus=8, gpu_model="h100-sxm")
    report = plan_json(made, make_plan(made), "some")
    region = report["regions"]["r"]
    assert (report["cluster"], report["stack"]) == ("c", "some")
    assert (region["nodes"], region["gpus"], len(report["nodes"])) == (5, 40, 5)
    assert region["pools"]["p1"]["host_names"] == ["r-p1-0", "r-p1-1", "r-p1-2"]
    assert (region["pools"]["p1"]["first_address"], region["pools"]["p1"]["last_address"]) == (
        "10.81.32.0",
        "10.81.32.2",
    )
    assert report["resources"]["total"] == sum(report["resources"].values()) - report["resources"]["total"]


OWN_NAMES = st.none() | st.sampled_from(
    [
        "head",
        "gpu-a17",
        "r-p0-0",
        "r-p0-1",
        "r-p1-0",
        "r-p1-2",
        "r-p1-01",
        "r-p0--1",
        "all",
        "12",
        "0x1f",
        "1e3",
    ]
)


@given(st.lists(st.lists(OWN_NAMES, min_size=1, max_size=4), min_size=1, max_size=2))
def test_machines_have_the_names_that_are_declared_and_no_two_the_same(pools: list[list[str | None]]) -> None:
    hosts = [
        [
            {"address": f"10.81.{index}.{number + 1}"} | ({"name": name} if name else {})
            for number, name in enumerate(names)
        ]
        for index, names in enumerate(pools)
    ]
    planned = spec(*map(len, pools))
    regions = planned.model_dump()["regions"]
    regions[0]["provider"] = {"kind": "existing", "ssh_host_ca": KEY}
    for pool, listed in zip(regions[0]["pools"], hosts, strict=True):
        pool["hosts"] = listed
    declared = ClusterSpec.model_validate({"name": "c", "regions": regions})
    names = [node.name for node in make_plan(declared).nodes]
    wanted = [
        name or f"r-p{index}-{number}"
        for index, listed in enumerate(pools)
        for number, name in enumerate(listed)
    ]
    assert names == wanted
    wrong = {problem.rule for problem in check(declared) if problem.severity == "error"}
    assert ("host-name-unique" in wrong) == (len(set(names)) < len(names))
    assert ("host-name-meaning" in wrong) == bool({"all", "12", "0x1f", "1e3"} & set(names))


def test_a_name_of_its_own_need_not_fit_a_region_and_a_pool() -> None:
    pool = {"name": "p" * 60, "role": "control", "count": 2}
    region = {"name": "r", "cidr": "10.81.0.0/16", "provider": {"kind": "existing", "ssh_host_ca": KEY}}
    for last, fits in (({"name": "b"}, True), ({}, False)):
        hosts = [{"address": "10.81.0.2", **last}, {"address": "10.81.0.3", "name": "a"}]
        declared = parse_spec({"name": "c", "regions": [{**region, "pools": [{**pool, "hosts": hosts}]}]})
        assert ("host-name-length" not in {problem.rule for problem in check(declared)}) == fits
