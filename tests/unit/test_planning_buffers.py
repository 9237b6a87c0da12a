"""Headroom against the tables that SONiC ships for the same switches; thresholds in their order."""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.capabilities.fabric import buffers
from infra.capabilities.fabric.models import (
    HWSKUS,
    MODELS,
    MSN2700,
    MSN3700,
    MSN3700C,
    MSN3800,
    MSN4700,
    SN5400,
    SN5600,
    Model,
)
from infra.declaration import FabricSpec, SwitchAsic, SwitchSpec


def published() -> list[tuple[str, Model, int, int, int, int]]:
    """(hwsku, model, Gbit/s, metres, xon, xoff) of every row of the tables."""
    path = Path(__file__).parent / "sonic" / "pg_profile_lookup.csv"
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return [
        (row["hwsku"], HWSKUS[row["hwsku"]][0], int(row["mbps"]) // 1000, int(row["metres"]), int(row["xon"]),
         int(row["xoff"]))
        for row in rows
    ]  # fmt: skip


def test_headroom_is_never_less_than_any_table_has_for_the_chip() -> None:
    rows, compared = published(), 0
    for model in MODELS:
        for hwsku, other, gbps, cable_m, _, xoff in rows:
            if other.asic == model.asic and model.ports(gbps) and model.gearbox_ns >= other.gearbox_ns:
                found = buffers.headroom(model, gbps, cable_m)
                assert found.xoff >= xoff, (model.platforms, hwsku, gbps, cable_m)
                assert found.size >= found.xon + found.xoff
                compared += 1
    assert compared > 500


def test_spectrum_4_is_exactly_its_table() -> None:
    rows = [row for row in published() if row[0] == "ACS-SN5600"]
    assert len(rows) == 24
    for _, _, gbps, cable_m, xon, xoff in rows:
        found = buffers.headroom(SN5600, gbps, cable_m)
        assert (found.xon, found.xoff) == (xon, xoff)


@pytest.mark.parametrize(
    ("model", "gbps", "cable_m", "xoff"),
    [
        (MSN2700, 100, 5, 44_032),
        (MSN3700C, 100, 5, 48_128),
        (MSN3700, 200, 5, 53_248),
        (MSN3700, 200, 40, 64_512),
        (MSN3800, 100, 5, 60_416),
    ],
)
def test_short_cables_are_as_in_the_present_buffer_manager(
    model: Model, gbps: int, cable_m: int, xoff: int
) -> None:
    """What buffer_headroom_mellanox.lua of sonic-swss 422271e7 gives at 50 % small packets."""
    assert buffers.headroom(model, gbps, cable_m).xoff == xoff


def test_a_port_of_eight_lanes_has_twice_the_pipeline_and_a_packet_more() -> None:
    for model, gbps in ((MSN4700, 400), (SN5400, 400), (SN5600, 800)):
        found = buffers.headroom(model, gbps, 40)
        assert found.xon == 38_912
        assert found.size == found.xoff + found.xon + 9216
    assert buffers.headroom(SN5600, 400, 40) == buffers.Headroom(303_104, 19_456, 283_648)


@given(
    st.sampled_from(MODELS),
    st.data(),
    st.tuples(st.floats(0.1, 2000), st.floats(0.1, 2000)),
    st.tuples(st.integers(1280, 9216), st.integers(1280, 9216)),
)
def test_a_longer_cable_a_faster_port_and_larger_packets_never_need_less(
    model: Model, data: st.DataObject, cables: tuple[float, float], mtus: tuple[int, int]
) -> None:
    speeds = st.sampled_from(sorted(model.splits))
    slow, fast = sorted((data.draw(speeds), data.draw(speeds)))
    less = buffers.headroom(model, slow, min(cables), min(mtus))
    more = buffers.headroom(model, fast, max(cables), max(mtus))
    assert less.xoff <= more.xoff
    assert less.size <= more.size


def test_marking_scales_with_the_speed_where_the_buffer_allows_it() -> None:
    assert buffers.ecn_thresholds(25, 10**9, 32) == buffers.EcnThresholds(100_000, 400_000, 20)
    assert buffers.ecn_thresholds(100, 10**9, 32) == buffers.EcnThresholds(400_000, 1_600_000, 20)
    assert buffers.ecn_thresholds(100, 6_400_000, 32).min_bytes == 100_000


@pytest.mark.parametrize(
    ("asic", "radix", "gbps"), [("spectrum", 32, 100), ("spectrum-3", 32, 400), ("spectrum-4", 64, 800),
                                ("spectrum-4", 128, 400), ("spectrum-4", 256, 200)]
)  # fmt: skip
def test_full_switches_mark_before_they_pause(asic: SwitchAsic, radix: int, gbps: int) -> None:
    fabric = FabricSpec(kind="rail_optimized", radix=radix, rails=8, link_gbps=gbps)
    shared = buffers.shared_bytes(fabric, SwitchSpec(asic=asic))
    ecn = buffers.ecn_thresholds(gbps, shared, radix)
    assert buffers.ecn_floor_bytes(gbps) <= ecn.min_bytes < ecn.max_bytes < buffers.xoff_trigger_bytes(shared)


@given(
    st.integers(1, 512), st.integers(1, 512), st.integers(10**6, 160 * 10**6), st.sampled_from([25, 100, 800])
)
def test_some_queue_is_marked_before_any_port_pauses(ports: int, busy: int, shared: int, gbps: int) -> None:
    """`busy` groups, each as full as it may be before it pauses, spread over all queues alike."""
    busy = min(busy, ports)
    each = shared / (busy + 1)  # α = 1: as much as is free
    assert buffers.ecn_thresholds(gbps, shared, ports).min_bytes <= busy * each / ports


@pytest.mark.parametrize(
    ("asic", "radix", "gbps", "cable_m", "pool"),
    [
        ("spectrum", 32, 100, 40, 9_653_216),
        ("spectrum-2", 32, 200, 40, 29_470_656),
        ("spectrum-4", 64, 400, 40, 134_833_152),
        ("spectrum-4", 64, 800, 40, 125_592_576),
    ],
)
def test_the_pool_is_what_the_buffer_manager_would_leave(
    asic: SwitchAsic, radix: int, gbps: int, cable_m: float, pool: int
) -> None:
    """By buffer_pool_mellanox.lua of sonic-swss e6b0c5b5, where all ports are up and have these profiles.

    That is: buffer - ports × (lossless + lossy + management + mirror + lossy queues) - 256 KiB.
    """
    fabric = FabricSpec(kind="rail_optimized", radix=radix, rails=8, link_gbps=gbps)
    assert buffers.shared_bytes(fabric, SwitchSpec(asic=asic, cable_m=cable_m)) == pool


@pytest.mark.parametrize(
    ("ports", "times"),
    [(1, (200, 200)), (32, (200, 200)), (33, (400, 400)), (128, (800, 800)), (256, (1600, 1000))],
)
def test_the_watchdog_takes_its_time_with_many_ports(ports: int, times: tuple[int, int]) -> None:
    assert buffers.watchdog_ms(ports) == times
