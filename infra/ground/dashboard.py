"""What a capability's dashboards say: questions, panels, and PromQL; how Grafana has them is monitoring's.

In the global region's Prometheus lie the recorded series of all regions: its own without the label `cluster`,
those that were sent to it with one. `by_region` makes one of both.
"""

from dataclasses import dataclass
from typing import Literal

HERE = 'region=~"$region"'
"""The regions that were chosen; one server has the raw series of its own alone."""


@dataclass(frozen=True)
class Query:
    """PromQL, in which Grafana fills in `$region` (a pattern), `$node`, and what `$__…` stands for."""

    expr: str
    legend: str = ""
    """A curve's name, with `{{label}}`, or a column's; what begins with `declared` is drawn dashed."""
    unit: str = ""
    """Of a column, where it is not the panel's."""
    needs: str = ""
    """What a node of the tests lacks for it; empty means that every standing stack answers something."""


@dataclass(frozen=True)
class Panel:
    """Numbers, curves or a table; a table's queries are joined by the labels that they have in common."""

    title: str
    kind: Literal["numbers", "curves", "table"]
    queries: tuple[Query, ...]
    unit: str = "short"
    """By Grafana's names of units; ratios are `percentunit`, moments in ms `dateTimeFromNow`."""
    width: int = 12
    """Of 24."""
    bad_from: float | None = None
    """From this value on it is shown as bad."""
    help: str = ""


@dataclass(frozen=True)
class Dashboard:
    """One page, which answers one question."""

    uid: str
    """For good: what points to a page has it in its address. At most 40 characters."""
    title: str
    about: Literal["cluster", "region", "node"]
    """What it shows, so what can be chosen; the cluster is seen by the global region's server alone."""
    panels: tuple[Panel, ...]
    help: str = ""


def by_region(series: str, *labels: str, how: str = "max") -> str:
    """One value for each region, and for each of its `labels`."""
    return f"{how} by ({', '.join(('region', *labels))}) ({series})"


def or_none(expr: str, label: str) -> str:
    """What is found, and where nothing is, one line that says `none`: an empty page may be a broken one."""
    return f'{expr} or on () label_replace(vector(0), "{label}", "none", "", "")'


def or_zero(expr: str) -> str:
    """What is counted; 0 where nothing is."""
    return f"{expr} or on () vector(0)"
