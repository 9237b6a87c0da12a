"""Acceptance: of nodes that are there, with figures that are of use."""

from collections.abc import Iterator
from typing import ClassVar

from infra.declaration import ClusterSpec
from infra.ground.problem import Problem, Severity, nearest, show


class AcceptanceHasGpus:
    """Only nodes with GPUs are accepted so."""

    id: ClassVar[str] = "acceptance-gpus"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Acceptance in a cluster without a GPU."""
        if spec.acceptance is not None and not any(p.gpus for region in spec.regions for p in region.pools):
            yield Problem("acceptance", "no pool has a GPU, and nothing else is accepted by it")


class AcceptanceHasPools:
    """Figures belong to one pool that is there, and has GPUs."""

    id: ClassVar[str] = "acceptance-pools"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Regions and pools that are not declared, have no GPU, or have figures already."""
        regions = {region.name: {pool.name: pool.gpus for pool in region.pools} for region in spec.regions}
        seen = set[tuple[str, str]]()
        for index, one in enumerate(spec.acceptance.pools if spec.acceptance else ()):
            path = f"acceptance.pools[{index}]"
            if one.region not in regions:
                yield _unknown(f"{path}.region", one.region, list(regions), "a declared region")
                continue
            pools = regions[one.region]
            if one.pool not in pools:
                yield _unknown(f"{path}.pool", one.pool, list(pools), f"a pool of {one.region}")
            elif not pools[one.pool]:
                yield Problem(f"{path}.pool", f"{show(one.pool)} has no GPUs: its nodes are not accepted so")
            elif (one.region, one.pool) in seen:
                yield Problem(f"{path}.pool", f"{show(one.pool)} has figures already", show(one.pool))
            seen.add((one.region, one.pool))


def _unknown(path: str, name: str, names: list[str], what: str) -> Problem:
    message = f"{show(name)} is not {what} ({', '.join(names)})"
    return Problem(path, message, show(name), suggestion=nearest(name, names))


RULES = (AcceptanceHasGpus(), AcceptanceHasPools())
