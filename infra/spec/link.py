"""WAN links: the roads between regions, declared as objects of their own."""

from typing import Literal

from pydantic import Field

from infra.spec.base import Float, Int, Spec

LinkKind = Literal["dedicated_fiber", "sdwan", "vpn"]


class WanLinkSpec(Spec):
    """One road between two regions, with what the carrier promised for it."""

    name: str
    """A DNS label of its own."""
    a: str
    """Name of the region at one end."""
    b: str
    """Name of the region at the other end."""
    kind: LinkKind = "dedicated_fiber"
    """How the carrier makes the link."""
    rtt_ms: Float
    """Round trip, both directions together."""
    bandwidth_mbps: Float
    """Rate of each direction."""
    loss_pct: Float = 0.0
    """Packets lost in each direction, per cent."""
    mtu_bytes: Int = 1500
    """Largest packet the link takes; what tunnels add counts."""
    flows: Int = Field(default=8, ge=1)
    """Parallel TCP flows that replication over this link opens; decides the congestion control."""
