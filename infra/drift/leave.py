"""Takes roles off nodes: what a role that leaves governs alone, from the record, and the record without it.

playbooks/leave.yml carries it out; its tasks call this as the action `causeway_leave`.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from infra import ROOT
from infra.drift.journal import forget_changes, record_of
from infra.drift.kinds import kind_of
from infra.drift.manifest import PARTS, Entry, Manifest, RoleManifest, load_manifest, save_manifest
from infra.drift.merge import HostSeal
from infra.drift.owed import forget_owed
from infra.drift.seal import AT_ONCE, store_copy
from infra.drift.trip import TripError, Trips
from infra.errors import BadInputError
from infra.ground.contract import Contract, load_contract
from infra.inventory.roles import role_hosts, role_order
from infra.stack import contract_file

Named = Collection[str] | Mapping[str, Collection[str]]
METRICS_FOLDER = "/var/lib/prometheus/node-exporter"
METRICS: Mapping[str, tuple[str, ...]] = {
    "acceptance": ("causeway_acceptance.prom", "causeway_gpu.prom"),
    "ceph": ("causeway_ceph_quorum.prom",),
    "drift_watch": ("causeway_drift.prom",),
    "log_shipper": ("causeway_logs.prom",),
    "node_exporter": ("causeway_xid.prom",),
    "registry": ("causeway_registry.prom",),
    "wan_gateway": ("causeway_wan.prom",),
}
"""Files in which programs of a role tell what they see. No record has them, for they change all the time;
one that stayed would say for ever what was seen last. tests/repo holds this against the roles."""
NODE_ROLE = "base"
"""Leaves with its node only, or where it is named: every other role stands on it."""


def leaving_plan(
    stack: str, hosts: Collection[str] | None = None, roles: Named = ()
) -> dict[str, dict[str, Any]]:
    """Host → what is to be done there, as the arguments of the module `causeway_undo`.

    ROLES: these, everywhere or by host, whether they are declared or not; without, those that the record has
    and the declaration has not. BadInputError for a role that is on none of the hosts.
    """
    contract = load_contract(contract_file(stack))
    declared = {role: frozenset(role_hosts(contract, role)) for role in role_order()}
    plans = {}
    for host in contract.hosts if hosts is None else hosts:
        manifest = record_of(stack, host)
        if manifest is None:
            continue
        named = roles.get(host, ()) if isinstance(roles, Mapping) else roles
        if isinstance(roles, Mapping) and not named:
            continue
        leave = leaving_roles(manifest, [role for role, on in declared.items() if host in on], named)
        if leave:
            plans[host] = host_plan(manifest, leave)
    if roles and not plans:
        raise BadInputError(
            f"no host has a record of {', '.join(sorted(roles))}",
            hint=f"./run exec causeway drift {stack} says what every node has",
        )
    return plans


def leaving_roles(manifest: Manifest, declared: Collection[str], named: Collection[str] = ()) -> list[str]:
    """The roles that leave a host, the last in the order of roles first.

    A role of which nobody knows what was before it has stayed once: it leaves where it is named only. With a
    role that is named its parts leave: once it is forgotten nobody would know what was before them.
    """
    if named:
        leave = manifest.roles.keys() & {*named, *(f"{role}{PARTS}" for role in named)}
    else:
        parts = manifest.roles.items()
        leave = {
            role for role, part in parts if role not in declared and role != NODE_ROLE and not part.stays
        }
    order = [*role_order(), *sorted(manifest.roles)]
    return sorted(leave, key=order.index, reverse=True)


def in_words(role: str) -> str:
    """A role that leaves, or the parts of one that stays."""
    return f"what {role.removesuffix(PARTS)} makes no more" if role.endswith(PARTS) else role


def host_plan(manifest: Manifest, leave: Sequence[str]) -> dict[str, Any]:
    """What the leaving roles govern and no other does; what others govern, and what of it they shared.

    Of a role that stays, what it makes no more is a part, and was what it was before that role.
    """
    going = set(leave)
    others = {
        (entry.kind, entry.key)
        for role, part in manifest.roles.items()
        if role not in going
        for entry in part.entries
    }
    things: dict[tuple[str, str], dict[str, Any]] = {}
    handed: dict[tuple[str, str], list[str]] = {}
    for name in leave:
        role = name.removesuffix(PARTS)
        for entry in manifest.roles[name].entries:
            at = (entry.kind, entry.key)
            if at in others:
                handed.setdefault(at, []).append(role)
            elif at in things:
                things[at]["roles"].append(role)
            else:
                what = {"kind": entry.kind, "key": entry.key, "want": entry.want}
                things[at] = {**what, "own": entry.how.get("own", []), "roles": [role]}
    return {
        "roles": [name for name in leave if not name.endswith(PARTS)],
        "parts": [name for name in leave if name.endswith(PARTS)],
        "things": list(things.values()),
        "staying": sorted(map(list, others)),
        "handed": [[*at, roles] for at, roles in handed.items()],
        "metrics": [f"{METRICS_FOLDER}/{name}" for role in leave for name in METRICS.get(role, ())],
        "salt": manifest.salt,
        "polite": [role for role in leave if (ROOT / "roles" / role / "tasks" / "leave.yml").is_file()],
        "uncovered": sorted({task.task for role in leave for task in manifest.roles[role].uncovered}),
    }


def drop_roles(
    stack: str, left: Mapping[str, Collection[str]], stay: Mapping[str, Collection[str]]
) -> list[str]:
    """Take roles out of their hosts' records, on controller and nodes; the problems, a line each.

    STAY: host → roles of which nobody knows what was before them; the record keeps them, and says so.
    """
    contract = load_contract(contract_file(stack))
    return asyncio.run(_drop(contract, left, stay))


async def _drop(
    contract: Contract, left: Mapping[str, Collection[str]], stay: Mapping[str, Collection[str]]
) -> list[str]:
    trips, gate, problems = Trips(contract), asyncio.Semaphore(AT_ONCE), []

    async def one(host: str) -> None:
        async with gate:
            try:
                async with await trips.open(host) as connection:
                    manifest = await _without(trips, connection, contract.stack, host, left.get(host, ()))
                    for role in manifest.roles.keys() & set(stay.get(host, ())):
                        manifest.roles[role].stays = True
                    await store_copy(trips, connection, host, manifest)
                save_manifest(contract.stack, manifest)
                forget_owed(contract.stack, host, left.get(host, ()))
                forget_changes(contract.stack, host, {*left.get(host, ()), *stay.get(host, ())})
            except TripError as error:
                roles = ", ".join(left.get(host, ()))
                problems.append(f"{host}: its record, or the copy there, still has {roles}: {error}")

    await asyncio.gather(*map(one, {**left, **stay}))
    return problems


async def _without(trips: Trips, connection: Any, stack: str, host: str, roles: Collection[str]) -> Manifest:
    """A host's record without roles, and what files are together as it is without theirs."""
    seal = sums_of(stack, host, roles)
    if seal.claims and roles:
        answer = await trips.ask(connection, host, seal.request())
        account_for(seal.manifest, roles, answer.get("values", ()))
        seal.merge(answer)
    for role in roles:
        seal.manifest.roles.pop(role, None)
    return seal.manifest


def sums_of(stack: str, host: str, roles: Collection[str]) -> HostSeal:
    """A run that did nothing but look at what files are together, of all other roles."""
    manifest = load_manifest(stack, host) or Manifest(host=host)
    staying = {role: part for role, part in manifest.roles.items() if role not in roles}
    records = {
        role: {
            **{"uncovered": {}, "errors": [], "whole": False, "handlers": []},
            "claims": [_claim(entry) for entry in part.entries if kind_of(entry.kind, entry.key).is_sum],
        }
        for role, part in staying.items()
    }
    records = {role: record for role, record in records.items() if record["claims"]}
    inputs = {role: part.inputs for role, part in manifest.roles.items() if part.declared}
    return HostSeal(stack, host, records, inputs, manifest.identity)


def _claim(entry: Entry) -> dict[str, Any]:
    """As a task that changed nothing would have it."""
    how = {name: value for name, value in entry.how.items() if name not in ("sealed", "packaged")}
    return {
        **{"kind": entry.kind, "key": entry.key, "task": entry.task, "tasks": entry.tasks, "how": how},
        **{"stated_by": [], "reported": {}, "compared": {}, "aspects": None, "untouched": []},
        **{"changed": False, "handler": entry.handler},
    }


def account_for(manifest: Manifest, roles: Collection[str], values: Sequence[Mapping[str, Any]]) -> None:
    """Have the record say of leaving roles' paths that they are as they were found: gone, or given back."""
    found = {path: digest for value in values for path, digest in value.get("_inputs", {}).items()}
    for role in roles:
        part = manifest.roles.get(role, RoleManifest())
        paths = [entry.key for entry in part.entries if entry.key.startswith("/")]
        part.entries = [
            Entry(kind="file", key=path, task="", want={"digest": found[path]})
            if path in found
            else Entry(kind="absent", key=path, task="", want={"type": "absent"})
            for path in paths
        ]
