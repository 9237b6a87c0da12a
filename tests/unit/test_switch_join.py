"""A planned configuration and a switch with a preset: the whole is the plan, and what is the switch's own."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.capabilities.fabric import sonic
from infra.capabilities.fabric.join import SHARED, join
from infra.capabilities.fabric.models import MSN3700C, SN5600, Model
from infra.capabilities.fabric.sonic import OTHER_WAYS, TABLES
from infra.cli import main
from infra.errors import BadInputError
from tests.unit.fabrics import SHAPES, TINY, fabric_of, shaped

PLANNED = dict(sonic.switch_configs(shaped("two tiers")))
LEAF, SPINE = PLANNED["r-leaf-0"], PLANNED["r-spine-0"]


def factory(model: Model = SN5600, hwsku: str = "ACS-SN5600", gbps: int = 800) -> dict[str, Any]:
    """What a switch has after its first boot, as preset t1 of SONiC's sample configurations makes it."""
    localhost = {
        "hwsku": hwsku,
        "platform": model.platforms[0],
        "mac": "1c:34:da:00:00:01",
        "hostname": "sonic",
        "timezone": "UTC",
    }
    own: dict[str, Any] = {
        "DEVICE_METADATA": {"localhost": {**localhost, "type": "LeafRouter", "bgp_asn": "65100"}},
        "LOOPBACK_INTERFACE": {"Loopback0": {}, "Loopback0|10.1.0.1/32": {}},
        "FEATURE": {"bgp": {"state": "enabled"}, "telemetry": {"state": "disabled"}},
        "MGMT_INTERFACE": {"eth0|192.0.2.7/24": {"gwaddr": "192.0.2.1"}},
        "FLEX_COUNTER_TABLE": {"ACL": {"FLEX_COUNTER_STATUS": "enable", "POLL_INTERVAL": "10000"}},
        "PORT": {"Ethernet512": {"lanes": "512", "alias": "etp65", "index": "65", "admin_status": "up"}},
        "BGP_NEIGHBOR": {},
        "INTERFACE": {},
    }  # fmt: skip
    for number in range(model.ports(gbps)):
        port, network = model.port(number, gbps), f"10.0.{2 * number // 256}"
        lanes = ",".join(map(str, port.lanes))
        own["PORT"][port.name] = {"lanes": lanes, "alias": port.alias, "admin_status": "up", "mtu": "9100"}
        own["INTERFACE"] |= {port.name: {}, f"{port.name}|{network}.{2 * number % 256}/31": {}}
        own["BGP_NEIGHBOR"][f"{network}.{2 * number % 256 + 1}"] = {"name": f"ARISTA{number}", "rrclient": 0}
    return own


def as_loaded(own: dict[str, Any], planned: dict[str, Any]) -> dict[str, Any]:
    """What `config load` leaves: it adds and replaces, and deletes nothing."""
    return {
        name: {
            key: {**own.get(name, {}).get(key, {}), **planned.get(name, {}).get(key, {})}
            for key in {**own.get(name, {}), **planned.get(name, {})}
        }
        for name in {**own, **planned}
    }


def test_a_factory_switch_ends_in_the_plan_and_nothing_else() -> None:
    own = factory()
    assert len(as_loaded(own, LEAF)["BGP_NEIGHBOR"]) == len(LEAF["BGP_NEIGHBOR"]) + 64
    whole = join(LEAF, own).tables
    for name in TABLES - set(SHARED):
        assert whole.get(name) == LEAF.get(name), name
    assert whole["FEATURE"] == own["FEATURE"]
    assert whole["MGMT_INTERFACE"] == own["MGMT_INTERFACE"]
    localhost = whole["DEVICE_METADATA"]["localhost"]
    assert {name: localhost[name] for name in ("mac", "platform", "hwsku", "timezone")} == {
        name: own["DEVICE_METADATA"]["localhost"][name] for name in ("mac", "platform", "hwsku", "timezone")
    }
    assert localhost.items() >= LEAF["DEVICE_METADATA"]["localhost"].items()
    assert whole["FLEX_COUNTER_TABLE"].items() >= LEAF["FLEX_COUNTER_TABLE"].items()
    assert whole["FLEX_COUNTER_TABLE"]["ACL"] == own["FLEX_COUNTER_TABLE"]["ACL"]


def test_tables_that_this_switch_does_not_get_are_emptied_too() -> None:
    own = factory() | {
        "VLAN": {"Vlan1000": {"vlanid": "1000"}},
        "VLAN_MEMBER": {"Vlan1000|Ethernet0": {"tagging_mode": "untagged"}},
        "PORTCHANNEL": {"PortChannel1": {"admin_status": "up"}},
        "PORTCHANNEL_MEMBER": {"PortChannel1|Ethernet8": {}},
    }
    assert "VLAN" not in SPINE
    whole = join(SPINE, own)
    assert not whole.tables.keys() & {"VLAN", "VLAN_MEMBER", "PORTCHANNEL", "PORTCHANNEL_MEMBER"}
    assert whole.removed["VLAN"] == whole.removed["PORTCHANNEL"] == 1
    assert whole.removed["BGP_NEIGHBOR"] == 64


def test_every_table_that_is_written_is_known_as_planned() -> None:
    written = {
        table for shape in SHAPES for _, config in sonic.switch_configs(shaped(shape)) for table in config
    }
    assert written == TABLES
    assert not TABLES & OTHER_WAYS


def test_what_stays_and_names_a_port_that_goes_is_told() -> None:
    own = factory() | {
        "ACL_TABLE": {
            "IN": {"type": "L3", "ports": ["Ethernet512", "Ethernet0"]},
            "MINE": {"ports": "Ethernet8"},
        },
        "PORT_STORM_CONTROL": {"Ethernet512|broadcast": {"kbps": "1000"}},
    }
    found = join(LEAF, own)
    assert found.dangling == [
        "ACL_TABLE|IN names Ethernet512",
        "PORT_STORM_CONTROL|Ethernet512|broadcast names Ethernet512",
    ]
    assert found.tables["ACL_TABLE"] == own["ACL_TABLE"]


names = st.sampled_from(
    sorted(TABLES | OTHER_WAYS | {"FEATURE", "NTP_SERVER", "SYSLOG_SERVER", "ACL_TABLE", "X"})
)
words = st.text(st.characters(codec="utf-8"), max_size=12)
entries = st.dictionaries(
    words, st.dictionaries(words, words | st.lists(words, max_size=2), max_size=2), max_size=3
)


@given(st.sampled_from(sorted(PLANNED)), st.dictionaries(names, entries, max_size=6))
def test_planned_tables_are_the_plan_others_are_untouched_and_twice_is_once(
    switch: str, more: dict[str, dict[str, dict[str, Any]]]
) -> None:
    planned, own = PLANNED[switch], factory()
    localhost = own["DEVICE_METADATA"]["localhost"]
    own |= more
    own["DEVICE_METADATA"] = {**own["DEVICE_METADATA"], "localhost": localhost}
    before = json.dumps([planned, own])
    whole = join(planned, own).tables
    assert json.dumps([planned, own]) == before
    for name in TABLES - set(SHARED):
        assert whole.get(name) == planned.get(name)
    for name in own.keys() - TABLES - OTHER_WAYS:
        assert whole[name] == own[name]
    for name in SHARED:
        for key, fields in planned[name].items():
            assert whole[name][key].items() >= fields.items()
        for key, fields in own.get(name, {}).items():
            assert (
                whole[name][key].items()
                >= {
                    field: value for field, value in fields.items() if field not in planned[name].get(key, {})
                }.items()
            )
    assert not whole.keys() & OTHER_WAYS
    again = join(planned, whole)
    assert again.tables == whole
    assert again.removed == {}


def test_a_switch_with_other_lanes_is_refused() -> None:
    fabric = {**TINY, "link_gbps": 100, "switch": {"asic": "spectrum-2"}}  # planned as an SN3700
    planned = dict(sonic.switch_configs(fabric_of(3, **fabric)))["r-leaf-0"]
    own = factory(MSN3700C, "ACS-MSN3700C", 100)
    with pytest.raises(
        BadInputError, match=r"Ethernet0 with lanes 0,1 at 100000 .* has lanes 0,1,2,3"
    ) as caught:
        join(planned, own)
    assert "ACS-MSN3700C" in caught.value.hint
    fabric["switch"] = {"asic": "spectrum-2", "hwsku": "ACS-MSN3700C"}
    planned = dict(sonic.switch_configs(fabric_of(3, **fabric)))["r-leaf-0"]
    assert join(planned, own).tables["PORT"] == planned["PORT"]


def written(folder: Path, name: str, tables: Any) -> str:
    path = folder / name
    path.write_text(tables if isinstance(tables, str) else json.dumps(tables), encoding="utf-8")
    return str(path)


def test_the_command_writes_the_whole_and_says_what_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned, own = written(tmp_path, "planned.json", LEAF), written(tmp_path, "own.json", factory())
    assert main(["switch", "join", planned, own]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == join(LEAF, factory()).tables
    assert "BGP_NEIGHBOR 64" in printed.err
    assert main(["switch", "join", planned, own, "--out", own]) == 0
    assert capsys.readouterr().out == ""
    assert Path(own).read_text(encoding="utf-8") == printed.out
    assert main(["switch", "join", planned, own]) == 0
    assert capsys.readouterr() == (printed.out, "")


NO_PLATFORM = {"DEVICE_METADATA": {"localhost": {"mac": "1c:34:da:00:00:01"}}}
STRANGER = {"DEVICE_METADATA": {"localhost": {"mac": "1c:34:da:00:00:01", "platform": "x86_64-acme_1-r0"}}}


@pytest.mark.parametrize(
    ("planned", "own", "said"),
    [
        ("{", factory(), "planned.json is not JSON"),
        ("[" * 200_000, factory(), "planned.json is not JSON"),
        (LEAF, "[1]", "own.json is not a config_db.json: it holds no tables"),
        (LEAF, {"PORT": [1]}, "own.json is not a config_db.json: PORT is not a table"),
        (LEAF, {"PORT": {"Ethernet0": "up"}}, "own.json is not a config_db.json: PORT is not a table"),
        (factory(), LEAF, "the first file is not one that Causeway planned: it has FEATURE"),
        ({}, factory(), "the first file is not one that Causeway planned"),
        (LEAF, LEAF, "the second file is not a switch's own"),
        (LEAF, {}, "the second file is not a switch's own"),
        (LEAF, NO_PLATFORM, "the second file is not a switch's own"),
        (LEAF, STRANGER, "the ports of x86_64-acme_1-r0 are not known here"),
    ],
)
def test_nonsense_is_refused_in_words(
    planned: Any, own: Any, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    words = [
        written(tmp_path, "planned.json", planned),
        written(tmp_path, "own.json", own),
        "--out",
        str(out),
    ]
    assert main(["switch", "join", *words]) == 2
    assert said in capsys.readouterr().err
    assert not out.exists()


def test_files_that_are_not_there_or_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned, own = written(tmp_path, "planned.json", LEAF), written(tmp_path, "own.json", factory())
    assert main(["switch", "join", planned, str(tmp_path / "none.json")]) == 2
    assert "none.json cannot be read" in capsys.readouterr().err
    assert main(["switch", "join", planned, own, "--out", str(tmp_path)]) == 1
    assert "cannot be written" in capsys.readouterr().err
