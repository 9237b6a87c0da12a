"""`causeway down`: the real `pulumi destroy`, and then a look whether anything is left."""

import argparse
import shutil
from contextlib import nullcontext

from infra import ROOT
from infra.commands.arguments import add_stack, declaration_of
from infra.components import kept
from infra.errors import CausewayError, ExitCode
from infra.providers.local import sweep
from infra.pulumi_cli import CAUSEWAY_DIR, SECURE, only_one, pulumi, require, stack_exists, without_salt
from infra.stack import stack_dir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_stack(parser)
    parser.add_argument(
        "--remove-roles",
        action="store_true",
        help="also take the roles off machines that were there before, and give back what they replaced",
    )
    parser.add_argument(
        "--purge-data", action="store_true", help="with --remove-roles: directories with data go as well"
    )


def run(arguments: argparse.Namespace) -> ExitCode:
    """Take the stack away, with whatever a killed run or a lost state left of it.

    Machines that were there before stay, and with them what they need.
    """
    stack = arguments.stack
    with only_one(stack):
        kept.put_back(stack)
        stay = kept.machines(stack)
        if arguments.remove_roles and stay:
            stay = kept.take_roles_off(stack, stay, purge_data=arguments.purge_data)
        with kept.out_of_the_way(stack) if stay else nullcontext():
            _take_away(stack)
        if stay:
            kept.leave_only_what_they_need(stack, stay)
        # While it is held: afterwards it may be another's already.
        (CAUSEWAY_DIR / "locks" / stack).unlink(missing_ok=True)
    left = sweep.leftovers(stack)
    if left:
        raise CausewayError(f"left behind of stack {stack}: {', '.join(left)}", hint="run ./run down again")
    gone = [f"Stack {stack} is gone: nothing is left of it."]
    print("\n".join(kept.in_words(stack, stay) if stay else gone))
    return ExitCode.OK


def _take_away(stack: str) -> None:
    if stack_exists(stack):
        done = pulumi(["destroy", "--yes", "--skip-preview", "--stack", stack])
        if done.returncode:
            raise CausewayError(
                f"pulumi could not take stack {stack} away: the diagnostics above say why",
                hint=f"mend it and run ./run down {stack} again",
            )
        require(["stack", "rm", "--yes", "--preserve-config", "--stack", stack])
        _forget_salt(stack)
    for thing in sweep.sweep(stack):
        print(f"swept {thing}")
    shutil.rmtree(ROOT / stack_dir(stack), ignore_errors=True)


def _forget_salt(stack: str) -> None:
    """Take out what Pulumi wrote into the declaration to encrypt a state that no longer exists.

    Kept where the file holds encrypted values: they cannot be read without it.
    """
    path = declaration_of(stack)
    if not path.exists():
        return
    text = path.read_text()
    if SECURE not in text:
        path.write_text(without_salt(text))
