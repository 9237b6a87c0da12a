"""Shows what a scan found, node by node: for people on a terminal, for programs as JSON."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from infra.drift.findings import NOT_SCANNED, Difference, HostReport
from infra.errors import ExitCode, one_line


@dataclass
class Summary:
    """Counts over nodes; small, however many there are."""

    states: Counter[str] = field(default_factory=Counter)
    differences: int = 0
    unsettled: int = 0
    uncovered: set[str] = field(default_factory=set)
    unscanned: list[str] = field(default_factory=list)

    def add(self, report: HostReport) -> None:
        """Count one node."""
        self.states[report.state] += 1
        self.differences += len(report.differences)
        self.unsettled += len(report.unsettled_roles)
        for role, part in report.roles.items():
            self.uncovered |= {f"{role}: {task}" for task in part.uncovered}
        if report.state in NOT_SCANNED:
            self.unscanned.append(report.host)

    @property
    def exit_code(self) -> ExitCode:
        """DRIFT when something differs or cannot be said to be as declared; FAILED for nodes not scanned."""
        if self.differences or (self.unsettled and not self.unscanned):
            return ExitCode.DRIFT
        return ExitCode.FAILED if self.unscanned else ExitCode.OK

    @property
    def nodes(self) -> int:
        """How many were asked."""
        return self.states.total()

    def headlines(self) -> list[str]:
        """What a page and a terminal begin, or end, with."""
        counts = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items()))
        lines = [f"{self.nodes} nodes: {counts or 'none'}; {self.differences} differences"]
        if self.unsettled:
            lines.append(f"{self.unsettled} roles on nodes are stale or not sealed: converge them (./run up)")
        return lines

    def __str__(self) -> str:
        lines = self.headlines()
        if self.unscanned:
            lines.append(f"not scanned: {', '.join(self.unscanned[:20])}")
        lines += [f"uncovered, look with --check: {task}" for task in sorted(self.uncovered)]
        return "\n".join(lines)


def each(reports: Iterator[HostReport], show: Callable[[HostReport], None]) -> Iterator[HostReport]:
    """Show every report as it passes."""
    for report in reports:
        show(report)
        yield report


def as_json(stack: str, report: HostReport) -> dict[str, Any]:
    """A node's report as JSON values."""
    data = asdict(report)
    for role in data["roles"].values():
        for difference in role["differences"]:
            difference.pop("role")
    if report.drifted_roles:
        data["repair"] = report.repair_command(stack)
    return data


def print_host(stack: str, report: HostReport) -> None:
    """A node in lines: nothing but its name when all is well."""
    for line in host_lines(stack, report):
        print(line)


def host_lines(stack: str, report: HostReport) -> Iterator[str]:
    """What there is to say about a node; nothing in it can be more than its line."""
    return map(one_line, _host_lines(stack, report))


def _host_lines(stack: str, report: HostReport) -> Iterator[str]:
    yield f"{report.host} ({report.region}): {report.state}{': ' if report.message else ''}{report.message}"
    for name, role in report.roles.items():
        if role.state != "clean":
            notes = f": {'; '.join(role.notes)}" if role.notes else ""
            yield f"  {name}: {role.state}{notes}"
        for difference in role.differences:
            yield f"    {difference}"
            yield f"      {_origin(difference)}"
            yield from (f"      | {line}" for line in (difference.diff or "").splitlines())
    if report.drifted_roles:
        yield f"  repair: {report.repair_command(stack)}"


def _origin(difference: Difference) -> str:
    since = f"since {difference.since}; " if difference.since else ""
    return f"{since}made by task “{difference.task}”"
