"""Action plugin: installs Debian's packages, also where the mirror has replaced what apt's lists name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase

DOCUMENTATION = """
module: causeway_apt
short_description: Install packages, if need be with fresh package lists
description:
  - M(ansible.builtin.apt), which goes by apt's lists until they are old. A mirror drops the files of a
    version once there is another one, so lists of yesterday may name what is gone.
  - Where all packages are there, apt is not asked, nor are lists fetched that are old.
  - Where it fails for such a reason, the lists are fetched and it is tried again. What is said then counts.
options:
  name: {description: As of M(ansible.builtin.apt) with all its other options, type: list, required: true}
  install_recommends: {description: As there, type: bool, default: false}
  lock_timeout: {description: "As there, in seconds", type: int, default: 300}
  cache_valid_time: {description: "As there, in seconds: a week", type: int, default: 604800}
"""
DEFAULTS: Mapping[str, Any] = {"install_recommends": False, "lock_timeout": 300, "cache_valid_time": 604800}
PLAIN = frozenset(("name", "state", "policy_rc_d", *DEFAULTS))
"""Options that mean nothing where all packages are there."""
PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+(=[A-Za-z0-9.+:~-]+)?")
OUTDATED = re.compile(
    "failed to fetch|unable to fetch|no package matching|no available installation candidate"
    "|has no installation candidate|unable to locate package|version .* was not found|unmet dependencies",
    re.IGNORECASE,
)
"""What apt and its module say where lists are behind the archive, or name what is only partly there."""


class ActionModule(ActionBase):  # type: ignore[misc] # ansible has no types
    """Asks again with fresh lists."""

    def run(self, tmp: Any = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What the module said last."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        asked = {**DEFAULTS, **self._task.args}
        if self._are_there(asked, task_vars):
            return result | {"changed": False}
        said = self._install(asked, task_vars)
        if is_outdated(said) and not said.get("cache_updated"):
            # With a time for which lists are good the module would not fetch them.
            said = self._install({**asked, "update_cache": True, "cache_valid_time": 0}, task_vars)
        return result | said

    def _are_there(self, asked: Mapping[str, Any], task_vars: Mapping[str, Any] | None) -> bool:
        """Whether nothing is to be done, by a look at what dpkg and apt have noted."""
        names = plain_names(asked)
        if not names:
            return False
        said: dict[str, Any] = self._execute_module("causeway_apt", {"name": names}, task_vars=task_vars)
        return said.get("there") is True

    def _install(self, asked: Mapping[str, Any], task_vars: Mapping[str, Any] | None) -> dict[str, Any]:
        said: dict[str, Any] = self._execute_module("ansible.builtin.apt", dict(asked), task_vars=task_vars)
        return said


def plain_names(asked: Mapping[str, Any]) -> list[str]:
    """The packages that are to be there, where nothing else is asked; none where it may be."""
    names = asked.get("name") or []
    names = names.split(",") if isinstance(names, str) else [str(name) for name in names]
    if not set(asked) <= PLAIN or asked.get("state", "present") != "present":
        return []
    return names if all(map(PACKAGE.fullmatch, names)) else []


def is_outdated(said: Mapping[str, Any]) -> bool:
    """Whether it failed for what fresh lists may mend."""
    words = " ".join(str(said.get(part, "")) for part in ("msg", "stderr", "stdout"))
    return bool(said.get("failed") and OUTDATED.search(words))
