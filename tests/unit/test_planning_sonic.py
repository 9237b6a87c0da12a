"""Switch configurations: one intent on both ends of every cable, and thresholds in their order.

That tables, fields and values are those of SONiC's own models is a check for people: docs/network.md.
"""

import csv
import json
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.capabilities.fabric import buffers, sonic
from infra.capabilities.fabric.models import HWSKUS, MODELS, Model
from infra.capabilities.fabric.sonic import MAP, ConfigDb
from infra.checks import check
from tests.unit.fabrics import SHAPES, SONIC, TINY, cluster, fabric_of, shaped


def configs(name: str) -> dict[str, ConfigDb]:
    return dict(sonic.switch_configs(shaped(name)))


def address_of(config: ConfigDb, table: str, interface: str) -> IPv4Interface:
    return next(IPv4Interface(key.split("|")[1]) for key in config[table] if key.startswith(f"{interface}|"))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_switch_is_configured_and_every_reference_leads_somewhere(shape: str) -> None:
    found, counts = configs(shape), shaped(shape).counts
    assert len(found) == counts.leafs + counts.spines + counts.cores
    for name, config in found.items():
        assert config["DEVICE_METADATA"]["localhost"]["hostname"] == name
        ports, profiles = config["PORT"].keys(), config["BUFFER_PROFILE"].keys()
        for table in ("INTERFACE", "BUFFER_PG", "BUFFER_QUEUE", "QUEUE", "DEVICE_NEIGHBOR"):
            assert {key.split("|")[0] for key in config.get(table, {})} <= ports
        for table in ("BUFFER_PG", "BUFFER_QUEUE"):
            assert {entry["profile"] for entry in config[table].values()} <= profiles
        assert {entry["pool"] for entry in config["BUFFER_PROFILE"].values()} <= config["BUFFER_POOL"].keys()
        assert {key.split("|")[0] for key in config.get("VLAN_MEMBER", {})} == config.get("VLAN", {}).keys()


@pytest.mark.parametrize("shape", SHAPES)
def test_both_ends_of_every_link_agree(shape: str) -> None:
    found = configs(shape)
    for name, config in found.items():
        for port, neighbor in config["DEVICE_NEIGHBOR"].items():
            here = config["PORT"][port]
            assert here["description"] == f"{neighbor['name']} {neighbor['port']}"
            assert here["admin_status"] == "up"
            if neighbor["name"] not in found:
                continue  # a node
            far = found[neighbor["name"]]
            back = far["DEVICE_NEIGHBOR"][neighbor["port"]]
            assert back == {"name": name, "port": port}
            there = far["PORT"][neighbor["port"]]
            assert [here[key] for key in ("speed", "mtu", "fec")] == [
                there[key] for key in ("speed", "mtu", "fec")
            ]
            ours, theirs = (
                address_of(config, "INTERFACE", port),
                address_of(far, "INTERFACE", neighbor["port"]),
            )
            assert ours.network == theirs.network
            assert ours.network.prefixlen == 31
            session = config["BGP_NEIGHBOR"][str(theirs.ip)]
            assert session["name"] == neighbor["name"]
            assert session["local_addr"] == str(ours.ip)
            assert session["asn"] == far["DEVICE_METADATA"]["localhost"]["bgp_asn"]
            assert session["asn"] != config["DEVICE_METADATA"]["localhost"]["bgp_asn"]


@pytest.mark.parametrize("shape", SHAPES)
def test_nodes_are_in_the_vlan_of_their_rail_with_the_leaf_as_gateway(shape: str) -> None:
    planned, found = shaped(shape), configs(shape)
    for node, nics in planned.node_nics():
        for nic in nics:
            leaf = found[planned.switch_name("leaf", nic.plane, nic.leaf)]
            vlan = f"Vlan{sonic.FIRST_VLAN + nic.rail}"
            port = next(
                port
                for port, end in leaf["DEVICE_NEIGHBOR"].items()
                if end == {"name": node, "port": nic.name}
            )
            assert f"{vlan}|{port}" in leaf["VLAN_MEMBER"]
            gateway = address_of(leaf, "VLAN_INTERFACE", vlan)
            assert (gateway.ip, gateway.network.prefixlen) == (nic.gateway, nic.prefix)
            assert nic.address in gateway.network
            assert int(leaf["PORT"][port]["mtu"]) >= planned.fabric.mtu_bytes


@pytest.mark.parametrize("shape", SHAPES)
def test_no_route_leads_down_and_up_again(shape: str) -> None:
    """BGP drops a route with its own AS in the path: one AS for the spines of a pod, one for all cores."""
    asns: dict[str, dict[int, set[str]]] = {"leaf": {}, "spine": {}, "core": {}}
    planned = shaped(shape)
    for name, config in configs(shape).items():
        tier = next(tier for tier in asns if f"-{tier}-" in name)
        number = int(name.rpartition("-")[2])
        pods = planned.shape.pods
        pod = next((n for n, p in enumerate(pods) if number < p.first_spine + p.spines), 0)
        group = {"leaf": number, "spine": pod, "core": 0}[tier]
        asns[tier].setdefault(group, set()).add(config["DEVICE_METADATA"]["localhost"]["bgp_asn"])
        assert config["BGP_BBR"] == {"all": {"status": "disabled"}}
    planes = planned.fabric.planes
    every = [asn for groups in asns.values() for found in groups.values() for asn in found]
    assert all(len(found) == planes for groups in asns.values() for found in groups.values())
    assert len(set(every)) == len(every)


def test_loopbacks_and_router_ids_are_unique() -> None:
    found = configs("three tiers")
    routers = {config["DEVICE_METADATA"]["localhost"]["bgp_router_id"] for config in found.values()}
    assert len(routers) == len(found)
    for config in found.values():
        own = config["DEVICE_METADATA"]["localhost"]["bgp_router_id"]
        assert f"Loopback0|{own}/32" in config["LOOPBACK_INTERFACE"]


ROCES: list[dict[str, int]] = [
    {},
    {"dscp": 24, "priority": 0, "cnp_dscp": 46, "cnp_priority": 1},
    {"priority": 7, "cnp_priority": 0},
]


@pytest.mark.parametrize("roce", ROCES)
def test_one_priority_is_lossless_from_dscp_to_buffer(roce: dict[str, int]) -> None:
    planned = fabric_of(3, **TINY, roce=roce)
    for _, config in sonic.switch_configs(planned):
        marks, lossless = planned.fabric.roce, str(planned.fabric.roce.priority)
        classes = config["DSCP_TO_TC_MAP"][MAP]
        assert classes.keys() == {str(dscp) for dscp in range(64)}
        assert [dscp for dscp, tc in classes.items() if tc == lossless] == [str(marks.dscp)]
        assert [dscp for dscp, tc in classes.items() if tc == str(marks.cnp_priority)] == [
            str(marks.cnp_dscp)
        ]
        groups = config["TC_TO_PRIORITY_GROUP_MAP"][MAP]
        assert [tc for tc, group in groups.items() if group == lossless] == [lossless]
        qos = [entry for port, entry in config["PORT_QOS_MAP"].items() if port != "global"]
        assert {(entry["pfc_enable"], entry["pfcwd_sw_enable"]) for entry in qos} == {(lossless, lossless)}
        for port in config["DEVICE_NEIGHBOR"]:
            assert config["BUFFER_PG"][f"{port}|{lossless}"]["profile"].startswith("pg_lossless_")
            assert config["QUEUE"][f"{port}|{lossless}"] == {
                "scheduler": "lossless",
                "wred_profile": "lossless",
            }
            assert config["SCHEDULER"][config["QUEUE"][f"{port}|{marks.cnp_priority}"]["scheduler"]] == {
                "type": "STRICT"
            }


@pytest.mark.parametrize(
    ("asic", "gbps", "radix"),
    [("spectrum", 100, 32), ("spectrum-2", 200, 32), ("spectrum-3", 400, 32), ("spectrum-4", 800, 64)],
)
def test_marking_starts_before_pausing_and_headroom_fits(asic: str, gbps: int, radix: int) -> None:
    fabric: dict[str, Any] = {"kind": "rail_optimized", "radix": radix, "rails": 8, "link_gbps": gbps}
    planned = fabric_of(2, **fabric, switch={"asic": asic, "cable_m": 30.5})
    name, config = next(iter(sonic.switch_configs(planned)))
    profile = config["BUFFER_PROFILE"][f"pg_lossless_{gbps * 1000}_31m_profile"]
    size, xon, xoff = (int(profile[key]) for key in ("size", "xon", "xoff"))
    pool = int(config["BUFFER_POOL"]["ingress_lossless_pool"]["size"])
    whole = int(config["BUFFER_POOL"]["egress_lossless_pool"]["size"])
    assert xon + xoff <= size
    assert pool + size * radix < whole
    marking = config["WRED_PROFILE"]["lossless"]
    for colour in ("green", "yellow", "red"):
        kmin, kmax = (int(marking[f"{colour}_{end}_threshold"]) for end in ("min", "max"))
        assert 0 < kmin < kmax < buffers.xoff_trigger_bytes(pool), name


@pytest.mark.parametrize(("gbps", "fec"), [(10, "none"), (25, "rs"), (40, "none"), (50, "rs"), (100, "rs")])
def test_every_lane_that_is_faster_than_10_gbps_has_fec(gbps: int, fec: str) -> None:
    fabric = {**TINY, "link_gbps": gbps, "switch": {"asic": "spectrum-2"}}
    config = next(iter(sonic.switch_configs(fabric_of(3, **fabric))))[1]
    assert {port["fec"] for port in config["PORT"].values()} == {fec}


def test_the_watchdog_acts_before_its_limits() -> None:
    for radix, time_ms, poll_ms in ((8, "200", "200"), (64, "400", "400"), (256, "1600", "1000")):
        config = next(iter(sonic.switch_configs(fabric_of(1, **{**TINY, "radix": radix}))))[1]
        assert config["PFC_WD"]["GLOBAL"] == {"POLL_INTERVAL": poll_ms}
        assert config["PFC_WD"]["Ethernet0"] == {
            "action": "drop",
            "detection_time": time_ms,
            "restoration_time": time_ms,
        }


def published_ports() -> list[dict[str, str]]:
    path = Path(__file__).parent / "sonic" / "port_config.csv"
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


@pytest.mark.parametrize("hwsku", HWSKUS)
def test_ports_are_those_of_the_models_that_are_sold(hwsku: str) -> None:
    rows = [row for row in published_ports() if row["hwsku"] == hwsku]
    assert len(rows) == 4
    model, only = HWSKUS[hwsku]
    gbps, radix = only or max(model.splits), int(rows[0]["ports"])
    assert model.ports(gbps) == radix
    switch = {"asic": model.asic, "hwsku": hwsku, "cable_m": 5}
    fabric = {"kind": "fat_tree", "radix": radix, "rails": 1, "link_gbps": gbps, "switch": switch}
    config = next(iter(sonic.switch_configs(fabric_of(2, **fabric))))[1]
    assert len(config["PORT"]) == radix
    for row in rows:
        assert list(config["PORT"])[int(row["number"])] == row["name"]
        port = config["PORT"][row["name"]]
        assert (port["lanes"], port["index"]) == (row["lanes"].replace(" ", ","), row["index"])
        assert port["alias"] == (row["alias"] or port["alias"])
        assert port["speed"] == str(gbps * 1000)


@given(st.sampled_from(MODELS), st.data())
def test_no_lane_and_no_name_is_given_twice(model: Model, data: st.DataObject) -> None:
    gbps = data.draw(st.sampled_from(sorted(model.splits)))
    ports = [model.port(number, gbps) for number in range(model.ports(gbps))]
    lanes = [lane for port in ports for lane in port.lanes]
    assert len(set(lanes)) == len(lanes) == model.cages * model.cage_lanes
    for names in ([port.name for port in ports], [port.alias for port in ports]):
        assert len(set(names)) == len(ports)


@pytest.mark.parametrize(
    ("hwsku", "gbps", "said"),
    [
        ("ACS-SN9999", 400, "the ports of ACS-SN9999 are not known here"),
        ("ACS-MSN3420", 100, "the ports of ACS-MSN3420 are not known here"),
        ("ACS-MSN2700", 400, "ACS-MSN2700 has the chip spectrum, but asic is spectrum-4"),
        ("ACS-SN5400", 800, "ACS-SN5400 has no ports of 800 Gbit/s"),
        ("Mellanox-SN5600-O128", 200, "Mellanox-SN5600-O128 has no ports of 200 Gbit/s"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(hwsku: str, gbps: int, said: str) -> None:
    fabric = {**TINY, "link_gbps": gbps, "switch": {"asic": "spectrum-4", "hwsku": hwsku}}
    found = [problem for problem in check(cluster(3, **fabric)) if problem.rule == "switch-model"]
    assert [problem.message for problem in found] == [said]
    assert found[0].severity == "error"


def test_the_model_is_named_where_it_is_declared_and_files_are_json() -> None:
    fabric = {**TINY, "switch": {**SONIC["switch"], "hwsku": "ACS-SN5600"}}
    path, text = next(iter(sonic.switch_files(fabric_of(3, **fabric))))
    assert path == "r-leaf-0/config_db.json"
    assert json.loads(text)["DEVICE_METADATA"]["localhost"]["hwsku"] == "ACS-SN5600"
    assert "hwsku" not in configs("three tiers")["r-leaf-0"]["DEVICE_METADATA"]["localhost"]


def test_ranges_of_hosts_and_switches_do_not_meet() -> None:
    planned = shaped("three tiers")
    vlans = {
        IPv4Network(key.split("|")[1], strict=False)
        for config in configs("three tiers").values()
        for key in config.get("VLAN_INTERFACE", {})
        if "|" in key
    }
    upper_half = list(planned.cidr.subnets())[1]
    assert not any(vlan.overlaps(upper_half) for vlan in vlans)
