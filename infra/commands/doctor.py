"""`causeway doctor`: what fits and what is in the way on machines you have. Read-only, one SSH trip each."""

import argparse
import json
import sys
from contextlib import suppress
from dataclasses import asdict

from rich.console import Console

from infra.checks import DeclarationError, load, require_valid
from infra.commands.arguments import add_stack, declaration_of
from infra.commands.check import problems_json
from infra.components.access_key import SshKeyLifecycle
from infra.declaration import ClusterSpec
from infra.doctor.examine import Declared
from infra.doctor.report import as_json, impossible_words, openings_table, print_reports, summary
from infra.doctor.sites import openings
from infra.errors import BadInputError, CausewayError, ExitCode
from infra.ground import ssh, sudo
from infra.ground.contract import Contract, load_contract
from infra.ground.machine import Grade
from infra.pulumi_cli import SALT
from infra.stack import contract_file

WIDE = 160
"""Columns where the output is no terminal."""
NOTHING = "nodes of stack {} are made by `up`: there is no machine to look at before"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_stack(parser)
    parser.add_argument("--host", action="append", default=[], metavar="H", help="only this machine")
    parser.add_argument(
        "--ports", action="store_true", help="only list what has to be open between nodes; asks no machine"
    )
    parser.add_argument("--json", action="store_true", help="print JSON for programs")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Look and report; FAILED when something is in the way, or a machine does not answer."""
    stack = arguments.stack
    try:
        declaration = load(declaration_of(stack))
        warnings = require_valid(declaration.spec, declaration.source)
    except DeclarationError as error:
        if not arguments.json:
            raise
        print(problems_json(str(declaration_of(stack)), list(error.problems)))
        return error.exit_code
    for warning in warnings:
        print(warning, file=sys.stderr)
    declared = Declared(declaration.spec, stack)
    make_key(declared)
    if arguments.ports:
        return _ports(declared, arguments.json)
    hosts = _chosen(declared, arguments.host)
    reports = declared.examine(hosts)
    if arguments.json:
        print(json.dumps(as_json(stack, reports), indent=1, ensure_ascii=False))
    elif not hosts:
        print(NOTHING.format(stack))
    else:
        print_reports(reports, console())
    return ExitCode.OK if all(one.is_well for one in reports) else ExitCode.FAILED


def make_key(declared: Declared) -> None:
    """The stack's own key, where a machine needs it and no `up` has begun: it can be handed out before.

    `up` then takes it over. Where the stack's file has Pulumi's salt, the state may have another key.
    """
    stack = declared.contract.stack
    regions = {declared.contract.region_of(host) for host in declared.machines()}
    files = {ssh.key_path(declared.contract.regions[name].ssh_private_key_file) for name in regions}
    own, file = SshKeyLifecycle.path(stack), declaration_of(stack)
    if own in files and not own.exists() and file.is_file() and SALT not in file.read_text():
        SshKeyLifecycle().ensure({"stack": stack}, {})


def _chosen(declared: Declared, names: list[str]) -> tuple[str, ...]:
    machines = declared.machines()
    for name in names:
        if name not in machines:
            raise BadInputError(f"{name} is no machine of this stack that you have")
    return tuple(host for host in machines if not names or host in names)


def _ports(declared: Declared, is_json: bool) -> ExitCode:
    rows = openings(declared.contract, declared.plan.endpoints, declared.plan.destinations)
    if is_json:
        print(json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False))
    else:
        console().print(openings_table(rows))
    return ExitCode.OK


def console() -> Console:
    """Where tables go: a machine's words are never markup."""
    return Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else WIDE)


def _before(stack: str) -> Contract | None:
    """The contract of the last `up`; None without one, and for one of a version that knew no passwords."""
    with suppress(CausewayError):
        return load_contract(contract_file(stack))
    return None


def look_before(spec: ClusterSpec, stack: str) -> None:
    """Before `up`: look at machines on which a role is to run for the first time, and say what is found.

    The stack's key was made before (`make_key`), and Pulumi knows the stack, which may have passwords.
    CausewayError where something cannot work; a machine that does not answer stops no other.
    """
    declared = Declared(spec, stack)
    sudo.ready(declared.contract)
    if before := _before(stack):
        sudo.carry_over(before, declared.contract)
    new = declared.new_to_a_role()
    if refused := declared.refused([host for host in declared.machines() if host not in new]):
        raise CausewayError(
            "nothing was changed: " + "; ".join(f"{host}: {why}" for host, why in refused.items()),
            hint=f"mend it (./run exec causeway doctor {stack} looks again), or give the right password",
        )
    if not new:
        return
    reports = declared.examine(new)
    if all(one.is_well for one in reports):
        print(f"looked at machines you have: {summary(reports)}", flush=True)
        return
    print_reports([one for one in reports if not one.is_well], console())
    if any(one.grade == Grade.IMPOSSIBLE for one in reports):
        raise CausewayError(
            "nothing was changed, for it cannot work: " + "; ".join(impossible_words(reports)),
            hint=f"mend it (./run exec causeway doctor {stack} looks again), or take the machine out",
        )
