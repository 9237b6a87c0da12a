"""Which tasks of a role are baked into an image: those with the tag `bake`, found as Ansible finds them.

A task is baked where it has the tag, or a block or a static import around it has. What a dynamic include
brings runs only where the include has the tag as well.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from infra import ROOT

TAG = "bake"
BLOCK = ("block", "rescue", "always")
STATIC = ("import_tasks", "import_role")
DYNAMIC = ("include_tasks", "include_role")
UNIT_MODULE = "ansible.builtin.systemd_service"
UNIT = re.compile(r"[a-zA-Z][\w.-]*\.(?:service|socket|timer|target)")
WORD = re.compile(r"[A-Za-z_]\w*")

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """One task as it is met: with the conditions and variables of what stands around it."""

    role: str
    """Whose file it stands in: of a helper role, the helper."""
    task: Values
    conditions: tuple[str, ...]
    values: Values
    baked: bool

    @property
    def content(self) -> dict[str, Any]:
        """All that decides what the task does, but for variables; its name decides nothing."""
        own = {key: value for key, value in self.task.items() if key not in ("name", "tags", "when", "vars")}
        return own | {"when": self.conditions}

    @property
    def module(self) -> str:
        """The task's module: the key that no keyword of tasks is."""
        return next((key for key in self.task if "." in key or key.startswith("causeway_")), "")


@cache
def steps(role: str, root: Path = ROOT) -> tuple[Step, ...]:
    """Every task that a role may come to, in order, those of helper roles among them."""
    return tuple(_file(root, role, "main.yml", (), {}, baked=False))


@cache
def values(role: str, root: Path = ROOT) -> dict[str, Any]:
    """A role's defaults and constants."""
    found: dict[str, Any] = {}
    for name in ("defaults", "vars"):
        found |= _read(root / "roles" / role / name / "main.yml") or {}
    return found


def units_of(role: str) -> set[str]:
    """The units that a role enables: it starts them itself, with its settings in place.

    Where it names one by a template, all that its constants name count: the host may say which.
    """
    found = set[str]()
    for step in steps(role):
        asked = step.task.get(UNIT_MODULE, {})
        if asked.get("enabled") is True:
            found |= set(UNIT.findall(asked["name"] if "{{" not in asked["name"] else str(values(step.role))))
    return found


def _file(
    root: Path, role: str, name: str, conditions: tuple[str, ...], around: Values, *, baked: bool
) -> Iterator[Step]:
    tasks = _read(root / "roles" / role / "tasks" / name)
    yield from _tasks(root, role, tasks, conditions, around, baked=baked)


def _tasks(
    root: Path, role: str, tasks: Any, conditions: tuple[str, ...], around: Values, *, baked: bool
) -> Iterator[Step]:
    for task in tasks or ():
        met = (*conditions, *map(str, _listed(task.get("when"))))
        given = {**around, **(task.get("vars") or {})}
        chosen = baked or TAG in _listed(task.get("tags"))
        key = next((key for key in task if key.rpartition(".")[2] in (*STATIC, *DYNAMIC)), None)
        if "block" in task:
            for part in BLOCK:
                yield from _tasks(root, role, task.get(part), met, given, baked=chosen)
        elif key is None:
            yield Step(role, task, met, given, chosen)
        elif key.endswith(STATIC) or chosen:  # an include without the tag brings nothing that is baked
            inner, name = _target(role, task[key])
            yield from _file(root, inner, name, met, given, baked=chosen and key.endswith(STATIC))


def _target(role: str, named: Any) -> tuple[str, str]:
    """Role and file that an import or an include names."""
    if isinstance(named, str):
        return role, named
    if "name" in named:
        return str(named["name"]), str(named.get("tasks_from", "main.yml"))
    return role, str(named["file"])


def _listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def words_in(value: Any) -> set[str]:
    """Every word in a value's texts that may be a variable's name."""
    if isinstance(value, Mapping):
        return {word for item in (*value, *value.values()) for word in words_in(item)}
    if isinstance(value, list | tuple):
        return {word for item in value for word in words_in(item)}
    return set(WORD.findall(value)) if isinstance(value, str) else set()


@cache
def _read(path: Path) -> Any:
    return yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader) if path.is_file() else None
