"""Which port or switch: what the fabric's alerts read, port by port, and rail by rail.

Switches have no series. On a rail all ports of a pool lead to the same leafs, so what is wrong with a leaf
stands out between rails, and what is wrong with a port between the nodes of one.
"""

from infra.ground.dashboard import HERE, Dashboard, Panel, Query, by_region, or_none

PORTS, NIC = "fabric ports", "NICs whose driver counts pauses"
RDMA, NEWER = "RDMA", "RDMA, and node_exporter 1.11"
PORT, RAIL = "{{instance}} {{device}}", "{{pool}} {{device}}"
BY_PORT = "region, pool, instance, device"
OF_FABRIC = f"on (region, instance, device) node:fabric_port{{{HERE}}}"
MOST = 10


def worst(expr: str, needs: str, legend: str = PORT) -> Query:
    """The ports that are worst off: a page of thousands of curves shows none."""
    return Query(f"topk({MOST}, max by ({BY_PORT}) ({expr}))", legend, needs=needs)


def by_rail(series: str) -> Query:
    """The mean of all nodes' ports of one name."""
    return Query(f"avg by (region, pool, device) ({series}{{{HERE}}})", RAIL, needs=NIC)


def per_second(counter: str) -> str:
    """A counter's rate."""
    return f"rate({counter}{{{HERE}}}[$__rate_interval])"


def of_packets(counter: str, way: str) -> str:
    """Its share of a port's packets; below a thousand a second a ratio says nothing."""
    packets = per_second(f"node_infiniband_port_packets_{way}_total")
    return f"{per_second(counter)} / ({packets} > 1000)"


def fabric_only(*rates: str) -> str:
    """The sum of what a port counts, of the fabric's ports alone."""
    return f"({' + '.join(rates)}) and {OF_FABRIC}"


FABRIC = Dashboard(
    uid="causeway-fabric",
    title="Which port or switch?",
    about="region",
    help=f"The {MOST} worst ports of each kind; switches have no series of their own.",
    panels=(
        Panel(
            "Ports with a link, and all",
            "curves",
            (
                Query(by_region(f"region:fabric_ports:up{{{HERE}}}"), "{{region}}, with a link", needs=PORTS),
                Query(by_region(f"region:fabric_ports:seen{{{HERE}}}"), "{{region}}, all", needs=PORTS),
            ),
        ),
        Panel(
            "RDMA",
            "curves",
            (
                Query(
                    by_region(f"region:rdma:bytes_rate{{{HERE}}}", "direction"),
                    "{{region}}, {{direction}}",
                    needs=RDMA,
                ),
            ),
            "Bps",
        ),
        Panel(
            "Ports without a link",
            "table",
            (
                Query(
                    or_none(
                        f"max by ({BY_PORT}) (node_network_carrier{{{HERE}}} == 0 and {OF_FABRIC})", "device"
                    ),
                    "link",
                ),
            ),
        ),
        Panel(
            "Links lost, in the time shown",
            "table",
            (
                Query(
                    or_none(
                        f"topk({MOST}, max by ({BY_PORT}) ("
                        f"increase(node_network_carrier_down_changes_total{{{HERE}}}[$__range])"
                        f" and {OF_FABRIC}) > 0)",
                        "device",
                    ),
                    "times",
                ),
            ),
        ),
        Panel(
            "Paused by the fabric",
            "curves",
            (worst(f"node:fabric_paused:ratio{{{HERE}}}", NIC),),
            "percentunit",
            help="Share of time in which the switch keeps the port from sending.",
        ),
        Panel(
            "Pauses that ports send",
            "curves",
            (worst(f"node:fabric_pausing:ratio{{{HERE}}}", NIC),),
            "percentunit",
            help="A receiver that does not keep up: the source of a pause storm.",
        ),
        Panel("Paused, by rail", "curves", (by_rail("node:fabric_paused:ratio"),), "percentunit"),
        Panel("Pausing, by rail", "curves", (by_rail("node:fabric_pausing:ratio"),), "percentunit"),
        Panel(
            "Packets marked as congested",
            "curves",
            (
                worst(
                    of_packets("node_infiniband_np_ecn_marked_roce_packets_received_total", "received"), NEWER
                ),
            ),
            "percentunit",
        ),
        Panel(
            "Congestion notifications per packet sent",
            "curves",
            (worst(of_packets("node_infiniband_rp_cnp_packets_handled_total", "transmitted"), NEWER),),
            "percentunit",
        ),
        Panel(
            "Packets out of sequence",
            "curves",
            (worst(of_packets("node_infiniband_out_of_sequence_packets_received_total", "received"), NEWER),),
            "percentunit",
            help="In a lossless class with one path per flow: packets were lost.",
        ),
        Panel(
            "Discarded, and damaged",
            "curves",
            (
                worst(
                    fabric_only(
                        per_second("node_ethtool_received_discards_phy"),
                        per_second("node_ethtool_received_out_of_buffer"),
                    ),
                    NIC,
                    f"{PORT} discarded",
                ),
                worst(
                    fabric_only(
                        per_second("node_ethtool_received_crc_errors_phy"),
                        per_second("node_ethtool_received_pcs_symbol_err_phy"),
                    ),
                    NIC,
                    f"{PORT} damaged",
                ),
            ),
            "pps",
        ),
    ),
)

DASHBOARDS = (FABRIC,)
