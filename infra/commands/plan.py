"""`causeway plan`: what would stand: addresses, host names, TCP settings, resources. Offline."""

import argparse
import json
import sys

from infra.checks import DeclarationError, load, require_valid
from infra.commands.arguments import add_declaration, declaration_file, stack_of
from infra.commands.check import problems_json
from infra.errors import ExitCode
from infra.planning.plan import make_plan
from infra.planning.report import plan_json, print_plan

WIDE = 200
"""Columns where the output is no terminal, so that a pipe or a log sees one line per pool."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_declaration(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Print the plan; warnings go to stderr, and a declaration with errors has no plan."""
    path = declaration_file(arguments)
    try:
        declaration = load(path)
        warnings = require_valid(declaration.spec, declaration.source)
    except DeclarationError as error:
        if not arguments.json:
            raise
        print(problems_json(str(path), list(error.problems)))
        return error.exit_code
    for warning in warnings:
        print(warning, file=sys.stderr)
    spec, plan, stack = declaration.spec, make_plan(declaration.spec), stack_of(path)
    if arguments.json:
        print(json.dumps(plan_json(spec, plan, stack), indent=1, ensure_ascii=False))
        return ExitCode.OK
    from rich.console import Console

    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else WIDE)
    print_plan(spec, plan, stack, console)
    return ExitCode.OK
