"""Which packages a GPU stack is, in which exact versions, and what keeps them there; decided anywhere."""

from __future__ import annotations

import fnmatch

from ansible.module_utils.causeway_version import is_of, without_epoch

PINNED, KEPT_TO_BRANCH = 1001, 995
"""Priorities of apt: the first one brings even older versions back, the second wins over any archive's."""
HEADER = "Made by Causeway (role cuda_base). What is declared decides of an upgrade, and nothing else."


def upstream(version: str) -> str:
    """A package's version without epoch and revision: `1:580.95.05-1` → `580.95.05`."""
    rest = without_epoch(version)
    return rest.rpartition("-")[0] if "-" in rest else rest


def follows(name: str, patterns: list[str]) -> bool:
    """Whether a package belongs to the driver, by its name."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


class Wanted:
    """The declared stack, held against what is installed and what the sources have.

    `packages`: name → declared version; `driver`: that of all packages whose names `patterns` match.
    """

    def __init__(self, packages: dict[str, str], driver: str, patterns: list[str]) -> None:
        self.packages = packages
        self.driver = driver
        self.patterns = patterns

    def bound(self, installed: dict[str, str]) -> dict[str, str]:
        """Installed packages beside the declared ones that have the version of an installed driver."""
        versions = {
            upstream(installed[name])
            for name, wanted in self.packages.items()
            if name in installed and wanted == self.driver
        } | {self.driver}
        return {
            name: self.driver
            for name, version in installed.items()
            if name not in self.packages and follows(name, self.patterns) and upstream(version) in versions
        }

    def targets(
        self, installed: dict[str, str], offered: dict[str, list[str]]
    ) -> tuple[dict[str, str], list[str]]:
        """Name → exact version; and what no source has, a line each.

        What is installed and fits stays. `offered`: name → versions, the newest first.
        """
        found, missing = {}, []
        for name, wanted in {**self.bound(installed), **self.packages}.items():
            if name in installed and is_of(installed[name], wanted):
                found[name] = installed[name]
                continue
            fitting = [version for version in offered.get(name, []) if is_of(version, wanted)]
            if fitting:
                found[name] = fitting[0]
            elif name in self.packages:
                there = ", ".join(offered.get(name, [])) or "none"
                missing.append(f"{name} {wanted or 'of any version'} (there: {there})")
        return found, missing

    def preferences(self, targets: dict[str, str]) -> str:
        """apt's preferences: each package at its version, whatever else is the driver's at the driver's."""
        parts = [(name, version, PINNED) for name, version in sorted(targets.items())]
        parts.append((" ".join(self.patterns), f"{self.driver}*", KEPT_TO_BRANCH))
        stanzas = [
            f"Package: {names}\nPin: version {version}\nPin-Priority: {priority}\n"
            for names, version, priority in parts
        ]
        return f"Explanation: {HEADER}\n" + "\n".join(stanzas)


def way_back(before: dict[str, str], now: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """From what is installed now to what was before: name → version to install, and names to remove."""
    return (
        {name: version for name, version in before.items() if now.get(name) != version},
        sorted(name for name in now if name not in before),
    )
