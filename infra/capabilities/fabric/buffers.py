"""Buffers of a switch: headroom of the lossless class, ECN thresholds, PFC watchdog times.

Sources: sonic-swss e6b0c5b5, cfgmgr/buffer_headroom_mellanox.lua (headroom, last changed in 422271e7) and
buffer_pool_mellanox.lua (what else is reserved); sonic-buildimage 086b03bd, platform/mellanox/asic_table.j2
(cells, delays) and device/mellanox, pg_profile_lookup.ini and buffers_defaults_t0.j2 (tables, buffer sizes);
DCQCN, SIGCOMM 2015, and HPCC, SIGCOMM 2019 (ECN); sonic-utilities, pfcwd/main.py (watchdog).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from infra.capabilities.fabric.models import Model, model_of
from infra.declaration import FabricSpec, SwitchAsic, SwitchSpec

LIGHT_M_PER_S = 1.98e8
"""Signal speed in fibre, as SONiC has it."""
KIB = 1024
SMALLEST_PACKET_BYTES = 64
LOSSLESS_PACKET_BYTES = 1024
"""A packet of the lossless class that is not small, as SONiC assumes."""
PORT_MTU_BYTES = 9216
MAC_PHY_BYTES = 0.8 * KIB
"""Sent on while a pause frame passes the port itself."""
PAUSE_QUANTUM_BYTES = 512 // 8
PAUSE_QUANTA: Mapping[int, int] = {
    1: 2, 10: 67, 25: 80, 40: 118, 50: 147, 100: 394, 200: 453, 400: 905, 800: 905,
}  # fmt: skip
"""Gbit/s → quanta that a port may take to answer a pause frame (IEEE 802.3, 31B.3.7)."""
ALLOWANCE_BYTES = 2 * KIB
"""Added where not all packets are taken as small, up to what they would need if they were."""
PIPELINE_BYTES = 19 * KIB
"""What is under way inside the switch; a port of eight lanes has twice as much."""
WIDE_PORT_LANES = 8
MIRROR_BYTES = 10 * KIB
MANAGEMENT_BYTES = 256 * KIB
LOSSY_QUEUE_BYTES = 9216
"""Reserved for what leaves a port and is not lossless."""

ECN_MIN_BYTES_PER_GBPS = 100_000 / 25
ECN_FLOOR_BYTES_PER_GBPS = 12_000 / 25
ECN_MAX_PER_MIN = 4
ECN_PROBABILITY_PCT = 20

WATCHDOG_STEP_MS = 200
WATCHDOG_PORTS = 32
WATCHDOG_MAX_POLL_MS = 1000
WATCHDOG_MAX_MS = 5000
"""What SONiC's models allow for detection."""

TABLE_M = (5, 40, 300)
Xoffs = Mapping[int, tuple[int, int, int]]
"""Gbit/s → the xoff of a published table for cables of 5, 40 and 300 m, in bytes."""


@dataclass(frozen=True)
class Asic:
    """A switching chip, as its manufacturer and SONiC's own tables describe it.

    `small_pct` of the lossless packets are reckoned to be of the smallest size, which fills cells worst: 50
    is SONiC's default, 100 is what its tables for spectrum-4 have. `published` has the largest xoff of all of
    SONiC's tables for that chip; there is none where the formula gives no less.
    """

    cell_bytes: int
    buffer_bytes: int
    published: Xoffs
    small_pct: int = 50
    tile_ns: int = 0
    """How long what arrives stays outside of the buffer."""


SPECTRUM_XOFFS: Xoffs = {
    10: (29_696, 29_696, 36_864),
    25: (29_696, 31_744, 48_128),
    40: (29_696, 32_768, 59_392),
    50: (29_696, 33_792, 66_560),
    100: (30_720, 38_912, 104_448),
}
SPECTRUM_2_XOFFS: Xoffs = {
    10: (32_768, 33_792, 40_960),
    25: (32_768, 35_840, 54_272),
    40: (33_792, 37_888, 66_560),
    50: (33_792, 38_912, 75_776),
    100: (33_792, 44_032, 117_760),
    200: (35_840, 55_296, 203_776),
}
GEARBOX_XOFFS: Xoffs = {
    10: (34_816, 35_840, 44_032),
    25: (38_912, 40_960, 59_392),
    40: (41_984, 46_080, 75_776),
    50: (45_056, 50_176, 87_040),
    100: (56_320, 66_560, 140_288),
}
"""Of spectrum-2 with a gearbox (ACS-MSN3800)."""
SPECTRUM_3_XOFFS: Xoffs = {
    10: (32_768, 33_792, 40_960),
    25: (32_768, 35_840, 54_272),
    40: (33_792, 37_888, 66_560),
    50: (33_792, 38_912, 75_776),
    100: (59_392, 66_560, 120_832),
    200: (66_560, 80_896, 203_776),
    400: (115_712, 144_384, 373_760),
}

ASICS: dict[SwitchAsic, Asic] = {
    "spectrum": Asic(96, 13_945_824, SPECTRUM_XOFFS),
    "spectrum-2": Asic(144, 34_287_552, SPECTRUM_2_XOFFS),
    "spectrum-3": Asic(144, 60_817_392, SPECTRUM_3_XOFFS),
    "spectrum-4": Asic(192, 158_229_504, {}, small_pct=100, tile_ns=120),
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


def headroom(model: Model, gbps: int, cable_m: float, mtu_bytes: int = PORT_MTU_BYTES) -> Headroom:
    """The lossless profile for speed, cable and MTU: SONiC's formula, never less than its tables."""
    asic = ASICS[model.asic]
    published = GEARBOX_XOFFS if model.gearbox_ns else asic.published
    xoff = max(_formula(asic, gbps, cable_m, mtu_bytes, model.gearbox_ns), _table(published, gbps, cable_m))
    wide = model.lanes(gbps) >= WIDE_PORT_LANES
    xon = PIPELINE_BYTES * (1 + wide)
    return Headroom(_whole_kib(xoff + xon + mtu_bytes * wide), xon, xoff)


def _formula(asic: Asic, gbps: int, cable_m: float, mtu_bytes: int, gearbox_ns: int) -> int:
    """What arrives after the decision to pause: a packet at each end, and all that is under way between."""
    on_the_cable = 2 * cable_m / LIGHT_M_PER_S * gbps * 1e9 / 8
    in_gearboxes = 2 * gearbox_ns * gbps / 8
    on_the_tile = asic.tile_ns * gbps / 8
    answer = PAUSE_QUANTA[gbps] * PAUSE_QUANTUM_BYTES
    under_way = mtu_bytes + on_the_cable + in_gearboxes + MAC_PHY_BYTES + answer + on_the_tile
    worst = _worst_fill(asic.cell_bytes)
    small, rest = asic.small_pct * SMALLEST_PACKET_BYTES, (100 - asic.small_pct) * LOSSLESS_PACKET_BYTES
    fill = 1 + 100 * SMALLEST_PACKET_BYTES / (small + rest) * (worst - 1)
    most = _whole_kib(LOSSLESS_PACKET_BYTES + under_way * worst)
    return min(_whole_kib(LOSSLESS_PACKET_BYTES + under_way * fill) + ALLOWANCE_BYTES, most)


def _worst_fill(cell_bytes: int) -> int:
    """Bytes of buffer for a byte that arrives, with packets of the size that wastes most of their cells."""
    if cell_bytes > 2 * SMALLEST_PACKET_BYTES:
        return math.ceil(cell_bytes / SMALLEST_PACKET_BYTES)
    return math.ceil(2 * cell_bytes / (1 + cell_bytes))


def _table(published: Xoffs, gbps: int, cable_m: float) -> int:
    """Between two rows of a table, and beyond its last two, on the line through them."""
    if not published:
        return 0
    low, mid, high = published[min((speed for speed in published if speed >= gbps), default=max(published))]
    near, middle, far = TABLE_M
    if cable_m <= middle:
        return _whole_kib(low + (mid - low) * max(cable_m - near, 0) / (middle - near))
    return _whole_kib(mid + (high - mid) * (cable_m - middle) / (far - middle))


def _whole_kib(size: float) -> int:
    return math.ceil(size / KIB) * KIB


def ecn_thresholds(gbps: int, shared: int, ports: int) -> EcnThresholds:
    """Marking in proportion to the speed, but so early that no port pauses before something is marked.

    When one does, at least half the pool is full: by one group, or by more that each may fill less. Spread
    over the queues of all ports alike, which is worst, that is half the pool by the ports (DCQCN, section 4).
    """
    low = min(round(ECN_MIN_BYTES_PER_GBPS * gbps), xoff_trigger_bytes(shared) // ports)
    return EcnThresholds(low, ECN_MAX_PER_MIN * low, ECN_PROBABILITY_PCT)


def ecn_floor_bytes(gbps: int) -> int:
    """The least from which marking costs no bandwidth to speak of, by HPCC: 12 kB at 25 Gbit/s."""
    return round(ECN_FLOOR_BYTES_PER_GBPS * gbps)


def shared_bytes(fabric: FabricSpec, switch: SwitchSpec) -> int:
    """What all that is reserved leaves of the buffer; negative where it does not fit.

    Beside the lossless headroom each port reserves, as SONiC reckons, for best effort, for packets to the
    switch itself, for mirrored ones, and for its lossy queues.
    """
    model = model_of(switch)
    wide = model.lanes(fabric.link_gbps) >= WIDE_PORT_LANES
    lossy = 2 * PIPELINE_BYTES - KIB if wide else PIPELINE_BYTES
    lossless = headroom(model, fabric.link_gbps, switch.cable_m, switch.mtu_bytes).size
    each = lossless + 2 * lossy + MIRROR_BYTES + LOSSY_QUEUE_BYTES
    return ASICS[model.asic].buffer_bytes - MANAGEMENT_BYTES - fabric.radix * each


def xoff_trigger_bytes(shared: int) -> int:
    """Fill of a priority group at which it sends a pause frame: half the pool.

    At α = 1 (`dynamic_th` 0) a group may take as much as it leaves free, α / (1 + α) of the shared pool.
    """
    return shared // 2


def watchdog_ms(ports: int) -> tuple[int, int]:
    """(time to detect and to restore, polling interval): 200 ms for each 32 ports; polling 1 s at most."""
    time = WATCHDOG_STEP_MS * ((ports - 1) // WATCHDOG_PORTS + 1)
    return min(time, WATCHDOG_MAX_MS), min(time, WATCHDOG_MAX_POLL_MS)
