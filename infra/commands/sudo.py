"""`causeway sudo`: ask once for what sudo on a stack's machines asks for, and run a command that needs it."""

import argparse
import signal
import subprocess

from infra.checks import load, require_valid
from infra.commands.arguments import declaration_of
from infra.errors import BadInputError
from infra.ground import sudo
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from infra.pulumi_cli import interrupts_go_to
from infra.stack import check_stack

ENDED_BY = 128
"""What a shell adds to the number of the signal that ended a command."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("stack", type=check_stack, metavar="STACK", help="whose machines are meant")
    parser.add_argument(
        "words", nargs="+", metavar="COMMAND", help="after --: what to run, with its arguments"
    )


def run(arguments: argparse.Namespace) -> int:
    """Ask, run the command and end as it does; the passwords are gone with this process."""
    declaration = load(declaration_of(arguments.stack))
    require_valid(declaration.spec, declaration.source)
    sudo.ready(build_contract(declaration.spec, make_plan(declaration.spec), arguments.stack))
    try:
        process = subprocess.Popen(arguments.words)  # deadline: none, a user's Ctrl-C ends it
    except OSError as error:
        raise BadInputError(f"{arguments.words[0]}: {error.strerror}") from None
    with interrupts_go_to(process, signal.SIGTERM):
        status = process.wait()  # deadline: none, likewise
    return status if status >= 0 else ENDED_BY - status
