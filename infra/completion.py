"""Completion scripts for bash and zsh: commands, options, files, and the stacks of the checkout."""

import argparse
import shlex
from collections.abc import Iterator

import shtab

from infra import ROOT

STACKS = dict.fromkeys(("bash", "zsh"), "_causeway_stacks")
BY_METAVAR = {
    "FILE": shtab.FILE,
    "PLANNED": shtab.FILE,
    "OWN": shtab.FILE,
    "DIR": shtab.DIRECTORY,
    "STACK": STACKS,
    "NAME": STACKS,
}
"""What completes an argument, by the word that stands for it in the help."""
PREAMBLES = {
    "bash": """
_causeway_stacks() {
  local IFS=$'\\n'
  compgen -W "$(cd %s && ls Pulumi.*.yaml 2>/dev/null | sed 's/^Pulumi[.]//; s/[.]yaml$//')" -- "$1"
}
""",
    "zsh": """
_causeway_stacks() {
  local -a stacks=(%s/Pulumi.*.yaml(N:t))
  compadd -- ${${stacks#Pulumi.}%%.yaml}
}
""",
}


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script that a shell sources, for a parser with all its commands."""
    for action in _actions(parser):
        if action.choices is None and action.metavar in BY_METAVAR:
            action.complete = BY_METAVAR[str(action.metavar)]  # type: ignore[attr-defined] # shtab's own
    text: str = shtab.complete(parser, shell, preamble=PREAMBLES[shell] % shlex.quote(str(ROOT)))
    return text


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of a parser and of all its commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action
