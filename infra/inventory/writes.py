"""Which files a role writes whole, told from its tasks: so no second list of them is kept.

Told are the files that a role may write anywhere: a condition is taken as met, and of a list that depends on
one every word counts. What only the node or another host decides, such as a tunnel's name, cannot be told.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, TemplateError, nodes

from infra import ROOT
from infra.inventory.steps import read_yaml, tasks_in, values

WHOLE = ("ansible.builtin.template", "ansible.builtin.copy", "causeway_artefact")
INCLUDES = ("ansible.builtin.include_role", "ansible.builtin.import_role")
EXPRESSION = re.compile(r"\s*\{\{(.*)\}\}\s*", re.DOTALL)
JINJA = Environment(undefined=StrictUndefined, autoescape=False)  # noqa: S701 - paths, shown to nobody's browser
JINJA.filters["dirname"] = lambda path: str(Path(path).parent)


@dataclass
class Written:
    """What a role writes whole; `untold`: destinations that depend on what is not known here."""

    files: set[str] = field(default_factory=set)
    untold: set[str] = field(default_factory=set)


@cache
def written_by(role: str, root: Path = ROOT) -> Written:
    """The files of one role, with those of the roles that it includes."""
    found = Written()
    _collect(root / "roles" / role, {}, found)
    return found


def _collect(folder: Path, given: Mapping[str, Any], found: Written) -> None:
    known = {**values(folder.name, folder.parents[1]), **given}
    for path in sorted([*folder.glob("tasks/**/*.yml"), *folder.glob("handlers/**/*.yml")]):
        for task in tasks_in(read_yaml(path)):
            for module in WHOLE:
                if isinstance(task.get(module), dict) and task.get("delegate_to") != "localhost":
                    _destinations(task, str(task[module].get("dest", "")), known, found)
            for module in INCLUDES:
                if module in task:
                    inner = {key: _plain(value, known) for key, value in task.get("vars", {}).items()}
                    _collect(folder.parent / str(task[module]["name"]), inner, found)


def _destinations(task: Mapping[str, Any], dest: str, values: Mapping[str, Any], found: Written) -> None:
    """A task's destination, once for every item of its loop."""
    items = _items(task.get("loop"), values)
    for item in [None] if items is None else items:
        path = _plain(dest, {**values, "item": item})
        if isinstance(path, str) and path.startswith("/") and "{{" not in path:
            found.files.add(path)
        else:
            found.untold.add(dest)


def _items(loop: Any, values: Mapping[str, Any]) -> list[Any] | None:
    """A loop's items: as written, or every word of the lists in its expression; None without a loop."""
    if loop is None:
        return None
    if isinstance(loop, list):
        return [_plain(item, values) for item in loop]
    if not (expression := EXPRESSION.fullmatch(str(loop))):
        return ["{{ item }}"]
    known = values.get(expression[1].strip())
    if isinstance(known, list):
        return [_plain(item, values) for item in known]
    lists = JINJA.parse(str(loop)).find_all(nodes.List)
    words = [item.value for each in lists for item in each.items if isinstance(item, nodes.Const)]
    return words or ["{{ item }}"]


def _plain(value: Any, values: Mapping[str, Any], depth: int = 5) -> Any:
    """A value without templates where they can be resolved, and as it is where they cannot."""
    if isinstance(value, dict):
        return {key: _plain(part, values, depth) for key, part in value.items()}
    if not isinstance(value, str) or "{{" not in value or not depth:
        return value
    try:
        done = JINJA.from_string(value).render(values)
    except (TemplateError, TypeError, ValueError, AttributeError):
        return value
    return _plain(done, values, depth - 1)
