"""`causeway secret`: give a stack a secret that its declaration names, asked for or read from a pipe."""

import argparse
import getpass
import re
import sys
from pathlib import Path

from ruamel.yaml import YAML

from infra.commands.arguments import add_stack, declaration_of
from infra.errors import BadInputError, ExitCode
from infra.ground.rules.names import LABEL
from infra.pulumi_cli import only_one, require, select_stack


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("name", metavar="NAME", help="as the declaration has it, such as alerts-ops")
    add_stack(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Ask, encrypt it with the stack's key, and write it into the stack's file beside the declaration."""
    name, stack = arguments.name, arguments.stack
    if not LABEL.fullmatch(name) or name == "cluster":
        raise BadInputError(f"{name} cannot be a secret's name", hint="a-z, 0-9 and - inside")
    file = declaration_of(stack)
    if not file.exists():
        raise BadInputError(f"there is no {file}", hint="declare the stack there first")
    value = getpass.getpass(f"{name}: ") if sys.stdin.isatty() else sys.stdin.read().rstrip("\n")
    if not value.strip():
        raise BadInputError(f"the secret {name} is empty")
    if not _is_text(value):
        raise BadInputError(f"the secret {name} is not UTF-8 text", hint="what is read in has to be text")
    with only_one(stack):
        select_stack(stack, file)
        before = file.read_text()
        # It rewrites the whole file to add that: indentation and comments are the user's.
        require(["config", "set", "--secret", f"causeway:{name}", "--stack", stack], stdin=value)
        file.write_text(with_secret(before, name, _secure(file, name)) or file.read_text())
    print(f"{file} has the secret {name}, encrypted; ./run up {stack} hands it on")
    return ExitCode.OK


def _is_text(value: str) -> bool:
    """Python reads other bytes as halves of characters, which nobody can write again."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _secure(file: Path, name: str) -> str:
    config = YAML(typ="safe", pure=True).load(file.read_text())["config"]
    return str(config[f"causeway:{name}"]["secure"])


def with_secret(text: str, name: str, secure: str) -> str | None:
    """A stack's file with a secret in place; None where it is not written line by line under `config:`."""
    known = re.compile(rf"^( +)causeway:{re.escape(name)}:\s*\n\1 +secure: .*$", re.MULTILINE)
    if known.search(text):
        return known.sub(lambda found: _lines(found[1], name, secure), text, count=1)
    below = re.search(r"^config:[ \t]*(#.*)?\n((?:[ \t]*(?:#.*)?\n)*)( +)\S", text, re.MULTILINE)
    if below is None or f"causeway:{name}:" in text:
        return None
    at = below.start(3)
    return f"{text[:at]}{_lines(below[3], name, secure)}\n{text[at:]}"


def _lines(indent: str, name: str, secure: str) -> str:
    return f"{indent}causeway:{name}:\n{indent}  secure: {secure}"
