"""What a pool's image is made of, and the name that follows from it.

The name is a hash over the node image, the baked tasks with the files that they write and the modules of ours
that they call, and the values of all variables that these reach, so a change anywhere else in the roles or in
the declaration leaves an image as good as it was.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from infra import ROOT
from infra.errors import BadInputError
from infra.files import given_files, tree_hash, value_hash
from infra.ground.contract import Contract
from infra.inventory.groups import Inventory, group_hosts, inventory_data
from infra.inventory.overrides import overrides
from infra.inventory.roles import role_hosts, role_order
from infra.inventory.steps import Step, steps, values, words_in
from infra.providers.local.image import image_hash

VERSION = 1
"""Counted up when an image is made otherwise of the same parts."""
BUILDER = "infra/images/node"
"""What runs in the builder beside the roles."""
UNIT_MODULE = "ansible.builtin.systemd_service"
WRITES = {"ansible.builtin.copy": "files", "ansible.builtin.template": "templates"}
"""Module that writes a file → the folder of a role where it finds it."""
UTILITIES = re.compile(r"^from ansible\.module_utils(?: import |\.)(causeway_\w+)", re.MULTILINE)
UNIT = re.compile(r"[a-zA-Z][\w.-]*\.(?:service|socket|timer|target)")
HOSTS_OWN = frozenset({"inventory_hostname", "hostvars", "groups", "play_hosts", "ansible_host"})
"""What Ansible itself says of one host."""


@dataclass(frozen=True)
class Recipe:
    """The image of one pool."""

    pool: str
    """A key of `Contract.pools`."""
    host: str
    """The host in whose name the roles are asked: the pool's first. Nothing that is baked depends on it."""
    roles: tuple[str, ...]
    """Those that every host of the pool takes, and of which something is baked that is the same for all."""
    inputs: Mapping[str, Any]

    @cached_property
    def name(self) -> str:
        """12 hex digits."""
        return sha256(value_hash(self.inputs).encode()).hexdigest()[:12]


def recipe_of(contract: Contract, pool: str, inventory: Inventory | None = None) -> Recipe:
    """The recipe of a pool's image, as the contract and the checkout are now.

    `inventory` is the contract's, where somebody has it already. BadInputError for a pool that is not there.
    """
    hosts = [name for name, host in contract.hosts.items() if host.pool == pool]
    if not hosts:
        known = ", ".join(contract.pools)
        raise BadInputError(f"no pool {pool} with a node in it", hint=f"pools of this declaration: {known}")
    inventory = inventory or inventory_data(contract, ROOT)
    roles = tuple(
        role for role in _shared(contract, hosts) if baked(role) and not own_of_hosts(role, inventory, hosts)
    )
    given = _given(inventory, hosts[0]) | inventory["_meta"]["hostvars"][hosts[0]]
    tasks = {role: [step.content for step in baked(role)] for role in roles}
    reached = {role: reach(role, given) for role in roles}
    files = sorted({file for role in roles for step in baked(role) for file in files_of(step)})
    inputs = {
        "version": VERSION,
        "node image": image_hash(),
        "builder": tree_hash(BUILDER),
        "tasks": tasks,
        "files": {str(file.relative_to(ROOT)): tree_hash(str(file.relative_to(ROOT))) for file in files},
        "values": reached,
        "units": sorted({unit for role in roles for unit in units_of(role)}),
        "user": _users(contract, inventory, hosts[0], {name for each in reached.values() for name in each}),
    }
    return Recipe(pool, hosts[0], roles, inputs)


def baked(role: str) -> tuple[Step, ...]:
    """What of a role is baked."""
    return tuple(step for step in steps(role) if step.baked)


def files_of(step: Step) -> list[Path]:
    """The files of a role that decide what a step does: what it writes by name, its module and utilities."""
    folder = ROOT / "roles" / step.role
    if kind := WRITES.get(step.module):
        file = folder / kind / step.task[step.module].get("src", "")
        return [file] if file.is_file() else []
    places = (folder / "library", ROOT / "playbooks" / "library", ROOT / "infra" / "plugins" / "action")
    found = [file for place in places if (file := place / f"{step.module}.py").is_file()]
    for file in found:  # grows as it goes
        for name in UTILITIES.findall(file.read_text()):
            both = (folder / "module_utils", ROOT / "playbooks" / "module_utils")
            there = (path for place in both if (path := place / f"{name}.py").is_file())
            found += [path for path in there if path not in found]
    return found


def given_to(step: Step) -> set[str]:
    """The variables that name the files of the controller which a step copies."""
    src = step.task[step.module].get("src", "") if step.module in WRITES else ""
    return words_in(src) if "{{" in src else set()


def texts_of(step: Step) -> list[str]:
    """What the templates say that a step writes."""
    return [file.read_text() for file in files_of(step) if file.parent.name == "templates"]


def units_of(role: str) -> set[str]:
    """The units that a role enables, for it starts them itself, with its settings in place; or keeps away.

    Where it names one by a template, all that its constants name count: the host may say which.
    """
    found = set[str]()
    for step in steps(role):
        asked = step.task.get(UNIT_MODULE, {})
        if True in (asked.get("enabled"), asked.get("masked")):
            found |= set(UNIT.findall(asked["name"] if "{{" not in asked["name"] else str(values(step.role))))
    return found


def reach(role: str, given: dict[str, Any]) -> dict[str, Any]:
    """The variables that the baked tasks of a role name, and those that these name in turn, with values.

    `given` are the inventory's, which win over the role's own defaults; the variables that stand at a task or
    at what includes it win over both.
    """
    known: dict[str, Any] = {}
    for each in dict.fromkeys((role, *(step.role for step in baked(role)))):
        known |= values(each)
    found: dict[str, Any] = {}
    for step in baked(role):
        todo, seen = words_in([step.content, texts_of(step)]), set[str]()
        near = known | given | dict(step.values)
        while todo:
            name = todo.pop()
            if name not in seen and (name in near or name in HOSTS_OWN):
                seen.add(name)
                todo |= words_in(near.get(name))
        values_here = {name: near.get(name) for name in sorted(seen)}
        for name, value in values_here.items():  # several tasks may be given different things by one name
            found[name] = value if found.get(name, value) == value else [found[name], value]
    for name in {name for step in baked(role) for name in given_to(step)} & found.keys():
        found[name] = list(given_files(found[name]).values())  # what is in it, wherever the checkout lies
    return found


def own_of_hosts(
    role: str, inventory: Inventory, hosts: Sequence[str], given: dict[str, Any] | None = None
) -> set[str]:
    """The variables that a role's baked tasks reach and that are not the same for all these hosts.

    `given` is what their groups say, where somebody has it already.
    """
    given = _given(inventory, hosts[0]) if given is None else given
    own = [inventory["_meta"]["hostvars"][host] for host in hosts]
    differing = {name for each in own for name in each if each[name] != own[0].get(name)}
    differing |= {name for name in own[0] if any(name not in each for each in own)}
    return reach(role, given | own[0]).keys() & (differing | HOSTS_OWN)


def _shared(contract: Contract, hosts: list[str]) -> list[str]:
    """The roles that all of these hosts take, in order."""
    return [role for role in role_order() if {*hosts} <= {*role_hosts(contract, role)}]


def _given(inventory: Inventory, host: str) -> dict[str, Any]:
    """Name → what the host's groups say of it; what several say, of all of them."""
    found: dict[str, Any] = {}
    for group in _groups(inventory, host):
        for name, value in inventory[group]["vars"].items():
            found[name] = value if name not in found else [found[name], value]
    return found


def _groups(inventory: Inventory, host: str) -> list[str]:
    groups = (name for name in inventory if name != "_meta")
    return [name for name in groups if name == "all" or host in group_hosts(inventory, [name])]


def _users(contract: Contract, inventory: Inventory, host: str, names: set[str]) -> str:
    """One hash over what the user's own files beside the inventory say of these variables."""
    known = {*inventory, *inventory["_meta"]["hostvars"]} - {"_meta"}
    return overrides(contract.stack).of(names, _groups(inventory, host), known)
