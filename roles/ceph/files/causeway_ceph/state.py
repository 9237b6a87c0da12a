"""How a cluster is, a line each: what the watch over drift compares with how it was when a step had ended."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from asked import Cluster, entities

KEYRING = Path("/etc/ceph/ceph.mon.keyring")
USERS = Path("/etc/ceph/causeway.users.json")
"""Users of object storage, with their keys: for the administrator alone."""
USERS_AT = ("default.rgw.meta", "users.uid")
"""Pool and namespace in which gateways keep them."""
EXPORTED = "client.export."
"""How the identities of exports begin: one that is no longer declared loses its rights."""


def full_ratios(ask: Cluster) -> dict[str, float]:
    """Name → the share of an OSD from which on it is `nearfull`, `backfillfull`, or `full`; as it was set."""
    found = ask("osd dump")
    return {name: round(found[f"{name}_ratio"], 4) for name in ("nearfull", "backfillfull", "full")}


def apart(rule: Mapping[str, Any]) -> str:
    """Where a rule of CRUSH's puts copies, and what it keeps them apart by: `default/host`."""
    steps = rule["steps"]
    roots = [step["item_name"] for step in steps if step["op"] == "take"]
    return "/".join([*roots, *(step["type"] for step in steps if step["op"].startswith("choose"))])


def objects_state(ask: Cluster, wanted: Mapping[str, Any]) -> Iterator[str]:
    """How declared pools and the file system are, a line each; what somebody made beside them is theirs."""
    there = {pool["pool_name"]: pool for pool in ask("osd pool ls", detail="detail")}
    rules = {rule["rule_id"]: apart(rule) for rule in ask("osd crush rule dump")}
    for name in [pool["name"] for pool in wanted["pools"]]:
        if name not in there:
            yield f"pool {name}: gone"
            continue
        pool = there[name]
        numbers = {key: pool[key] for key in ("size", "min_size", "pg_num_target", "quota_max_bytes")}
        said = " ".join(f"{key}={value}" for key, value in numbers.items())
        uses = ",".join(sorted(pool["application_metadata"]))
        yield f"pool {name}: {said} copies={rules[pool['crush_rule']]} {uses}"
    for one in ask("fs ls"):
        if one["name"] == wanted["filesystem"].get("name"):
            yield f"file system {one['name']}: {', '.join(sorted(one['data_pools']))}"
    if USERS.exists():
        with ask.io(USERS_AT[0]) as pool:
            pool.set_namespace(USERS_AT[1])
            users = {one.key for one in pool.list_objects()}
        for name in sorted(json.loads(USERS.read_text())):
            yield f"user {name}: {'there' if name in users else 'gone'}"


def ground_state(ask: Cluster, wanted: Mapping[str, Any]) -> Iterator[str]:
    """How declared identities and options are, a line each."""
    rights = {one["entity"]: one["caps"] for one in ask("auth ls")["auth_dump"]}
    declared = {name for name in entities(KEYRING) if name != "mon."}
    for name in sorted(declared | {name for name in rights if name.startswith(EXPORTED)}):
        caps = "; ".join(f"{daemon} {cap}" for daemon, cap in sorted(rights.get(name, {"gone": ""}).items()))
        yield f"identity {name}: {caps}"
    options = {(one["section"], one["name"]): one["value"] for one in ask("config dump")}
    for who, named in sorted(wanted["options"].items()):
        for name in sorted(named):
            yield f"option {name} of {who}: {options.get((who, name), 'gone')}"
    for name, ratio in full_ratios(ask).items():
        yield f"ratio {name}: {ratio}"


STATES = {"ground": ground_state, "objects": objects_state}
