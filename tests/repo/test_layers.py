"""Imports run downwards only, and what only computes knows neither Pulumi nor Ansible."""

import re

import pytest

from infra.capabilities import capabilities
from tests.repo import layers

PICTURE = layers.ROOT / "docs" / "architecture.md"

KNOWN: dict[tuple[str, str], str] = {}
"""(module, what it imports) → why it still does. This list is to become empty."""


def test_imports_run_downwards() -> None:
    upward = {(found.module, found.imported): found.line for found in layers.upward()}
    new = [
        f"{module}:{line} imports {other}"
        for (module, other), line in upward.items()
        if (module, other) not in KNOWN
    ]
    assert not new


def test_known_violations_are_still_there() -> None:
    upward = {(found.module, found.imported) for found in layers.upward()}
    assert not {pair for pair in KNOWN if pair not in upward}, "take it off the list"


@pytest.mark.parametrize("layer", layers.PURE)
def test_what_only_computes_imports_no_tool(layer: str) -> None:
    tools = [
        f"{found.module}:{found.line} imports {found.imported}"
        for found in layers.imports()
        if layers.layer_of(found.module) == layer and found.imported.partition(".")[0] in layers.TOOLS
    ]
    assert not tools


def test_a_capability_reads_the_sections_alone_of_those_that_it_needs_or_uses() -> None:
    named = {one.name: {*one.needs, *one.uses} for one in capabilities()}
    strangers = [
        f"{found.module}:{found.line} imports {found.imported}"
        for found in layers.imports()
        if (own := capability_of(found.module)) and (other := capability_of(found.imported)) and own != other
        if found.imported != f"infra.capabilities.{other}.section" or other not in named[own]
    ]
    assert not strangers


def capability_of(module: str) -> str:
    """The capability that a module belongs to; empty for one that belongs to none."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["infra", "capabilities"] and len(parts) > 2 else ""


def test_every_layer_is_in_use() -> None:
    prefixes = [prefix for layer in layers.LAYERS.values() for prefix in layer]
    assert [prefix for prefix in prefixes if not layers.is_module(prefix)] == []


def test_the_picture_in_the_documentation_is_current() -> None:
    assert f"```\n{layers.table()}\n```" in PICTURE.read_text(), "python -m tests.repo.layers prints it"


def test_nobody_asks_a_provider_for_its_kind() -> None:
    """What follows from a provider are its traits: another one is not to be found in a dozen conditions."""
    asking = re.compile(r"provider\w*(\.kind)? (==|!=|in) [(\[]?\"|\.kind (==|!=) \"(local|existing)\"")
    found = [
        f"{path.relative_to(layers.ROOT)}:{number}"
        for path in sorted((layers.ROOT / "infra").rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if asking.search(line)
    ]
    assert found == []
