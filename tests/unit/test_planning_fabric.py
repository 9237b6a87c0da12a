"""The fabric against designs that were published, and every port and address used once."""

from collections import Counter
from dataclasses import replace
from ipaddress import IPv4Network
from typing import Any

import pytest

from infra.capabilities.fabric import cabling
from infra.capabilities.fabric import topology as planning
from infra.capabilities.fabric.section import FabricSection
from infra.capabilities.fabric.topology import Counts
from infra.declaration import FabricSpec
from infra.ground import clos
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from tests.unit.fabrics import B200, B300, SHAPES, cluster, fabric_of, shaped

META = {
    **B200,
    "kind": "fat_tree",
    "radix": 220,  # of the modular spines: 192 down and 28 up; a leaf uses 32 ports
    "leaf_down_ports": 16,
    "core_oversubscription": 7,
}
HPN = {**B200, "radix": 256, "link_gbps": 200, "planes": 2, "leaf_down_ports": 128}
HPN_OVERSUBSCRIPTION = 128 * 200 / (60 * 400)


@pytest.mark.parametrize(
    ("fabric", "nodes", "tiers", "leafs", "spines", "cores"),
    [
        (B200, 64, 2, 16, 8, 0),
        (B200, 128, 2, 32, 16, 0),
        (B200, 256, 2, 64, 32, 0),
        (B200, 512, 3, 128, 128, 64),
        (B300, 64, 2, 16, 8, 0),
        (B300, 128, 2, 32, 16, 0),
        (B300, 256, 2, 64, 32, 0),
    ],
)
def test_nvidia_reference_architectures(
    fabric: dict[str, Any], nodes: int, tiers: int, leafs: int, spines: int, cores: int
) -> None:
    planned = fabric_of(nodes, **fabric)
    assert (planned.shape.tiers, planned.counts.leafs, planned.counts.spines, planned.counts.cores) == (
        tiers,
        leafs,
        spines,
        cores,
    )
    assert planned.counts.node_leaf_cables == 8 * nodes * fabric.get("planes", 1)
    assert planned.counts.leaf_spine_cables == planned.counts.node_leaf_cables


def test_meta_24k() -> None:
    planned = fabric_of(3072, **META)
    assert [pod.leafs * 16 for pod in planned.shape.pods] == [3072] * 8
    assert planned.counts.node_leaf_cables == planned.counts.leaf_spine_cables == 24_576
    assert planned.counts.leaf_spine_cables / planned.counts.spine_core_cables == pytest.approx(7, rel=0.03)


def test_alibaba_hpn() -> None:
    planned = fabric_of(1920, **HPN, oversubscription=HPN_OVERSUBSCRIPTION)
    assert pytest.approx(1.067, abs=0.001) == HPN_OVERSUBSCRIPTION
    assert (clos.down_ports(planned.fabric), planned.shape.leaf_up * 200) == (128, 60 * 400)
    assert (planned.counts.leafs, planned.counts.spines) == (15 * 16, 120)


@pytest.mark.parametrize(("radix", "two", "three"), [(64, 2048, 65_536), (128, 8192, 524_288)])
def test_largest_cluster(radix: int, two: int, three: int) -> None:
    fabric = FabricSpec.model_validate({**B200, "radix": radix})
    assert clos.max_endpoints(fabric, 2) == two
    assert clos.max_endpoints(fabric) == three
    assert clos.max_endpoints(fabric.model_copy(update={"kind": "spine_leaf"})) == two
    assert clos.max_endpoints(fabric.model_copy(update={"planes": 2})) == 2 * three


@pytest.mark.parametrize("shape", SHAPES)
def test_every_port_and_address_is_used_once(shape: str) -> None:
    planned = shaped(shape)
    nics = [nic for _, found in planned.node_nics() for nic in found]
    assert len(nics) == planned.counts.node_leaf_cables
    assert max(Counter((nic.plane, nic.leaf, nic.port) for nic in nics).values()) == 1
    assert all(nic.port < clos.down_ports(planned.fabric) for nic in nics)
    assert {(nic.plane, nic.leaf) for nic in nics} == {
        (plane, leaf) for plane in range(planned.fabric.planes) for leaf in range(planned.shape.leafs)
    }
    addresses = {nic.address for nic in nics}
    assert len(addresses) == len(nics)
    assert addresses.isdisjoint(nic.gateway for nic in nics)
    for nic in nics:
        subnet = IPv4Network(f"{nic.gateway}/{nic.prefix}", strict=False)
        assert nic.address in subnet
        assert nic.address not in (subnet.network_address, subnet.broadcast_address)
        assert subnet.subnet_of(planned.rail_range(nic.plane, nic.rail))


def test_rails_and_trees_differ_in_the_leaf_of_a_nic() -> None:
    rails = fabric_of(64, **B200).nics(33)
    assert [(nic.name, nic.leaf, nic.port) for nic in rails[:2]] == [("rail0", 8, 1), ("rail1", 9, 1)]
    tree = fabric_of(64, **{**B200, "kind": "fat_tree"}).nics(33)
    assert [(nic.name, nic.leaf, nic.port) for nic in tree[:2]] == [("rail0", 8, 8), ("rail1", 8, 9)]


def test_ports_of_planes_are_named_after_both() -> None:
    names = [(nic.name, nic.rail, nic.plane) for nic in fabric_of(2, **B300).nics(0)]
    assert names[:3] == [("rail0p0", 0, 0), ("rail0p1", 0, 1), ("rail1p0", 1, 0)]


def test_more_nodes_in_the_last_pool_move_no_address() -> None:
    before, after = (dict(fabric_of(40, count, **B200).node_nics()) for count in (1, 500))
    assert before.items() <= after.items()


def test_one_leaf_needs_no_spine() -> None:
    planned = fabric_of(4, **{**B200, "kind": "fat_tree"})
    assert (
        planned.shape.tiers,
        planned.counts.leafs,
        planned.counts.spines,
        planned.counts.leaf_spine_cables,
    ) == (1, 1, 0, 0)


def test_more_nodes_than_fit_have_no_shape() -> None:
    fabric = FabricSpec.model_validate({**B200, "radix": 16})
    assert clos.max_nodes(fabric) == 128
    assert clos.Shape(fabric, 128).tiers == 3
    with pytest.raises(ValueError, match="has 1 to 128"):
        clos.Shape(fabric, 129)


def test_the_contract_has_the_ports_of_nodes_on_the_fabric_only() -> None:
    spec = cluster(2, **B200)
    contract = build_contract(spec, make_plan(spec), "test")
    section = contract.section(FabricSection)
    assert section
    assert "r-control-0" not in section.hosts
    port = section.hosts["r-gpu0-1"][7]
    assert (port.name, port.rail, port.leaf, port.port) == ("rail7", 7, "r-leaf-7", 1)
    fabric = section.regions["r"]
    assert (fabric.mtu_bytes, fabric.roce.tos) == (9000, 106)
    assert port.address in fabric.rail_cidrs[7]


def test_regions_without_a_range_get_one_each() -> None:
    regions = [
        cluster(2, **B200)
        .regions[0]
        .model_copy(update={"name": f"r{n}", "cidr": IPv4Network(f"10.{n}.0.0/16")})
        for n in range(len(planning.DEFAULT_RANGES))
    ]
    ranges = [planning.fabric_range(number, region) for number, region in enumerate(regions)]
    assert len(set(ranges)) == len(regions) == 14
    assert planning.fabric_range(14, regions[0]) is None


def test_the_next_step_says_what_has_to_be_added() -> None:
    full = clos.Shape(FabricSpec.model_validate(B200), 60)
    larger = full.next_step()
    assert larger is not None
    assert (full.full, larger.nodes) == (64, 96)
    assert (Counts.of(larger).leafs, Counts.of(larger).spines) == (24, 16)
    assert clos.Shape(full.fabric, 8192).next_step() is None


@pytest.mark.parametrize("shape", SHAPES)
def test_the_smallest_range_holds_hosts_and_switches(shape: str) -> None:
    planned = shaped(shape)
    prefix = planning.longest_prefix(planned.shape)
    squeezed = replace(planned, cidr=IPv4Network(("10.0.0.0", prefix)))
    half = squeezed.cidr.num_addresses // 2
    hosts = [int(nic.address) for _, nics in squeezed.node_nics() for nic in nics]
    links = [int(link.upper_address) for link in cabling.switch_links(squeezed)]
    loopbacks = [int(address) for address in cabling.loopbacks(squeezed).values()]
    base = int(squeezed.cidr.network_address)
    assert max(hosts) < base + half
    assert max(links, default=base) < min(loopbacks)
    assert max(loopbacks) < base + 2 * half
