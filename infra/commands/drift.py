"""`causeway drift`: what differs on the nodes from what the roles made true, in one SSH trip per node."""

import argparse
import json
import sys
from pathlib import Path

from infra.commands.arguments import add_stack, require_known
from infra.drift import report
from infra.drift.page import DriftPage, write_page
from infra.drift.scan import scan_stack
from infra.errors import ExitCode
from infra.ground.contract import Contract, load_contract
from infra.inventory.roles import helper_roles, role_order
from infra.stack import contract_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_stack(parser)
    parser.add_argument(
        "--region", action="append", default=[], metavar="R", help="only nodes of this region"
    )
    parser.add_argument("--host", action="append", default=[], metavar="H", help="only this node")
    parser.add_argument(
        "--role", action="append", default=[], metavar="X", help="only what this role governs"
    )
    parser.add_argument(
        "--thorough",
        action="store_true",
        help="read large files that look unchanged, too: after a break-in",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--json", action="store_true", help="print JSON for programs: one object per node and line"
    )
    form.add_argument("--html", metavar="FILE", type=Path, help="write a page for people")
    form.add_argument("--coverage", action="store_true", help="which tasks of the roles a record can express")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Scan and report; DRIFT when something differs, FAILED when a node could not be scanned."""
    if arguments.coverage:
        return _coverage(arguments.role)
    stack = arguments.stack
    contract = load_contract(contract_file(stack))
    chosen = hosts_of(contract, arguments.region, arguments.host)
    reports = scan_stack(stack, chosen, roles=arguments.role, thorough=arguments.thorough)
    if arguments.json:
        reports = report.each(reports, lambda found: print(json.dumps(report.as_json(stack, found))))
    elif arguments.html:
        pools = {name: host.pool for name, host in contract.hosts.items()}
        reports = write_page(arguments.html, DriftPage(stack, pools, arguments.role), reports)
    else:
        reports = report.each(reports, lambda found: report.print_host(stack, found))
    summary = report.Summary()
    for found in reports:
        summary.add(found)
    print(summary, file=sys.stderr if arguments.json else sys.stdout)
    return summary.exit_code


def hosts_of(contract: Contract, regions: list[str], hosts: list[str]) -> list[str]:
    """The hosts that --region and --host leave. BadInputError for a name that is none."""
    require_known("region", regions, contract.regions)
    require_known("host", hosts, contract.hosts)
    return [
        name
        for name in contract.hosts
        if (not regions or contract.region_of(name) in regions) and (not hosts or name in hosts)
    ]


def _coverage(roles: list[str]) -> ExitCode:
    from infra.drift import coverage  # reads YAML, which a scan has no use for

    known = (*role_order(), *helper_roles())
    require_known("role", roles, known)
    for role in roles or known:
        found = coverage.role_coverage(role)
        count = f"{len(found.covered)} of {found.total} state-changing tasks"
        print(f"{role}: {count} covered ({found.percent:.0f} %)")
        for task in found.uncovered:
            print(f"  uncovered: {task}")
    return ExitCode.OK
