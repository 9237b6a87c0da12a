"""The arithmetic: W of nodes, racks and regions, kWh a year, and what they cost."""

from collections.abc import Iterable
from dataclasses import dataclass

from infra.declaration import ClusterSpec
from infra.declaration.energy import PoolEnergySpec, RegionEnergySpec

HOURS_A_YEAR = 8760
"""365 days."""
W_PER_KW, G_PER_KG = 1000, 1000


def watts(kilowatts: float) -> float:
    """W, without the last bits of the float: 1.001 kW are 1001 W, and not a little less."""
    return round(kilowatts * W_PER_KW, 6)


@dataclass(frozen=True)
class Power:
    """What is drawn without load and at full load, in W."""

    idle_w: float
    max_w: float

    def at(self, load: float) -> float:
        """W at a load from 0 to 1: the same line by which rules estimate what is not measured."""
        return self.idle_w + (self.max_w - self.idle_w) * load

    def times(self, count: int) -> "Power":
        """That of so many."""
        return Power(count * self.idle_w, count * self.max_w)


def total(powers: Iterable[Power]) -> Power:
    """What all of them draw together."""
    found = list(powers)
    return Power(sum(one.idle_w for one in found), sum(one.max_w for one in found))


@dataclass(frozen=True)
class PoolPower:
    """A pool of `nodes` nodes."""

    declared: PoolEnergySpec
    nodes: int

    @property
    def node(self) -> Power:
        """One node."""
        return Power(self.declared.idle_w, self.declared.max_w)

    @property
    def power(self) -> Power:
        """All nodes."""
        return self.node.times(self.nodes)

    @property
    def racks(self) -> tuple[int, ...]:
        """How many nodes stand in each rack; none where racks are not known."""
        size = self.declared.nodes_per_rack
        if size is None:
            return ()
        whole, rest = divmod(self.nodes, size)
        return (size,) * whole + (rest,) * (rest > 0)

    @property
    def rack(self) -> Power | None:
        """The fullest rack; None where racks are not known."""
        return self.node.times(max(self.racks)) if self.racks else None


@dataclass(frozen=True)
class Year:
    """A region at one load for a year, cooling and losses included; None for what has no factor."""

    kwh: float
    cost: float | None
    carbon_kg: float | None


@dataclass(frozen=True)
class RegionPower:
    """A region's pools that have a model."""

    declared: RegionEnergySpec
    pools: tuple[PoolPower, ...]

    @property
    def power(self) -> Power:
        """What its nodes draw together."""
        return total(pool.power for pool in self.pools)

    @property
    def site(self) -> Power:
        """The same with cooling and losses."""
        power = self.power
        return Power(power.idle_w * self.declared.pue, power.max_w * self.declared.pue)

    def year(self, load: float) -> Year:
        """A whole year at a load from 0 to 1."""
        kwh = self.site.at(load) / W_PER_KW * HOURS_A_YEAR
        price, grams = self.declared.price_per_kwh, self.declared.carbon_g_per_kwh
        return Year(
            kwh,
            None if price is None else kwh * price,
            None if grams is None else kwh * grams / G_PER_KG,
        )


def regions(spec: ClusterSpec) -> tuple[RegionPower, ...]:
    """Every region that has figures, in their order. What is declared twice or for nothing is left out."""
    if (energy := spec.energy) is None:
        return ()
    counts = {(region.name, pool.name): pool.count for region in spec.regions for pool in region.pools}
    pools = {(one.region, one.pool): one for one in reversed(energy.pools)}
    sites = {one.region: one for one in reversed(energy.regions)}
    return tuple(
        RegionPower(
            site,
            tuple(
                PoolPower(pools[place], count)
                for place, count in counts.items()
                if place[0] == name and place in pools
            ),
        )
        for name in dict.fromkeys(region.name for region in spec.regions)
        if (site := sites.get(name)) is not None
    )
