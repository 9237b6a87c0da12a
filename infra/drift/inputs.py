"""What a role's work on a host depends on, as one hash: changed since sealing, the manifest is stale."""

from collections.abc import Sequence
from typing import Any

from infra import ROOT
from infra.drift.assembly import probe_source
from infra.files import tree_hash, value_hash
from infra.ground.contract import Contract
from infra.ground.groups import group_name
from infra.inventory.groups import inventory_data
from infra.inventory.roles import role_hosts, role_order, roles_within


def role_inputs(contract: Contract) -> dict[str, dict[str, str]]:
    """Host → role → hash over the role's files, its variables for the host, and the contract's version.

    What a role includes counts as its own. A role that reads other hosts' variables depends on every address
    as well, one that installs the probe on all kinds. Variables given on a command line are not part of it.
    """
    data = inventory_data(contract, ROOT)
    addresses = value_hash({name: str(host.address) for name, host in contract.hosts.items()})
    shared = [tree_hash(f"inventories/{contract.stack}"), contract.schema_version]
    inputs: dict[str, dict[str, str]] = {name: {} for name in contract.hosts}
    for role in role_order():
        within = roles_within(role)
        common = [role, tree_hash(*(f"roles/{name}" for name in within)), *shared]
        common.append(addresses if _mention(within, b"hostvars") else "")
        if _mention(within, b"causeway_probe"):
            common.append(probe_source())
        by_pool: dict[str, str] = {}
        for name in role_hosts(contract, role):
            pool = contract.hosts[name].pool
            if pool not in by_pool:
                by_pool[pool] = value_hash([*common, _variables(contract, data, pool, within)])
            own = _of_roles(within, data["_meta"]["hostvars"][name])
            inputs[name][role] = value_hash([by_pool[pool], own]) if own else by_pool[pool]
    return inputs


def _variables(contract: Contract, data: dict[str, Any], pool: str, roles: Sequence[str]) -> dict[str, Any]:
    groups = ("all", group_name("region", contract.pools[pool].region), group_name("pool", pool))
    found: dict[str, Any] = {}
    for group in groups:
        found |= _of_roles(roles, data.get(group, {}).get("vars", {}))
    return found


def _of_roles(roles: Sequence[str], variables: dict[str, Any]) -> dict[str, Any]:
    prefixes = tuple(f"{role}_" for role in roles)
    return {name: value for name, value in variables.items() if name.startswith(prefixes)}


def _mention(roles: Sequence[str], word: bytes) -> bool:
    files = (file for role in roles for file in (ROOT / "roles" / role).rglob("*"))
    return any(word in file.read_bytes() for file in files if file.is_file())
