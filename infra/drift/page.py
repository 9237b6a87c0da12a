"""What a scan found as a page: how much, then what differs with the nodes on which it does, then all others.

It gathers what differs and not what was scanned: a thing that differs in one way is kept once.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from infra.drift.findings import NOT_SCANNED, Difference, HostReport, repair_command
from infra.drift.report import Summary
from infra.errors import CausewayError, one_line
from infra.ground.names import natural, ranges, some
from infra.ground.page import Markup, document, fragment, save, table

STYLE = (
    "body{max-width:70em}td,th{vertical-align:top}table{border-collapse:collapse}li{overflow-wrap:anywhere}"
    ".found table{width:100%;overflow-wrap:anywhere}"
    ".found td{border-top:1px solid #767676;padding:.4em 1em .4em 0}"
    ".found td:nth-child(1){width:34%}.found td:nth-child(2){width:36%}"
    "small{display:block}pre,code{font:13px/1.4 monospace}code{white-space:nowrap}"
    "pre,.command{white-space:pre-wrap;overflow-wrap:anywhere}pre{margin:.4em 0}"
    ".counts{display:flex;flex-wrap:wrap;gap:0 4em}.counts figure{margin:0;max-width:100%}"
    ".counts table{margin:.8em 0;font-variant-numeric:tabular-nums}.counts :is(td,th)"
    "{padding:.1em 1em .1em 0;white-space:nowrap}"
    ".counts :is(td,th):nth-child(n+2){text-align:right}"
    "@media(max-width:44em){.counts{font-size:13px}.counts :is(td,th){padding-right:.6em}"
    ".found tr{display:block}.found td:nth-child(n){display:block;width:auto;padding:.1em 0}"
    ".found td:nth-child(n+2){border:0}.found th{display:none}}"
)
LONGEST = 600
"""Characters of what one node may say about one thing."""
MOST_WAYS, MOST_DIFFS, MOST_RANGES = 3, 4, 12
"""Of one thing; of one way; in a cell before the rest is folded."""


@dataclass(order=True, frozen=True)
class Thing:
    """What differs, on however many nodes."""

    kind: str
    key: str
    role: str


@dataclass
class Way:
    """How a thing differs, and where."""

    hosts: list[str] = field(default_factory=list)
    tasks: set[str] = field(default_factory=set)
    since: list[str] = field(default_factory=list)
    """The first and the last moment, ISO 8601; empty where no node knows one."""
    diffs: dict[str, list[str]] = field(default_factory=dict)
    """Text → hosts; only the first few texts are kept."""

    def add(self, host: str, difference: Difference) -> None:
        """One node more."""
        self.hosts.append(host)
        self.tasks.add(difference.task)
        moments = [*self.since, *filter(None, [difference.since])]
        self.since = [min(moments), max(moments)] if moments else []
        if difference.diff and (difference.diff in self.diffs or len(self.diffs) < MOST_DIFFS):
            self.diffs.setdefault(difference.diff, []).append(host)

    @property
    def origin(self) -> str:
        """Which tasks made it true, and since when it is not."""
        since = f"; since {' to '.join(dict.fromkeys(self.since))}" if self.since else ""
        return f", task {', '.join(f'“{task}”' for task in sorted(self.tasks))}{since}"


Ways = dict[str, Way]
"""How it differs, in words → where."""


class DriftPage:
    """Takes a scan's reports one by one, and makes a page of them."""

    def __init__(self, stack: str, pools: Mapping[str, str], roles: Sequence[str] = ()) -> None:
        """`pools`: host → pool, of all there are; `roles`: the only ones that are looked at, if any."""
        self.stack, self.pools, self.roles = stack, pools, roles
        self.began, self.together = datetime.now(UTC), Summary()
        self.by_region, self.by_pool = defaultdict[str, Summary](Summary), defaultdict[str, Summary](Summary)
        self.things = defaultdict[Thing, Ways](dict)
        self.unsettled = defaultdict[tuple[str, str], list[str]](list)
        """(Role, what is the matter with it) → hosts, for roles that are not compared, or not all."""
        self.unscanned = defaultdict[tuple[str, str], list[str]](list)
        """(State, why) → hosts."""
        self.clean: list[str] = []

    def add(self, report: HostReport) -> None:
        """Take one node's report."""
        for summary in (
            self.together,
            self.by_region[report.region],
            self.by_pool[self.pools[report.host]],
        ):
            summary.add(report)
        for difference in report.differences:
            ways = self.things[Thing(difference.kind, difference.key, difference.role)]
            ways.setdefault(one_line(difference.said, LONGEST), Way()).add(report.host, difference)
        for name, role in report.roles.items():
            if role.state not in ("clean", "drift"):
                says = one_line(f"{role.state}: {'; '.join(role.notes)}", LONGEST)
                self.unsettled[name, says].append(report.host)
        if report.state in NOT_SCANNED:
            self.unscanned[report.state, one_line(report.message, LONGEST)].append(report.host)
        elif report.state == "clean":
            self.clean.append(report.host)

    def text(self) -> str:
        """The page."""
        parts = [*self._summary(), *self._differences(), *self._unsettled(), *self._unscanned()]
        return document(f"Drift of stack {self.stack}", [*parts, *self._rest()], STYLE)

    def _summary(self) -> Iterator[str]:
        ended = datetime.now(UTC)
        yield _paragraph(f"Scanned {self.began:%Y-%m-%d %H:%M:%S} to {ended:%H:%M:%S} UTC.")
        if self.roles:
            yield _paragraph(f"Looked at only: {', '.join(self.roles)}.")
        for line in self.together.headlines():
            yield _paragraph(line)
        states = sorted(self.together.states)
        counts = [
            _counts(name, states, summaries)
            for name, summaries in (("Region", self.by_region), ("Pool", self.by_pool))
        ]
        if self.things:
            counts += [self._counts_of("Role"), self._counts_of("Kind")]
        yield f'<div class="counts">{"".join(counts)}</div>'
        if self.things:
            command = f'<code class="command">{fragment(repair_command(self.stack))}</code>'
            narrowed = "<code>--limit NODES</code> and <code>--tags ROLES</code> narrow it"
            yield f"<p>Repair only what drifted, only where it did: {command}; {narrowed}.</p>"

    def _counts_of(self, what: str) -> str:
        """Differences, and the nodes that have any, by role or kind."""
        hosts: dict[str, set[str]] = defaultdict(set)
        times = Counter[str]()
        for thing, ways in self.things.items():
            name = thing.role if what == "Role" else thing.kind
            times[name] += sum(len(way.hosts) for way in ways.values())
            hosts[name].update(*(way.hosts for way in ways.values()))
        rows = [[name, _number(count), _number(len(hosts[name]))] for name, count in sorted(times.items())]
        return f"<figure>{table('', (what, 'differences', 'on nodes'), rows)}</figure>"

    def _differences(self) -> Iterator[str]:
        if self.things:
            rows = [
                row
                for thing, ways in sorted(self.things.items(), key=lambda item: (-_nodes(item[1]), item[0]))
                for row in _rows(thing, ways)
            ]
            yield "<h2>What differs</h2>" + _found(("what", "how", "nodes"), rows)

    def _unsettled(self) -> Iterator[str]:
        if self.unsettled:
            rows = [[name, says, _hosts(hosts)] for (name, says), hosts in _largest(self.unsettled)]
            yield "<h2>Roles that are stale, not sealed or orphaned</h2>" + _found(
                ("role", "state", "nodes"), rows
            )

    def _unscanned(self) -> Iterator[str]:
        if self.unscanned:
            rows = [[state, why, _hosts(hosts)] for (state, why), hosts in _largest(self.unscanned)]
            yield "<h2>Nodes that could not be scanned</h2>" + _found(("state", "why", "nodes"), rows)

    def _rest(self) -> Iterator[str]:
        """What nobody has to do anything about, folded."""
        if self.clean:
            names = ", ".join(text for text, _ in ranges(self.clean))
            yield _folded(f"Clean nodes: {_number(len(self.clean))}", _paragraph(names))
        if self.together.uncovered:
            tasks = "".join(f"<li>{fragment(task)}</li>" for task in sorted(self.together.uncovered))
            yield _folded("Tasks that no record covers: look with --check", f"<ul>{tasks}</ul>")


def write_page(file: Path, page: DriftPage, reports: Iterable[HostReport]) -> Iterator[HostReport]:
    """Pass the reports on, and write the page behind the last one. CausewayError when that cannot be."""
    try:
        file.open("a").close()  # before a scan of minutes, and not behind it
    except OSError as error:
        raise CausewayError(f"{file} cannot be written: {error.strerror}") from None
    for report in reports:
        page.add(report)
        yield report
    save(file, page.text())


def _counts(name: str, states: Sequence[str], summaries: Mapping[str, Summary]) -> str:
    head = (name, "nodes", *states, "differences")
    rows = [
        [
            one,
            *(_number(n) for n in (summary.nodes, *map(summary.states.__getitem__, states))),
            _number(summary.differences),
        ]
        for one, summary in sorted(summaries.items())
    ]
    return f"<figure>{table('', head, rows)}</figure>"


def _rows(thing: Thing, ways: Ways) -> Iterator[list[str]]:
    """One for each way in which a thing differs; of one that differs everywhere otherwise, the first few."""
    most_first = sorted(ways.items(), key=lambda item: (-len(item[1].hosts), item[0]))
    for says, way in most_first[:MOST_WAYS]:
        yield [_what(thing, way.origin), Markup(fragment(says) + _diffs(way)), _hosts(way.hosts)]
    if rest := most_first[MOST_WAYS:]:
        lines = "".join(f"<li>{fragment(f'{some(way.hosts)}: {says}')}</li>" for says, way in rest)
        hosts = [host for _, way in rest for host in way.hosts]
        folded = Markup(_folded(f"in {_number(len(rest))} more ways", f"<ul>{lines}</ul>"))
        yield [_what(thing), folded, _hosts(hosts)]


def _what(thing: Thing, origin: str = "") -> Markup:
    """The thing, and where it comes from."""
    name, role = (fragment(text) for text in (f"{thing.kind} {thing.key}", thing.role + origin))
    return Markup(f"<b>{name}</b><small>{role}</small>")


def _diffs(way: Way) -> str:
    """The texts that differ, folded."""
    shown = sorted(way.diffs.items(), key=lambda item: (-len(item[1]), natural(item[1][0])))
    parts = []
    for text, hosts in shown:
        on = "" if len(shown) == 1 and len(hosts) == len(way.hosts) else f" on {some(hosts, 3)}"
        parts.append(_folded(f"difference in lines{on}", f"<pre>{fragment(text)}</pre>"))
    more = len(way.hosts) - sum(map(len, way.diffs.values()))
    if parts and more:
        parts.append(f"<small>of {_number(more)} more: causeway drift --host NODE</small>")
    return "".join(parts)


def _hosts(hosts: Sequence[str]) -> Markup:
    """How many, and which; the rest of a long list folded."""
    found = ranges(hosts)
    count = "" if len(hosts) == 1 else f"<b>{_number(len(hosts))}</b> "
    first = fragment(", ".join(text for text, _ in found[:MOST_RANGES]))
    if len(found) <= MOST_RANGES:
        return Markup(count + first)
    more = sum(number for _, number in found[MOST_RANGES:])
    rest = fragment(", ".join(text for text, _ in found[MOST_RANGES:]))
    return Markup(count + first + _folded(f"and {_number(more)} more", rest))


def _found(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return f'<div class="found">{table("", head, rows)}</div>'


def _largest(groups: Mapping[tuple[str, str], list[str]]) -> list[tuple[tuple[str, str], list[str]]]:
    return sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))


def _nodes(ways: Ways) -> int:
    return sum(len(way.hosts) for way in ways.values())


def _number(value: int) -> str:
    return f"{value:,}"


def _paragraph(text: str) -> str:
    return f"<p>{fragment(text)}</p>"


def _folded(summary: str, inside: str) -> str:
    return f"<details><summary>{fragment(summary)}</summary>{inside}</details>"
