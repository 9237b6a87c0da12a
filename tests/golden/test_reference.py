"""docs/declaration.md says what the models and rules say."""

from collections.abc import Iterator
from typing import Any

import pytest

from infra.checks import ALL_RULES, reference
from infra.checks.reference import PAGE
from infra.declaration import CephSpec, SwitchSpec
from infra.declaration.acceptance import PoolAcceptanceSpec
from infra.declaration.base import Spec
from infra.declaration.described import described
from infra.declaration.monitoring import WebhookReceiver
from infra.declaration.places import places
from infra.declaration.reliability import CheckpointTierSpec, ReliabilitySpec
from infra.declaration.storage import ErasureSpec

BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")


def test_page_is_current(update_golden: bool) -> None:
    if update_golden:
        PAGE.write_text(reference.page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    current = PAGE.read_text(encoding="utf-8")
    assert current == reference.page(current), "run python -m infra.checks.reference"


def test_every_field_and_rule_says_what_it_is() -> None:
    for model in places().values():
        undocumented = [name for name in model.model_fields if not described(model, name)]
        assert not undocumented, f"{model.__name__}: {undocumented}"
    for rule in ALL_RULES:
        assert type(rule).__doc__
        assert rule.check.__doc__


@pytest.mark.parametrize(
    ("model", "field", "said"),
    [
        (ErasureSpec, "m", ("", "*required*", "whole number: at least 1, at most 16")),
        (SwitchSpec, "cable_m", ("m", "`40`", "number: more than 0, at most 2000")),
        (ReliabilitySpec, "job_nodes", ("", "none", "whole number: at least 1, at most 1000000")),
        (ReliabilitySpec, "availability_target_pct", ("%", "`99`", "number: more than 0, less than 100")),
        (CheckpointTierSpec, "write_gib_s", ("GiB/s", "none", "number: more than 0, at most 1000000000")),
        (PoolAcceptanceSpec, "nvme_read_mbps", ("MB/s", "none", "number: more than 0, at most 1000000")),
        (CephSpec, "encrypt_wire", ("", "`true`", "`true`, `false`")),
        (WebhookReceiver, "severities", ("", "`page`, `ticket`", "list of `page`, `ticket`")),
    ],
)
def test_a_row_has_unit_default_and_bounds(model: type[Spec], field: str, said: tuple[str, str, str]) -> None:
    row = next(line for line in reference.rows(model) if line.startswith(f"| `{field}` |"))
    assert tuple(cell.strip() for cell in row.split(" | "))[1:4] == said


def test_every_bound_of_a_field_is_said() -> None:
    for model in places().values():
        schema = model.model_json_schema()["properties"]
        for name, row in zip(model.model_fields, reference.rows(model), strict=True):
            bounds = bounds_of(schema[name])
            assert [limit for limit in bounds if f" {limit:.10g}" not in row] == [], (model, name)


def bounds_of(schema: Any) -> Iterator[float]:
    """What JSON Schema says of a field's number, or of the numbers in it."""
    yield from (schema[key] for key in BOUNDS if key in schema)
    for inner in (*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())):
        yield from bounds_of(inner)
