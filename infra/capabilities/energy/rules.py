"""Energy: figures for what is declared, that agree with each other and with the caps."""

from collections.abc import Iterator
from typing import ClassVar

from infra.capabilities.energy.power import W_PER_KW, PoolPower, regions, watts
from infra.declaration import ClusterSpec
from infra.ground.problem import Problem, Severity, nearest, show
from infra.ground.rule import Rule


class EnergyIsWatched:
    """What nodes draw is recorded by each region's Prometheus, which also tells of caps."""

    id: ClassVar[str] = "energy-monitoring"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Energy without monitoring."""
        if spec.energy is not None and spec.monitoring is None:
            message = "without monitoring nothing is measured, and nobody is told when a cap is passed"
            yield Problem("energy", message, hint="declare monitoring: {kind: prometheus} as well")


class EnergyHasPlaces:
    """Figures belong to one region or pool that is there."""

    id: ClassVar[str] = "energy-places"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Regions and pools that are not declared, or twice, and pools whose region has no figures."""
        if spec.energy is None:
            return
        pools = {region.name: [pool.name for pool in region.pools] for region in spec.regions}
        seen = set[tuple[str, ...]]()
        for index, site in enumerate(spec.energy.regions):
            path = f"energy.regions[{index}].region"
            yield from _known(path, site.region, list(pools), "a declared region")
            if (site.region,) in seen:
                yield Problem(path, f"{show(site.region)} has figures already", show(site.region))
            seen.add((site.region,))
        for index, one in enumerate(spec.energy.pools):
            path, place = f"energy.pools[{index}]", (one.region, one.pool)
            unknown = list(_known(f"{path}.region", one.region, list(pools), "a declared region"))
            yield from unknown
            if unknown:
                continue
            yield from _known(f"{path}.pool", one.pool, pools[one.region], f"a pool of {one.region}")
            if place in seen:
                yield Problem(f"{path}.pool", f"{show(one.pool)} has figures already", show(one.pool))
            if (one.region,) not in seen:
                hint = f"add {{region: {one.region}, pue: …}} to energy.regions"
                yield Problem(f"{path}.region", f"{one.region} has no figures of its own", hint=hint)
            seen.add(place)


def _known(path: str, name: str, names: list[str], what: str) -> Iterator[Problem]:
    if name not in names:
        message = f"{show(name)} is not {what} ({', '.join(names)})"
        yield Problem(path, message, show(name), suggestion=nearest(name, names))


class EnergyFiguresAgree:
    """Two figures of one thing must not contradict each other, nor lack each other."""

    id: ClassVar[str] = "energy-figures"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """A node that draws more idle than at most, a cap of unknown racks, prices without a currency."""
        if spec.energy is None:
            return
        for index, one in enumerate(spec.energy.pools):
            path = f"energy.pools[{index}]"
            if one.idle_w > one.max_w:
                message = f"a node would draw {one.idle_w:g} W without load and {one.max_w:g} W at most"
                yield Problem(f"{path}.idle_w", message, show(one.idle_w), f"at most {one.max_w:g}")
            if one.rack_cap_kw is not None and one.nodes_per_rack is None:
                hint = "declare nodes_per_rack"
                yield Problem(f"{path}.rack_cap_kw", "which nodes share a rack is not declared", hint=hint)
        priced = [one.region for one in spec.energy.regions if one.price_per_kwh is not None]
        if priced and spec.energy.currency is None:
            message = f"is missing, and {priced[0]} has a price"
            yield Problem("energy.currency", message, hint="declare it by its three letters, such as EUR")


class CapsAreNotPassed:
    """Nothing here keeps nodes below a cap: what they can draw, they will draw together one day, and the
    breaker takes all of them. Who limits them by other means declares that limit as `max_w`."""

    id: ClassVar[str] = "energy-cap"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """A node, a rack or a region that may draw more than its cap."""
        if (energy := spec.energy) is None:
            return
        for site in regions(spec):
            for pool in site.pools:
                path = f"energy.pools[{energy.pools.index(pool.declared)}]"
                yield from _node(path, pool)
                yield from _rack(path, pool)
            cap, most = site.declared.cap_kw, site.power.max_w
            if cap is not None and most > watts(cap):
                path = f"energy.regions[{energy.regions.index(site.declared)}].cap_kw"
                message = f"the nodes of {site.declared.region} may draw {_kw(most)} kW together"
                yield _over(path, message, cap, "declare fewer nodes")


def _node(path: str, pool: PoolPower) -> Iterator[Problem]:
    own = pool.declared
    if own.cap_w is not None and own.max_w > own.cap_w:
        message = f"a node of {own.region}-{own.pool} may draw {own.max_w:,g} W"
        yield _over(f"{path}.cap_w", message, own.cap_w, "declare a higher cap")


def _rack(path: str, pool: PoolPower) -> Iterator[Problem]:
    cap, rack = pool.declared.rack_cap_kw, pool.rack
    if rack is None or cap is None or rack.max_w <= watts(cap):
        return
    nodes, fit = max(pool.racks), int(watts(cap) / pool.node.max_w)
    message = f"{f'the {nodes} nodes' if nodes > 1 else 'the node'} of a rack may draw {_kw(rack.max_w)} kW"
    hint = f"put {fit} into a rack" if fit else "give the rack more power"
    yield _over(f"{path}.rack_cap_kw", message, cap, hint)


def _over(path: str, message: str, cap: float, hint: str) -> Problem:
    limit = "or declare as max_w what firmware or driver limit a node to"
    return Problem(path, f"{message}, and the cap is {cap:,g}", show(cap), hint=f"{hint}, {limit}")


def _kw(power_w: float) -> str:
    """To the watt, so that what is a little more than a cap shows as that."""
    return f"{power_w / W_PER_KW:,.3f}".rstrip("0").rstrip(".")


class PoolsAreCounted:
    """What is left out is in no sum of the plan, and may be what passes the cap."""

    id: ClassVar[str] = "energy-left-out"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Pools without figures in a region that has some."""
        for site in regions(spec):
            name, known = site.declared.region, {pool.declared.pool for pool in site.pools}
            missing = [pool.name for pool in spec.region(name).pools if pool.name not in known]
            if missing:
                message = f"nothing says what the nodes of {', '.join(missing)} in {name} draw"
                hint = "add idle_w and max_w of theirs: until then the plan and its caps are too low"
                yield Problem("energy.pools", message, hint=hint)


RULES: tuple[Rule, ...] = (
    EnergyIsWatched(),
    EnergyHasPlaces(),
    EnergyFiguresAgree(),
    CapsAreNotPassed(),
    PoolsAreCounted(),
)
