"""Where a user's own variables stand in `inventories/<stack>/`, as Ansible finds them."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from infra.files import files_below

KINDS = ("group_vars", "host_vars")
SUFFIXES = ("", ".yml", ".yaml", ".json")
"""Of files that Ansible takes variables from."""


class VariableFile(NamedTuple):
    """A file of `group_vars/<of>` or `host_vars/<of>`."""

    kind: str
    of: str
    """The group or host."""
    path: Path


def variable_files(inventory: Path) -> Iterator[VariableFile]:
    """Every file from which Ansible takes variables for a group or a host, in order of their paths."""
    for kind in KINDS:
        for path in files_below(inventory / kind):
            if path.suffix in SUFFIXES:
                first, *deeper = path.relative_to(inventory / kind).parts
                yield VariableFile(kind, first if deeper else first.removesuffix(path.suffix), path)
