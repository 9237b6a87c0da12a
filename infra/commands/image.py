"""`causeway image`: bakes the roles of a pool into an image, and shows, compares and removes images."""

import argparse
import json
import sys

from rich.console import Console
from rich.table import Table

from infra.checks import load, require_valid
from infra.commands.arguments import DEFAULT_STACK, declaration_of
from infra.errors import BadInputError, ExitCode
from infra.ground.contract import Contract
from infra.images import build
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from infra.providers.local import baked
from infra.stack import check_stack

GIB = 1024**3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    commands = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    built = commands.add_parser("build", help="build a pool's image where it is missing")
    built.add_argument("pool", metavar="POOL", help="REGION-POOL, as in tokyo-gpu")
    built.add_argument(
        "--stack", type=check_stack, default=DEFAULT_STACK, metavar="NAME", help="default: local"
    )
    built.add_argument("--again", action="store_true", help="build it once more, and show what differs")
    listed = commands.add_parser("list", help="the images, who uses them, and how old they are")
    listed.add_argument("--json", action="store_true", help="print JSON for programs")
    removed = commands.add_parser("remove", help="remove images that no node uses")
    removed.add_argument("image", nargs="+", metavar="IMAGE")
    pruned = commands.add_parser("prune", help="remove old images that no node uses")
    pruned.add_argument("--days", type=float, default=30, metavar="N", help="older than this (default: 30)")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Do what was asked for."""
    if arguments.what == "build":
        return _build(arguments)
    if arguments.what == "list":
        _list(as_json=arguments.json)
    elif arguments.what == "remove":
        for name in arguments.image:
            if not baked.folder(name).exists():
                raise BadInputError(f"there is no image {name}", hint="causeway image list shows them")
            baked.remove(name)
            print(f"image {name} is removed")
    else:
        for image in baked.stored():
            if image.age_days > arguments.days and not baked.users(image.name):
                baked.remove(image.name)
                print(f"image {image.name} is removed: {image.age_days:.0f} days old, and no node uses it")
    return ExitCode.OK


def _build(arguments: argparse.Namespace) -> ExitCode:
    contract = _contract(arguments.stack)
    image = build.ensure(contract, arguments.pool, _say)
    packages, size_gib = len(image.manifest["packages"]), image.manifest["root"]["size_bytes"] / GIB
    print(f"image {image.name} of the pool {arguments.pool}: {packages} packages, {size_gib:.2f} GiB")
    print(f"root: sha256:{image.root}")
    print(f"manifest and bill of materials: {baked.folder(image.name)}")
    if not arguments.again:
        return ExitCode.OK
    differing = build.compare(contract, arguments.pool, _say)
    for line in differing:
        print(f"differs: {line}")
    print(f"{len(differing)} paths differ" if differing else "built again: equal in every byte")
    return ExitCode.FAILED if differing else ExitCode.OK


def _contract(stack: str) -> Contract:
    """The contract as the declaration has it now: no node need stand."""
    declaration = load(declaration_of(stack))
    for warning in require_valid(declaration.spec, declaration.source):
        print(warning, file=sys.stderr)
    return build_contract(declaration.spec, make_plan(declaration.spec), stack)


def _list(*, as_json: bool) -> None:
    images = baked.stored()
    if as_json:
        rows = [
            {"image": one.name, "pool": one.pool, "root": one.root, "age_days": one.age_days}
            | {"users": baked.users(one.name)}
            for one in images
        ]
        print(json.dumps(rows, indent=1))
        return
    table = Table("image", "pool", "days old", "GiB", "packages", "nodes made from it", box=None)
    for one in images:
        size_gib = one.manifest["root"]["size_bytes"] / GIB
        row = (f"{one.age_days:.1f}", f"{size_gib:.2f}", str(len(one.manifest["packages"])))
        table.add_row(one.name, one.pool, *row, ", ".join(baked.users(one.name)) or "–")
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
