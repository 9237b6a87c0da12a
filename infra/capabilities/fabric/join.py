"""A planned switch configuration joined with what a switch has of its own, into the whole that it is to load.

A switch from the factory is not empty: SONiC's presets (sonic-buildimage, src/sonic-config-engine,
config_samples.py) give every port an address and a BGP neighbour. `config load` would leave those beside the
planned ones, so the whole is made here: a table that Causeway plans is as planned, any other is the switch's.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.capabilities.fabric.models import Model, model_on
from infra.capabilities.fabric.sonic import OTHER_WAYS, TABLES
from infra.errors import BadInputError

Tables = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Table → key → field → value, as in any `config_db.json`: a value may be a list."""

SHARED = ("DEVICE_METADATA", "FLEX_COUNTER_TABLE")
"""Planned field by field: what the switch says of itself, and counters that nobody plans, stay."""
THINGS = ("PORT", "PORTCHANNEL", "VLAN")
"""What entries of other tables refer to."""


@dataclass(frozen=True)
class Joined:
    """The whole configuration; what went; what stays although it names something that went."""

    tables: dict[str, dict[str, Any]]
    removed: dict[str, int]
    """Table → entries of the switch that are not in the plan."""
    dangling: list[str]
    """`TABLE|key names Ethernet512`."""


def join(planned: Tables, own: Tables) -> Joined:
    """The planned tables, and the switch's own where nothing is planned; BadInputError if they do not fit."""
    _require_planned(planned)
    _require_ports(planned, own)
    foreign = TABLES | OTHER_WAYS
    tables: dict[str, dict[str, Any]] = {name: dict(own[name]) for name in own if name not in foreign}
    tables |= {name: dict(table) for name, table in planned.items()}
    for name in SHARED:
        mine, theirs = planned.get(name, {}), own.get(name, {})
        merged = {key: {**theirs.get(key, {}), **mine.get(key, {})} for key in (*theirs, *mine)}
        tables |= {name: merged} if merged else {}
    removed = {
        name: len(gone)
        for name in sorted(foreign & own.keys())
        if (gone := own[name].keys() - tables.get(name, {}).keys())
    }
    kept = {name: table for name, table in tables.items() if name not in foreign}
    return Joined(dict(sorted(tables.items())), removed, list(_dangling(kept, own, tables)))


def _require_planned(planned: Tables) -> None:
    localhost = planned.get("DEVICE_METADATA", {}).get("localhost", {})
    strange = sorted(planned.keys() - TABLES)
    if strange or "mac" in localhost or "hostname" not in localhost or not planned.get("PORT"):
        found = f": it has {strange[0]}" if strange else ""
        raise BadInputError(
            f"the first file is not one that Causeway planned{found}",
            hint="the planned file comes first (causeway plan --switches DIR), then the switch's own",
        )


def _require_ports(planned: Tables, own: Tables) -> None:
    """Every planned port has to be one of the switch; else it was planned for another model."""
    localhost = own.get("DEVICE_METADATA", {}).get("localhost", {})
    platform = localhost.get("platform")
    if not platform or not localhost.get("mac"):
        raise BadInputError(
            "the second file is not a switch's own: DEVICE_METADATA|localhost has no platform or no mac",
            hint="copy /etc/sonic/config_db.json from the switch after its first boot",
        )
    model = model_on(str(platform))
    if model is None:
        raise BadInputError(
            f"the ports of {platform} are not known here",
            hint="infra/capabilities/fabric/models.py lists the switches that are",
        )
    lanes = {speed: _lanes(model, speed) for speed in {_mbps(fields) for fields in planned["PORT"].values()}}
    for name, fields in planned["PORT"].items():
        found, there = fields.get("lanes"), lanes[_mbps(fields)].get(name)
        if found != there:
            has = f"lanes {there}" if there else "no such port of that speed"
            raise BadInputError(
                f"planned for another model: {name} with lanes {found} at {_mbps(fields)} Mbit/s, "
                f"but {platform} has {has}",
                hint=f"declare the switch's hwsku ({localhost.get('hwsku', 'not known')}) and plan again",
            )


def _mbps(fields: Mapping[str, Any]) -> str:
    return str(fields.get("speed"))


def _lanes(model: Model, mbps: str) -> dict[str, str]:
    """Name → lanes, as SONiC writes them, of all ports of the model where they have that speed."""
    gbps = int(mbps) // 1000 if re.fullmatch("[0-9]{1,9}", mbps) else 0
    ports = (model.port(number, gbps) for number in range(model.ports(gbps)))
    return {port.name: ",".join(map(str, port.lanes)) for port in ports}


def _dangling(kept: Tables, own: Tables, tables: Tables) -> Iterator[str]:
    gone = {name for table in THINGS for name in own.get(table, {}).keys() - tables.get(table, {}).keys()}
    for table, entries in kept.items():
        for key, fields in entries.items():
            words = {word for value in (key, *fields.values()) for word in _words(value)}
            if named := sorted(words & gone):
                yield f"{table}|{key} names {', '.join(named)}"


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _words(item)
    else:
        for part in str(value).split("|"):
            yield from part.split(",")
