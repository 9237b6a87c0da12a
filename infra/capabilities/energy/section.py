"""What rules compare power with."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from infra.ground.contract import Contract, Declared, Part, Section


class RegionEnergy(Part):
    """A site, in W and per kWh."""

    pue: float
    metered: bool
    cap_w: float | None = None
    price_per_kwh: float | None = None
    carbon_g_per_kwh: float | None = None


class PoolEnergy(Part):
    """Each node of a pool, in W."""

    idle_w: float
    max_w: float
    cap_w: float | None = None
    nodes_per_rack: int | None = None
    rack_cap_w: float | None = None


class EnergySection(Section):
    """The declared figures, by region and by the key of the pool."""

    capability: ClassVar = "energy"
    version: Literal[1] = 1
    currency: str | None = None
    regions: dict[str, RegionEnergy]
    pools: dict[str, PoolEnergy]

    def declared(self, contract: Contract, region: str) -> Iterator[Declared]:
        """Caps, models, racks and factors of one region; rules know what is missing by its absence."""
        if (site := self.regions.get(region)) is not None:
            yield from self._site(site)
        for key, pool in contract.pools.items():
            labels = {"pool": pool.name}
            if pool.region != region:
                continue
            if (own := self.pools.get(key)) is not None:
                yield from _pool(own, labels)
                yield from _racks(
                    own, pool.name, [name for name, h in contract.hosts.items() if h.pool == key]
                )

    def _site(self, site: RegionEnergy) -> Iterator[Declared]:
        yield Declared("pue_ratio", site.pue)
        if site.metered:
            yield Declared("site_meter", 1)
        if site.cap_w is not None:
            yield Declared("region_power_cap_watts", site.cap_w)
        if site.price_per_kwh is not None:
            yield Declared("energy_price_per_kwh", site.price_per_kwh, {"currency": self.currency or ""})
        if site.carbon_g_per_kwh is not None:
            yield Declared("carbon_grams_per_kwh", site.carbon_g_per_kwh)


def _pool(pool: PoolEnergy, labels: dict[str, str]) -> Iterator[Declared]:
    yield Declared("node_power_idle_watts", pool.idle_w, labels)
    yield Declared("node_power_max_watts", pool.max_w, labels)
    if pool.cap_w is not None:
        yield Declared("node_power_cap_watts", pool.cap_w, labels)
    if pool.rack_cap_w is not None:
        yield Declared("rack_power_cap_watts", pool.rack_cap_w, labels)


def _racks(pool: PoolEnergy, name: str, hosts: list[str]) -> Iterator[Declared]:
    """In which rack each node stands: a rule cannot divide the number in a name."""
    for number, host in enumerate(hosts if pool.nodes_per_rack else ()):
        rack = f"{name}-{number // (pool.nodes_per_rack or 1)}"
        yield Declared("node_rack", 1, {"pool": name, "rack": rack, "instance": host})


SECTION = EnergySection
