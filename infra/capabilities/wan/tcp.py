"""TCP over a WAN link: how much is in flight, which buffers that needs, which congestion control carries it.

Sources: RFC 9438 (CUBIC) section 5, RFC 7323 (window scaling), RFC 9293 (MSS), RFC 4303 and 4106 (ESP with
AES-GCM), the WireGuard paper (Donenfeld, NDSS 2017) section 5.4.6.
"""

import math
from dataclasses import asdict, dataclass

from infra.capabilities.wan.section import CongestionControl
from infra.declaration import WanLinkSpec
from infra.declaration.link import LinkKind

IP_HEADER_BYTES = 20
IP_TCP_HEADER_BYTES = 40
WIREGUARD_BYTES = IP_HEADER_BYTES + 8 + 32
"""IPv4, UDP, and WireGuard's header (16) with its tag (16)."""
ESP_GCM_BYTES = IP_HEADER_BYTES + 8 + 8 + 16
"""IPv4, ESP's header, AES-GCM's initialisation vector and tag; the trailer goes inside the rest."""
ESP_TRAILER_BYTES = 2
BUFFER_FLOOR_BYTES = 16 * 2**20
BUFFER_CAP_BYTES = 2**31 - 1
"""tcp_rmem and tcp_wmem are signed 32-bit integers in the kernel."""
MAX_WINDOW_BYTES = 65535 << 14
"""The largest window a TCP header can announce: 16 bits at window scale 14 (RFC 7323)."""
LONG_PATH_RTT_MS = 10.0
ENOUGH_OF_TARGET = 0.8


@dataclass(frozen=True)
class Line:
    """What traffic meets on its path, over one link or several: ms, Mbit/s, per cent in each direction.

    `mtu_bytes` is the largest packet inside any tunnel, `flows` how many share the line, and
    `single_flow_mbps` what one of them has to reach, if anything.
    """

    rtt_ms: float
    bandwidth_mbps: float
    loss_pct: float
    mtu_bytes: int
    flows: int
    single_flow_mbps: float | None = None


@dataclass(frozen=True)
class TcpPlan:
    """What a line asks of the hosts that use it. Bytes, Mbit/s, and the reason in words."""

    bdp_bytes: int
    tcp_buffer_max_bytes: int
    congestion_control: CongestionControl
    reason: str
    expected_cubic_mbps: float
    mtu_bytes: int
    mss_bytes: int


@dataclass(frozen=True)
class LinkPlan(TcpPlan):
    """One link. `mtu_bytes` is what fits into its tunnel, `handover_mtu_bytes` what its interface carries."""

    handover_mtu_bytes: int


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


def window_mbps(rtt_ms: float) -> float:
    """The most one TCP flow can carry over that round trip, with the largest window there is, in Mbit/s."""
    return MAX_WINDOW_BYTES * 8 / rtt_ms / 1e3


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


def tunnel_mtu_bytes(kind: LinkKind, path_mtu_bytes: int) -> int:
    """The largest packet inside a link's tunnel, when the line carries packets of `path_mtu_bytes`.

    From 1500: 1440 in WireGuard over IPv4, 1446 in ESP with AES-GCM, whose trailer ends on a multiple of 4.
    """
    if kind == "vpn":
        return path_mtu_bytes - WIREGUARD_BYTES
    if kind == "sdwan":
        return (path_mtu_bytes - ESP_GCM_BYTES) // 4 * 4 - ESP_TRAILER_BYTES
    return path_mtu_bytes


def flows_to_fill(
    control: CongestionControl, rtt_ms: float, bandwidth_mbps: float, loss_pct: float, mss_bytes: int
) -> int:
    """How many TCP flows fill a path: each has the rate of its congestion control, and of its largest window.

    BBR is taken to fill what its window allows, CUBIC to settle at `cubic_mbps`.
    """
    rate = cubic_mbps(rtt_ms, loss_pct, mss_bytes) if control == "cubic" else math.inf
    return math.ceil(bandwidth_mbps / min(rate, window_mbps(rtt_ms), bandwidth_mbps))


def line_of(link: WanLinkSpec) -> Line:
    """A link as traffic meets it."""
    return Line(
        link.rtt_ms,
        link.bandwidth_mbps,
        link.loss_pct,
        tunnel_mtu_bytes(link.kind, link.mtu_bytes),
        link.flows,
        link.single_flow_mbps,
    )


def plan_link(link: WanLinkSpec) -> LinkPlan:
    """Everything hosts need to know about one link.

    A carrier's overlay hands its tunnel over; that of a `vpn` is made by the gateways, on the bare line.
    """
    planned = plan_tcp(line_of(link))
    handover = planned.mtu_bytes if link.kind == "sdwan" else link.mtu_bytes
    return LinkPlan(**asdict(planned), handover_mtu_bytes=handover)


def plan_tcp(line: Line) -> TcpPlan:
    """The TCP settings that carry a line."""
    bdp = bdp_bytes(line.bandwidth_mbps, line.rtt_ms)
    mss = line.mtu_bytes - IP_TCP_HEADER_BYTES
    cubic = min(cubic_mbps(line.rtt_ms, line.loss_pct, mss), line.bandwidth_mbps)
    control, reason = choose_congestion_control(line, cubic)
    return TcpPlan(bdp, buffer_max_bytes(bdp), control, reason, round(cubic, 3), line.mtu_bytes, mss)


def choose_congestion_control(line: Line, cubic: float) -> tuple[CongestionControl, str]:
    """BBR where CUBIC cannot fill a long path, CUBIC everywhere else; with the reason.

    The rule: RTT at least 10 ms, and the declared flows together under 0.8 of the line at CUBIC's rate
    (`cubic`, Mbit/s a flow), or one flow under what it has to reach.
    """
    together = min(cubic * line.flows, line.bandwidth_mbps)
    where = f"at {line.rtt_ms:g} ms and {line.loss_pct:g} % loss"
    carries = f"{line.flows} CUBIC flows carry {together:.0f} of {line.bandwidth_mbps:g} Mbit/s {where}"
    if line.rtt_ms < LONG_PATH_RTT_MS:
        return "cubic", f"RTT {line.rtt_ms:g} ms is under {LONG_PATH_RTT_MS:g} ms"
    if together < ENOUGH_OF_TARGET * line.bandwidth_mbps:
        return "bbr", carries
    if line.single_flow_mbps is not None and cubic < line.single_flow_mbps:
        return "bbr", f"one CUBIC flow carries {cubic:.0f} of {line.single_flow_mbps:g} Mbit/s {where}"
    return "cubic", carries
