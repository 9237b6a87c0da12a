"""Headroom against the tables that SONiC ships for the same chips; thresholds in their order."""

import pytest

from infra.planning import buffers
from infra.planning.buffers import ASICS
from infra.spec import FabricSpec, SwitchAsic, SwitchSpec

SN2700 = """
10000 5 49152 19456 29696 | 25000 5 49152 19456 29696 | 40000 5 49152 19456 29696 | 50000 5 49152 19456 29696
100000 5 50176 19456 30720 | 10000 40 49152 19456 29696 | 25000 40 51200 19456 31744
40000 40 52224 19456 32768 | 50000 40 53248 19456 33792 | 100000 40 58368 19456 38912
10000 300 56320 19456 36864 | 25000 300 67584 19456 48128 | 40000 300 78848 19456 59392
50000 300 86016 19456 66560 | 100000 300 123904 19456 104448
"""
SN3700 = """
10000 5 52224 19456 32768 | 25000 5 52224 19456 32768 | 40000 5 53248 19456 33792 | 50000 5 53248 19456 33792
100000 5 53248 19456 33792 | 200000 5 55296 19456 35840 | 10000 40 53248 19456 33792
25000 40 55296 19456 35840 | 40000 40 57344 19456 37888 | 50000 40 58368 19456 38912
100000 40 63488 19456 44032 | 200000 40 74752 19456 55296 | 10000 300 60416 19456 40960
25000 300 73728 19456 54272 | 40000 300 86016 19456 66560 | 50000 300 95232 19456 75776
100000 300 137216 19456 117760 | 200000 300 223232 19456 203776
"""
SN4700 = "400000 5 86016 37888 38912 | 400000 40 124928 37888 77824 | 400000 300 420864 37888 373760"


def rows(asic: SwitchAsic, table: str) -> list[tuple[SwitchAsic, list[int]]]:
    """(chip, [Mbit/s, metres, size, xon, xoff]) of a published pg_profile_lookup.ini."""
    return [
        (asic, [int(word) for word in row.split()]) for row in table.strip().replace("\n", "|").split("|")
    ]


PUBLISHED = [*rows("spectrum", SN2700), *rows("spectrum-2", SN3700), *rows("spectrum-3", SN4700)]


def test_all_published_rows_are_there() -> None:
    assert len(PUBLISHED) == 36


@pytest.mark.parametrize(("asic", "row"), PUBLISHED)
def test_headroom_is_as_published(asic: SwitchAsic, row: list[int]) -> None:
    mbps, cable_m, size, xon, xoff = row
    assert buffers.headroom(ASICS[asic], mbps // 1000, cable_m) == buffers.Headroom(size, xon, xoff)


def test_a_table_answers_with_the_next_longer_cable() -> None:
    spectrum_4 = ASICS["spectrum-4"]
    assert buffers.headroom(spectrum_4, 400, 40) == buffers.Headroom(303104, 19456, 283648)
    assert buffers.headroom(spectrum_4, 400, 41) == buffers.headroom(spectrum_4, 400, 300)
    assert buffers.headroom(spectrum_4, 1, 5) == buffers.headroom(spectrum_4, 10, 5)
    with pytest.raises(ValueError, match="empty"):
        buffers.headroom(spectrum_4, 400, 301)


def test_marking_scales_with_the_speed() -> None:
    assert buffers.ecn_thresholds(25) == buffers.EcnThresholds(100_000, 400_000, 20)
    assert buffers.ecn_thresholds(100) == buffers.EcnThresholds(400_000, 1_600_000, 20)


@pytest.mark.parametrize(
    ("asic", "radix", "gbps"), [("spectrum", 32, 100), ("spectrum-3", 32, 400), ("spectrum-4", 64, 800)]
)
def test_marking_starts_before_pausing(asic: SwitchAsic, radix: int, gbps: int) -> None:
    fabric = FabricSpec(kind="rail_optimized", radix=radix, rails=8, link_gbps=gbps)
    shared = buffers.shared_bytes(fabric, SwitchSpec(asic=asic))
    ecn = buffers.ecn_thresholds(gbps)
    assert 0 < ecn.min_bytes < ecn.max_bytes < buffers.xoff_trigger_bytes(shared)


@pytest.mark.parametrize(
    ("ports", "times"),
    [(1, (200, 200)), (32, (200, 200)), (33, (400, 400)), (128, (800, 800)), (256, (1600, 1000))],
)
def test_the_watchdog_takes_its_time_with_many_ports(ports: int, times: tuple[int, int]) -> None:
    assert buffers.watchdog_ms(ports) == times
