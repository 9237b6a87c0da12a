"""TCP over a link, against published numbers and hand calculations."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.capabilities.wan import tcp as wan
from infra.capabilities.wan.section import CongestionControl
from infra.declaration import WanLinkSpec


def link(**changes: object) -> WanLinkSpec:
    values = {"name": "sea", "a": "x", "b": "y", "rtt_ms": 80, "bandwidth_mbps": 1000, "loss_pct": 0.01}
    return WanLinkSpec.model_validate({**values, **changes})


@pytest.mark.parametrize(
    ("bandwidth_mbps", "rtt_ms", "expected_bytes"),
    [(1e3, 80, 10_000_000), (1e4, 60, 75_000_000), (1e5, 80, 1_000_000_000), (100, 70, 875_000)],
)
def test_bandwidth_delay_product(bandwidth_mbps: float, rtt_ms: float, expected_bytes: int) -> None:
    assert wan.bdp_bytes(bandwidth_mbps, rtt_ms) == expected_bytes


@pytest.mark.parametrize(
    ("bdp_bytes", "expected_bytes"),
    [
        (0, 16 * 2**20),  # the floor
        (8 * 2**20, 16 * 2**20),  # 2 × BDP is a power of two already
        (8 * 2**20 + 1, 32 * 2**20),
        (10_000_000, 32 * 2**20),  # 1 Gbit/s at 80 ms
        (75_000_000, 256 * 2**20),  # 10 Gbit/s at 60 ms
        (1_000_000_000, 2**31 - 1),  # 100 Gbit/s at 80 ms: the kernel's cap
        (10**12, 2**31 - 1),
    ],
)
def test_buffer_is_the_power_of_two_above_two_bdp(bdp_bytes: int, expected_bytes: int) -> None:
    assert wan.buffer_max_bytes(bdp_bytes) == expected_bytes


@pytest.mark.parametrize(
    ("loss", "mbps"), [(1e-2, 1.79), (1e-3, 5.65), (1e-4, 23.2), (1e-5, 130), (1e-6, 732)]
)
def test_cubic_at_80_ms(loss: float, mbps: float) -> None:
    assert wan.cubic_mbps(80, loss * 100) == pytest.approx(mbps, rel=5e-3)


def test_cubic_at_100_ms_and_one_per_cent_is_of_the_published_size() -> None:
    # Published: 3.27 Mbit/s, measured; the model stands for a long average.
    assert 1 < wan.cubic_mbps(100, 1.0) < 4


def test_loss_that_10_gbps_at_80_ms_can_bear() -> None:
    assert wan.cubic_mbps(80, 3.1e-8 * 100) == pytest.approx(10_000, rel=0.02)


def test_cubic_without_loss_has_no_limit_but_the_link() -> None:
    assert wan.cubic_mbps(80, 0) == math.inf
    assert wan.plan_link(link(loss_pct=0)).expected_cubic_mbps == 1000


def test_largest_window_is_107_gbps_at_80_ms() -> None:
    assert wan.MAX_WINDOW_BYTES == 1_073_725_440
    assert round(wan.MAX_WINDOW_BYTES * 8 / 0.080 / 1e9) == 107


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "bbr"),  # 8 × 23 of 1000 Mbit/s
        ({"rtt_ms": 9.9}, "cubic"),  # a short path
        ({"rtt_ms": 10, "loss_pct": 1}, "bbr"),  # just long enough
        ({"loss_pct": 0}, "cubic"),  # nothing to recover from
        ({"loss_pct": 0.0001}, "cubic"),  # 732 Mbit/s a flow
        ({"loss_pct": 0.0001, "flows": 1}, "bbr"),  # 732 of 1000 is under 0.8
        ({"loss_pct": 0.0001, "flows": 2}, "cubic"),
        ({"flows": 35}, "cubic"),  # 35 × 23.2 = 812
        ({"flows": 34}, "bbr"),  # 34 × 23.2 = 789
    ],
)
def test_congestion_control(changes: dict[str, object], expected: str) -> None:
    assert wan.plan_link(link(**changes)).congestion_control == expected


def test_reason_has_the_numbers() -> None:
    reason = wan.plan_link(link(rtt_ms=70, bandwidth_mbps=100, loss_pct=0.2)).reason
    assert reason == "8 CUBIC flows carry 37 of 100 Mbit/s at 70 ms and 0.2 % loss"


@pytest.mark.parametrize(
    ("kind", "path_mtu_bytes", "inside_bytes", "handover_bytes"),
    [
        ("dedicated_fiber", 1500, 1500, 1500),
        ("vpn", 1500, 1440, 1500),  # made by our gateways on the bare line
        ("vpn", 9000, 8940, 9000),
        ("sdwan", 1500, 1446, 1446),  # made by the carrier, who hands the tunnel over
        ("sdwan", 9000, 8946, 8946),
        ("sdwan", 1499, 1442, 1442),  # ESP ends on a multiple of 4
    ],
)
def test_a_tunnel_costs_bytes(kind: str, path_mtu_bytes: int, inside_bytes: int, handover_bytes: int) -> None:
    planned = wan.plan_link(link(kind=kind, mtu_bytes=path_mtu_bytes))
    assert (planned.mtu_bytes, planned.handover_mtu_bytes) == (inside_bytes, handover_bytes)
    assert planned.mss_bytes == inside_bytes - 40


def test_one_flow_that_cubic_cannot_carry_asks_for_bbr() -> None:
    many = {"loss_pct": 0.0001, "flows": 4}
    assert wan.plan_link(link(**many, single_flow_mbps=700)).congestion_control == "cubic"
    planned = wan.plan_link(link(**many, single_flow_mbps=800))
    assert planned.congestion_control == "bbr"
    assert planned.reason == "one CUBIC flow carries 732 of 800 Mbit/s at 80 ms and 0.0001 % loss"


def test_segment_is_the_mtu_without_headers() -> None:
    planned = wan.plan_link(link(mtu_bytes=1420))
    assert (planned.mtu_bytes, planned.mss_bytes) == (1420, 1380)


@pytest.mark.parametrize(
    ("control", "rtt_ms", "bandwidth_mbps", "loss_pct", "flows"),
    [
        ("bbr", 80, 10_000, 0.01, 1),
        ("bbr", 80, 400_000, 0.01, 4),  # the window carries 107 Gbit/s
        ("cubic", 80, 1000, 0.01, 44),  # 23.2 Mbit/s a flow
        ("cubic", 80, 1000, 0, 1),
    ],
)
def test_as_many_flows_as_fill_a_path(
    control: CongestionControl, rtt_ms: float, bandwidth_mbps: float, loss_pct: float, flows: int
) -> None:
    assert wan.flows_to_fill(control, rtt_ms, bandwidth_mbps, loss_pct, 1460) == flows


@given(
    control=st.sampled_from(["bbr", "cubic"]),
    rtt_ms=st.floats(0.1, 500),
    bandwidth_mbps=st.floats(1, 800_000),
    loss_pct=st.floats(0, 10),
)
def test_one_flow_less_does_not_fill_it(
    control: CongestionControl, rtt_ms: float, bandwidth_mbps: float, loss_pct: float
) -> None:
    flows = wan.flows_to_fill(control, rtt_ms, bandwidth_mbps, loss_pct, 1460)
    rate = wan.cubic_mbps(rtt_ms, loss_pct) if control == "cubic" else math.inf
    one = min(rate, wan.window_mbps(rtt_ms), bandwidth_mbps)
    assert flows * one >= bandwidth_mbps * (1 - 1e-9)
    assert (flows - 1) * one < bandwidth_mbps
