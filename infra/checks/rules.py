"""Rules across the objects of a declaration: one class a rule."""

from dataclasses import replace

from infra.capabilities import capabilities
from infra.checks.named_roles import ExcludedRolesAreSpared, LeaveNamesRoles, TakenOverIsAService
from infra.declaration import ClusterSpec
from infra.ground.problem import DeclarationError, Problem, Source
from infra.ground.rule import Rule
from infra.ground.rules import RULES

ALL_RULES: tuple[Rule, ...] = (
    *RULES,
    LeaveNamesRoles(),
    ExcludedRolesAreSpared(),
    TakenOverIsAService(),
    *(rule for one in capabilities() for rule in one.rules),
)


def check(spec: ClusterSpec, source: Source | None = None) -> list[Problem]:
    """Everything the rules have to say, errors and warnings, in the order of the file."""
    found = [
        replace(problem, rule=rule.id, severity=rule.severity)
        for rule in ALL_RULES
        for problem in rule.check(spec)
    ]
    return (source or Source()).sort(found)


def require_valid(spec: ClusterSpec, source: Source | None = None) -> list[Problem]:
    """The warnings of a declaration that may be built; DeclarationError with all findings otherwise."""
    problems = check(spec, source)
    if any(problem.severity == "error" for problem in problems):
        raise DeclarationError(problems)
    return problems


__all__ = ["ALL_RULES", "Rule", "check", "require_valid"]
