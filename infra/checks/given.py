"""Secrets that the user gives: whether the stack's configuration has them, and encrypted."""

from collections.abc import Mapping

from infra.capabilities import capabilities
from infra.declaration import ClusterSpec
from infra.ground.problem import Problem, Source
from infra.ground.rules.names import LABEL


def check_given(
    spec: ClusterSpec, config: Mapping[str, object] | None, stack: str | None, source: Source
) -> list[Problem]:
    """What is missing in a stack's configuration, or stands there for everybody to read.

    `config` is as the stack's file has it; a bare declaration has none (None), and nothing can be said.
    """
    if config is None:
        return []
    named = {path: name for one in capabilities() for path, name in one.given(spec).items()}
    return [
        source.locate(problem)
        for path, name in named.items()
        # What is no name may be the secret itself: rules say so, and nobody repeats it.
        if LABEL.fullmatch(name) and (problem := _problem(path, name, config, stack))
    ]


def _problem(path: str, name: str, config: Mapping[str, object], stack: str | None) -> Problem | None:
    key = f"causeway:{name}"
    command = f"./run exec causeway secret {name}" + (f" {stack}" if stack else "")
    hint = f"set it with `{command}`, which asks for it"
    if key not in config:
        return Problem(
            path, f"names the secret {name}, which the stack does not have", hint=hint, rule="given-secret"
        )
    value = config[key]
    if not (isinstance(value, Mapping) and set(value) == {"secure"}):
        message = f"names the secret {name}, which stands in the stack's file for everybody to read"
        return Problem(path, message, hint=f"take a new one, and {hint}", rule="given-secret")
    return None
