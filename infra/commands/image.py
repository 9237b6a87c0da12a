"""`causeway image`: bakes the roles of a pool into an image, rolls it out, and shows and removes images."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from infra.checks import load, require_valid
from infra.commands import up
from infra.commands.arguments import DEFAULT_STACK, declaration_of
from infra.components import replacing
from infra.components.access_key import SshKeyLifecycle
from infra.components.holding import consent
from infra.components.inventory_files import standing_contract
from infra.declaration import ClusterSpec
from infra.errors import BadInputError, CausewayError, ExitCode
from infra.ground import ssh
from infra.ground.contract import Contract
from infra.ground.endpoint import HostSet
from infra.images import build, disk, netboot
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from infra.providers.local import baked, signing, vm_image
from infra.providers.local.baked import Baked
from infra.pulumi_cli import only_one
from infra.stack import check_stack

GIB = 1024**3
CONSOLE = "ttyS0,115200n8"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    commands = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    built = commands.add_parser("build", help="build a pool's image where it is missing")
    _add_pool(built)
    built.add_argument("--again", action="store_true", help="build it once more, and show what differs")
    rolled = commands.add_parser("rollout", help="show which standing nodes are made from anything else")
    _add_pool(rolled)
    rolled.add_argument(
        "--replace", action="store_true", help="make them anew from it, drained first; their disks are lost"
    )
    rolled.add_argument(
        "--at-once", type=_count, default=1, metavar="N", help="nodes that are away together (default: 1)"
    )
    exported = commands.add_parser("export", help="write what a machine boots a pool's image from by network")
    _add_pool(exported)
    _add_folder(exported)
    exported.add_argument("--url", required=True, help="where machines will find it: http://HOST/PATH")
    disked = commands.add_parser("disk", help="write a disk that boots a pool's image by UEFI")
    _add_pool(disked)
    _add_folder(disked)
    disked.add_argument(
        "--format", choices=disk.FORMATS, default=disk.FORMATS[0], help="of the disk's file (default: raw)"
    )
    disked.add_argument(
        "--console", default=CONSOLE, metavar="TTY", help=f"serial console (default: {CONSOLE})"
    )
    verified = commands.add_parser("verify", help="hold all of an image against what was signed")
    verified.add_argument("image", metavar="IMAGE")
    listed = commands.add_parser("list", help="the images, who uses them, and how old they are")
    listed.add_argument("--json", action="store_true", help="print JSON for programs")
    removed = commands.add_parser("remove", help="remove images that no node uses")
    removed.add_argument("image", nargs="+", metavar="IMAGE")
    pruned = commands.add_parser("prune", help="remove old images that no node uses")
    pruned.add_argument("--days", type=_days, default=30, metavar="N", help="older than this (default: 30)")


def _add_pool(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pool", metavar="POOL", help="REGION-POOL, as in tokyo-gpu")
    parser.add_argument(
        "--stack", type=check_stack, default=DEFAULT_STACK, metavar="NAME", help="default: local"
    )


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a new folder")
    parser.add_argument(
        "--key", type=Path, metavar="FILE", help="public key that gets in as root (default: the stack's)"
    )


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of nodes from 1 up")
    return int(text)


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = -1
    if not days >= 0:  # nor is nan
        raise argparse.ArgumentTypeError(f"{text!r} is no number of days from 0 up")
    return days


def run(arguments: argparse.Namespace) -> ExitCode:
    """Do what was asked for."""
    return COMMANDS[arguments.what](arguments) or ExitCode.OK


def _build(arguments: argparse.Namespace) -> ExitCode:
    contract = _contract(_spec(arguments.stack), arguments.stack)
    image = build.ensure(contract, arguments.pool, _say)
    packages, size_gib = len(image.manifest["packages"]), image.manifest["root"]["size_bytes"] / GIB
    print(f"image {image.name} of the pool {arguments.pool}: {packages} packages, {size_gib:.2f} GiB")
    for row in image.manifest.get("skew", ()):
        print(f"not as the node image's lists have it: {row['name']} {row['version']}, not {row['listed']}")
    print(f"root: sha256:{image.root}")
    print(f"manifest and bill of materials: {baked.folder(image.name)}")
    if not arguments.again:
        return ExitCode.OK
    differing = build.compare(contract, arguments.pool, _say)
    for line in differing:
        print(f"differs: {line}")
    print(f"{len(differing)} paths differ" if differing else "built again: equal in every byte")
    return ExitCode.FAILED if differing else ExitCode.OK


def _roll_out(arguments: argparse.Namespace) -> ExitCode:
    """Make nodes anew, a few at a time, each few up and verified before the next ones go."""
    pool, stack = arguments.pool, arguments.stack
    spec = _spec(stack)
    declared, contract = _contract(spec, stack), standing_contract(stack)
    image = replacing.image_of(declared, pool)
    of_pool = HostSet(pools=(pool,))
    if contract is None or contract.members(of_pool) != declared.members(of_pool):
        raise BadInputError(
            f"{pool} does not stand as it is declared", hint=f"./run up {stack} first, then roll out"
        )
    todo = replacing.of_others(contract, pool, image)
    if not todo:
        print(f"all nodes of {pool} that stand are made from image {image.name}")
        return ExitCode.OK
    print(f"not made from image {image.name}: {', '.join(todo)}")
    if not arguments.replace:
        print("--replace makes them anew: what others can take over they take over first, all else on their")
        print("disks is lost; each is up and verified before the next one goes")
        return ExitCode.OK
    with baked.in_use(image.name):  # also while no node is made from it, between one that goes and the next
        _make_anew(arguments, spec, contract, image, todo)
    print(f"all {len(todo)} nodes are made anew, from image {image.name}")
    return ExitCode.OK


def _make_anew(
    arguments: argparse.Namespace, spec: ClusterSpec, contract: Contract, image: Baked, todo: list[str]
) -> None:
    pool, stack = arguments.pool, arguments.stack
    baked.require_whole(image)
    if contract.pools[pool].node_kind == "vm":  # what may fail, fails while every node still stands
        vm_image.ensure_image(_say, image)
    for first in range(0, len(todo), arguments.at_once):
        going = todo[first : first + arguments.at_once]
        print(f"anew: {', '.join(going)} ({first} of {len(todo)} done)", flush=True)
        with only_one(stack):
            replacing.take_away(contract, going, consent(spec))
        up.stand_up(stack)
        replacing.require_made_from(standing_contract(stack) or contract, pool, image, going)


def _export(arguments: argparse.Namespace) -> None:
    pool, folder = arguments.pool, arguments.folder.absolute()
    image, key = _asked(arguments)
    netboot.export(image, folder, arguments.url, key, _say)
    print(f"image {image.name} of the pool {pool}, for machines that boot by network: {folder}")
    print(f"have a web server hand it out there, and iPXE run {arguments.url.rstrip('/')}/{netboot.IPXE}")


def _disk(arguments: argparse.Namespace) -> None:
    pool, folder = arguments.pool, arguments.folder.absolute()
    image, key = _asked(arguments)
    disk.export(image, folder, key, arguments.console, arguments.format, _say)
    print(f"image {image.name} of the pool {pool}, for machines that boot a disk by UEFI: {folder}")
    print("its root grows to the disk that it is written to, at the machine's first boot")


def _asked(arguments: argparse.Namespace) -> tuple[baked.Baked, str]:
    """The image that a form is asked of, and the public key that is to get in."""
    stack = arguments.stack
    key = arguments.key or SshKeyLifecycle.path(stack).with_suffix(".pub")
    text = key.read_text(errors="replace") if key.is_file() else ""
    if len(text.splitlines()) != 1 or not ssh.PUBLIC_KEY.match(text):
        raise BadInputError(
            f"{key} holds no public key, one line as in `ssh-ed25519 AAAA…`",
            hint=f"causeway doctor {stack} makes the stack's own; --key names another one",
        )
    return replacing.image_of(_contract(_spec(stack), stack), arguments.pool), text


def _verify(arguments: argparse.Namespace) -> None:
    name = arguments.image
    _require(name)
    stored = next((one for one in baked.stored() if one.name == name), None)
    if stored is None:
        raise CausewayError(f"podman has not the root of image {name}", hint="build it again")
    with baked.in_use(name):
        baked.require_whole(stored)
    print(f"image {name} is what was signed by the key of {signing.public_file()}")


def _require(name: str) -> None:
    if not baked.folder(name).is_dir():
        raise BadInputError(f"there is no image {name}", hint="causeway image list shows them")


def _spec(stack: str) -> ClusterSpec:
    declaration = load(declaration_of(stack))
    for warning in require_valid(declaration.spec, declaration.source):
        print(warning, file=sys.stderr)
    return declaration.spec


def _contract(spec: ClusterSpec, stack: str) -> Contract:
    """The contract as the declaration has it now: no node need stand."""
    return build_contract(spec, make_plan(spec), stack)


def _list(arguments: argparse.Namespace) -> None:
    images = baked.stored()
    if arguments.json:
        rows = [
            {"image": one.name, "pool": one.pool, "root": one.root, "age_days": one.age_days}
            | {"signed": one.signed, "users": baked.users(one.name)}
            for one in images
        ]
        print(json.dumps(rows, indent=1))
        return
    table = Table("image", "pool", "days old", "GiB", "packages", "signed", "nodes made from it", box=None)
    for one in images:
        size_gib = one.manifest["root"]["size_bytes"] / GIB
        row = (
            *(f"{one.age_days:.1f}", f"{size_gib:.2f}", str(len(one.manifest["packages"]))),
            "yes" if one.signed else "no",
        )
        table.add_row(one.name, one.pool, *row, ", ".join(baked.users(one.name)) or "–")
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    for name, age_days in baked.no_use():
        print(f"{name} is no whole image any more, {age_days:.1f} days old: `image remove` takes it away")


def _remove(arguments: argparse.Namespace) -> None:
    for name in arguments.image:
        _require(name)
        baked.remove(name)
        print(f"image {name} is removed")


def _prune(arguments: argparse.Namespace) -> None:
    """One that is in the way of none of the others: who is using it says so."""
    for name, age_days in [(one.name, one.age_days) for one in baked.stored()] + baked.no_use():
        if age_days > arguments.days and not baked.users(name):
            try:
                baked.remove(name)
            except BadInputError as error:
                print(f"image {name} stays: {error.message}")
            else:
                print(f"image {name} is removed: {age_days:.0f} days old, and no node uses it")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


COMMANDS: dict[str, Callable[[argparse.Namespace], ExitCode | None]] = {
    "build": _build,
    "rollout": _roll_out,
    "export": _export,
    "disk": _disk,
    "verify": _verify,
    "list": _list,
    "remove": _remove,
    "prune": _prune,
}
