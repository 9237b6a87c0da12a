"""The contract as an Ansible inventory.

The result has the shape that inventory scripts print (groups with hosts, children and vars, and
`_meta.hostvars`), so the same dictionary feeds the plugin, a script and the benchmark.

Groups nest: `all` > regions, roles, features > pools > hosts. A host stands directly in its pool only,
which keeps 10,000 hosts cheap. Shared values stand on groups, because a user's
`group_vars/all/` wins over the groups of an inventory source but not over its host variables.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infra.capabilities import host_variables
from infra.files import given_file
from infra.ground.contract import Contract, HostContract, RegionContract
from infra.ground.groups import NODE_ROLES, group_name
from infra.ground.ssh import Way
from infra.inventory.roles import role_hosts, role_order, services_of_others
from infra.inventory.variables import role_variables

SSH_PORT = 22
SSH_ALIVE_INTERVAL_S = 10
SSH_ALIVE_COUNT = 6
"""A connection that stays silent for a minute is given up; a busy node still answers keepalives."""

Group = dict[str, Any]
Inventory = dict[str, Any]


def inventory_data(contract: Contract, root: Path) -> Inventory:
    """Groups, hosts and variables as an inventory script prints them; `root` is the checkout."""
    inventory = _empty_groups(contract)
    for name, region in contract.regions.items():
        inventory[group_name("region", name)]["vars"] |= _ssh_variables(name, region, contract, root)
    _add_pools(inventory, contract)
    for feature in role_order():
        _add_members(inventory, contract, group_name("feature", feature), role_hosts(contract, feature))
    inventory["all"]["vars"] |= {
        "ansible_port": SSH_PORT,
        "ansible_python_interpreter": "/usr/bin/python3",
        "causeway_cluster": contract.cluster,
        "causeway_contract_version": contract.schema_version,
        "causeway_stack": contract.stack,
        # Mitogen would compress: 4 s of a core for each node that gets Consul, whose 137 MB are copied in
        # 0.2 s. So ~/.ssh/config decides, as it does for Ansible without Mitogen.
        "mitogen_ssh_compression": False,
    }
    for group, variables in role_variables(contract).items():
        inventory.setdefault(group, _group())["vars"] |= variables
    own = host_variables(contract)
    inventory["_meta"] = {
        "hostvars": {name: _host(host) | own.get(name, {}) for name, host in contract.hosts.items()}
    }
    return inventory


def group_hosts(inventory: Inventory, names: Sequence[str]) -> set[str]:
    """The hosts that a list of group and host names stands for; unknown names stand for none."""
    hosts: set[str] = set()
    for name in names:
        group = inventory.get(name, {})
        hosts.update(group.get("hosts", ()))
        hosts |= group_hosts(inventory, group.get("children", ()))
        if name in inventory["_meta"]["hostvars"]:
            hosts.add(name)
    return hosts


def _group() -> Group:
    return {"hosts": [], "children": [], "vars": {}}


def _empty_groups(contract: Contract) -> Inventory:
    """Every group there is, so that a play may name a feature which no host of this cluster has."""
    regions = {
        group_name("region", name): _group() | {"vars": _region_variables(name, region)}
        for name, region in contract.regions.items()
    }
    roles = [group_name("role", role) for role in NODE_ROLES]
    features = [group_name("feature", feature) for feature in role_order()]
    above_pools = [*regions, *roles, *features]
    return {
        "all": _group() | {"children": above_pools},
        **{name: _group() for name in above_pools},
        **regions,
    }


def _region_variables(name: str, region: RegionContract) -> dict[str, Any]:
    return {
        "causeway_region": name,
        "causeway_provider": region.provider,
        "causeway_for_trials": region.for_trials,
    }


def _add_pools(inventory: Inventory, contract: Contract) -> None:
    for key, pool in contract.pools.items():
        name = group_name("pool", pool.region, pool.name)
        inventory[name] = _group() | {"vars": {"causeway_pool": pool.name}}
        if services := services_of_others(contract, key):
            inventory[name]["vars"]["causeway_services_of_others"] = services
        inventory[group_name("region", pool.region)]["children"].append(name)
        inventory[group_name("role", pool.role)]["children"].append(name)
    for name, host in contract.hosts.items():
        pool = contract.pools[host.pool]
        inventory[group_name("pool", pool.region, pool.name)]["hosts"].append(name)


def _add_members(inventory: Inventory, contract: Contract, group: str, members: Sequence[str]) -> None:
    """Put hosts into a group: as whole pools where all of a pool's hosts belong, else one by one."""
    wanted = set(members)
    for pool in contract.pools.values():
        name = group_name("pool", pool.region, pool.name)
        hosts = inventory[name]["hosts"]
        if hosts and wanted.issuperset(hosts):
            inventory[group]["children"].append(name)
        else:
            inventory[group]["hosts"] += [host for host in hosts if host in wanted]


def _host(host: HostContract) -> dict[str, Any]:
    """What differs from host to host, and nothing else: users cannot override it for a group."""
    port = {} if host.ssh_port == SSH_PORT else {"ansible_port": host.ssh_port}
    return {"ansible_host": str(host.address), **port}


def _ssh_variables(name: str, region: RegionContract, contract: Contract, root: Path) -> dict[str, Any]:
    variables: dict[str, Any] = {
        "ansible_user": region.ssh_user,
        "ansible_ssh_common_args": _ssh_arguments(name, region, contract, root),
        # Mitogen names its own before these arguments.
        "mitogen_ssh_keepalive_interval": SSH_ALIVE_INTERVAL_S,
        "mitogen_ssh_keepalive_count": SSH_ALIVE_COUNT,
    }
    if region.ssh_private_key_file:
        variables["ansible_ssh_private_key_file"] = str(given_file(region.ssh_private_key_file, root))
    if region.ssh_user != "root":
        variables["ansible_become"] = True
    if region.sudo_source:  # where the password comes from: it is itself in no variable
        variables["ansible_become_method"] = "causeway_sudo"
        variables["causeway_sudo_source"] = f"{contract.stack}/{region.sudo_source}"
    return variables


def _ssh_arguments(name: str, region: RegionContract, contract: Contract, root: Path) -> str:
    """Options for every ssh, scp and sftp; the inner quotes keep a path with spaces one value."""
    way = Way.to(region)
    own = {"IdentitiesOnly": way.keys()["IdentitiesOnly"], **way.command(contract.stack, name)}
    options = (
        f'UserKnownHostsFile="{root / contract.known_hosts_file}"',
        "StrictHostKeyChecking=yes",
        *(f"{keyword}={value}" for keyword, value in own.items()),
        f"ServerAliveInterval={SSH_ALIVE_INTERVAL_S}",
        f"ServerAliveCountMax={SSH_ALIVE_COUNT}",
    )
    return shlex.join(word for option in options for word in ("-o", option))
