"""WAN links: what joins two regions, declared as objects of their own."""

from typing import ClassVar, Literal

from pydantic import Field

from infra.declaration.base import Address, Float, Int, Interface, Spec

LinkKind = Literal["dedicated_fiber", "sdwan", "vpn"]


class TrafficClasses(Spec):
    """Shares of a link that classes of traffic are guaranteed when it is full; what one leaves, others take.

    Classes as in RFC 4594. Together they are at most 100.
    """

    what: ClassVar = "a table of classes"
    management_pct: Float = Field(default=10, gt=0)
    """Routing, SSH, ICMP (CS6, CS2): served first."""
    scheduler_pct: Float = Field(default=20, gt=0)
    """Schedulers and service discovery (AF21)."""
    replication_pct: Float = Field(default=60, gt=0)
    """Data between regions (AF11), and whatever is marked otherwise."""
    scavenger_pct: Float = Field(default=5, gt=0)
    """What may wait (CS1, LE)."""

    @property
    def total_pct(self) -> float:
        """What all classes are promised together."""
        return self.management_pct + self.scheduler_pct + self.replication_pct + self.scavenger_pct


class LinkEndSpec(Spec):
    """Where a link between regions of the provider `existing` ends: what the carrier has handed over."""

    what: ClassVar = "the end of a link"
    address: Interface
    """Address and prefix length of the interface at which it is handed over, and by which that is found."""
    gateway: str | None = None
    """Host name of the gateway with that interface; unset spreads a region's links over its gateways."""
    public_address: Address | None = None
    """Where the other end reaches this one through address translation, for `vpn`; unset means `address`."""


class WanLinkSpec(Spec):
    """One link between two regions, with what the carrier promised for it."""

    what: ClassVar = "a WAN link"
    name: str
    """A DNS label of its own."""
    a: str
    """Name of the region at one end."""
    b: str
    """Name of the region at the other end."""
    a_end: LinkEndSpec | None = None
    """Where it ends at `a`, between regions of the provider `existing`; elsewhere links are made."""
    b_end: LinkEndSpec | None = None
    """Where it ends at `b`."""
    kind: LinkKind = "dedicated_fiber"
    """A line of your own, a carrier's overlay (ESP, AES-GCM), or WireGuard between gateway nodes."""
    backup_of: str | None = None
    """Name of the link between the same regions that this one stands in for, and only while that is down."""
    rtt_ms: Float
    """Round trip, both directions together."""
    bandwidth_mbps: Float
    """Rate of each direction."""
    loss_pct: Float = 0.0
    """Packets lost in each direction, per cent."""
    mtu_bytes: Int = 1500
    """Largest packet the line takes; what the tunnel of `sdwan` or `vpn` adds goes off it."""
    flows: Int = Field(default=8, ge=1)
    """Parallel TCP flows that replication over this link opens; decides the congestion control."""
    single_flow_mbps: Float | None = Field(default=None, gt=0)
    """Rate that one TCP flow has to reach; unset asks for none."""
    pfc_priorities: tuple[Int, ...] = ()
    """Priorities with PFC on the ports at the link's ends; there has to be none."""
    classes: TrafficClasses = TrafficClasses()
    """How gateway nodes share a full link."""

    def end(self, region: str) -> LinkEndSpec | None:
        """Where the link ends in one of its two regions, as far as that is declared."""
        return self.a_end if region == self.a else self.b_end
