"""Waves: the order in which regions are configured."""

from collections.abc import Iterator
from typing import ClassVar

from infra.declaration import ClusterSpec
from infra.ground.problem import Problem, Severity, nearest, show


class WavesNameEveryRegion:
    """Where waves are declared, each region stands in exactly one."""

    id: ClassVar[str] = "waves"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Regions that do not exist, stand twice or in no wave, and empty waves."""
        if not spec.waves:
            return
        names = [region.name for region in spec.regions]
        first: dict[str, str] = {}
        for wave_index, wave in enumerate(spec.waves):
            if not wave:
                yield Problem(f"waves[{wave_index}]", "an empty wave", "an empty list", "names of regions")
            for index, name in enumerate(wave):
                path = f"waves[{wave_index}][{index}]"
                if name not in names:
                    allowed = ", ".join(names)
                    message = f"{show(name)} is not a declared region ({allowed})"
                    meant = nearest(name, names)
                    yield Problem(path, message, show(name), allowed, meant)
                    first.setdefault(meant or name, path)  # as what was meant: one error for one slip
                elif name in first:
                    message = f"{show(name)} stands already in {first[name]}"
                    yield Problem(path, message, show(name), "each region once")
                first.setdefault(name, path)
        missing = [name for name in names if name not in first]
        if missing:
            message = f"{', '.join(missing)} stands in no wave and would never be configured"
            yield Problem("waves", message, hint="add it, or leave waves out for one region after the other")
