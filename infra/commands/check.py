"""`causeway check`: is the declaration usable? Offline; everything that is wrong, at once."""

import argparse
import json
from pathlib import Path

from infra.checks import DeclarationError, Problem, check, check_given, check_overrides, load
from infra.commands.arguments import add_declaration, declaration_files, stack_of
from infra.declaration import ClusterSpec
from infra.errors import BadInputError, ExitCode

OFFLINE = True
"""It needs no stack: where pip has installed the package alone, it works, too."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_declaration(parser, several=True)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Print every problem of every file, and a summary of each; BAD_INPUT when one of them is an error."""
    paths = declaration_files(arguments)
    if arguments.json and len(paths) > 1:
        raise BadInputError("--json reports on one file", hint="call it once for each")
    codes = [_check(path, as_json=arguments.json) for path in paths]
    return max(codes)


def _check(path: Path, *, as_json: bool) -> ExitCode:
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
    if as_json:
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
