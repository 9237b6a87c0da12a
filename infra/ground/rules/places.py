"""Words about a place that are well-formed and still unknown."""

from collections.abc import Iterator
from typing import ClassVar

from infra.declaration import ClusterSpec
from infra.ground.problem import Problem, Severity, nearest, show


class LocaleIsKnown:
    """`jp_JP.UTF-8` has the right form, and no machine can generate it."""

    id: ClassVar[str] = "locale-known"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Locales whose language and country Python's alias table has not heard of."""
        import locale

        known = sorted({name.split(".")[0] for name in locale.locale_alias.values() if "_" in name[:4]})
        for index, region in enumerate(spec.regions):
            name = region.locale.split(".")[0]
            if name not in (*known, "C", "POSIX"):
                same_country = [other for other in known if other[-3:] == name[-3:]]
                near = nearest(name, same_country or known)
                suggestion = f"{near}.UTF-8" if near else None
                message = f"{show(region.locale)} is not a locale known here"
                yield Problem(f"regions[{index}].locale", message, show(region.locale), suggestion=suggestion)
