"""The roles in the order in which they run, as `playbooks/roles.yml` has it, and the hosts that take them."""

import re
import shlex
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from infra import ROOT, capabilities
from infra.errors import CausewayError
from infra.ground.contract import Contract
from infra.inventory.steps import read_yaml

INCLUDES = ("include_role", "import_role")
DEPENDENCIES = "dependencies"
OWN_MODULE_UTILS = re.compile(r"ansible\.module_utils(?:\.| import )(causeway_\w+)")
ORDER = ROOT / "playbooks" / "roles.yml"
UTILS_OF_ALL = "playbooks/module_utils"


@cache
def role_order() -> tuple[str, ...]:
    """Every role once. Each has a group `feature_<role>`: being in it applies the role."""
    return tuple(entry["role"] for play in read_yaml(ORDER) for entry in play["roles"])


def roles_begun(plays: Collection[str]) -> set[str]:
    """The roles of these plays, by their names. Where all hosts of one fail Ansible begins none after it."""
    return {entry["role"] for play in read_yaml(ORDER) if play["name"] in plays for entry in play["roles"]}


def role_hosts(contract: Contract, role: str) -> tuple[str, ...]:
    """The hosts that take a role, in natural order. ValueError for an unknown role."""
    known = capabilities.roles()
    if role not in known:
        raise ValueError(f"{role} is not one of {', '.join(role_order())}")
    members = contract.members(known[role].hosts(contract))
    return tuple(
        host for host in members if role not in contract.pools[contract.hosts[host].pool].excluded_roles
    )


def services_of_others(contract: Contract, pool: str) -> dict[str, list[str]]:
    """Role → services of others' that it may not take over on a pool's hosts; none where nodes are made.

    A role that sets up none there may do so when something else is declared: its list is empty.
    """
    region = contract.regions[contract.pools[pool].region]
    if region.makes_nodes:
        return {}
    found = {
        name: sorted(role.services(contract, pool))
        for name, role in capabilities.roles().items()
        if role.may_take_over and name not in region.take_over
    }
    return dict(sorted(found.items()))


def roles_of(contract: Contract) -> dict[str, tuple[str, ...]]:
    """Host → the roles that it takes, in their order."""
    found: dict[str, list[str]] = {host: [] for host in contract.hosts}
    for role in role_order():
        for host in role_hosts(contract, role):
            found[host].append(role)
    return {host: tuple(roles) for host, roles in found.items()}


def roles_with(step: str) -> list[str]:
    """The roles that have something to do at a step, in their order."""
    return [role for role in role_order() if (ROOT / "roles" / role / "tasks" / f"{step}.yml").is_file()]


@cache
def helper_roles() -> tuple[str, ...]:
    """The roles that have no play of their own: others include them, and answer for what they do."""
    included = (name for role in role_order() for name in roles_within(role)[1:])
    return tuple(dict.fromkeys(name for name in included if name not in role_order()))


def roles_within(role: str, root: Path = ROOT) -> tuple[str, ...]:
    """A role, and all of the checkout that it includes, imports, depends on or has modules of; these in turn.

    CausewayError where a file names one by a template: what it depends on could not be told.
    """
    found, todo = dict[str, None](), [role]
    while todo:
        name = todo.pop(0)
        if name not in found and (root / "roles" / name).is_dir():
            found[name] = None
            todo += (*_named_in(root / "roles" / name), *_with_its_modules(root, name))
    return tuple(found)


def shared_within(role: str, root: Path = ROOT) -> tuple[str, ...]:
    """The utilities beside all roles that modules of a role, or of one that it uses, import; what these do.

    Not the modules there: they install and carry what a role names, the same by any version of them.
    """
    folders = (root / "roles" / name for name in roles_within(role, root))
    todo = [file for folder in folders for file in sorted(folder.glob("*/*.py"))]
    found: set[Path] = set()
    while todo:
        for name in OWN_MODULE_UTILS.findall(todo.pop().read_text()):
            file = root / UTILS_OF_ALL / f"{name}.py"
            if file.is_file() and file not in found:
                found.add(file)
                todo.append(file)
    return tuple(sorted(str(file.relative_to(root)) for file in found))


def _with_its_modules(root: Path, role: str) -> Iterator[str]:
    """The roles whose module utilities its modules import: Ansible finds those of every role."""
    for file in sorted((root / "roles" / role).glob("*/*.py")):
        for name in OWN_MODULE_UTILS.findall(file.read_text()):
            yield from (found.parents[1].name for found in root.glob(f"roles/*/module_utils/{name}.py"))


def _named_in(folder: Path) -> Iterator[str]:
    """The roles that a role's own files name."""
    for pattern in ("tasks/**/*.y*ml", "handlers/**/*.y*ml", "meta/main.y*ml"):
        for file in sorted(folder.glob(pattern)):
            for name in _names(read_yaml(file)):
                if not isinstance(name, str) or not name or "{{" in name:
                    says = f"{file}: which role it includes cannot be told from {name!r}"
                    raise CausewayError(
                        says, hint="write the role's name: its files count as those of this one"
                    )
                yield name


def _names(content: Any) -> Iterator[Any]:
    """The names of roles in a file of tasks or in `meta/main.yml`, at any depth."""
    if isinstance(content, list):
        for item in content:
            yield from _names(item)
    elif isinstance(content, dict):
        for key, value in content.items():
            if str(key).rpartition(".")[2] in INCLUDES:
                yield _name(value, content.get("args"))
            elif key == DEPENDENCIES and isinstance(value, list):
                yield from (_name(item, None) for item in value)
            else:
                yield from _names(value)


def _name(value: Any, more: Any) -> Any:
    """Of `name=x`, `{name: x}`, `{role: x}` or, in a dependency, `x`, the x."""
    if isinstance(value, str):
        words = dict(word.partition("=")[::2] for word in shlex.split(value) if "=" in word)
        value = words or {"name": value}
    said = {**(more or {}), **(value or {})}
    return said.get("name", said.get("role"))


@cache
def platforms(role: str) -> frozenset[tuple[str, str]]:
    """The systems that a role is written for, as its `meta/main.yml` says: (`debian`, `trixie`)."""
    meta = read_yaml(ROOT / "roles" / role / "meta" / "main.yml")
    known = meta["galaxy_info"]["platforms"]
    return frozenset((one["name"].lower(), version) for one in known for version in one["versions"])
