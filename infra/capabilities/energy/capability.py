"""Energy: what is planned to be drawn, and the figures with which what is drawn is compared."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from infra.capabilities.energy.power import W_PER_KW, PoolPower, RegionPower, Year, regions, watts
from infra.capabilities.energy.rules import RULES
from infra.capabilities.energy.section import EnergySection, PoolEnergy, RegionEnergy
from infra.declaration import ClusterSpec
from infra.declaration.energy import PoolEnergySpec, RegionEnergySpec
from infra.ground.capability import Capability, Planned, Report
from infra.ground.nodes import pool_key

KWH_PER_MWH, KG_PER_T = 1000, 1000


@dataclass(frozen=True)
class EnergyPlan:
    """The regions that have figures."""

    currency: str | None
    regions: tuple[RegionPower, ...]


class Energy(Capability[EnergyPlan]):
    """Where `energy` is declared. No node has to know of it; the rules of the region's Prometheus do."""

    name = "energy"
    needs = ("monitoring",)
    rules = RULES

    def plan(self, spec: ClusterSpec, planned: Planned) -> EnergyPlan | None:
        """From the declaration alone."""
        return EnergyPlan(spec.energy.currency, regions(spec)) if spec.energy else None

    def section(self, plan: EnergyPlan) -> EnergySection:
        """What rules compare with."""
        return EnergySection(
            currency=plan.currency,
            regions={site.declared.region: _region(site.declared) for site in plan.regions},
            pools={
                pool_key(site.declared.region, pool.declared.pool): _pool(pool.declared)
                for site in plan.regions
                for pool in site.pools
            },
        )

    def report(self, plan: EnergyPlan) -> Report:
        """What is drawn at most beside the caps, and a year of it."""
        return Report("\n".join(in_words(plan)), {"energy": as_json(plan)})


def _region(declared: RegionEnergySpec) -> RegionEnergy:
    return RegionEnergy(
        pue=declared.pue,
        metered=declared.meter is not None,
        cap_w=_watts(declared.cap_kw),
        price_per_kwh=declared.price_per_kwh,
        carbon_g_per_kwh=declared.carbon_g_per_kwh,
    )


def _pool(declared: PoolEnergySpec) -> PoolEnergy:
    return PoolEnergy(
        idle_w=declared.idle_w,
        max_w=declared.max_w,
        cap_w=declared.cap_w,
        nodes_per_rack=declared.nodes_per_rack,
        rack_cap_w=_watts(declared.rack_cap_kw),
    )


def _watts(kilowatts: float | None) -> float | None:
    return None if kilowatts is None else watts(kilowatts)


def in_words(plan: EnergyPlan) -> Iterator[str]:
    """Two lines a region and one a pool."""
    yield "Energy, as declared, without load … at full load"
    for site in plan.regions:
        own = site.declared
        cap = "" if own.cap_kw is None else f" of {kw(watts(own.cap_kw))} kW"
        with_losses = f"{kw(site.site.idle_w)} … {kw(site.site.max_w)} kW at a PUE of {own.pue:g}"
        metered = ", and a meter says what it is" if own.meter else ""
        yield f"  {own.region}: nodes draw {_span(site)} kW{cap}; the site {with_losses}{metered}"
        yield f"    a year: {', '.join(_year(plan.currency, site.year(0), site.year(1)))}"
        yield from (f"    {line}" for line in map(_pool_in_words, site.pools))


def kw(power_w: float) -> str:
    """kW to 0.1, from 10,000 on to 1."""
    return f"{power_w / W_PER_KW:,.{0 if power_w >= 1e7 else 1}f}"


def _span(of: RegionPower | PoolPower) -> str:
    return f"{kw(of.power.idle_w)} … {kw(of.power.max_w)}"


def _year(currency: str | None, idle: Year, full: Year) -> Iterator[str]:
    yield f"{idle.kwh / KWH_PER_MWH:,.0f} … {full.kwh / KWH_PER_MWH:,.0f} MWh"
    if idle.cost is not None and full.cost is not None:
        yield f"{idle.cost:,.0f} … {full.cost:,.0f} {currency}"
    if idle.carbon_kg is not None and full.carbon_kg is not None:
        yield f"{idle.carbon_kg / KG_PER_T:,.0f} … {full.carbon_kg / KG_PER_T:,.0f} t CO2e"


def _pool_in_words(pool: PoolPower) -> str:
    own = pool.declared
    cap = "" if own.cap_w is None else f" of {own.cap_w:,g}"
    text = f"{own.pool}: {_span(pool)} kW, a node {own.idle_w:,g} … {own.max_w:,g}{cap} W"
    if pool.rack is not None:
        limit = "" if own.rack_cap_kw is None else f" of {kw(watts(own.rack_cap_kw))}"
        text += f", a rack of {max(pool.racks)} up to {kw(pool.rack.max_w)}{limit} kW"
    return text


def as_json(plan: EnergyPlan) -> dict[str, Any]:
    """The same for programs, in W, kWh and kg; `null` for what is not declared."""
    return {
        "currency": plan.currency,
        "regions": {
            site.declared.region: {
                "idle_w": site.power.idle_w,
                "max_w": site.power.max_w,
                "cap_w": _watts(site.declared.cap_kw),
                "pue": site.declared.pue,
                "pue_source": "meter" if site.declared.meter else "declared",
                "year": {"idle": _rounded(site.year(0)), "full": _rounded(site.year(1))},
                "pools": {pool.declared.pool: _pool_as_json(pool) for pool in site.pools},
            }
            for site in plan.regions
        },
    }


def _rounded(year: Year) -> dict[str, float | None]:
    return {
        name: None if value is None else round(value, 1)
        for name, value in (("kwh", year.kwh), ("cost", year.cost), ("carbon_kg", year.carbon_kg))
    }


def _pool_as_json(pool: PoolPower) -> dict[str, Any]:
    return {
        "nodes": pool.nodes,
        "idle_w": pool.power.idle_w,
        "max_w": pool.power.max_w,
        "node_cap_w": pool.declared.cap_w,
        "racks": len(pool.racks) or None,
        "rack_max_w": pool.rack.max_w if pool.rack else None,
        "rack_cap_w": _watts(pool.declared.rack_cap_kw),
    }


CAPABILITY = Energy()
