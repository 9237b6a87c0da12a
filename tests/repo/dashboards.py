"""What the dashboards of all capabilities ask, as Grafana would put it to a Prometheus."""

import re
from collections.abc import Iterator

from infra.capabilities import dashboards
from infra.ground.dashboard import Dashboard, Panel, Query

FILLED_IN = {
    "$__rate_interval": "1m",
    "$__range_s": "3600",
    "$__range": "1h",
    "$region": ".+",
}
"""What Grafana makes of its variables; the longest name that fits comes first."""


def questions() -> Iterator[tuple[Dashboard, Panel, Query]]:
    """Every query, with where it stands."""
    for dashboard in dashboards():
        for panel in dashboard.panels:
            for query in panel.queries:
                yield dashboard, panel, query


def filled(expr: str, node: str) -> str:
    """PromQL without variables, about all regions and one node."""
    for name, value in {**FILLED_IN, "$node": node}.items():
        expr = expr.replace(name, value)
    return expr


WORDS = {"and", "or", "unless", "bool"}
GROUPED = re.compile(r"\b(?:by|on|group_left) \([^)]*\)")
TEXTS = re.compile(r'"[^"]*"')
SELECTED = re.compile(r"\{[^}]*\}|\[[^]]*\]")
NAMED = re.compile(r"(?<!\$)\b[A-Za-z_][\w:]*\b(?! ?\()")
PATTERN = re.compile(r'__name__=~"([^"]*)"')


def metrics(expr: str) -> set[str]:
    """Names of the series that PromQL reads, and the patterns of names."""
    plain = GROUPED.sub("", SELECTED.sub("", expr))
    return {*NAMED.findall(TEXTS.sub("", plain)), *PATTERN.findall(expr)} - WORDS
