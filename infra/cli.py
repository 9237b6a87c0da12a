"""`causeway`: the commands around `pulumi` and `ansible-playbook`, by name.

Exit codes: 0 ok, 1 failed, 2 bad input, 3 drift found.
"""

import argparse
import ast
import gc
import importlib
import io
import os
import sys
import tomllib
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from infra import CHECKOUT, PACKAGE
from infra.errors import CausewayError, ExitCode

COMMANDS: dict[str, tuple[str, str]] = {
    "check": ("infra.commands.check", "validate a declaration, offline"),
    "plan": ("infra.commands.plan", "show what a declaration would make, offline"),
    "schema": ("infra.commands.schema", "print the JSON Schema of declarations, for editors"),
    "init": ("infra.commands.init", "write the declaration of machines you have, from a list of them"),
    "doctor": ("infra.commands.doctor", "look at machines you have before anything is changed there"),
    "up": ("infra.commands.up", "stand a stack up, and show what stands"),
    "down": ("infra.commands.down", "take a stack away, with all that it made"),
    "secret": ("infra.commands.secret", "give a stack a secret that its declaration names"),
    "sudo": ("infra.commands.sudo", "ask once for what sudo on machines asks for, and run a command"),
    "forget": ("infra.commands.forget", "take nodes that are gone for good out of the others' memory"),
    "image": ("infra.commands.image", "bake the roles of a pool into an image; list and remove images"),
    "drift": ("infra.commands.drift", "compare every node with what the roles made true"),
}
"""Name → (module with `add_arguments` and `run`, one line of help). Modules are imported on demand."""
ROOMS = PACKAGE / "capabilities"
ELSEWHERE = "clone Causeway's repository, and call there: ./run exec causeway"


def all_commands() -> dict[str, tuple[str, str]]:
    """Those above and the capabilities': each module `commands` or `commands_…` says `COMMAND, SUMMARY`.

    They are read, not imported: what one command needs is no other's business.
    """
    found = dict(COMMANDS)
    for file in sorted(ROOMS.glob("*/commands*.py")):
        name, summary = _said(file)
        if name in found:
            raise ValueError(f"two commands {name}: {found[name][0]}, {file}")
        found[name] = (f"infra.capabilities.{file.parent.name}.{file.stem}", summary)
    return found


def _said(file: Path) -> tuple[str, str]:
    for statement in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "(COMMAND, SUMMARY)":
            name, summary = ast.literal_eval(statement.value)
            return str(name), str(summary)
    raise ValueError(f"{file} says no COMMAND, SUMMARY")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Errors a user can act on are printed, not raised."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name in the file may hold what a terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(words)
        sys.stdout.flush()
    except CausewayError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return ExitCode.FAILED
    except BrokenPipeError:  # `causeway plan | head`: the reader has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    return code


def _run(words: list[str]) -> int:
    known = COMMANDS if words and words[0] in COMMANDS else all_commands()
    if not words or words[0] not in known:
        _main_parser().parse_args(words)  # ends the program: help, or what is wrong with the words
        raise AssertionError("argparse lets only known commands pass")
    name, (module_name, summary) = words[0], known[words[0]]
    parser = argparse.ArgumentParser(prog=f"causeway {name}", description=summary)
    module = _module(name, module_name)
    module.add_arguments(parser)
    return int(module.run(parser.parse_args(words[1:])))


def _module(name: str, where: str) -> Any:
    """A command's module. Without a checkout those work that need no stack, and say `OFFLINE = True`."""
    gc.disable()  # what is loaded stays to the end: Python would look through it for rubbish again and again
    try:
        module = importlib.import_module(where)
    except ModuleNotFoundError:
        if CHECKOUT:
            raise
        module = None
    finally:
        gc.freeze()
        gc.enable()
    if CHECKOUT or getattr(module, "OFFLINE", False):
        return module
    raise CausewayError(
        f"`causeway {name}` works on a stack, for which a checkout is needed:"
        " pip has installed what checks and plans",
        hint=f"{ELSEWHERE} {name}",
    )


def _main_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="causeway", description="GPU-cluster regions as code.")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    parser.add_argument(
        "--completion",
        action=_Completion,
        choices=("bash", "zsh"),
        help="print a script that a shell sources",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (_, summary) in all_commands().items():
        commands.add_parser(name, help=summary)
    return parser


class _Version(argparse.Action):
    """Reads the version where it stands, and only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        if CHECKOUT:
            project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
            version = project["version"]
        else:
            version = metadata.version("causeway")
        print(f"causeway {version}")
        parser.exit()


class _Completion(argparse.Action):
    """Imports every command, for their arguments."""

    def __call__(self, parser: argparse.ArgumentParser, _: object, shell: Any, __: object = None) -> None:
        if not CHECKOUT:
            raise CausewayError("completion needs a checkout", hint=f"{ELSEWHERE} --completion {shell}")
        from infra.completion import script

        (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        for name, (module, _) in all_commands().items():
            importlib.import_module(module).add_arguments(commands.choices[name])
        print(script(parser, shell))
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
