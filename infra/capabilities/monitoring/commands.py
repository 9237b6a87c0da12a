"""`causeway status`: the state of a cluster on one screen."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from infra.capabilities.monitoring.page import page
from infra.capabilities.monitoring.serve import PLACE, PORT, Fresh, serve
from infra.capabilities.monitoring.state import Alert, RegionState, cluster_state, monitored, word
from infra.commands.arguments import add_stack
from infra.errors import ExitCode
from infra.ground.contract import Contract, load_contract
from infra.ground.names import some
from infra.ground.page import save
from infra.stack import contract_file

COMMAND, SUMMARY = "status", "show the state of a cluster: regions, links, nodes, alerts, drift"
MOST_LINES = 12
"""Of one kind: what is worse than that is a number."""
EVERY_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_stack(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON for programs")
    form.add_argument(
        "--html", metavar="FILE", type=Path, help="write a page for people, with the last hours"
    )
    form.add_argument(
        "--watch",
        nargs="?",
        type=seconds,
        const=EVERY_S,
        metavar="SECONDS",
        help=f"again and again, every {EVERY_S:g} s",
    )
    parser.add_argument(
        "--serve",
        nargs="?",
        type=port,
        const=PORT,
        metavar="PORT",
        help=f"keep the page fresh at http://localhost:{PORT}, for this machine only; --watch says how often",
    )
    parser.set_defaults(refuse=parser.error)


def seconds(text: str) -> float:
    """A number of seconds, at least 1."""
    value = float(text)
    if not 1 <= value <= 86_400:
        raise ValueError(text)
    return value


def port(text: str) -> int:
    """A TCP port; 0 for any that is free."""
    value = int(text)
    if not 0 <= value <= 65_535:
        raise ValueError(text)
    return value


def run(arguments: argparse.Namespace) -> ExitCode:
    """Ask every region; FAILED when one cannot be asked, or somebody has to act at once."""
    contract = contract_of(arguments.stack)
    if arguments.serve is not None:
        return _serve(contract, arguments)
    if arguments.watch is not None:
        return _watch(contract, arguments.watch)
    if arguments.html:
        return verdict(write_page(contract, arguments.html))
    states = cluster_state(contract)
    if arguments.json:
        print(json.dumps(as_json(contract, states), indent=2))
    else:
        console = Console(width=None if sys.stdout.isatty() else 160)
        console.print(screen(contract, states))
    return verdict(states)


def contract_of(stack: str) -> Contract:
    """The contract as it is now. CausewayError for a stack that does not stand."""
    return load_contract(contract_file(stack))


def write_page(contract: Contract, file: Path) -> list[RegionState]:
    """The page of a cluster's state; CausewayError where the file cannot be written."""
    states = cluster_state(contract, history=True)
    save(file, page(contract.cluster, contract.stack, states))
    again = f"./run exec causeway status {contract.stack}"
    print(f"{file.absolute()} shows the state of stack {contract.stack}; {again} shows it again")
    return states


def verdict(states: Sequence[RegionState]) -> ExitCode:
    """FAILED where a region is not seen, or a page fires."""
    bad = any(state.problem or any(alert.severity == "page" for alert in state.alerts) for state in states)
    return ExitCode.FAILED if bad else ExitCode.OK


def as_json(contract: Contract, states: Sequence[RegionState]) -> dict[str, Any]:
    """Everything, by region."""
    regions = {state.name: {**asdict(state), "up": None if state.problem else state.up} for state in states}
    return {"cluster": contract.cluster, "stack": contract.stack, "regions": regions}


def _watch(contract: Contract, every_s: float) -> ExitCode:
    console = Console()
    try:
        while True:
            states = cluster_state(contract)
            with console.capture() as drawn:
                console.print(screen(contract, states))
            console.clear()
            console.file.write(drawn.get())
            console.file.flush()
            time.sleep(every_s)
    except KeyboardInterrupt:
        return ExitCode.OK


def _serve(contract: Contract, arguments: argparse.Namespace) -> ExitCode:
    # A group of argparse's is of options of which any two contradict each other; --watch goes with this one.
    for other in ("json", "html"):
        if getattr(arguments, other):
            arguments.refuse(f"argument --serve: not allowed with argument --{other}")
    monitored(contract)
    fresh = Fresh(lambda: look(contract.stack), arguments.watch or EVERY_S)
    return serve(fresh, arguments.serve, f"the state of stack {contract.stack}")


def look(stack: str) -> tuple[str, str]:
    """The page of what stands now; where no region at all is seen, what an older page has to say of that."""
    contract = contract_of(stack)
    states = cluster_state(contract, history=True)
    unseen = [state.problem for state in states if state.problem]
    text = page(contract.cluster, contract.stack, states, top=PLACE)
    return text, "; ".join(unseen) if len(unseen) == len(states) else ""


def screen(contract: Contract, states: Sequence[RegionState]) -> RenderableType:
    """Regions, ways between them, alerts, and the nodes that are not as they should be."""
    parts: list[RenderableType] = [_regions(contract, states)]
    if any(state.ways for state in states):
        parts.append(_ways(states))
    problems = [Text(f"{state.name}: {state.problem}") for state in states if state.problem]
    alerts = [(state, alert) for state in states for alert in state.alerts]
    parts += problems
    parts += (
        [_alerts([alert for _, alert in alerts])] if alerts else [Text("no alert fires")] * (not problems)
    )
    parts += [Text(line) for line in _nodes(states)]
    return Group(*parts)


def _regions(contract: Contract, states: Sequence[RegionState]) -> Table:
    table = Table(title=f"Cluster {contract.cluster}, stack {contract.stack}", title_justify="left")
    for column in ("region", "state", "nodes", "alerts", "drifted", "CPU", "waits to be sent"):
        table.add_column(column)
    for state in states:
        table.add_row(*_cells(state))
    return table


def _cells(state: RegionState) -> list[str]:
    if state.problem:
        return [state.name, "not seen", f"? of {state.declared}", "?", "?", "?", "?"]
    pages = sum(alert.severity == "page" for alert in state.alerts)
    tickets = len(state.alerts) - pages
    told = [f"{number} {what}" for number, what in ((pages, "page"), (tickets, "ticket")) if number]
    return [
        state.name,
        word(state),
        f"{state.up} of {state.declared}",
        ", ".join(told) or "none",
        str(len(state.drifted)) + (f", {len(state.blind)} unknown" if state.blind else ""),
        "–" if state.busy is None else f"{state.busy:.0%}",
        "–" if state.unsent_bytes is None else f"{state.unsent_bytes / 2**20:.1f} MiB",
    ]


def _ways(states: Sequence[RegionState]) -> Table:
    table = Table(title="Ways: seen (declared)", title_justify="left")
    for column in ("from", "to", "round trip, ms", "loss, % of round trips"):
        table.add_column(column)
    for state in states:
        for way in state.ways:
            rtt = "–" if way.rtt_ms is None else f"{way.rtt_ms:g}"
            loss = "–" if way.loss_ratio is None else f"{way.loss_ratio * 100:.2g}"
            declared = f"{way.declared_loss_ratio * 100:.2g}"
            table.add_row(state.name, way.region, f"{rtt} ({way.declared_rtt_ms:g})", f"{loss} ({declared})")
    down = [f"{name} ({state.name})" for state in states for name, up in state.links.items() if not up]
    if down:
        table.caption = Text(
            f"links without an answer: {', '.join(down)}"
        )  # by nodes' words, which are no markup
    return table


def _alerts(alerts: Sequence[Alert]) -> Table:
    table = Table(title="Alerts", title_justify="left")
    for column in ("severity", "alert", "region", "what", "what helps"):
        table.add_column(column, overflow="fold")
    for alert in alerts[:MOST_LINES]:
        table.add_row(
            *(Text(word) for word in (alert.severity, alert.name, alert.region, alert.summary, alert.command))
        )
    if len(alerts) > MOST_LINES:
        table.caption = f"and {len(alerts) - MOST_LINES} more: --json has all"
    return table


def _nodes(states: Sequence[RegionState]) -> list[str]:
    """Those that do not answer, and those that differ, each kind in a line or two."""
    lines = []
    for state in states:
        if state.gone:
            lines.append(f"{state.name}: no answer from {some(state.gone)}")
        if state.drifted:
            lines.append(f"{state.name}: differ from what was sealed: {some(state.drifted)}")
    return lines
