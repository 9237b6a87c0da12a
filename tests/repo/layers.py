"""Who imports whom in `infra/`, in layers: imports run downwards only.

python -m tests.repo.layers    → a table: a row imports the columns that are marked
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

LAYERS: dict[str, tuple[str, ...]] = {
    "commands": ("infra.commands", "infra.cli"),
    "plugins": ("infra.plugins",),
    "components": ("infra.components",),
    "images": ("infra.images",),
    "providers": ("infra.providers",),
    "doctor": ("infra.doctor",),
    "converge": ("infra.converge",),
    "drift": ("infra.drift",),
    "verify": ("infra.verify",),
    "inventory": ("infra.inventory",),
    "planning": ("infra.planning",),
    "intake": ("infra.intake",),
    "checks": ("infra.checks",),
    "capabilities": ("infra.capabilities",),
    "ground": ("infra.ground",),
    "declaration": ("infra.declaration",),
    "basis": ("infra",),
}
"""Layer → the modules and packages in it, the highest layer first. The longest name that fits counts."""
IN_ROOMS = {"resources": "components", "commands": "commands"}
"""Modules of a capability that are in a higher layer than the rest of it, with what follows a `_`."""
PURE = ("declaration", "ground", "capabilities", "checks", "planning", "intake")
"""Layers that import neither Pulumi nor Ansible."""
TOOLS = ("pulumi", "ansible", "ansible_runner", "ansible_mitogen")


class Import(NamedTuple):
    """One module of ours or of others, as one of ours imports it."""

    module: str
    imported: str
    line: int


def imports() -> Iterator[Import]:
    """Every import below `infra/`, also those inside functions and under TYPE_CHECKING."""
    for path in sorted((ROOT / "infra").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (Import(module, name.name, node.lineno) for name in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from (Import(module, name, node.lineno) for name in _modules(node))


def _modules(node: ast.ImportFrom) -> Iterator[str]:
    """The modules an import names: `from infra.ground import addresses` names `infra.ground.addresses`."""
    package = node.module or ""
    names = [f"{package}.{name.name}" for name in node.names]
    yield from (name if is_module(name) else package for name in names)


def is_module(name: str) -> bool:
    """Whether a dotted name is a module or a package of this checkout."""
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def layer_of(module: str) -> str:
    """The layer that a module is in. KeyError for a module of others."""
    if module.startswith("infra.capabilities.") and (
        own := IN_ROOMS.get(module.rpartition(".")[2].partition("_")[0])
    ):
        return own
    fits = {
        prefix: layer
        for layer, prefixes in LAYERS.items()
        for prefix in prefixes
        if module == prefix or module.startswith(f"{prefix}.")
    }
    return fits[max(fits, key=len, default="")]


def is_ours(module: str) -> bool:
    """Whether a module is part of the product."""
    return module.partition(".")[0] == "infra"


def upward() -> list[Import]:
    """The imports of a module that is in a higher layer than the one that imports it."""
    order = list(LAYERS)
    return [
        found
        for found in imports()
        if is_ours(found.imported)
        and order.index(layer_of(found.imported)) < order.index(layer_of(found.module))
    ]


def table() -> str:
    """Layers by layers: `x` where the row imports the column, `^` where that is upwards."""
    order = list(LAYERS)
    known = {(layer_of(one.module), layer_of(one.imported)) for one in imports() if is_ours(one.imported)}
    width = max(map(len, order))
    lines = [" " * (width + 5) + " ".join(f"{number:2}" for number in range(1, len(order) + 1))]
    for row, layer in enumerate(order):
        marks = [_mark(row, column, (layer, other) in known) for column, other in enumerate(order)]
        lines.append(f"{row + 1:2} {layer:<{width}}  " + " ".join(f"{mark:>2}" for mark in marks))
    return "\n".join(line.rstrip() for line in lines)


def _mark(row: int, column: int, imported: bool) -> str:
    if row == column:
        return "·"
    return ("^" if column < row else "x") if imported else ""


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
