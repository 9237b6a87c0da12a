"""Which link: paths as each region's Prometheus sees them, links as gateways measure them."""

from infra.ground.dashboard import HERE, Dashboard, Panel, Query, by_region, or_none, or_zero

GATEWAY = "gateway nodes"
PATH, LINK = "{{region}} → {{target_region}}", "{{link}} at {{instance}}"


def path(series: str, legend: str = PATH) -> Query:
    """Of each path from the regions that were chosen."""
    return Query(by_region(f"{series}{{{HERE}}}", "target_region"), legend)


def link(expr: str, legend: str = LINK, unit: str = "") -> Query:
    """Of each link, as the gateway at one of its ends has measured it."""
    return Query(by_region(expr, "instance", "link"), legend, unit, needs=GATEWAY)


def neighbour(expr: str, legend: str, unit: str = "") -> Query:
    """Of each declared neighbour of a gateway's, by the address that FRR knows it by."""
    return Query(by_region(expr, "instance", "link", "peer"), legend, unit, needs=GATEWAY)


def measured(name: str) -> str:
    """A series of the gateways'."""
    return f"causeway_wan_link_{name}{{{HERE}}}"


LINKS = Dashboard(
    uid="causeway-links",
    title="Which link?",
    about="region",
    help=(
        "The global region's server has the paths of all regions, and the links and neighbours of its own"
        " gateways."
    ),
    panels=(
        Panel(
            "Round trip by path",
            "curves",
            (
                path("region:path_rtt_seconds"),
                path("region:path_rtt:declared_seconds", f"declared {PATH}"),
            ),
            "s",
        ),
        Panel(
            "Round trips lost by path, over half an hour",
            "curves",
            (path("region:path_loss_ratio"), path("region:path_loss:declared_ratio", f"declared {PATH}")),
            "percentunit",
        ),
        Panel(
            "Paths without any answer for two minutes",
            "table",
            (
                Query(
                    or_none(
                        "max by (region, target_region)"
                        f' (max_over_time(probe_success{{probe="path", {HERE}}}[2m])) == 0',
                        "target_region",
                    ),
                    "answers",
                ),
            ),
            help="As PathDown has it; of the region whose server is asked.",
        ),
        Panel(
            "What waits to be sent to the global region",
            "curves",
            (
                Query(
                    or_zero(f"sum by (region) (vmagent_remotewrite_pending_data_bytes{{{HERE}}})"),
                    "{{region}}",
                ),
            ),
            "bytes",
            help="It grows while the way there is cut.",
        ),
        Panel(
            "Links",
            "table",
            (
                link(measured("up"), "answers"),
                link(measured("rtt_seconds"), "round trip", "s"),
                link(measured("declared_rtt_seconds"), "declared round trip", "s"),
                link(measured("loss_ratio"), "loss of round trips", "percentunit"),
                link(measured("declared_loss_ratio"), "declared loss", "percentunit"),
                link(measured("mtu_bytes"), "largest packet", "bytes"),
                link(measured("declared_mtu_bytes"), "declared largest packet", "bytes"),
                link(f"changes({measured('up')}[1h])", "changes in an hour"),
            ),
            width=24,
            help="Measured once a minute; a link has a gateway at each end.",
        ),
        Panel(
            "Neighbours",
            "table",
            (
                neighbour(f"causeway_wan_bgp_up{{{HERE}}}", "BGP"),
                neighbour(f"causeway_wan_bfd_up{{{HERE}}}", "BFD"),
                neighbour(f"causeway_wan_bgp_prefixes{{{HERE}}}", "prefixes"),
                neighbour(f"time() - causeway_wan_bgp_changed_timestamp_seconds{{{HERE}}}", "since", "s"),
                neighbour(f"increase(causeway_wan_bgp_drops_total{{{HERE}}}[1h])", "lost in an hour"),
            ),
            width=24,
            help="As FRR has them; all that are declared, and without a link those of the same region.",
        ),
        Panel(
            "Round trip by link",
            "curves",
            (
                link(measured("rtt_seconds")),
                link(measured("declared_rtt_seconds"), f"declared {LINK}"),
            ),
            "s",
        ),
        Panel(
            "Round trips lost by link",
            "curves",
            (link(measured("loss_ratio")), link(measured("declared_loss_ratio"), f"declared {LINK}")),
            "percentunit",
        ),
        Panel(
            "Rate at gateways by interface",
            "curves",
            tuple(
                Query(
                    f'rate(node_network_{way}_bytes_total{{node_role="gateway", device!="lo", {HERE}}}'
                    "[$__rate_interval])",
                    f"{{{{instance}}}} {{{{device}}}} {way}",
                    needs=GATEWAY,
                )
                for way in ("receive", "transmit")
            ),
            "Bps",
        ),
        Panel(
            "Rate of a region's nodes, without RDMA",
            "curves",
            (
                Query(
                    by_region(f"region:network:bytes_rate{{{HERE}}}", "direction"),
                    "{{region}}, {{direction}}",
                ),
            ),
            "Bps",
            help="Within the region as well as out of it.",
        ),
    ),
)

DASHBOARDS = (LINKS,)
