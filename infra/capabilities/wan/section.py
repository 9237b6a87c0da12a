"""The WAN in the contract: links, routes, gateways, and how traffic is classed."""

from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import ClassVar, Literal

from infra.declaration import TrafficClasses
from infra.ground.contract import Part, Section
from infra.ground.endpoint import TrafficClass

CongestionControl = Literal["bbr", "cubic"]


class WanLinkEnd(Part):
    """Where a link ends in a region: at which host, with which address where Causeway makes the link."""

    gateway: str | None = None
    """A host of role gateway; None for the region's router."""
    address: IPv4Interface | None = None
    """Planned for a link that is made here, declared for one that a carrier hands over; else None."""
    public_address: IPv4Address | None = None
    """By which the far end reaches this one, where that is another one."""
    tunnel_address: IPv4Interface | None = None
    """Inside the tunnel, for kind `vpn`."""


class WanLink(Part):
    """One WAN link: as declared, and what planning made of it."""

    a: str
    b: str
    kind: str
    backup_of: str | None = None
    rtt_ms: float
    bandwidth_mbps: float
    loss_pct: float
    mtu_bytes: int
    """The largest packet inside the link's tunnel, where its kind has one."""
    handover_mtu_bytes: int
    """The largest packet the carrier takes at the link's ends."""
    mss_bytes: int
    bdp_bytes: int
    tcp_buffer_max_bytes: int
    congestion_control: CongestionControl
    reason: str
    expected_cubic_mbps: float
    classes: TrafficClasses
    tunnel_port: int | None = None
    """UDP port of the tunnel at both ends, for kind `vpn`."""
    ends: dict[str, WanLinkEnd]
    """By region: `a` and `b`."""


class WanRoute(Part):
    """How a region's nodes reach one other region.

    Sizes are the primary path's; buffers and congestion control hold on the backup path, too.
    """

    region: str
    cidr: IPv4Network
    path: tuple[str, ...]
    """The links of the path, in travelling order."""
    backup_path: tuple[str, ...]
    """The links while those of `path` are down; none when there is no other path."""
    rtt_ms: float
    bandwidth_mbps: float
    loss_pct: float
    """Of the primary path, as declared."""
    congestion_control: CongestionControl
    reason: str
    mtu_bytes: int
    mss_bytes: int


class WanRegion(Part):
    """How a region reaches the others."""

    asn: int
    """The region's private AS number, for BGP between gateways."""
    gateways: tuple[str, ...]
    """Hosts at which the region's WAN links end; none where its router does that."""
    gateway_address: IPv4Address | None = None
    """Where nodes send traffic for other regions; None where only the machines' own routes know."""
    tcp_buffer_max_bytes: int
    """The largest socket buffer any route of the region needs; 0 for a region without links."""
    routes: tuple[WanRoute, ...]
    """One for every region that links lead to, also through others, in declared order."""


class WanSection(Section):
    """Every cluster has it; one of a single region has no link."""

    capability: ClassVar = "wan"
    version: Literal[1] = 1
    regions: dict[str, WanRegion]
    links: dict[str, WanLink]
    ports: dict[TrafficClass, tuple[str, ...]]
    """Class → the ports that gateways serve so, by number: `179`, or `8500-8503`; replication is all else."""

    def route(self, source: str, target: str) -> WanRoute | None:
        """How a region reaches another one; None where no links lead there."""
        return next((route for route in self.regions[source].routes if route.region == target), None)


SECTION = WanSection
