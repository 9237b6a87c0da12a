"""Filter plugin: which nodes hand an artefact on to the others of their region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MANY = 8
"""Where more than these lack it, two get it from the controller: one link is too little, and one may die."""
SEEDS = 2


def artefact_seeds(hostvars: Mapping[str, Mapping[str, Any]], hosts: Sequence[str]) -> dict[str, list[str]]:
    """Which → the hosts that hand it on; nobody where no other lacks it, or none can be reached by others.

    Each of HOSTS has what it found as `__artefact`, or does not take the file. `among` is the same for one
    content in one region.
    """
    groups: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for host in hosts:
        look = hostvars[host].get("__artefact") or {}
        if "among" in look:
            groups.setdefault(look["among"], []).append((host, look))
    chosen = {name: _of(group) for name, group in groups.items()}
    return {name: seeds for name, seeds in chosen.items() if seeds}


def _of(group: list[tuple[str, Mapping[str, Any]]]) -> list[str]:
    able = [(host, look["lacks"] == "content") for host, look in group if look["address"]]
    lacking = sum(look["lacks"] == "content" for _, look in group)
    having = [host for host, lacks in able if not lacks]
    if not lacking or (not having and lacking == 1):
        return []
    return having[:SEEDS] or [host for host, _ in able][: SEEDS if lacking > MANY else 1]


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Any]:
        """By name."""
        return {"artefact_seeds": artefact_seeds}
