"""`causeway up`: the declaration checked, the real `pulumi up`, and a table of what stands."""

import argparse
import sys
import time
from datetime import UTC, datetime
from functools import partial

from rich.console import Console
from rich.table import Table

from infra import ROOT
from infra.capabilities.monitoring.commands import write_page
from infra.capabilities.monitoring.section import MonitoringSection
from infra.capabilities.wan.commands import print_measured
from infra.capabilities.wan.measure import Measurement, measure_wan
from infra.capabilities.wan.section import WanSection
from infra.checks import Declaration, DeclarationError, check_given, load, require_valid
from infra.commands.arguments import add_stack, declaration_of
from infra.commands.doctor import look_before, make_key
from infra.commands.rehearsal import rehearse
from infra.components import kept
from infra.components.holding import consent
from infra.components.leaving import forget_gone, not_given_back
from infra.doctor.examine import Declared
from infra.errors import CausewayError, ExitCode
from infra.ground.contract import Contract, load_contract
from infra.inventory.roles import role_hosts, role_order
from infra.pulumi_cli import only_one, pulumi, select_stack
from infra.stack import contract_file, stack_dir
from infra.verify.verdicts import VerificationResult, read_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_stack(parser)
    parser.add_argument(
        "--measure",
        action=argparse.BooleanOptionalAction,
        help="measure the WAN links at the end (default: only where all nodes are made here)",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="only show what would change on machines that are there, as diffs",
    )


def run(arguments: argparse.Namespace) -> ExitCode:
    """Stand the stack up, or bring it back to what is declared; then show what stands."""
    if arguments.dry_run:
        rehearse(_declared(arguments.stack).spec, arguments.stack)
        return ExitCode.OK
    return stand_up(arguments.stack, measure=arguments.measure)


def _declared(stack: str) -> Declaration:
    """The declaration, nothing wrong with it. DeclarationError with all that is."""
    declaration = load(declaration_of(stack))
    for warning in require_valid(declaration.spec, declaration.source):
        print(warning, file=sys.stderr)
    if missing := check_given(declaration.spec, declaration.config, stack, declaration.source):
        raise DeclarationError(missing)
    return declaration


def stand_up(stack: str, *, measure: bool | None = False) -> ExitCode:
    """`pulumi up`, with all that belongs to it. MEASURE: None for what suits the stack.

    CausewayError where the stack does not stand as declared, or not all of it is good.
    """
    started, started_at = time.monotonic(), datetime.now(UTC)
    declaration = _declared(stack)
    with only_one(stack):
        kept.put_back(stack)
        make_key(Declared(declaration.spec, stack))  # before Pulumi's salt is there, which forbids it
        select_stack(stack, declaration_of(stack))  # or Pulumi tells none of its secrets
        look_before(declaration.spec, stack)
        # With --refresh, because what Pulumi remembers is not what stands after a reboot.
        done = pulumi(["up", "--yes", "--skip-preview", "--refresh", "--stack", stack, "--suppress-outputs"])
        if done.returncode:
            raise CausewayError(
                f"stack {stack} does not stand as declared: the diagnostics above say why",
                hint=f"mend it and run ./run up {stack} again: what stands already is kept",
            )
        contract = load_contract(contract_file(stack))
        forget_gone(contract, partial(print, flush=True), consent(declaration.spec))
        measured: list[Measurement] = []
        if wants_measuring(contract, measure):
            measured = measure_wan(contract, print, neighbours_only=True, compare=False)
    for line in not_given_back(contract):
        print(line)
    checks = read_result(stack)
    if checks.failed:
        raise CausewayError(f"stack {stack} stands, and its verification did not pass: {checks.report()}")
    show_standing(contract, measured, checks, started_at, time.monotonic() - started)
    if contract.section(MonitoringSection):
        write_page(contract, ROOT / stack_dir(stack) / "status.html")
    return ExitCode.FAILED if any(found.problem for found in measured) else ExitCode.OK


def wants_measuring(contract: Contract, asked: bool | None) -> bool:
    """What was asked for; else only where no link is anybody else's."""
    if asked is None:
        return all(region.makes_links for region in contract.regions.values())
    return asked


def show_standing(
    contract: Contract,
    measured: list[Measurement],
    checks: VerificationResult,
    started_at: datetime,
    took_s: float,
) -> None:
    """What stands, as tables: regions with their nodes, links with promise and truth, roles, checks."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(_regions_table(contract))
    if measured:
        print_measured(measured, console)
    elif contract.need(WanSection).links:
        again = f"./run exec causeway wan measure {contract.stack}"
        console.print(f"WAN links were not measured: {again} measures them", highlight=False)
    for feature in role_order():
        if hosts := role_hosts(contract, feature):
            console.print(f"role {feature}: applied on {len(hosts)} nodes")
    counts = ", ".join(f"{count} {verdict}" for verdict, count in checks.counts().items())
    console.print(f"checks: {counts} ({_age(checks, started_at)})", soft_wrap=True)
    if any(pool.gpus_simulated for pool in contract.pools.values()):
        console.print("GPUs of local nodes are declared but simulated: there is no GPU behind them.")
    console.print(f"Stack {contract.stack} stands, after {took_s:.0f} s.")


def _age(checks: VerificationResult, started_at: datetime) -> str:
    """Whether the checks were run by this `up`; it leaves them out where it had nothing to do.

    Then all nodes have just answered: one that does not is always something to do.
    """
    if checks.at is None:
        return "verified at an unknown time"
    now = checks.at >= started_at.replace(microsecond=0)
    when = "verified now" if now else f"verified at {_shown(checks.at)}"
    return f"what changed {when}, the rest since {_shown(checks.since)}" if checks.since else when


def _shown(at: datetime) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def _regions_table(contract: Contract) -> Table:
    table = Table(title=f"Cluster {contract.cluster}", title_justify="left")
    for column in ("region", "pool", "role", "nodes", "addresses", "GPUs"):
        table.add_column(column)
    for key, pool in contract.pools.items():
        addresses = [str(host.address) for host in contract.hosts.values() if host.pool == key]
        gpus = f"{len(addresses) * pool.gpus} × {pool.gpu_model}" if pool.gpus else "–"
        simulated = " (simulated)" if pool.gpus_simulated else ""
        span = addresses[0] if len(addresses) == 1 else f"{addresses[0]} … {addresses[-1]}"
        table.add_row(pool.region, pool.name, pool.role, str(len(addresses)), span, gpus + simulated)
    return table
