"""What listens for the WAN: on gateways, at the addresses of links, and while paths are measured."""

from collections.abc import Iterator

from infra.capabilities.wan.section import WanSection
from infra.ground.endpoint import EVERYONE, Endpoint, HostSet, Ports
from infra.ground.nodes import Nodes

BGP_PORT = 179
BFD_PORTS = (Ports(3784, 3785), Ports.one(4784))
"""Single hop, echo and multihop (RFC 5881, RFC 5883)."""
FIRST_MEASURE_PORT = 5291
"""Every test has a port of its own: the server before it may still be closing its own."""
MEASURE_TESTS = 3
"""Of one pair: loss, and TCP with either congestion control."""


def endpoints(section: WanSection, nodes: Nodes) -> Iterator[Endpoint]:
    """Gateways tell each other the way, and watch each other; nodes measure it where there are links."""
    gateways = HostSet(hosts=tuple(node.name for node in nodes.nodes if node.role == "gateway"))
    yield Endpoint("bgp", gateways, (Ports.one(BGP_PORT),), "management", sources=gateways)
    if section.links:
        measure = Ports(FIRST_MEASURE_PORT, FIRST_MEASURE_PORT + MEASURE_TESTS - 1)
        yield Endpoint("wan-measure", EVERYONE, (measure,), "replication", ("tcp", "udp"))
    if gateways.hosts:
        # At the addresses of links there is no node's traffic, hence no class that is told by a port.
        yield Endpoint("bfd", gateways, BFD_PORTS, "management", ("udp",), gateways, "wan")
        # Pings measure a link, and find its MTU.
        yield Endpoint("link-probe", gateways, (), "management", ("icmp",), gateways, "wan")
    for region in section.regions.values():
        if len(region.gateways) > 1:
            own = HostSet(hosts=region.gateways)
            yield Endpoint("vrrp", own, (), "management", ("vrrp",), own)
            yield Endpoint("gateway-probe", own, (), "management", ("icmp",), own)
    for name, link in section.links.items():
        ends = HostSet(hosts=tuple(end.gateway for end in link.ends.values() if end.gateway))
        if link.tunnel_port and ends.hosts:
            port = (Ports.one(link.tunnel_port),)
            yield Endpoint(f"wireguard-{name}", ends, port, "management", ("udp",), ends, "wan")
