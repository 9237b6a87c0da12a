"""Is a declaration usable? Reading it, typing it, and the rules across its objects; all errors at once."""

from infra.checks.given import check_given
from infra.checks.load import Declaration, load, load_spec
from infra.checks.overrides import check_overrides
from infra.checks.rules import ALL_RULES, check, require_valid
from infra.checks.schema import parse_spec
from infra.ground.problem import DeclarationError, Problem, Source

__all__ = [
    "ALL_RULES",
    "Declaration",
    "DeclarationError",
    "Problem",
    "Source",
    "check",
    "check_given",
    "check_overrides",
    "load",
    "load_spec",
    "parse_spec",
    "require_valid",
]
