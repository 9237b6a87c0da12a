"""Energy: what nodes draw, what may be drawn, and what it costs."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from infra.declaration.base import Float, Int, Spec, refusal

CURRENCY = re.compile(r"[A-Z]{3}")
Watts = Annotated[Float, Field(gt=0, le=1_000_000)]
Kilowatts = Annotated[Float, Field(gt=0, le=10_000_000)]


def _currency(value: str) -> str:
    if CURRENCY.fullmatch(value):
        return value
    suggestion = value.strip().upper()
    raise refusal(
        "is not a currency by its three letters of ISO 4217, such as EUR",
        suggestion if CURRENCY.fullmatch(suggestion) else None,
    )


class RegionEnergySpec(Spec):
    """A site's power: how much there is, what is lost on the way, what it costs."""

    what: ClassVar = "a region's energy"
    region: str
    """Name of the region."""
    pue: Annotated[Float, Field(ge=1, le=10)]
    """What the site draws for each watt that its nodes draw, over a year: cooling and losses are the rest."""
    meter: Literal["series"] | None = None
    """`series` where a meter of the site is read into `causeway_site_power_watts` (docs/energy.md), and then
    counts instead of `pue`; unset means that there is none."""
    cap_kw: Kilowatts | None = None
    """What the region's nodes may draw together, without cooling; unset means no limit."""
    price_per_kwh: Annotated[Float, Field(ge=0, le=1_000_000)] | None = None
    """In the declared currency; unset means that costs are left out."""
    carbon_g_per_kwh: Annotated[Float, Field(ge=0, le=10_000)] | None = None
    """Grams of CO2 equivalent, by the supplier or the grid; unset means that they are left out."""


class PoolEnergySpec(Spec):
    """What each node of a pool draws, and what it may draw."""

    what: ClassVar = "a pool's energy"
    region: str
    """Name of the pool's region."""
    pool: str
    """Name of the pool."""
    idle_w: Watts
    """What a node draws without load. Between the two it counts where nothing is measured."""
    max_w: Watts
    """What it draws at most, with the power limits that its firmware and its GPUs are set to."""
    cap_w: Watts | None = None
    """What a node may draw; unset means no limit."""
    nodes_per_rack: Annotated[Int, Field(ge=1, le=1000)] | None = None
    """Nodes fill racks in their order, each pool its own: `gpu-0`, `gpu-1` …; unset means that racks are not
    known."""
    rack_cap_kw: Kilowatts | None = None
    """What the nodes of a rack may draw together; unset means no limit."""


class EnergySpec(Spec):
    """Power as declared, beside which it is measured."""

    what: ClassVar = "the energy"
    currency: Annotated[str, AfterValidator(_currency)] | None = None
    """Of the prices, by ISO 4217, such as `EUR`; needed where there are prices."""
    regions: tuple[RegionEnergySpec, ...] = ()
    """The sites, each at most once."""
    pools: tuple[PoolEnergySpec, ...] = ()
    """The pools, each at most once; one that is left out counts only where it is measured."""
