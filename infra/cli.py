"""`causeway`: the commands around `pulumi` and `ansible-playbook`, by name.

Exit codes: 0 ok, 1 failed, 2 bad input, 3 drift found.
"""

import argparse
import importlib
import io
import os
import sys
import tomllib
from collections.abc import Sequence
from typing import Any

from infra import ROOT
from infra.errors import CausewayError, ExitCode

COMMANDS: dict[str, tuple[str, str]] = {
    "check": ("infra.commands.check", "validate a declaration, offline"),
    "plan": ("infra.commands.plan", "show what a declaration would make, offline"),
    "schema": ("infra.commands.schema", "print the JSON Schema of declarations, for editors"),
    "up": ("infra.commands.up", "stand a stack up, and show what stands"),
    "down": ("infra.commands.down", "take a stack away, with all that it made"),
    "drift": ("infra.commands.drift", "compare every node with what the roles made true"),
    "switch": ("infra.commands.switch", "join a planned switch configuration with a switch's own, offline"),
    "wan": ("infra.commands.wan", "measure the WAN links of a standing stack"),
}
"""Name → (module with `add_arguments` and `run`, one line of help). Modules are imported on demand."""


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
    name, rest = (words[0], words[1:]) if words and words[0] in COMMANDS else ("", words)
    if not name:
        _main_parser().parse_args(rest)  # ends the program: help, or what is wrong with the words
        raise AssertionError("argparse lets only known commands pass")
    parser = argparse.ArgumentParser(prog=f"causeway {name}", description=COMMANDS[name][1])
    module = _module(name)
    module.add_arguments(parser)
    return int(module.run(parser.parse_args(rest)))


def _module(name: str) -> Any:
    return importlib.import_module(COMMANDS[name][0])


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
    for name, (_, summary) in COMMANDS.items():
        commands.add_parser(name, help=summary)
    return parser


class _Version(argparse.Action):
    """Reads the version where it stands, and only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        print(f"{project['name']} {project['version']}")
        parser.exit()


class _Completion(argparse.Action):
    """Imports every command, for their arguments."""

    def __call__(self, parser: argparse.ArgumentParser, _: object, shell: Any, __: object = None) -> None:
        from infra.completion import script

        (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        for name, command in commands.choices.items():
            _module(name).add_arguments(command)
        print(script(parser, shell))
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
