"""docs/declaration.md says what the models and rules say."""

from infra.checks import ALL_RULES, reference
from infra.checks.reference import PAGE
from infra.declaration.places import places


def test_page_is_current(update_golden: bool) -> None:
    if update_golden:
        PAGE.write_text(reference.page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    current = PAGE.read_text(encoding="utf-8")
    assert current == reference.page(current), "run python -m infra.checks.reference"


def test_every_field_and_rule_says_what_it_is() -> None:
    for model in places().values():
        undocumented = [name for name, field in model.model_fields.items() if not field.description]
        assert not undocumented, f"{model.__name__}: {undocumented}"
    for rule in ALL_RULES:
        assert type(rule).__doc__
        assert rule.check.__doc__
