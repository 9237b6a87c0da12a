"""Ceph clusters: what they hold and bear, by properties that hold for every declaration."""

import re
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import ROOT
from infra.capabilities import host_variables, variables
from infra.capabilities.storage import figures
from infra.capabilities.storage.capability import CAPABILITY
from infra.capabilities.storage.figures import Node
from infra.capabilities.storage.section import StorageSection, cluster_secrets
from infra.declaration import CephfsExport, CephSpec, ClusterSpec
from infra.ground.secrets import cephx
from infra.inventory.roles import role_hosts
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from tests.loaded import load


def storage(**more: Any) -> CephSpec:
    given_ = {"name": "train", "region": "tokyo", "kind": "ceph", "pools": ["storage"]}
    return CephSpec.model_validate({**given_, "osd_backing": {"kind": "file", "size_gib": 100}, **more})


@st.composite
def clusters(draw: st.DrawFn) -> tuple[CephSpec, tuple[Node, ...]]:
    per_rack = draw(st.none() | st.integers(1, 8))
    count = draw(st.integers(1, 60))
    members = tuple(Node(f"n-{n}", f"r-{n // per_rack}" if per_rack else "") for n in range(count))
    kinds = draw(st.sets(st.sampled_from(["cephfs", "rbd", "rgw"])))
    exports = [{"kind": kind, "name": kind} for kind in sorted(kinds)]
    return storage(osds_per_node=draw(st.integers(1, 24)), exports=exports), members


@given(clusters())
def test_no_more_is_usable_than_there_is(cluster: tuple[CephSpec, tuple[Node, ...]]) -> None:
    copies = figures.replicas(*cluster)
    filled = figures.raw_gib(*cluster) * figures.nearfull_ratio(cluster[0])
    assert 0 < figures.usable_gib(*cluster) * copies <= filled + 1e-6


@given(st.lists(st.integers(1, 50), min_size=1, max_size=7), st.integers(1, 5))
def test_what_is_usable_has_a_place_for_each_copy(rooms: list[int], parts: int) -> None:
    """A domain that is full takes no copy; each copy in turn goes to those that have most room left."""
    if len(rooms) < parts:
        return
    left = [float(room * 60) for room in rooms]
    found = figures.each_gib(sorted(left, reverse=True), parts)
    assert found * parts <= sum(left)
    written = 0
    while sorted(left, reverse=True)[parts - 1] >= 1:
        for place in sorted(range(len(left)), key=left.__getitem__, reverse=True)[:parts]:
            left[place] -= 1
        written += 1
    assert found == pytest.approx(written, abs=len(rooms) + 1)


@pytest.mark.parametrize(
    ("count", "more", "nodes_of_data"),
    [
        (12, {"nodes_per_rack": 4}, 4),
        (10, {"nodes_per_rack": 4}, 2),
        (11, {"nodes_per_rack": 3}, 2),
        (10, {}, 3),
    ],
    ids=[
        "three full racks",
        "a rack that is half full has a copy of everything",
        "a full rack may go, and leaves the half full one",
        "no racks",
    ],
)
def test_no_more_is_usable_than_the_smallest_racks_take(
    count: int, more: dict[str, int], nodes_of_data: float
) -> None:
    per_rack = more.get("nodes_per_rack")
    members = [Node(f"n-{n}", f"r-{n // per_rack}" if per_rack else "") for n in range(count)]
    spec = storage(**more)
    assert figures.usable_gib(spec, members) == pytest.approx(100 * nodes_of_data * 0.85)


def test_a_node_with_larger_disks_than_all_others_is_not_filled() -> None:
    members = [Node(f"n-{n}", "") for n in range(3)]
    devices = [
        {"host": f"n-{n}", "path": f"/dev/disk/by-id/{n}", "size_gib": size}
        for n, size in enumerate((100, 100, 1000))
    ]
    spec = storage(osd_backing={"kind": "device", "size_gib": 100, "devices": devices})
    assert figures.usable_gib(spec, members) == pytest.approx(85)


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
    assert figures.groups_per_osd(spec, members) <= figures.MOST_GROUPS_PER_OSD


TIERS = ("hdd", "ssd", "nvme")


@st.composite
def tiered(draw: st.DrawFn) -> tuple[CephSpec, tuple[Node, ...]]:
    """Nodes with several OSDs, each of a class; exports that name one of these, or none."""
    classes = draw(st.lists(st.sampled_from(TIERS), min_size=1, max_size=8))
    members = tuple(Node(f"n-{n}", "") for n in range(draw(st.integers(1, 40))))
    names = st.none() | st.sampled_from(sorted(set(classes)))
    exports = [
        {"kind": kind, "name": f"{kind}-{number}", "device_class": draw(names)}
        for number, kind in enumerate(draw(st.lists(st.sampled_from(["cephfs", "rbd"]), max_size=6)))
    ]
    backing = {"kind": "file", "size_gib": 100, "device_classes": classes}
    more = {"osd_backing": backing, "osds_per_node": len(classes), "device_class": draw(names)}
    return storage(exports=exports, **more), members


@given(tiered())
def test_each_export_lies_in_its_tier_and_no_tier_holds_more_than_it_has(
    cluster: tuple[CephSpec, tuple[Node, ...]],
) -> None:
    spec, members = cluster
    pools = {pool.name: pool for pool in figures.pools(spec, members)}
    for export in spec.exports:
        tier = figures.tier_of(spec, export)
        assert tier == (getattr(export, "device_class", None) or spec.device_class or "")
        assert pools[figures.data_pool(spec, export)].device_class == tier
        raw = figures.raw_gib(spec, members, tier)
        assert 0 < figures.usable_gib(spec, members, export) * figures.replicas(spec, members) <= raw
    parts = [figures.raw_gib(spec, members, tier) for tier in figures.tiers(spec, members)]
    assert sum(parts) == pytest.approx(figures.raw_gib(spec, members))
    assert all(pool.pg_num.bit_count() == 1 for pool in pools.values())


@given(tiered())
def test_a_tier_of_its_own_gives_each_osd_about_as_many_placement_groups(
    cluster: tuple[CephSpec, tuple[Node, ...]],
) -> None:
    spec, members = cluster
    first, *_ = figures.tiers(spec, members)
    alone = spec.model_copy(
        update={"device_class": first, "exports": tuple(e for e in spec.exports if e.device_class)}  # type: ignore[union-attr] # no objects
    )
    found = figures.pools(alone, members)
    fewest = figures.FEWEST_GROUPS * len(found) * figures.replicas(alone, members)
    assert figures.groups_per_osd(alone, members) <= max(2 * figures.GROUPS_PER_OSD, fewest)


@pytest.mark.parametrize(
    ("osds", "size", "share", "groups"),
    [(1, 1, 1.0, 64), (3, 3, 0.04, 8), (144, 3, 0.5, 2048), (96, 4, 0.3, 512)],
)
def test_placement_groups(osds: int, size: int, share: float, groups: int) -> None:
    assert figures.groups(osds, size, share) == groups


def test_two_copies_leave_writes_to_one() -> None:
    assert [figures.least(copies) for copies in (1, 2, 3, 4)] == [1, 1, 2, 3]


DECLARED: dict[str, Any] = {
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


def test_a_regions_server_asks_its_clusters_managers_by_name() -> None:
    watched = {**DECLARED, "monitoring": {"kind": "prometheus"}}
    spec = ClusterSpec.model_validate(watched)
    contract = build_contract(spec, make_plan(spec), "test")
    own = host_variables(contract)
    for region, storage, other in (("tokyo", "train", "keep"), ("osaka", "keep", "train")):
        server = own[f"{region}-control-0"]
        jobs = {job["name"]: job for job in server["prometheus_jobs"]}
        asked = jobs[f"ceph-metrics-{storage}"]
        assert asked["labels"] == {"storage": storage}
        targets = [target["host"] for pool in asked["pools"] for target in pool["targets"]]
        assert targets == [f"{region}-storage-0", f"{region}-storage-1"]
        assert jobs[f"ceph-metrics-{other}"]["pools"] == []
        declared = {one["name"]: one for one in server["prometheus_declared"]}
        osds = declared["causeway_declared_storage_osds"]
        assert (osds["labels"]["storage"], osds["value"]) == (storage, 4)
    assert "storage" in own["tokyo-control-0"]["prometheus_rules"]


def test_objects_have_gateways_a_user_and_an_authority_where_they_are_exported() -> None:
    exports = [{"kind": "rgw", "name": "objects", "quota_gib": 1}, {"kind": "rbd", "name": "images"}]
    train, keep = DECLARED["storage"]
    declared = {**DECLARED, "storage": [{**train, "exports": exports}, keep]}
    spec = ClusterSpec.model_validate(declared)
    contract = build_contract(spec, make_plan(spec), "test")
    section = contract.section(StorageSection)
    assert section is not None
    with_objects, without = section.clusters
    assert (with_objects.rgws, without.rgws) == (("tokyo-storage-2", "tokyo-storage-3"), ())
    kinds = cluster_secrets(with_objects)
    assert kinds["storage-train-export.objects"] == "random"
    assert kinds["storage-train-ca"] == "authority"
    assert set(kinds.values()) - set(cluster_secrets(without).values()) == {"random", "authority"}
    names = {pool.name for pool in with_objects.pools if pool.application == "rgw"}
    assert names == {figures.OBJECTS, figures.OBJECTS_INDEX, *figures.OBJECTS_SMALL}
    given_ = variables(contract)["ceph_client"]["pool_tokyo_gpu"]["ceph_client_exports"]
    (objects,) = [one for one in given_ if one["kind"] == "rgw"]
    addresses = [str(contract.hosts[host].address) for host in with_objects.rgws]
    assert objects["gateways"] == [f"{address}:7480" for address in addresses]
    assert objects["quota_bytes"] == 1 << 30


def test_a_declared_version_reaches_its_cluster_alone_and_the_plan_says_what_it_does() -> None:
    train, keep = DECLARED["storage"]
    spec = ClusterSpec.model_validate({**DECLARED, "storage": [{**train, "version": "18.2.7"}, keep]})
    plan = make_plan(spec)
    given_ = variables(build_contract(spec, plan, "test"))["ceph"]
    assert given_["pool_tokyo_storage"]["ceph_version"] == "18.2.7"
    assert "ceph_version" not in given_["pool_osaka_storage"]
    said = CAPABILITY.report(plan.plans["storage"]).text
    assert said.count("what runs another one is upgraded, monitors first") == 1


def test_tiers_reach_the_role_and_the_plan() -> None:
    train, keep = DECLARED["storage"]
    tiered_ = {
        **{**train, "osds_per_node": 2, "device_class": "hdd"},
        "osd_backing": {"kind": "file", "size_gib": 100, "device_classes": ["nvme", "hdd"]},
        "exports": [
            {"kind": "cephfs", "name": "hot", "device_class": "nvme"},
            {"kind": "cephfs", "name": "cold"},
            {"kind": "rbd", "name": "images", "device_class": "nvme"},
        ],
    }
    spec = ClusterSpec.model_validate({**DECLARED, "storage": [tiered_, keep]})
    plan = make_plan(spec)
    given_ = variables(build_contract(spec, plan, "test"))["ceph"]
    classes = {pool["name"]: pool.get("device_class") for pool in given_["pool_tokyo_storage"]["ceph_pools"]}
    assert classes == {
        **{"train.meta": "hdd", "train.files": "hdd"},
        **{"train.hot": "nvme", "images": "nvme"},
    }
    assert [osd["device_class"] for osd in given_["pool_tokyo_storage"]["ceph_osds"]] == ["nvme", "hdd"]
    assert all("device_class" not in osd for osd in given_["pool_osaka_storage"]["ceph_osds"])
    said = CAPABILITY.report(plan.plans["storage"]).text
    assert re.search(r"tier nvme: 4 OSDs on 4 nodes, 400\.0 GiB raw, for hot, images\n", said)
    assert re.search(r"tier hdd: 4 OSDs on 4 nodes, 400\.0 GiB raw, for cold\n", said)


def test_scratch_needs_no_storage() -> None:
    regions = [
        {
            **region,
            "pools": [*region["pools"], {**region["pools"][1], "name": "jobs", "scratch": {"days": 3}}],
        }
        for region in DECLARED["regions"]
    ]
    spec = ClusterSpec.model_validate({"name": "pacific", "regions": regions})
    contract = build_contract(spec, make_plan(spec), "test")
    assert set(role_hosts(contract, "scratch")) == {
        f"{name}-jobs-{n}" for name in ("tokyo", "osaka") for n in (0, 1)
    }
    assert not role_hosts(contract, "ceph")
    given_ = variables(contract)["scratch"]
    assert set(given_) == {"pool_tokyo_jobs", "pool_osaka_jobs"}
    assert given_["pool_tokyo_jobs"]["scratch_days"] == 3


def test_without_monitoring_nobody_is_asked() -> None:
    for more, metrics in (({}, False), ({"monitoring": {"kind": "prometheus"}}, True)):
        spec = ClusterSpec.model_validate({**DECLARED, **more})
        given_ = variables(build_contract(spec, make_plan(spec), "test"))["ceph"]["pool_tokyo_storage"]
        assert given_.get("ceph_metrics", True) is metrics
        assert ("ceph_metrics_authority" in given_) is metrics


def _quorum() -> ModuleType:
    path = ROOT / "roles/ceph/files/causeway_ceph/quorum.py"
    return load(path)


@pytest.mark.parametrize(
    ("said", "voice"),
    [(b'{"state": "leader"}', 1), (b'{"state": "peon"}', 1), (b'{"state": "probing"}', 0), (b"nonsense", 0)],
)
def test_a_monitor_has_a_voice_when_it_says_so_itself(tmp_path: Path, said: bytes, voice: int) -> None:
    place, left = tmp_path / "mon", tmp_path / "voice.prom"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        listening.listen()

        def answer() -> None:
            with listening.accept()[0] as asker:
                assert asker.recv(100).endswith(b"\0")
                asker.sendall(struct.pack(">I", len(said)) + said)

        with ThreadPoolExecutor() as threads:
            threads.submit(answer)
            _quorum().main("train", str(place), str(left))
    assert f'causeway_ceph_monitor_in_quorum{{storage="train"}} {voice}\n' in left.read_text()
    place.unlink()
    _quorum().main("train", str(place), str(left))
    assert 'causeway_ceph_monitor_in_quorum{storage="train"} 0\n' in left.read_text()
    assert sorted(tmp_path.iterdir()) == [left]


@pytest.mark.parametrize(
    ("in_force", "own", "told"),
    [
        ("osd", ["host"], [{"pool": "a", "var": "crush_rule", "val": "a"}]),
        ("host", ["host"], []),
        ("osd", [], []),
    ],
    ids=["somebody's", "as declared", "a pool that has no rule of its own"],
)
def test_a_pool_goes_back_to_its_own_rule_where_that_keeps_copies_apart_otherwise(
    monkeypatch: pytest.MonkeyPatch, in_force: str, own: list[str], told: list[dict[str, str]]
) -> None:
    folder = ROOT / "roles/ceph/files/causeway_ceph"
    monkeypatch.syspath_prepend(str(folder))
    cluster, asked = load(folder / "cluster.py"), []

    def rule(number: int, name: str, kind: str) -> dict[str, Any]:
        steps = [{"op": "take", "item_name": "default"}, {"op": "chooseleaf_firstn", "type": kind}]
        return {"rule_id": number, "rule_name": name, "steps": steps}

    def ask(prefix: str, _inbuf: bytes = b"", **fields: Any) -> Any:
        if prefix == "osd crush rule dump":
            return [rule(0, "together", in_force), *(rule(1, "a", kind) for kind in own)]
        return asked.append(fields)

    pool = {"name": "a", "replicas": 3, "min_replicas": 2, "pg_num": 8, "application": "rbd"}
    found = {"pool_name": "a", "size": 3, "min_size": 2, "pg_autoscale_mode": "off", "pg_num_target": 8}
    more = {"application_metadata": {"rbd": {}}, "quota_max_bytes": 0, "crush_rule": 0}
    cluster.Wanted(ask, {}).tune(pool, found | more)
    assert asked == told


def test_an_export_keeps_its_key_until_no_daemon_is_left_to_be_started_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A client in use learns no more from a monitor that starts once its key was replaced."""
    folder = ROOT / "roles/ceph/files/causeway_ceph"
    monkeypatch.syspath_prepend(str(folder))
    cluster, given_ = load(folder / "cluster.py"), dict[str, str]()
    admin, there, new, old = (
        f"client.{name}" for name in ("admin", "export.there", "export.new", "export.old")
    )
    keyring = tmp_path / "keyring"
    declared = ("mon.", admin, there, new)
    keyring.write_text("".join(f'[{name}]\nkey = second\ncaps mon = "allow r"\n' for name in declared))
    monkeypatch.setattr(cluster, "KEYRING", keyring)
    dump = [{"entity": name, "key": "first", "caps": {"mon": "allow *"}} for name in (admin, there, old)]
    ratios = {f"{name}_ratio": 0.9 for name in ("nearfull", "backfillfull", "full")}
    answers = {"auth ls": {"auth_dump": dump}, "config dump": [], "osd dump": ratios}

    def ask(prefix: str, inbuf: bytes = b"", **fields: Any) -> Any:
        if prefix == "auth import":
            name, key = re.findall(r"\[(.*)\]\s+key = (\w+)", inbuf.decode())[0]
            given_[name] = key
        elif prefix == "auth rm":
            given_[fields["entity"]] = "gone"
        return answers.get(prefix)

    wanted = cluster.Wanted(ask, {"options": {}, "ratios": {}})
    wanted.ground()
    first = {admin: "second", there: "first", new: "second", old: "gone"}
    assert given_ == first
    wanted.keys_of_exports()
    assert given_ == first | {there: "second"}
