"""`causeway wan`: what the WAN of a standing stack really carries, beside what is declared."""

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from infra.capabilities.wan.measure import Measurement, Rate, measure_wan
from infra.commands.arguments import add_stack
from infra.errors import ExitCode, one_line
from infra.ground.contract import load_contract
from infra.stack import contract_file

COMMAND, SUMMARY = "wan", "measure the WAN links of a standing stack"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    what = "measure: RTT, loss, packet size and TCP rate between all regions, within the share of replication"
    parser.add_argument("what", choices=["measure"], help=what)
    add_stack(parser)
    parser.add_argument("--json", action="store_true", help="print JSON for programs")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Measure every pair of regions; FAILED when one could not be, or not completely."""
    contract = load_contract(contract_file(arguments.stack))
    measured = measure_wan(contract, lambda line: print(line, file=sys.stderr))
    if arguments.json:
        print(json.dumps(measured_json(measured), indent=2))
    else:
        print_measured(measured, Console(width=None if sys.stdout.isatty() else 160))
    return ExitCode.FAILED if any(found.problem or found.lacking for found in measured) else ExitCode.OK


def measured_json(measured: list[Measurement]) -> dict[str, dict[str, Any]]:
    """Region → other region → what was measured, and under `declared` the route of the contract."""
    report: dict[str, dict[str, Any]] = {}
    for found in measured:
        pair = report.setdefault(found.source_region, {})
        pair[found.target_region] = {**asdict(found), "declared": found.declared.model_dump(mode="json")}
    return report


def print_measured(measured: list[Measurement], console: Console) -> None:
    """A table of what was measured, in brackets what is declared; under it what could not be."""
    table = Table(title="WAN: measured (declared)", title_justify="left")
    for column in ("between", "over", "RTT ms", "loss % one way", "MTU", "one TCP flow, Mbit/s"):
        table.add_column(column)
    if any(found.other for found in measured):
        table.add_column("with the other")
    for found in measured:
        table.add_row(*_cells(found))
    console.print(table)
    for found in measured:
        if said := found.problem or found.lacking:
            line = one_line(f"{found.source_region} – {found.target_region}: {said}")
            console.print(line, highlight=False, markup=False)


def _cells(found: Measurement) -> list[str]:
    declared = found.declared
    rate = f"{_rate(found.configured)}{_held(found)}"
    return [
        f"{found.source_region} – {found.target_region}",
        ", ".join(declared.path),
        f"{_shown(found.rtt_ms)} ({declared.rtt_ms:g})",
        f"{_shown(found.loss_pct)} ({declared.loss_pct:.3g})",
        f"{_shown(found.mtu_bytes)} ({declared.mtu_bytes})",
        f"{rate} ({declared.bandwidth_mbps:g} {declared.congestion_control})",
        *([_rate(found.other)] if found.other else []),
    ]


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


def _held(found: Measurement) -> str:
    return "" if found.held_to_mbps is None else f", held to {found.held_to_mbps:g}"


def _rate(rate: Rate | None) -> str:
    return "–" if rate is None else f"{rate.mbps:g} {rate.congestion_control}"
