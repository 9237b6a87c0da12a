"""Ansible's inventories: INI, YAML, and what `ansible-inventory --list` prints; read without Ansible.

What only Ansible can tell (plugins, scripts, `group_vars` beside the file, templates, vaults) is not read:
`ansible-inventory -i INVENTORY --list` has done all that, and its answer is.
"""

import ast
import getopt
import re
import shlex
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.errors import BadInputError
from infra.ground.problem import DeclarationError
from infra.ground.yaml_source import Tree, read_yaml
from infra.intake.hops import SAY, of_arguments
from infra.intake.machine import ASKS, ListError, Row, complaint, word
from infra.intake.table import COLUMNS

VARIABLES = {
    "ansible_host": "address", "ansible_ssh_host": "address", "ansible_port": "ssh_port",
    "ansible_ssh_port": "ssh_port", "ansible_user": "ssh_user", "ansible_ssh_user": "ssh_user",
    "ansible_ssh_private_key_file": "ssh_key_file", "ansible_private_key_file": "ssh_key_file",
}  # fmt: skip
"""Ansible's variable → the column that it is; a variable that is called like a column is that column."""
PASSWORDS = ("ansible_become_password", "ansible_become_pass", "ansible_sudo_pass")
"""Variables that say that sudo asks. What they hold is never kept."""
ARGUMENTS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
"""What ssh is given, in this order: of it the jump hosts are read."""
HEADER = re.compile(r"\[([^]\s:]+)(?::(\w+))?]\s*(?:[#;].*)?")
RANGE = re.compile(r"\[(\w+):(\w+)(?::(\d+))?]")
PORT = re.compile(r"((?:[^:[\]]|\[[^\]]*])+):([0-9]{1,5})")
"""What Ansible reads behind the name of a host."""
LARGEST_RANGE = 100_000
PRIORITY, USUAL_PRIORITY = "ansible_group_priority", 1
HINT = "let Ansible read it: ansible-inventory -i FILE --list > list.json, and give list.json"
EVERYBODYS = ("all", "ungrouped")


@dataclass
class Groups:
    """An inventory: who is in which group, and which variables are set where."""

    hosts: dict[str, dict[str, str]] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    members: dict[str, list[str]] = field(default_factory=dict)
    children: dict[str, list[str]] = field(default_factory=dict)
    variables: dict[str, dict[str, str]] = field(default_factory=dict)
    priorities: dict[str, int] = field(default_factory=dict)

    def add_variables(self, group: str, said: Mapping[str, Any]) -> None:
        """What one place says for all hosts of a group."""
        self.variables.setdefault(group, {}).update(_columns(said))
        if str(said.get(PRIORITY, "")).lstrip("-").isdecimal():
            self.priorities[group] = int(said[PRIORITY])

    def add_hosts(self, pattern: str, place: str, own: Mapping[str, Any], group: str) -> None:
        """The hosts of a pattern such as `gpu[01:16]:2222`; the port is that of hosts that are new by it."""
        port = {}
        if found := PORT.fullmatch(pattern):
            pattern, port = found[1], {"ansible_port": found[2]}
        for host in _expanded(pattern, place):
            self.add_host(host, place, own if host in self.hosts else {**port, **own}, group)

    def ranks(self) -> dict[str, tuple[int, int, str]]:
        """Group → its rank: of what two groups say of a host, the higher one's holds, as it does for Ansible.

        By how far below `all` it stands on its longest way, then by its priority, then by its name.
        """
        depths = dict.fromkeys((*self.members, *self.children, *self.variables), 1)
        for _ in range(len(depths)):  # more, and a group contains itself
            before = dict(depths)
            for parent, children in self.children.items():
                for child in children if parent != "all" else ():
                    depths[child] = max(depths.get(child, 1), depths[parent] + 1)
            if depths == before:
                break
        return {
            group: (depth, self.priorities.get(group, USUAL_PRIORITY), group)
            for group, depth in depths.items()
        }

    def add_host(self, name: str, place: str, own: Mapping[str, Any], group: str | None) -> None:
        """A host as one place names it; what an earlier place said of it stays."""
        self.places.setdefault(name, place)
        if len(self.places) > LARGEST_RANGE:
            raise BadInputError(f"{place}: more than {LARGEST_RANGE:,} hosts")
        self.hosts.setdefault(name, {}).update(_columns(own))
        if group is not None and name not in self.members.setdefault(group, []):
            self.members[group].append(name)


@dataclass(frozen=True)
class Grouped:
    """A host as the inventory has it: its own groups, and all that it is in through them."""

    row: Row
    groups: tuple[str, ...]
    above: frozenset[str]


def read_inventory(text: str, file: str) -> list[Grouped]:
    """The hosts of an inventory. BadInputError for what is none, or what only Ansible can read."""
    if text.lstrip().startswith("{") or _is_yaml(text):
        groups = _of_tree(_tree(text, file), file)
    else:
        groups = _of_ini(text, file)
    return list(_grouped(groups))


def _is_yaml(text: str) -> bool:
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith(("#", ";")):
            return line.startswith("---") or bool(re.match(r"['\"]?[\w.-]+['\"]?:(\s|$)", line))
    return False


def _columns(variables: Mapping[str, Any]) -> dict[str, str]:
    found = {name: variables[name] for name in COLUMNS if name in variables and name != "name"}
    found |= {column: variables[name] for name, column in VARIABLES.items() if name in variables}
    found |= {name: variables[name] for name in ARGUMENTS if name in variables}
    if any(variables.get(name) for name in PASSWORDS):
        found.setdefault("sudo", ASKS)
    return {name: str(value).strip() for name, value in found.items() if isinstance(value, str | int)}


def _grouped(groups: Groups) -> Iterator[Grouped]:
    parents: dict[str, list[str]] = {}
    for parent, children in groups.children.items():
        for child in children:
            parents.setdefault(child, []).append(parent)
    ranks = groups.ranks()
    own: dict[str, list[str]] = {}
    for group, members in groups.members.items():
        for host in members:
            own.setdefault(host, []).append(group)
    for name, variables in groups.hosts.items():
        direct = own.get(name, [])
        order = _upwards(direct, parents)
        values: dict[str, str] = dict(groups.variables.get("all", {}))
        for group in sorted((one for one in order if one != "all"), key=ranks.__getitem__):
            values |= groups.variables.get(group, {})
        values |= variables
        values.setdefault("address", name)
        _take_the_way(groups.places[name], name, values)
        named = tuple(group for group in direct if group not in EVERYBODYS)
        yield Grouped(Row(groups.places[name], name, values), named, frozenset(order))


def _take_the_way(place: str, name: str, values: dict[str, str]) -> None:
    """Jump hosts, of the arguments for ssh. ListError for a way that a declaration cannot have."""
    said = " ".join(filter(None, [values.pop(argument, "") for argument in ARGUMENTS]))
    if "ssh_jump" in values or not said:
        return
    if "{{" in said:
        values["ssh_jump"] = said  # which says that it is a template
        return
    try:
        way = of_arguments(said)
    except (ValueError, getopt.GetoptError) as error:
        raise ListError([complaint(Row(place, name), f"its arguments for ssh: {error}")], SAY) from None
    own = values.get("ssh_key_file", "")
    if other := [file for file in way.key_files if file != own]:
        message = (
            f"the jump host takes the key {word(other[0])}, the machine {word(own) or 'none that is named'}"
        )
        raise ListError([complaint(Row(place, name), f"{message}; a region has one key")])
    values["ssh_jump"] = ",".join(map(str, way.hops))


def _upwards(start: Iterable[str], parents: Mapping[str, list[str]]) -> list[str]:
    """Groups, and those that they are in; one that contains itself ends there."""
    order = list(start)
    for group in order:
        order.extend(parent for parent in parents.get(group, []) if parent not in order)
    return order


def _tree(text: str, file: str) -> Tree:
    try:
        tree = read_yaml(text, file)
    except DeclarationError as error:
        raise BadInputError(str(error.problems[0])) from None
    if tree.problems:
        first = tree.problems[0]
        raise BadInputError(f"{file}:{first.line}: {first.path}: {first.message}", hint=HINT)
    return tree


def _of_tree(tree: Tree, file: str) -> Groups:
    root = tree.value
    if not isinstance(root, Mapping):
        raise BadInputError(f"{file}: no inventory: it holds no groups", hint=HINT)
    groups = Groups()
    walk = _list_group if "_meta" in root else _yaml_group
    for name, body in root.items():
        if name != "_meta":
            walk(groups, str(name), body, str(name), tree, file)
    if "_meta" in root:
        _meta(groups, root["_meta"], tree, file)
    return groups


def _wrong(file: str, tree: Tree, path: str, what: str) -> BadInputError:
    line = tree.lines.get(path)
    return BadInputError(f"{file}{f':{line}' if line else ''}: {word(path)}: {what}", hint=HINT)


def _mapping(value: Any, path: str, tree: Tree, file: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _wrong(file, tree, path, "is no mapping (key: value)")
    return value


def _place(file: str, tree: Tree, path: str) -> str:
    line = tree.lines.get(path)
    return f"{file}:{line}" if line else file


def _yaml_group(groups: Groups, name: str, body: Any, path: str, tree: Tree, file: str) -> None:
    parts = _mapping(body, path, tree, file)
    if unknown := [str(key) for key in parts if key not in ("hosts", "children", "vars")]:
        raise _wrong(file, tree, f"{path}.{unknown[0]}", "a group has hosts, children and vars")
    groups.add_variables(name, _mapping(parts.get("vars"), f"{path}.vars", tree, file))
    for pattern, own in _mapping(parts.get("hosts"), f"{path}.hosts", tree, file).items():
        where = f"{path}.hosts.{pattern}"
        groups.add_hosts(str(pattern), _place(file, tree, where), _mapping(own, where, tree, file), name)
    for child, inner in _mapping(parts.get("children"), f"{path}.children", tree, file).items():
        groups.children.setdefault(name, []).append(str(child))
        _yaml_group(groups, str(child), inner, f"{path}.children.{child}", tree, file)


def _list_group(groups: Groups, name: str, body: Any, path: str, tree: Tree, file: str) -> None:
    parts = {"hosts": body} if isinstance(body, list) else _mapping(body, path, tree, file)
    for key in ("hosts", "children"):
        if not isinstance(parts.get(key, []), list):
            raise _wrong(file, tree, f"{path}.{key}", "is no list")
    groups.add_variables(name, _mapping(parts.get("vars"), f"{path}.vars", tree, file))
    groups.children.setdefault(name, []).extend(str(child) for child in parts.get("children", []))
    for index, host in enumerate(parts.get("hosts", [])):
        groups.add_host(str(host), _place(file, tree, f"{path}.hosts[{index}]"), {}, name)


def _meta(groups: Groups, meta: Any, tree: Tree, file: str) -> None:
    hostvars = _mapping(_mapping(meta, "_meta", tree, file).get("hostvars"), "_meta.hostvars", tree, file)
    for name, own in hostvars.items():
        where = f"_meta.hostvars.{name}"
        groups.add_host(str(name), _place(file, tree, where), _mapping(own, where, tree, file), None)


def _of_ini(text: str, file: str) -> Groups:
    groups, group, part = Groups(), "ungrouped", ""
    for number, raw in enumerate(text.splitlines(), 1):
        line, place = raw.strip(), f"{file}:{number}"
        if not line or line.startswith(("#", ";")):
            continue
        if header := HEADER.fullmatch(line):
            group, part = header[1], header[2] or ""
            if part not in ("", "vars", "children"):
                raise BadInputError(f"{place}: [{group}:{part}] is none of [G], [G:vars], [G:children]")
        elif line.startswith("["):
            raise BadInputError(f"{place}: not the name of a group: {word(line)}")
        else:
            _ini_line(groups, group, part, line, place)
    return groups


def _ini_line(groups: Groups, group: str, part: str, line: str, place: str) -> None:
    if part == "vars":
        name, sign, value = line.partition("=")
        if not sign:
            raise BadInputError(f"{place}: a variable is NAME=VALUE", hint=HINT)
        groups.add_variables(group, {name.strip(): _literal(value.strip())})
        return
    try:
        first, *words = shlex.split(line, comments=True)
    except ValueError as error:
        raise BadInputError(f"{place}: {error}", hint=HINT) from None
    if part == "children":
        groups.children.setdefault(group, []).append(first)
        return
    if wrong := [each for each in words if "=" not in each]:
        raise BadInputError(f"{place}: after a host stands NAME=VALUE, not {word(wrong[0])}", hint=HINT)
    own = {name: _literal(value) for name, value in (each.split("=", 1) for each in words)}
    groups.add_hosts(first, place, own, group)


def _literal(text: str) -> str:
    """A value of an INI file, which may be one of Python's literals, as Ansible has it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # of a backslash in what may be no literal at all
            found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return str(found) if isinstance(found, str | int) else text


def _expanded(pattern: str, place: str) -> Iterator[str]:
    """`gpu[01:16]` → gpu01 … gpu16, as Ansible has it; also letters, steps, and several in one name."""
    found = RANGE.search(pattern)
    if found is None:
        yield pattern
        return
    first, last, step = found[1], found[2], int(found[3] or 1)
    numbers = first.isdecimal() and last.isdecimal() and len(last) < 10
    letters = len(first) == len(last) == 1 and first.isascii() and last.isascii() and not numbers
    low, high = (int(first), int(last)) if numbers else (ord(first[0]), ord(last[0]))
    if not (numbers or letters) or step < 1 or not 0 <= high - low < LARGEST_RANGE:
        raise BadInputError(f"{place}: {word(pattern)} is no range of hosts", hint=HINT)
    width = len(first) if first.startswith("0") else 0
    for number in range(low, high + 1, step):
        middle = f"{number:0{width}d}" if numbers else chr(number)
        yield from _expanded(pattern[: found.start()] + middle + pattern[found.end() :], place)
