"""What a rule is, and the walks over a declaration that rules share."""

from collections.abc import Iterator
from typing import ClassVar, Protocol

from infra.declaration import ClusterSpec, LocalProvider, NodePoolSpec, RegionSpec, WanLinkSpec
from infra.ground.problem import Problem, Severity


class Rule(Protocol):
    """One thing that must hold across a declaration.

    `check` yields a Problem (path, message, and what would be right) for each place where it does
    not; severity, rule and line are filled in by the caller.
    """

    id: ClassVar[str]
    severity: ClassVar[Severity]

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Each place where the rule does not hold."""
        ...


def pools(spec: ClusterSpec) -> Iterator[tuple[str, RegionSpec, int, NodePoolSpec]]:
    """Every pool: (path, its region, its number in the region, the pool)."""
    for region_index, region in enumerate(spec.regions):
        for pool_index, pool in enumerate(region.pools):
            yield f"regions[{region_index}].pools[{pool_index}]", region, pool_index, pool


def links(spec: ClusterSpec) -> Iterator[tuple[str, WanLinkSpec]]:
    """Every WAN link: (path, the link)."""
    for index, link in enumerate(spec.wan_links):
        yield f"wan_links[{index}]", link


def memory_gib(spec: ClusterSpec, region: RegionSpec, pool: NodePoolSpec) -> float | None:
    """A node's memory as declared: of a virtual machine, or what acceptance expects."""
    provider = region.provider
    if isinstance(provider, LocalProvider) and region.node_kind(pool) == "vm":
        return provider.vm_memory_mib / 1024
    accepted = spec.acceptance.pools if spec.acceptance else ()
    return next(
        (one.memory_gib for one in accepted if (one.region, one.pool) == (region.name, pool.name)), None
    )
