"""TCP over a WAN link: how much is in flight, which buffers that needs, which congestion control carries it.

Sources: RFC 9438 (CUBIC) section 5, RFC 7323 (window scaling), RFC 9293 (MSS).
"""

import math
from dataclasses import dataclass
from typing import Literal

from infra.spec import WanLinkSpec

CongestionControl = Literal["bbr", "cubic"]

IP_TCP_HEADER_BYTES = 40
BUFFER_FLOOR_BYTES = 16 * 2**20
BUFFER_CAP_BYTES = 2**31 - 1
"""tcp_rmem and tcp_wmem are signed 32-bit integers in the kernel."""
MAX_WINDOW_BYTES = 65535 << 14
"""The largest window a TCP header can announce: 16 bits at window scale 14 (RFC 7323)."""
LONG_PATH_RTT_MS = 10.0
ENOUGH_OF_TARGET = 0.8


@dataclass(frozen=True)
class LinkPlan:
    """What a link asks of the hosts that use it. Bytes, Mbit/s, and the reason in words."""

    bdp_bytes: int
    tcp_buffer_max_bytes: int
    congestion_control: CongestionControl
    reason: str
    expected_cubic_mbps: float
    mtu_bytes: int
    mss_bytes: int


def bdp_bytes(bandwidth_mbps: float, rtt_ms: float) -> int:
    """Bandwidth-delay product: bytes in flight when the link is full."""
    return round(bandwidth_mbps * 1e6 * rtt_ms / 1e3 / 8)


def buffer_max_bytes(bdp: int) -> int:
    """Socket buffer for one flow to fill the link: the power of two that holds 2 × BDP.

    Twice, because the kernel counts its own overhead against the buffer and a window must survive
    one loss. Between 16 MiB and the kernel's 2³¹-1.
    """
    needed = 1 << max(2 * bdp - 1, 0).bit_length()
    return min(max(needed, BUFFER_FLOOR_BYTES), BUFFER_CAP_BYTES)


def cubic_mbps(rtt_ms: float, loss_pct: float, mss_bytes: int = 1460) -> float:
    """The rate one CUBIC flow settles at under random loss, in Mbit/s; infinite without loss.

    Average window W = max(√(1.5/p), 1.054·(RTT/p)^¾) segments: the Reno-friendly region and
    CUBIC's own (RFC 9438, equation 6 with C = 0.4).
    """
    loss = loss_pct / 100
    if loss <= 0:
        return math.inf
    rtt_s = rtt_ms / 1e3
    window = max(math.sqrt(1.5 / loss), 1.054 * math.pow(rtt_s / loss, 0.75))
    return window * mss_bytes * 8 / rtt_s / 1e6


def plan_link(link: WanLinkSpec) -> LinkPlan:
    """Everything hosts need to know about one link."""
    bdp = bdp_bytes(link.bandwidth_mbps, link.rtt_ms)
    mss = link.mtu_bytes - IP_TCP_HEADER_BYTES
    cubic = min(cubic_mbps(link.rtt_ms, link.loss_pct, mss), link.bandwidth_mbps)
    congestion_control, reason = choose_congestion_control(link, cubic)
    return LinkPlan(
        bdp, buffer_max_bytes(bdp), congestion_control, reason, round(cubic, 3), link.mtu_bytes, mss
    )


def choose_congestion_control(link: WanLinkSpec, cubic: float) -> tuple[CongestionControl, str]:
    """BBR where CUBIC cannot fill a long path, CUBIC everywhere else; with the reason.

    The rule: RTT at least 10 ms, and the declared flows together under 0.8 of the link at CUBIC's
    rate (`cubic`, Mbit/s a flow).
    """
    together = min(cubic * link.flows, link.bandwidth_mbps)
    carries = (
        f"{link.flows} CUBIC flows carry {together:.0f} of {link.bandwidth_mbps:g} Mbit/s "
        f"at {link.rtt_ms:g} ms and {link.loss_pct:g} % loss"
    )
    if link.rtt_ms < LONG_PATH_RTT_MS:
        return "cubic", f"RTT {link.rtt_ms:g} ms is under {LONG_PATH_RTT_MS:g} ms"
    if together < ENOUGH_OF_TARGET * link.bandwidth_mbps:
        return "bbr", carries
    return "cubic", carries
