"""Is the fleet healthy: all regions on one page, as the global region's server sees them."""

from infra.ground.dashboard import Dashboard, Panel, Query, by_region, or_none, or_zero

GATEWAY, PORTS = "gateway nodes", "fabric ports"
PAGES, TICKETS = (by_region(f'region:alerts:firing{{severity="{name}"}}') for name in ("page", "ticket"))
DECLARED, UP = by_region("region:nodes:declared"), by_region("region:nodes:up")
SILENT = "time() - causeway_deadman_last_seen_timestamp_seconds"
FIRING = by_region(
    'ALERTS{alertstate="firing", severity=~"page|ticket"}',
    "severity",
    "alertname",
    "target_region",
    "instance",
)


def number(title: str, expr: str, help: str = "", bad_from: float | None = 1) -> Panel:  # noqa: A002 - Panel's
    """One of the numbers at the top."""
    return Panel(title, "numbers", (Query(expr),), width=4, bad_from=bad_from, help=help)


def path(series: str, legend: str, unit: str) -> Query:
    """A column of the paths."""
    return Query(by_region(series, "target_region"), legend, unit)


FLEET = Dashboard(
    uid="causeway-fleet",
    title="Is the fleet healthy?",
    about="cluster",
    help="All regions, by what each records of itself. Ask the global region's server.",
    panels=(
        number("Regions that are heard", f"count({DECLARED})", bad_from=None),
        number(
            "Regions that fell silent",
            or_zero(f"count({SILENT} > 300)"),
            "No sign of life for five minutes, as RegionGone has it; or never any.",
        ),
        number("Nodes that do not answer", f"sum({DECLARED}) - sum({UP})"),
        number("Pages", f"sum({PAGES})"),
        number("Tickets", f"sum({TICKETS})"),
        number("Nodes that drifted", f"sum({by_region('region:drift:nodes')})"),
        Panel(
            "Regions",
            "table",
            (
                Query(UP, "nodes up"),
                Query(DECLARED, "nodes declared"),
                Query(PAGES, "pages"),
                Query(TICKETS, "tickets"),
                Query(by_region("region:drift:nodes"), "nodes that drifted"),
                Query(by_region("region:wan_links:up"), "WAN links up", needs=GATEWAY),
                Query(by_region("region:wan_links:seen"), "WAN links seen", needs=GATEWAY),
                Query(by_region("region:fabric_ports:up"), "fabric ports up", needs=PORTS),
                Query(by_region("region:fabric_ports:seen"), "fabric ports seen", needs=PORTS),
                Query(by_region("region:cpu:busy_ratio"), "CPU busy", "percentunit"),
                Query(by_region("region:memory:used_ratio"), "memory used", "percentunit"),
                Query(
                    by_region(f'label_replace({SILENT}, "region", "$1", "from_region", "(.+)")'),
                    "last sign of life, ago",
                    "s",
                ),
            ),
            width=24,
            help="A region's own server hears no sign of life of itself.",
        ),
        Panel(
            "What fires",
            "table",
            (Query(or_none(FIRING, "alertname"), "fires"),),
            width=24,
            help="Each alert has a section in its runbook.",
        ),
        Panel(
            "WAN paths, seen and declared",
            "table",
            (
                path("region:path_rtt_seconds", "round trip", "s"),
                path("region:path_rtt:declared_seconds", "declared round trip", "s"),
                path("region:path_loss_ratio", "loss of round trips", "percentunit"),
                path("region:path_loss:declared_ratio", "declared loss", "percentunit"),
            ),
            width=24,
        ),
        Panel(
            "Nodes that answer, of those declared",
            "curves",
            (Query(f"{UP} / {DECLARED}", "{{region}}"),),
            "percentunit",
        ),
        Panel(
            "Alerts that fire",
            "curves",
            (Query(by_region("region:alerts:firing", "severity"), "{{region}}, {{severity}}"),),
        ),
        Panel(
            "Round trip, of the declared one",
            "curves",
            (
                Query(
                    f"{by_region('region:path_rtt_seconds', 'target_region')}"
                    f" / {by_region('region:path_rtt:declared_seconds', 'target_region')}",
                    "{{region}} → {{target_region}}",
                ),
            ),
            "percentunit",
        ),
        Panel(
            "Network, without RDMA",
            "curves",
            (Query(by_region("region:network:bytes_rate", "direction"), "{{region}}, {{direction}}"),),
            "Bps",
        ),
    ),
)

DASHBOARDS = (FLEET,)
