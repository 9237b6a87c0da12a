"""How a cluster is, a line each: what the watch over drift compares with how it was when a step had ended.

Lines that begin with `BESIDE` are of what nobody declared: the watch knows what of it was there at its seal.
"""

from __future__ import annotations

import hashlib
import json
import re
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
BESIDE = "beside "
ALL = "allow *"
DAEMONS = re.compile(r"osd\.(?P<number>\d+)|mgr\..*|mds\..*")
"""Identities that come with a daemon; Ceph gives each all rights to OSDs, and none of them to monitors."""
MEASURED = "osd_mclock_max_capacity_iops_"
"""How options begin that an OSD sets of itself, as it has measured its disk."""
NOT_JOINABLE = 1
"""The flag of a file system that takes no metadata server (CEPH_MDSMAP_NOT_JOINABLE): it was failed."""


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
    yield from module_lines(ask, wanted)
    for one in ask("fs ls"):
        if one["name"] == wanted["filesystem"].get("name"):
            yield f"file system {one['name']}: {', '.join(sorted(one['data_pools']))}"
            yield f"file system {one['name']} is {'; '.join(closed(ask, one['name'])) or 'open'}"
    # Not with the other identities: an export has its new key once all else is done.
    yield from key_lines(ask("auth ls")["auth_dump"], exported=True)
    if declared := json.loads(USERS.read_text()) if USERS.exists() else {}:
        with ask.io(USERS_AT[0]) as pool:
            pool.set_namespace(USERS_AT[1])
            users = {one.key for one in pool.list_objects()}
        for name in sorted(declared):
            yield f"user {name}: {'there' if name in users else 'gone'}"


def module_lines(ask: Cluster, wanted: Mapping[str, Any]) -> Iterator[str]:
    """Whether declared modules of the managers are on."""
    there = ask("mgr module ls")
    on = {*there["enabled_modules"], *there["always_on_modules"]}
    for name in sorted(wanted["modules"]):
        yield f"module {name}: {'on' if name in on else 'off'}"


def closed(ask: Cluster, name: str) -> Iterator[str]:
    """What keeps a file system from being served: `ceph fs fail NAME`, or `ceph fs set NAME down true`."""
    for one in ask("fs dump")["filesystems"]:
        if one["mdsmap"]["fs_name"] == name:
            yield from ["failed"] * bool(one["mdsmap"]["flags"] & NOT_JOINABLE)
            yield from ["down"] * (one["mdsmap"]["max_mds"] == 0)


def key_lines(dump: list[dict[str, Any]], exported: bool) -> Iterator[str]:
    """A hash of the key of each declared identity: those of exports, or all others."""
    there = {one["entity"]: one for one in dump}
    for name in sorted(entities(KEYRING)):
        if name != "mon." and name.startswith(EXPORTED) == exported:
            yield f"key of {name}: {hashed(there[name]['key']) if name in there else 'gone'}"


def hashed(key: str) -> str:
    """Enough of a hash to tell keys apart; nobody finds a key of 128 bits by trying."""
    return hashlib.sha256(key.encode()).hexdigest()[:8]


def options_there(ask: Cluster) -> dict[tuple[str, str], str]:
    """Whose option, with its mask (`osd/class:ssd`), and its name → the value that the monitors keep."""
    return {
        ("/".join(filter(None, (one["section"], one.get("mask")))), one["name"]): one["value"]
        for one in ask("config dump")
    }


def narrower(
    there: Mapping[tuple[str, str], str], declared: Mapping[str, Mapping[str, str]]
) -> list[tuple[str, str]]:
    """Options that are declared, and set once more for fewer daemons, as for `osd.3`: those go by that."""
    return [
        (who, name)
        for who, name in sorted(there)
        if name not in declared.get(who, ()) and not name.startswith(MEASURED)
        if any(name in options and is_within(who, wider) for wider, options in declared.items())
    ]


def is_within(who: str, wider: str) -> bool:
    """Whether an option for WHO goes before the same for WIDER."""
    return wider == "global" or who.startswith((f"{wider}.", f"{wider}/"))


def strange_identities(ask: Cluster, dump: list[dict[str, Any]]) -> Iterator[str]:
    """Identities that are not ours and may do anything with monitors or OSDs."""
    osds = {str(one["osd"]) for one in ask("osd dump")["osds"]}
    declared = entities(KEYRING)
    for one in dump:
        name, caps = one["entity"], one["caps"]
        daemon = DAEMONS.fullmatch(name)
        own = daemon and (daemon["number"] is None or daemon["number"] in osds)
        if name in declared or name.startswith(EXPORTED):
            continue
        if ALL in caps.get("mon", "") or (ALL in caps.get("osd", "") and not own):
            yield f"identity {name} {hashed(one['key'])} {rights_of(caps)}"


def rights_of(caps: Mapping[str, str]) -> str:
    """An identity's rights, by daemon."""
    return "; ".join(f"{daemon} {cap}" for daemon, cap in sorted(caps.items()))


def ground_state(ask: Cluster, wanted: Mapping[str, Any]) -> Iterator[str]:
    """How declared identities and options are, a line each; and who else may do anything."""
    dump = ask("auth ls")["auth_dump"]
    rights = {one["entity"]: one["caps"] for one in dump}
    declared = {name for name in entities(KEYRING) if name != "mon."}
    for name in sorted(declared | {name for name in rights if name.startswith(EXPORTED)}):
        yield f"identity {name}: {rights_of(rights.get(name, {'gone': ''}))}"
    yield from key_lines(dump, exported=False)
    options = options_there(ask)
    for who, named in sorted(wanted["options"].items()):
        for name in sorted(named):
            yield f"option {name} of {who}: {options.get((who, name), 'gone')}"
    for who, name in narrower(options, wanted["options"]):
        yield f"option {name} of {who}: {options[who, name]}"
    for name, ratio in full_ratios(ask).items():
        yield f"ratio {name}: {ratio}"
    yield from (BESIDE + line for line in strange_identities(ask, dump))


def own_lines(lines: Iterator[str]) -> list[str]:
    """What a step answers for: not what nobody declared."""
    return [line for line in lines if not line.startswith(BESIDE)]


STATES = {"ground": ground_state, "objects": objects_state}
