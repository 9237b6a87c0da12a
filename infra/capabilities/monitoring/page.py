"""The state of a cluster as a page: a map, its nodes, alerts, drift, and the last hours."""

import html
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from infra.capabilities.monitoring.state import RegionState, Way, word
from infra.ground.names import some
from infra.ground.page import document, table

STYLE = (
    "body{max-width:62em}"
    ".map line{stroke:#767676;stroke-width:2}.good{fill:#2a7d2a}.look{fill:#8a5a00}.act{fill:#b30}"
    ".not{fill:#767676}"
    ".map text,.nodes text{text-anchor:middle}.nodes{min-width:0}.map{max-width:40em}"
    ".ok{fill:none;stroke:#2a7d2a}.gone{fill:#b30;stroke:#b30}.differs{fill:#8a5a00;stroke:#8a5a00}"
    ".wrong{border-left:.4em solid #b30;padding-left:.6em;font-weight:bold}"
    ".cross{stroke:#fff;stroke-width:2}.small{min-width:0;max-width:40em}td{vertical-align:top}"
    "@media(prefers-color-scheme:dark){.ok{stroke:#7c7}.good{fill:#7c7}.look{fill:#fc6}.act{fill:#f96}"
    ".not{fill:#999}.gone{fill:#f96;stroke:#f96}.differs{fill:#fc6;stroke:#fc6}.cross{stroke:#181818}"
    ".map line{stroke:#999}}"
)
LABELLED = 3
"""Regions up to which the map has numbers on its lines; more would lie over each other."""
PER_ROW, CELL = 50, 14
WIDE, HIGH = 600, 90
MOST_ALERTS = 200


def page(
    cluster: str, stack: str, states: Sequence[RegionState], at: datetime | None = None, top: str = ""
) -> str:
    """Everything that is known of all regions. Text of nodes is escaped; shapes say what colours say.

    `top`: a fragment that stands before all else.
    """
    when = (at or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M:%S UTC")
    parts = [top] if top else []
    parts.append(f"<p>As of {when}; each region by its own server.</p>")
    parts += [_map(states)] if len(states) > 1 else []
    parts.append(_regions(states))
    parts += [
        f"<p>{html.escape(state.name)}: {html.escape(state.problem)}</p>" for state in states if state.problem
    ]
    parts.append(_alerts(states))
    if any(state.ways for state in states):
        parts.append(_ways(states))
    for state in states:
        parts += [_nodes(state), *_history(state)]
    return document(f"Cluster {cluster}, stack {stack}", parts, STYLE)


def _regions(states: Sequence[RegionState]) -> str:
    rows = [
        [
            state.name,
            word(state),
            f"{'?' if state.problem else state.up} of {state.declared}",
            "?" if state.problem else str(len(state.alerts)),
            "?" if state.problem else str(len(state.drifted)),
        ]
        for state in states
    ]
    return _wide("Regions", ("region", "state", "nodes", "alerts", "nodes that differ"), rows)


def _wide(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that is moved sideways by itself where the window is narrow."""
    return f"<figure>{table(caption, head, rows)}</figure>"


def _alerts(states: Sequence[RegionState]) -> str:
    alerts = [alert for state in states for alert in state.alerts]
    if not alerts:
        return "<p>No alert fires.</p>"
    rows = [[one.severity, one.name, one.region, one.summary, one.command] for one in alerts[:MOST_ALERTS]]
    shown = _wide("Alerts", ("severity", "alert", "region", "what", "what helps"), rows)
    more = len(alerts) - MOST_ALERTS
    return shown + (f"<p>And {more} more.</p>" if more > 0 else "")


def _ways(states: Sequence[RegionState]) -> str:
    rows = [
        [state.name, way.region, f"{_number(way.rtt_ms)} ({way.declared_rtt_ms:g})", _loss(way)]
        for state in states
        for way in state.ways
    ]
    return _wide("Ways: seen (declared)", ("from", "to", "round trip, ms", "loss, % of round trips"), rows)


def _loss(way: Way) -> str:
    seen = None if way.loss_ratio is None else way.loss_ratio * 100
    return f"{_number(seen)} ({way.declared_loss_ratio * 100:.2g})"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _map(states: Sequence[RegionState]) -> str:
    """Regions on a circle, a line for each way between two of them."""
    across = len(states) > 2
    high = 300 if across else 120
    place = {state.name: _place(number, len(states), high) for number, state in enumerate(states)}
    lines, labels = [], []
    for state in states:
        for way in state.ways:
            if way.region not in place or way.region < state.name:
                continue
            (x1, y1), (x2, y2) = place[state.name], place[way.region]
            lines.append(f'<line x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}"/>')
            if len(states) <= LABELLED:
                labels.append(_text((x1 + x2) / 2, (y1 + y2) / 2 - 8, f"{_number(way.rtt_ms)} ms"))
    circles = []
    for state in states:
        x, y = place[state.name]
        kind = word(state).partition(" ")[0]
        circles.append(f'<circle class="{kind}" cx="{x:.0f}" cy="{y:.0f}" r="20"/>')
        nodes = "?" if state.problem else f"{state.up} of {state.declared}"
        labels.append(_text(x, y + 38, f"{state.name}: {word(state)}"))
        labels.append(_text(x, y + 53, nodes))
    inside = "".join([*lines, *circles, *labels])
    return f'<figure><svg class="map" viewBox="0 0 {WIDE} {high + 40}">{inside}</svg></figure>'


def _place(number: int, count: int, high: int) -> tuple[float, float]:
    if count == 2:
        return (WIDE * (0.2 + 0.6 * number), high / 2)
    angle = 2 * math.pi * number / count - math.pi / 2
    return WIDE / 2 + 0.38 * WIDE * math.cos(angle), high / 2 + (high / 2 - 40) * math.sin(angle)


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}">{html.escape(text)}</text>'


def _nodes(state: RegionState) -> str:
    """A square for each node; a cross in those that do not answer, a disc for those that differ."""
    if state.problem:
        return ""
    gone, cells = set(state.gone), list[str]()
    for number, host in enumerate(state.hosts):
        x, y = number % PER_ROW * CELL + 2, number // PER_ROW * CELL + 2
        cells.append(_cell(x, y, host, host in gone, state.drifted.get(host, 0)))
    rows = math.ceil(len(state.hosts) / PER_ROW)
    columns = min(len(state.hosts), PER_ROW)
    wide, high = columns * CELL + 4, rows * CELL + 4
    grid = f'<svg class="nodes" style="max-width:{wide}px" viewBox="0 0 {wide} {high}">{"".join(cells)}</svg>'
    said = [f"{state.up} of {state.declared} nodes of {state.name} answer"]
    said += [f"no answer (cross): {some(state.gone)}"] if state.gone else []
    said += [f"differ from what was sealed (disc): {some(state.drifted)}"] if state.drifted else []
    return f"<figure>{grid}<figcaption>{html.escape('; '.join(said))}</figcaption></figure>"


def _cell(x: int, y: int, host: str, gone: bool, differences: int) -> str:
    if gone:
        cross = f'<path class="cross" d="M{x + 2} {y + 2}l6 6m0 -6l-6 6"/>'
        shape = f'<rect class="gone" x="{x}" y="{y}" width="10" height="10"/>{cross}'
    elif differences:
        shape = f'<circle class="differs" cx="{x + 5}" cy="{y + 5}" r="5"/>'
    else:
        shape = f'<rect class="ok" x="{x}" y="{y}" width="10" height="10"/>'
    says = f"{host}: " + ("no answer" if gone else f"{differences} differ" if differences else "good")
    return f"<g><title>{html.escape(says)}</title>{shape}</g>"


def _history(state: RegionState) -> Iterator[str]:
    """The last hours, a curve for each of what was recorded."""
    for name, points in state.history.items():
        values = [value for _, value in points]
        if len(points) < 2 or points[-1][0] <= points[0][0]:
            continue
        low, top = min(0.0, *values), max(*values, 1e-9)
        since, span = points[0][0], points[-1][0] - points[0][0]
        curve = " ".join(
            f"{(at - since) / span * WIDE:.1f},{(1 - (value - low) / (top - low)) * HIGH + 5:.1f}"
            for at, value in points
        )
        drawn = f'<svg class="small" viewBox="0 0 {WIDE} {HIGH + 10}"><polyline points="{curve}"/></svg>'
        now, most = _number(values[-1]), _number(max(values))
        says = f"{state.name}: {name}, now {now}, at most {most}, over {span / 3600:.1f} h"
        yield f"<figure>{drawn}<figcaption>{html.escape(says)}</figcaption></figure>"
