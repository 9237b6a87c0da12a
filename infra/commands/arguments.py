"""Arguments that several commands share, and what they mean."""

import argparse
import os
import re
from collections.abc import Iterable
from pathlib import Path

from infra import ROOT
from infra.errors import BadInputError
from infra.stack import check_stack

DEFAULT_STACK = "local"


def add_declaration(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """FILE or --stack: which declaration a command reads; `several`: or which ones."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "file",
        nargs="*" if several else "?",
        default=[] if several else None,
        metavar="FILE",
        help="a Pulumi.<stack>.yaml, or a file that holds the bare declaration",
    )
    which.add_argument(
        "--stack",
        type=check_stack,
        metavar="NAME",
        help=f"read Pulumi.NAME.yaml of the checkout (default: {DEFAULT_STACK})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON for programs")


def add_stack(parser: argparse.ArgumentParser) -> None:
    """STACK: which stack a command works on."""
    parser.add_argument(
        "stack", nargs="?", default=DEFAULT_STACK, type=check_stack, metavar="STACK", help="default: local"
    )


def require_known(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """BadInputError for the first of these names that is none of those that are known."""
    there = list(known)
    for name in names:
        if name not in there:
            raise BadInputError(f"no {what} {name}", hint=f"there are: {', '.join(there[:10])}")


def declaration_of(stack: str) -> Path:
    """A stack's declaration, named as short as it can be from where the user stands."""
    path = ROOT / f"Pulumi.{check_stack(stack)}.yaml"
    relative = os.path.relpath(path)
    return Path(relative) if not relative.startswith("..") else path


def declaration_file(arguments: argparse.Namespace) -> Path:
    """The file to read, named as short as it can be from where the user stands."""
    if arguments.file is not None:
        return _given(arguments.file)
    return declaration_of(arguments.stack if arguments.stack is not None else DEFAULT_STACK)


def declaration_files(arguments: argparse.Namespace) -> list[Path]:
    """The same where a command takes several."""
    if arguments.file:
        return [_given(name) for name in arguments.file]
    return [declaration_of(arguments.stack if arguments.stack is not None else DEFAULT_STACK)]


def _given(name: str) -> Path:
    if not name:
        raise BadInputError("the file's name is empty")
    return Path(name)


def stack_of(path: Path) -> str | None:
    """The stack a file belongs to: `local` of Pulumi.local.yaml; None for a bare declaration."""
    match = re.fullmatch(r"Pulumi\.(.+)\.ya?ml", path.name)
    return check_stack(match[1]) if match else None
