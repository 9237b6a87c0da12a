"""What `inventories/<stack>/` says beside the declaration: the user's own variables, hosts and groups.

Ansible lets them win. What they say of one role is no reason to run another one, so they are read here as far
as that needs it: which names a file sets, for which group or host.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra import ROOT
from infra.files import tree_hash, value_hash
from infra.ground.variable_files import KINDS, VariableFile, variable_files
from infra.inventory.steps import texts_in

TEMPLATE = ("{{", "{%")


@dataclass(frozen=True)
class File:
    """A file of variables: of which group or host, and name → value; None for what is no plain mapping."""

    of: str
    path: str
    values: dict[str, Any] | None
    text: str


@dataclass(frozen=True)
class Overrides:
    """All that a stack's folder of the inventory holds."""

    files: tuple[File, ...]
    others: str
    """One hash over everything else in the folder: a user's own hosts and groups."""

    def of(self, names: Collection[str], groups: Collection[str], known: Collection[str]) -> str:
        """One hash over what a host in GROUPS (its own name among them) is given under these NAMES.

        `known` are all groups and hosts: a file of another one may be of a group of the user's. One that is
        no plain mapping (a vault) counts whole; so does everything where a value is a template, which may
        ask for any variable.
        """
        files = [file for file in self.files if file.of in groups or file.of not in known]
        found = [(file, _under(file, names)) for file in files]
        if any(isinstance(values, dict) and _is_template(values) for _, values in found):
            found = [(file, file.text) for file in files]
        return value_hash([self.others, *([file.path, values] for file, values in found if values)])


def overrides(stack: str) -> Overrides:
    """Those of one stack."""
    folder = ROOT / "inventories" / stack
    files = tuple(_read(file, folder) for file in variable_files(folder))
    rest = sorted(path for path in folder.glob("*") if path.name not in KINDS)
    return Overrides(files, tree_hash(*(str(path.relative_to(ROOT)) for path in rest)))


def _read(file: VariableFile, folder: Path) -> File:
    text = file.path.read_text(errors="replace")
    try:
        values = yaml.load(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError:
        values = None
    values = {} if values is None and not text.strip("-\n ") else values
    whole = isinstance(values, dict) and all(isinstance(name, str) for name in values)
    return File(file.of, str(file.path.relative_to(folder)), values if whole else None, text)


def _under(file: File, names: Collection[str]) -> dict[str, Any] | str:
    if file.values is None:
        return file.text
    return {name: _plain(value) for name, value in file.values.items() if name in names}


def _plain(value: Any) -> Any:
    """As JSON can say it: dates and the like as text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def _is_template(value: Any) -> bool:
    return any(mark in text for text in texts_in(value) for mark in TEMPLATE)
