"""Whatever a number in a declaration is, it is refused in words or planned: no rule, no plan breaks of it."""

from collections.abc import Iterator
from typing import Any

import pytest

from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from tests.unit.texts import DECLARATIONS, Path, accepted, with_text

ODD = (-1, 0, 1, 3, 1e-300, 0.0004, 10**6, 10**30, 1e15, 1e308)
MOST_NODES = 1000
"""What is larger takes its time, and is planned like any other."""


def numbers(value: Any, path: Path = ()) -> Iterator[Path]:
    """The place of every number in a declaration, of those that differ by an index only the first."""
    seen = set[Path]()
    for place in _numbers(value, path):
        like = tuple(part for part in place if not isinstance(part, int))
        if like not in seen:
            yield place
        seen.add(like)


def _numbers(value: Any, path: Path) -> Iterator[Path]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from _numbers(value[key], (*path, key))


@pytest.mark.parametrize("name", DECLARATIONS)
def test_any_number_is_refused_in_words_or_planned(name: str) -> None:
    tree = DECLARATIONS[name]
    for place in numbers(tree):
        for odd in ODD:
            spec = accepted(with_text(tree, place, odd))
            if (
                spec is None
                or sum(pool.count for region in spec.regions for pool in region.pools) > MOST_NODES
            ):
                continue
            build_contract(spec, make_plan(spec), "s").model_dump_json()


def test_no_rule_reckons_with_what_another_one_refuses() -> None:
    """Of all GPU pools of a region: none of its nodes has GPUs, as far as one can tell."""
    tree = DECLARATIONS["machines"]
    for field in ("gpus", "count"):
        changed = tree
        for region, pool in ((0, 2), (1, 2)):
            changed = with_text(changed, ("regions", region, "pools", pool, field), -1)
        assert accepted(changed) is None
