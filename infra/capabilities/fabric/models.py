"""The switches that SONiC knows by name and whose ports are all alike: cages, lanes, speeds.

Source: sonic-buildimage 086b03bd: device/mellanox/<platform>/platform.json (lanes and breakout modes of every
cage) and <hwsku>/port_config.ini, platform/mellanox/asic_table.j2 (chips) and peripheral_table.j2 (gearbox).
Models whose ports differ among themselves, such as ACS-MSN3420, are not listed: a fabric is of equal ports.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from infra.declaration import SwitchAsic, SwitchSpec


@dataclass(frozen=True)
class Model:
    """A switch as it is sold. A port takes an equal share of the lanes of its cage."""

    asic: SwitchAsic
    platforms: tuple[str, ...]
    """What the switch calls itself, `platform` of its own configuration."""
    cages: int
    cage_lanes: int
    splits: Mapping[int, int]
    """Gbit/s → the most ports of a cage that have it."""
    lane_step: int = 0
    """From the first lane of a cage to that of the next; 0 means that none is left out."""
    gearbox_ns: int = 0
    """Delay of the chips between switching chip and cage, where there are some."""

    def ports(self, gbps: int) -> int:
        """How many ports of that speed it has; 0 where it has none."""
        return self.cages * self.splits.get(gbps, 0)

    def lanes(self, gbps: int) -> int:
        """Lanes of a port of that speed."""
        return self.cage_lanes // self.splits.get(gbps, 1)

    def port(self, number: int, gbps: int) -> "Port":
        """Port `number`, from 0, where all ports have that speed."""
        split, width = self.splits.get(gbps, 1), self.lanes(gbps)
        cage, place = divmod(number, split)
        first = cage * (self.lane_step or self.cage_lanes) + place * width
        return Port(
            f"Ethernet{cage * self.cage_lanes + place * width}",
            f"etp{cage + 1}" + ("abcdefgh"[place] if split > 1 else ""),
            cage + 1,
            range(first, first + width),
        )


class Port(NamedTuple):
    """A port: SONiC's name for it, the name on the front panel, its cage (from 1), its lanes."""

    name: str
    alias: str
    cage: int
    lanes: range


def _platforms(*names: str) -> tuple[str, ...]:
    return tuple(f"x86_64-{name}-r0" for name in names)


SLOW = {50: 2, 40: 1, 25: 2, 10: 2}
SLOW_4 = {50: 4, 40: 1, 25: 4, 10: 4}
SLOW_8 = {50: 4, 40: 2, 25: 4, 10: 4}

MSN2100 = Model("spectrum", _platforms("mlnx_msn2100"), 16, 4, {100: 1, **SLOW, 25: 4, 10: 4})
MSN2700 = Model(
    "spectrum",
    _platforms("mlnx_msn2700", "mlnx_msn2700a1", "mlnx_lssn2700", "mlnx_msn2740"),
    32,
    4,
    {100: 1, **SLOW},
)
MSN3700 = Model("spectrum-2", _platforms("mlnx_msn3700"), 32, 4, {200: 1, 100: 2, **SLOW_4, 1: 4})
MSN3700C = Model("spectrum-2", _platforms("mlnx_msn3700c"), 32, 4, {100: 1, **SLOW, 25: 4, 10: 4, 1: 4})
MSN3800 = Model(
    "spectrum-2",
    _platforms("mlnx_msn3800"),
    64,
    4,
    {100: 1, 50: 1, 40: 1, 25: 1, 10: 1},
    gearbox_ns=400,
)
MSN4600 = Model("spectrum-3", _platforms("mlnx_msn4600"), 64, 4, {200: 1, 100: 2, **SLOW, 1: 2}, lane_step=8)
MSN4600C = Model("spectrum-3", _platforms("mlnx_msn4600c"), 64, 4, {100: 1, **SLOW, 1: 2}, lane_step=8)
MSN4700 = Model("spectrum-3", _platforms("mlnx_msn4700"), 32, 8, {400: 1, 200: 2, 100: 4, **SLOW_8, 1: 4})
SN5400 = Model("spectrum-4", _platforms("nvidia_sn5400"), 64, 8, {400: 1, 200: 2, 100: 4, **SLOW_8})
SN5600 = Model("spectrum-4", _platforms("nvidia_sn5600"), 64, 8, {800: 1, 400: 2, 200: 4, 100: 4, **SLOW_8})

REFERENCE: Mapping[SwitchAsic, Model] = {
    "spectrum": MSN2700,
    "spectrum-2": MSN3700,
    "spectrum-3": MSN4700,
    "spectrum-4": SN5600,
}
"""What a switch is taken for where only its chip is declared."""

MODELS = (MSN2100, MSN2700, MSN3700, MSN3700C, MSN3800, MSN4600, MSN4600C, MSN4700, SN5400, SN5600)

HWSKUS: Mapping[str, tuple[Model, int | None]] = {
    "ACS-MSN2100": (MSN2100, None),
    "ACS-MSN2700": (MSN2700, None),
    "ACS-MSN2700-A1": (MSN2700, None),
    "ACS-MSN2740": (MSN2700, None),
    "LS-SN2700": (MSN2700, None),
    "Mellanox-SN2700": (MSN2700, None),
    "Mellanox-SN2700-A1": (MSN2700, None),
    "ACS-MSN3700": (MSN3700, None),
    "ACS-MSN3700C": (MSN3700C, None),
    "ACS-MSN3800": (MSN3800, None),
    "Mellanox-SN3800-C64": (MSN3800, 100),
    "ACS-MSN4600": (MSN4600, None),
    "ACS-MSN4600C": (MSN4600C, None),
    "Mellanox-SN4600C-C64": (MSN4600C, 100),
    "ACS-MSN4700": (MSN4700, None),
    "Mellanox-SN4700-C128": (MSN4700, 100),
    "Mellanox-SN4700-O32": (MSN4700, 400),
    "Mellanox-SN4700-V64": (MSN4700, 200),
    "ACS-SN5400": (SN5400, None),
    "ACS-SN5600": (SN5600, None),
    "Mellanox-SN5600-O128": (SN5600, 400),
    "Mellanox-SN5600-V256": (SN5600, 200),
}
"""SONiC's name of a model → the switch, and the one speed of its ports where the name fixes it."""


def model_of(switch: SwitchSpec) -> Model:
    """The declared model; without one that is known, the one that stands for the chip."""
    model, _ = HWSKUS.get(switch.hwsku or "", (REFERENCE[switch.asic], None))
    return model


def model_on(platform: str) -> Model | None:
    """The model by what the switch calls itself; None where it is not known. Simulated ones count as real."""
    return next((model for model in MODELS if platform.replace("_simx", "") in model.platforms), None)


def hwskus(asic: SwitchAsic, gbps: int) -> Iterator[str]:
    """The names of all models with that chip that have ports of that speed."""
    for name, (model, only) in HWSKUS.items():
        if model.asic == asic and model.ports(gbps) and only in (None, gbps):
            yield name


def speeds(asic: SwitchAsic) -> set[int]:
    """The speeds that ports of that chip have, over all models."""
    return {gbps for model in MODELS if model.asic == asic for gbps in model.splits}
