"""All kinds, found by listing the files that have them: those of this folder, and of the roles' `drift/`."""

import importlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from infra import ROOT
from infra.drift.kind import Kind, Recorder
from infra.drift.probe import LOOKS
from infra.errors import CausewayError


def kind_files(root: Path = ROOT) -> list[Path]:
    """The files that have kinds, everybody's first."""
    own = sorted(root.glob("infra/drift/kinds/[!_]*.py"))
    return own + sorted(root.glob("roles/*/drift/[!_]*.py"))


def _found() -> dict[str, Kind]:
    """Name → kind. CausewayError where two files have the same one."""
    found: dict[str, tuple[Kind, Path]] = {}
    for file in kind_files():
        path = file.relative_to(ROOT)
        for kind in importlib.import_module(".".join(path.with_suffix("").parts)).KINDS:
            if kind.name in found:
                raise CausewayError(f"{path} and {found[kind.name][1]} both have the kind {kind.name}")
            found[kind.name] = kind, path
    return {name: kind for name, (kind, _path) in sorted(found.items())}


def _recorders() -> Iterator[tuple[str, Recorder]]:
    seen: dict[str, str] = {}
    for name, kind in KINDS.items():
        for module, recorder in kind.modules.items():
            if module in seen:
                raise CausewayError(f"the kinds {name} and {seen[module]} both record tasks of {module}")
            seen[module] = name
            yield module, recorder


KINDS: Mapping[str, Kind] = _found()
"""Name → kind."""
MODULES: Mapping[str, Recorder] = dict(_recorders())
"""Resolved module name → what records it. Anything else governs what its result says under `governs`."""
FOLLOWING = [kind for kind in KINDS.values() if type(kind).following is not Kind.following]
"""Kinds of which something follows from claims of others."""
LOOKS.update((name, kind.look) for name, kind in KINDS.items() if kind.look)


def kind_of(name: str, key: str = "") -> Kind:
    """The kind of a thing; one that says nothing of itself where an older or newer version sealed it."""
    return KINDS.get(f"{name} {key}") or KINDS.get(name) or Kind(name, None, {})


def named_kinds(things: Iterable[tuple[str, str]]) -> set[str]:
    """The names in `KINDS` by which things (kind and key) are looked at."""
    return KINDS.keys() & {name for kind, key in things for name in (kind, f"{kind} {key}")}


def known_keys(things: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Kind → keys, of those things (kind and key) of whose kind a look has to know them all."""
    known: dict[str, list[str]] = {}
    for name, key in things:
        if kind_of(name, key).knows_others:
            known.setdefault(name, []).append(key)
    return known
