"""`causeway wan`: what the links of a standing stack really carry, beside what is declared."""

import argparse
import json
import sys
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from infra import ROOT
from infra.commands.arguments import add_stack
from infra.errors import ExitCode
from infra.handoff.contract import Contract, load_contract, stack_dir
from infra.handoff.measure import LinkMeasurement, measure_links


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("what", choices=["measure"], help="measure: RTT, loss and TCP rate of every link")
    add_stack(parser)
    parser.add_argument("--json", action="store_true", help="print JSON for programs")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Measure every link; FAILED when one could not be measured."""
    contract = load_contract(ROOT / stack_dir(arguments.stack) / "contract.json")
    measured = measure_links(contract, lambda line: print(line, file=sys.stderr))
    if arguments.json:
        print(json.dumps({found.link: asdict(found) for found in measured}, indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else 120).print(links_table(contract, measured))
    return ExitCode.FAILED if any(found.problem for found in measured) else ExitCode.OK


def links_table(contract: Contract, measured: list[LinkMeasurement]) -> Table:
    """The links as a table: what was measured, and in brackets what is declared."""
    table = Table(title="WAN links: measured (declared)", title_justify="left")
    for column in ("link", "between", "RTT ms", "loss % one way", "TCP Mbit/s", "congestion control"):
        table.add_column(column)
    for found in measured:
        link = contract.links[found.link]
        cells = [f"not measured: {found.problem}", "", ""]
        if not found.problem:
            cells = [
                f"{found.rtt_ms:g} ({link.rtt_ms:g})",
                f"{found.loss_pct:g} ({link.loss_pct:g})",
                f"{found.rate_mbps:g} ({link.bandwidth_mbps:g})",
            ]
        table.add_row(found.link, f"{link.a} – {link.b}", *cells, link.congestion_control)
    return table
