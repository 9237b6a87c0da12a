"""`causeway plan`: what would stand: addresses, fabrics, TCP settings, resources. Offline."""

import argparse
import json
import sys
from itertools import chain
from pathlib import Path

from infra.capabilities.fabric import cabling, diagram, sonic
from infra.capabilities.fabric.capability import CAPABILITY as FABRIC
from infra.capabilities.fabric.topology import FabricPlan
from infra.checks import DeclarationError, check_given, load, require_valid
from infra.commands.arguments import add_declaration, declaration_file, stack_of
from infra.commands.check import problems_json
from infra.errors import BadInputError, CausewayError, ExitCode
from infra.ground.page import save
from infra.planning.plan import Plan, make_plan
from infra.planning.report import plan_json, plan_page, print_plan

WIDE = 200
"""Columns where the output is no terminal, so that a pipe or a log sees one line per pool."""

OFFLINE = True
"""It needs no stack: where pip has installed the package alone, it works, too."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_declaration(parser)
    parser.add_argument("--cables", action="store_true", help="print the cabling list of all fabrics, as CSV")
    parser.add_argument("--diagram", metavar="FILE", type=Path, help="draw the fabrics into FILE, as SVG")
    parser.add_argument(
        "--html", metavar="FILE", type=Path, help="write a page with the curves of what is planned"
    )
    parser.add_argument(
        "--switches", metavar="DIR", type=Path, help="write a config_db.json for each switch, as DIR/SWITCH/…"
    )


def run(arguments: argparse.Namespace) -> ExitCode:
    """Print the plan; warnings go to stderr, and a declaration with errors has no plan."""
    path = declaration_file(arguments)
    try:
        declaration = load(path)
        warnings = require_valid(declaration.spec, declaration.source)
        if missing := check_given(declaration.spec, declaration.config, stack_of(path), declaration.source):
            raise DeclarationError(missing)
    except DeclarationError as error:
        if not arguments.json:
            raise
        print(problems_json(str(path), list(error.problems)))
        return error.exit_code
    for warning in warnings:
        print(warning, file=sys.stderr)
    spec, plan, stack = declaration.spec, make_plan(declaration.spec), stack_of(path)
    if arguments.cables or arguments.diagram or arguments.switches:
        return _fabrics(arguments, plan)
    if arguments.html:
        _write_page(arguments.html, plan, spec.name)
        if not arguments.json:
            return ExitCode.OK
    if arguments.json:
        print(json.dumps(plan_json(spec, plan, stack), indent=1, ensure_ascii=False))
        return ExitCode.OK
    from rich.console import Console

    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else WIDE)
    print_plan(spec, plan, stack, console)
    return ExitCode.OK


def _write_page(path: Path, plan: Plan, cluster: str) -> None:
    """What the capabilities have to show, as one file."""
    text = plan_page(cluster, plan)
    if text is None:
        raise BadInputError("nothing that is declared has a page", hint="declare reliability")
    save(path, text)


def _fabrics(arguments: argparse.Namespace, plan: Plan) -> ExitCode:
    """The cabling list, the picture, the switches' configurations: what was asked for of the three."""
    fabrics = list((plan.of(FABRIC) or {}).values())
    if not fabrics:
        hint = "declare fabric in a region, and nics in its pools"
        raise BadInputError("no region has nodes on a fabric", hint=hint)
    try:
        if arguments.cables:
            cabling.write_csv(chain.from_iterable(map(cabling.cables, fabrics)), sys.stdout)
        if arguments.diagram:
            arguments.diagram.write_text(diagram.fabrics_svg(fabrics), encoding="utf-8")
        if arguments.switches:
            _write_switches(arguments.switches, fabrics)
    except OSError as error:
        raise CausewayError(f"{error.filename} cannot be written: {error.strerror}") from None
    return ExitCode.OK


def _write_switches(folder: Path, fabrics: list[FabricPlan]) -> None:
    written = 0
    for name, text in chain.from_iterable(map(sonic.switch_files, fabrics)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written += 1
    if not written:
        raise BadInputError("no fabric has a switch", hint="declare switch in the region's fabric")
    print(f"{written} switches in {folder}", file=sys.stderr)
