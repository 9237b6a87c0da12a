"""`causeway check`: is the declaration usable? Offline; everything that is wrong, at once."""

import argparse
import json

from infra.checks import DeclarationError, Problem, check, check_given, check_overrides, load
from infra.commands.arguments import add_declaration, declaration_file, stack_of
from infra.declaration import ClusterSpec
from infra.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_declaration(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Print every problem and a summary; BAD_INPUT when one of them is an error."""
    path = declaration_file(arguments)
    spec: ClusterSpec | None = None
    try:
        declaration = load(path)
        spec = declaration.spec
        problems = check(spec, declaration.source)
        stack = stack_of(path)
        problems += check_given(spec, declaration.config, stack, declaration.source)
        if stack:
            problems += check_overrides(spec, path.parent / "inventories" / stack)
    except DeclarationError as error:
        problems = list(error.problems)
    if arguments.json:
        print(problems_json(str(path), problems))
    else:
        for problem in problems:
            print(problem)
        print(_summary(str(path), spec, problems))
    return ExitCode.BAD_INPUT if _errors(problems) else ExitCode.OK


def problems_json(file: str, problems: list[Problem]) -> str:
    """`{"ok", "file", "problems": […]}`, the shape in which every command reports a declaration."""
    findings = [problem.as_json() for problem in problems]
    report = {"ok": not _errors(problems), "file": file, "problems": findings}
    return json.dumps(report, indent=2, ensure_ascii=False)


def _errors(problems: list[Problem]) -> int:
    return sum(problem.severity == "error" for problem in problems)


def _summary(file: str, spec: ClusterSpec | None, problems: list[Problem]) -> str:
    errors = _errors(problems)
    counts = f"{_count(errors, 'error')}, {_count(len(problems) - errors, 'warning')}"
    if spec is None or errors:
        return f"{file}: {counts}"
    pools = [pool for region in spec.regions for pool in region.pools]
    parts = (
        _count(len(spec.regions), "region"),
        _count(len(pools), "pool"),
        _count(sum(pool.count for pool in pools), "node"),
        _count(len(spec.wan_links), "WAN link"),
    )
    return f"{file}: {', '.join(parts)}: {counts}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
