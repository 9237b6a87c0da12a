"""Buffers of a switch: headroom of the lossless class, ECN thresholds, PFC watchdog times.

Sources: sonic-swss, cfgmgr/buffer_headroom_mellanox.lua (headroom); sonic-buildimage, device/mellanox,
pg_profile_lookup.ini and buffers_defaults_t0.j2 (tables, buffer sizes); HPCC, SIGCOMM 2019 (ECN, as there for
DCQCN); sonic-utilities, pfcwd/main.py (watchdog).
"""

import math
from dataclasses import dataclass

from infra.spec import FabricSpec, SwitchAsic, SwitchSpec

LIGHT_M_PER_S = 1.98e8
"""Signal speed in fibre, as SONiC has it."""
KIB = 1024
LOSSLESS_MTU_BYTES = 9216
PIPELINE_BYTES = 1024
"""What the pipeline itself adds."""
RESPONSE_BYTES = 0.8 * KIB + 3.8 * KIB
"""What is sent on while a pause frame waits behind another frame and is answered."""
XON_BYTES = 19_456
XON_8_LANES_BYTES = 37_888
WIDE_PORT_LANES = 8
CELL_LIMIT_BYTES = 128

ECN_MIN_BYTES_PER_GBPS = 100_000 / 25
ECN_MAX_BYTES_PER_GBPS = 400_000 / 25
ECN_PROBABILITY_PCT = 20

WATCHDOG_STEP_MS = 200
WATCHDOG_PORTS = 32
WATCHDOG_MAX_POLL_MS = 1000
WATCHDOG_MAX_MS = 5000
"""What SONiC's models allow for detection."""

LosslessRow = tuple[int, int, int, int]
"""(metres, xon, xoff, size in bytes)."""


@dataclass(frozen=True)
class Asic:
    """A switching chip, as its manufacturer and SONiC's own tables describe it.

    `lossless_profiles` is filled where there is no formula: by Gbit/s, in the order of cable lengths.
    """

    lane_gbps: int
    cage_lanes: int
    """Lanes of a front-panel cage; ports that take fewer share one."""
    max_port_gbps: int
    capacity_gbps: int
    cell_bytes: int
    buffer_bytes: int
    lossless_profiles: dict[int, tuple[LosslessRow, ...]] | None = None


SN5600_PROFILES: dict[int, tuple[LosslessRow, ...]] = {
    10: ((5, 19456, 45056, 64512), (40, 19456, 46080, 65536), (300, 19456, 56320, 75776)),
    25: ((5, 19456, 48128, 67584), (40, 19456, 52224, 71680), (300, 19456, 76800, 96256)),
    40: ((5, 19456, 57344, 75776), (40, 19456, 62464, 81920), (300, 19456, 101376, 120832)),
    50: ((5, 19456, 63488, 82944), (40, 19456, 69632, 89088), (300, 19456, 118784, 138240)),
    100: ((5, 19456, 113664, 133120), (40, 19456, 126976, 146432), (300, 19456, 225280, 244736)),
    200: ((5, 19456, 131072, 150528), (40, 19456, 157696, 177152), (300, 19456, 355328, 374784)),
    400: ((5, 19456, 231424, 250880), (40, 19456, 283648, 303104), (300, 19456, 677888, 697344)),
    800: ((5, 38912, 257024, 304128), (40, 38912, 362496, 410624), (300, 38912, 1150976, 1198080)),
}

ASICS: dict[SwitchAsic, Asic] = {
    "spectrum": Asic(25, 4, 100, 3_200, 96, 13_945_824),
    "spectrum-2": Asic(50, 4, 400, 6_400, 144, 34_287_552),
    "spectrum-3": Asic(50, 8, 400, 12_800, 144, 60_817_392),
    "spectrum-4": Asic(100, 8, 800, 51_200, 192, 158_229_504, SN5600_PROFILES),
}


@dataclass(frozen=True)
class Headroom:
    """The lossless profile of one port, in bytes.

    `xoff` takes what arrives after a pause frame was sent; at `xon` the sender may go on; `size` is reserved.
    """

    size: int
    xon: int
    xoff: int


@dataclass(frozen=True)
class EcnThresholds:
    """Queue depths in bytes between which packets are marked, and how many of them at the upper one."""

    min_bytes: int
    max_bytes: int
    probability_pct: int


def lanes(asic: Asic, gbps: int) -> int:
    """Lanes of a port; 40 Gbit/s is four of 10."""
    return 4 if gbps == 40 else -(-gbps // asic.lane_gbps)


def max_cable_m(asic: Asic) -> int | None:
    """The longest cable for which headroom is known; None where it can be computed for any."""
    if asic.lossless_profiles is None:
        return None
    return max(row[0] for rows in asic.lossless_profiles.values() for row in rows)


def headroom(asic: Asic, gbps: int, cable_m: float) -> Headroom:
    """The lossless profile for a port's speed and cable; of a table the row for the next faster and longer.

    ValueError where the chip has a table and it ends before.
    """
    if asic.lossless_profiles is not None:
        speeds = [speed for speed in asic.lossless_profiles if speed >= gbps]
        fitting = [row for row in asic.lossless_profiles[min(speeds)] if row[0] >= cable_m]
        _, xon, xoff, size = min(fitting)
        return Headroom(size, xon, xoff)
    on_the_cable = 2 * cable_m / LIGHT_M_PER_S * gbps * 1e9 / 8
    cell = asic.cell_bytes
    worst_fill = cell / 64 if cell > CELL_LIMIT_BYTES else 2 * cell / (1 + cell)
    in_cells = worst_fill * (LOSSLESS_MTU_BYTES + on_the_cable + RESPONSE_BYTES)
    xoff = math.ceil((PIPELINE_BYTES + in_cells) / KIB) * KIB
    wide = lanes(asic, gbps) >= WIDE_PORT_LANES
    xon = XON_8_LANES_BYTES if wide else XON_BYTES
    return Headroom(xoff + xon + LOSSLESS_MTU_BYTES * wide, xon, xoff)


def ecn_thresholds(gbps: int) -> EcnThresholds:
    """Marking in proportion to the port's speed: HPCC's 100 and 400 kB at 25 Gbit/s."""
    return EcnThresholds(
        round(ECN_MIN_BYTES_PER_GBPS * gbps), round(ECN_MAX_BYTES_PER_GBPS * gbps), ECN_PROBABILITY_PCT
    )


def shared_bytes(fabric: FabricSpec, switch: SwitchSpec) -> int:
    """What the lossless headroom of all ports leaves of the buffer; negative where it does not fit."""
    asic = ASICS[switch.asic]
    return asic.buffer_bytes - fabric.radix * headroom(asic, fabric.link_gbps, switch.cable_m).size


def xoff_trigger_bytes(shared: int) -> int:
    """Fill of a priority group at which it sends a pause frame: half the pool.

    At α = 1 (`dynamic_th` 0) a group may take as much as it leaves free, α / (1 + α) of the shared pool.
    """
    return shared // 2


def watchdog_ms(ports: int) -> tuple[int, int]:
    """(time to detect and to restore, polling interval): 200 ms for each 32 ports; polling 1 s at most."""
    time = WATCHDOG_STEP_MS * ((ports - 1) // WATCHDOG_PORTS + 1)
    return min(time, WATCHDOG_MAX_MS), min(time, WATCHDOG_MAX_POLL_MS)
