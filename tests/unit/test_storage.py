"""Ceph clusters: what they hold and bear, by properties that hold for every declaration."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.capabilities.storage import figures
from infra.capabilities.storage.figures import Node
from infra.capabilities.storage.section import StorageSection
from infra.declaration import CephfsExport, CephSpec, ClusterSpec
from infra.ground.secrets import cephx
from infra.inventory.roles import role_hosts
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan


def storage(**more: Any) -> CephSpec:
    given_ = {"name": "train", "region": "tokyo", "kind": "ceph", "pools": ["storage"]}
    return CephSpec.model_validate({**given_, "osd_backing": {"kind": "file", "size_gib": 100}, **more})


@st.composite
def clusters(draw: st.DrawFn) -> tuple[CephSpec, tuple[Node, ...]]:
    per_rack = draw(st.none() | st.integers(1, 8))
    count = draw(st.integers(1, 60))
    members = tuple(Node(f"n-{n}", f"r-{n // per_rack}" if per_rack else "") for n in range(count))
    exports = [{"kind": "cephfs", "name": "a"}, {"kind": "rbd", "name": "b"}][: draw(st.integers(0, 2))]
    return storage(osds_per_node=draw(st.integers(1, 24)), exports=exports), members


@given(clusters())
def test_no_more_is_usable_than_there_is(cluster: tuple[CephSpec, tuple[Node, ...]]) -> None:
    copies = figures.replicas(*cluster)
    filled = figures.raw_gib(*cluster) * figures.nearfull_ratio(cluster[0])
    assert 0 < figures.usable_gib(*cluster) * copies <= filled + 1e-6


@given(st.floats(2, 20_000))
def test_a_small_osd_stops_early_enough(size_gib: float) -> None:
    spec = storage(osd_backing={"kind": "file", "size_gib": size_gib})
    full = figures.full_ratio(spec)
    assert 0.6 < figures.nearfull_ratio(spec) < full <= figures.FULL
    assert (1 - full) * size_gib >= figures.KEPT_FREE_GIB - 0.0001 * size_gib
    assert full == figures.FULL or size_gib < 10.1


@given(clusters(), st.integers(2, 8), st.integers(1, 4))
def test_parts_hold_more_than_copies_that_bear_as_much(
    cluster: tuple[CephSpec, tuple[Node, ...]], k: int, m: int
) -> None:
    spec, members = cluster
    coded = CephfsExport.model_validate({"kind": "cephfs", "name": "cold", "erasure": {"k": k, "m": m}})
    usable = figures.usable_gib(spec, members, coded)
    filled = figures.raw_gib(spec, members) * figures.nearfull_ratio(spec)
    assert 0 < usable * (k + m) <= filled * k + 1e-6
    copied = spec.model_copy(update={"replicas": m + 1})
    if figures.domains(members) > max(k + m, m + 1):
        assert usable > figures.usable_gib(copied, members)


@given(clusters())
def test_every_copy_has_a_domain_of_its_own(cluster: tuple[CephSpec, tuple[Node, ...]]) -> None:
    assert 1 <= figures.replicas(*cluster) <= figures.domains(cluster[1])


@given(clusters())
def test_monitors_are_odd_and_in_as_many_racks_as_there_are(
    cluster: tuple[CephSpec, tuple[Node, ...]],
) -> None:
    spec, members = cluster
    found = figures.monitors(spec, members)
    assert len(found) % 2 == 1
    assert len(set(found)) == len(found)
    racks = {node.rack for node in members}
    assert len({node.rack for node in found}) == min(len(found), len(racks))


@given(clusters())
def test_placement_groups_are_powers_of_two_and_no_more_than_ceph_takes(
    cluster: tuple[CephSpec, tuple[Node, ...]],
) -> None:
    spec, members = cluster
    pools = figures.pools(spec, members)
    assert all(pool.pg_num >= 8 and pool.pg_num.bit_count() == 1 for pool in pools)
    osds = len(members) * spec.osds_per_node
    assert figures.groups_per_osd(pools, osds) <= figures.MOST_GROUPS_PER_OSD


@pytest.mark.parametrize(
    ("osds", "size", "share", "groups"),
    [(1, 1, 1.0, 64), (3, 3, 0.04, 8), (144, 3, 0.5, 2048), (96, 4, 0.3, 512)],
)
def test_placement_groups(osds: int, size: int, share: float, groups: int) -> None:
    assert figures.groups(osds, size, share) == groups


def test_two_copies_leave_writes_to_one() -> None:
    assert [figures.least(copies) for copies in (1, 2, 3, 4)] == [1, 1, 2, 3]


DECLARED = {
    "name": "pacific",
    "regions": [
        {
            "name": region,
            "cidr": f"10.{number}.0.0/16",
            "pools": [
                {"name": "control", "role": "control", "count": 1},
                {"name": "gpu", "role": "gpu", "count": 2, "gpus": 8, "gpu_model": "h100-sxm"},
                {"name": "storage", "role": "storage", "count": 4},
            ],
        }
        for region, number in (("tokyo", 81), ("osaka", 82))
    ],
    "storage": [
        {
            "name": name,
            "region": region,
            "kind": "ceph",
            "pools": ["storage"],
            "osd_backing": {"kind": "file", "size_gib": 4},
            "exports": [{"kind": "cephfs", "name": "data", "quota_gib": 1, "class": "pi"}],
        }
        for name, region in (("train", "tokyo"), ("keep", "osaka"))
    ],
}


def test_each_region_has_its_own_and_gpu_nodes_use_their_regions() -> None:
    spec = ClusterSpec.model_validate(DECLARED)
    contract = build_contract(spec, make_plan(spec), "test")
    section = contract.section(StorageSection)
    assert section is not None
    assert [cluster.exports[0].data_class for cluster in section.clusters] == ["pi", "pi"]
    assert [cluster.clients for cluster in section.clusters] == [("tokyo-gpu",), ("osaka-gpu",)]
    regions = ("tokyo", "osaka")
    assert set(role_hosts(contract, "ceph")) == {f"{name}-storage-{n}" for name in regions for n in range(4)}
    assert set(role_hosts(contract, "ceph_client")) == {f"{name}-gpu-{n}" for name in regions for n in (0, 1)}


def test_a_made_key_is_one_of_cephs() -> None:
    from base64 import b64decode
    from struct import unpack

    raw = b64decode(cephx()[""])
    kind, seconds, _, length = unpack("<HIIH", raw[:12])
    assert (kind, length, len(raw)) == (1, 16, 28)
    assert seconds > 1_700_000_000
    assert cephx() != cephx()
