"""The tasks of a role, as Ansible comes to them: with what stands around each.

Those with the tag `bake` are baked into images. A task has it where a block or a static import around it has.
What a dynamic include brings runs only where the include has the tag as well.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from infra import ROOT

TAG = "bake"
BLOCK = ("block", "rescue", "always")
STATIC = ("import_tasks", "import_role")
DYNAMIC = ("include_tasks", "include_role")
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
    around: tuple[Values, ...] = ()
    """What else blocks and includes say of it: loops, who it runs as, where."""

    @property
    def content(self) -> dict[str, Any]:
        """All that decides what the task does, but for variables; its name decides nothing."""
        return _keywords(self.task) | {"when": self.conditions, "around": self.around}

    @property
    def module(self) -> str:
        """The task's module: the key that no keyword of tasks is."""
        return next((key for key in self.task if "." in key or key.startswith("causeway_")), "")


def steps(role: str, root: Path = ROOT) -> tuple[Step, ...]:
    """Every task that a role may come to, in order, those of helper roles among them.

    Not those of a file that a template names.
    """
    return tuple(_file(root, role, "main.yml", _Met()))


def values(role: str, root: Path = ROOT) -> dict[str, Any]:
    """A role's defaults and constants."""
    found: dict[str, Any] = {}
    for name in ("defaults", "vars"):
        found |= read_yaml(root / "roles" / role / name / "main.yml") or {}
    return found


@dataclass(frozen=True)
class _Met:
    """What stands around a task. `baked` is None where nothing can be."""

    conditions: tuple[str, ...] = ()
    values: Values = field(default_factory=dict)
    around: tuple[Values, ...] = ()
    baked: bool | None = False

    def within(self, task: Values) -> "_Met":
        """The same, of what stands in TASK."""
        conditions = (*self.conditions, *map(str, _listed(task.get("when"))))
        baked = None if self.baked is None else self.baked or TAG in _listed(task.get("tags"))
        return _Met(conditions, {**self.values, **(task.get("vars") or {})}, self.around, baked)


def _file(root: Path, role: str, name: str, met: _Met) -> Iterator[Step]:
    yield from _tasks(root, role, read_yaml(root / "roles" / role / "tasks" / name), met)


def _tasks(root: Path, role: str, tasks: Any, met: _Met) -> Iterator[Step]:
    for task in tasks or ():
        inner = met.within(task)
        key = next((key for key in task if key.rpartition(".")[2] in (*STATIC, *DYNAMIC)), None)
        if "block" not in task and key is None:
            yield Step(role, task, inner.conditions, inner.values, bool(inner.baked), inner.around)
            continue
        if around := _keywords(task):
            inner = replace(inner, around=(*inner.around, around))
        for part in BLOCK:
            yield from _tasks(root, role, task.get(part), inner)
        if key is not None:
            if not (key.endswith(STATIC) or inner.baked):  # without the tag it brings nothing that is baked
                inner = replace(inner, baked=None)
            elif not key.endswith(STATIC):
                inner = replace(inner, baked=False)
            yield from _file(root, *_target(role, task[key]), inner)


def _keywords(task: Values) -> dict[str, Any]:
    """What a task, block or include says beside its name, tags, condition, variables and what it holds."""
    left = ("name", "tags", "when", "vars", *BLOCK)
    return {key: value for key, value in task.items() if key not in left}


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
    return {word for text in texts_in(value) for word in WORD.findall(text)}


def texts_in(value: Any) -> Iterator[str]:
    """Every text in a value, keys among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in (*value, *value.values()) if isinstance(value, Mapping) else value:
            yield from texts_in(item)


def tasks_in(content: Any) -> Iterator[Values]:
    """The tasks of one file as it was read, those in blocks among them; what it includes is not followed."""
    for task in content or ():
        if "block" in task:
            for part in BLOCK:
                yield from tasks_in(task.get(part))
        else:
            yield task


def read_yaml(path: Path) -> Any:
    """A file of ours; None where there is none."""
    return _parsed(path, path.stat().st_mtime_ns) if path.is_file() else None


@cache
def _parsed(path: Path, _changed_ns: int) -> Any:
    return yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
