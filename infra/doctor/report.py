"""What was found on machines, for people and for programs: machines with the same findings stand together."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from infra.doctor.examine import Examined
from infra.doctor.sites import OUTSIDE, Opening
from infra.errors import shown
from infra.ground.machine import Finding, Grade
from infra.ground.names import ranges, some

SILENT = "no answer"
STYLES = {
    Grade.IMPOSSIBLE: "bold red",
    Grade.IN_THE_WAY: "yellow",
    Grade.ADOPTED: "cyan",
    Grade.FINE: "green",
}
MOST_RANGES = 8
MOST_OWN = 3


def groups(reports: Iterable[Examined]) -> list[list[Examined]]:
    """Machines about which the same is to be said, the worst first; what is fine on them may differ."""
    found: dict[tuple[str, tuple[Finding, ...], tuple[str, ...]], list[Examined]] = {}
    for one in reports:
        telling = tuple(finding for finding in one.findings if finding.grade != Grade.FINE)
        found.setdefault((one.silent, telling, _well(one)), []).append(one)
    return sorted(found.values(), key=lambda same: -_badness(same[0]))


def _badness(one: Examined) -> float:
    return Grade.IN_THE_WAY + 0.5 if one.silent else one.grade


def _well(one: Examined) -> tuple[str, ...]:
    return tuple(sorted({finding.about for finding in one.findings if finding.grade == Grade.FINE}))


def print_reports(reports: Sequence[Examined], console: Console) -> None:
    """A table for each group of machines, and a line that counts them."""
    for same in groups(reports):
        console.print(_table(same))
    console.print(summary(reports))


def _table(same: list[Examined]) -> Table:
    one, count = same[0], f" ({len(same)} machines)" if len(same) > 1 else ""
    names = some((each.host for each in same), MOST_RANGES)
    table = Table(title=Text(shown(names) + count), title_justify="left", title_style="bold")
    for column in ("", "about", "found", "what to do"):
        table.add_column(column)
    if one.silent:
        table.add_row(Text(SILENT, "bold red"), "SSH", Text(shown(one.silent)), "")
    for finding in one.findings:
        if finding.grade != Grade.FINE:
            cells = (finding.about, _of_all(finding, same), finding.do)
            table.add_row(Text(finding.grade.words, STYLES[finding.grade]), *(Text(shown(c)) for c in cells))
    if well := _well(one):
        table.add_row(Text(Grade.FINE.words, STYLES[Grade.FINE]), "", Text(", ".join(map(shown, well))), "")
    return table


def _of_all(finding: Finding, same: Iterable[Examined]) -> str:
    """What it says, with what is the machines' own; of many, of the first."""
    own = [other.own for one in same for other in one.findings if other == finding and other.own]
    if not own:
        return finding.says
    return f"{finding.says}: {', '.join(own[:MOST_OWN])}" + (" …" if len(own) > MOST_OWN else "")


def summary(reports: Sequence[Examined]) -> str:
    """How many machines are how."""
    silent = sum(bool(one.silent) for one in reports)
    parts = [
        f"{sum(one.grade == grade and not one.silent for one in reports)} {grade.words}"
        for grade in sorted(Grade, reverse=True)
    ]
    text = f"{len(reports)} machine{'s' * (len(reports) != 1)}: {', '.join(parts)}"
    return text + (f", {silent} without an answer" if silent else "")


def as_json(stack: str, reports: Sequence[Examined]) -> dict[str, Any]:
    """`{"stack", "ok", "hosts": {name: {"grade", "silent", "findings": […]}}}`."""
    return {
        "stack": stack,
        "ok": all(one.is_well for one in reports),
        "hosts": {
            one.host: {
                "grade": SILENT if one.silent else one.grade.words,
                "silent": shown(one.silent) or None,
                "findings": [_finding(finding) for finding in one.findings],
            }
            for one in reports
        },
    }


def _finding(finding: Finding) -> dict[str, str]:
    words = {"about": finding.about, "says": finding.words, "do": finding.do}
    return {"grade": finding.grade.words, **{key: shown(text) for key, text in words.items()}}


def impossible_words(reports: Sequence[Examined]) -> list[str]:
    """A line for every thing that cannot work, with its machines as ranges."""
    by_finding: dict[Finding, list[str]] = {}
    for one in reports:
        for finding in one.findings:
            if finding.grade == Grade.IMPOSSIBLE:
                by_finding.setdefault(finding, []).append(one.host)
    return [
        f"{', '.join(text for text, _ in ranges(hosts)[:MOST_RANGES])}: {finding.about}: {finding.says}"
        for finding, hosts in by_finding.items()
    ]


def openings_table(rows: Sequence[Opening]) -> Table:
    """What has to be open."""
    table = Table(title="what has to be open", title_justify="left")
    for column in ("what listens", "protocol", "ports", "on", "asked by", "between sites"):
        table.add_column(column)
    for row in rows:
        where = {"wan": " (links)", OUTSIDE: " (outside)"}.get(row.network, "")
        between = "yes" if row.between_sites else ""
        table.add_row(row.name, row.protocol, row.ports, row.on + where, row.sources, between)
    return table
