"""gone: settings that packages brought, or that every system has, and that somebody deleted.

A program whose file of settings is gone goes by other rules: PAM by those of `other`, logrotate by none. What
was gone at the first seal is known.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from infra.drift.kind import Found, How, in_words, is_list
from infra.drift.kinds.effective import UCF
from infra.drift.kinds.slow import watched
from infra.drift.kinds.unit import REINSTALL
from infra.drift.looks import Look
from infra.drift.node import text_of
from roles.base.drift.everywhere import Everywhere
from roles.base.drift.surroundings import DIVERSIONS

if TYPE_CHECKING:
    from infra.drift.manifest import Manifest
    from infra.drift.merge import HostSeal
    from infra.drift.repair import Obstacles

CONFFILES, IS_INSTALLED = b"\nConffiles:\n", b" ok installed\n"
NO_LONGER = (b" obsolete", b" remove-on-upgrade", b" newconffile")
"""How lines of dpkg's end of a file that its package need not have."""
UCF_NAMES = "/var/lib/ucf/registry"
"""What packages keep by ucf: a package and a path a line."""
OF_ALL = (
    *(f"/etc/{x}" for x in ("nsswitch.conf", "profile", "fstab", "shells", "hosts", "ssl/certs")),
    *(f"/etc/pam.d/common-{x}" for x in ("auth", "account", "password", "session")),
    *("/etc/pam.d/common-session-noninteractive", "/root/.profile", "/root/.bashrc"),
)
"""What scripts of packages write as a system is installed, and no list has."""
NO_PACKAGE = "-"


def look_at_gone(node: Look, key: str, how: How) -> Found:
    """A line for each file that is gone, with its package: as many files as would take a tenth of a scan."""
    known = node.want.get("settings")

    def read() -> list[str]:
        return sorted({*gone_settings(node), *(known or ())})

    return {"settings": watched(node, "gone", read, known)}


def gone_settings(node: Look) -> list[str]:
    """Those of all files that are gone, that no diversion has elsewhere, and that no task writes."""
    moved = {*text_of(DIVERSIONS, "").splitlines(), *node.keys_of("file"), *node.keys_of("link")}
    found = [*packages_settings(node), *settings_of_ucf(), *(f"{path} {NO_PACKAGE}" for path in OF_ALL)]
    paths = ((line, line.rpartition(" ")[0]) for line in found)
    return [line for line, path in paths if path not in moved and not os.path.lexists(path)]


def packages_settings(node: Look) -> list[str]:
    """The files of settings of all installed packages, each with its package."""
    data, found = node.dpkg(), []
    at = data.find(CONFFILES)
    while at >= 0:
        start, end = data.rfind(b"\n\n", 0, at), data.find(b"\n\n", at + 1)
        head = data[start : at + 1]
        if IS_INSTALLED in head:
            package = head.partition(b"\nPackage: ")[2].partition(b"\n")[0].decode("utf-8", "replace")
            for line in data[at + len(CONFFILES) : end if end > 0 else len(data)].split(b"\n"):
                if line[:1] != b" ":
                    break
                if not line.endswith(NO_LONGER):
                    found.append(f"{os.fsdecode(line[1:].rpartition(b' ')[0])} {package}")
        at = data.find(CONFFILES, at + 1)
    return found


def settings_of_ucf() -> list[str]:
    """Those that packages keep by ucf, of which it knows what they said."""
    known, lines = text_of(UCF, ""), text_of(UCF_NAMES, "").splitlines()
    words = [line.split() for line in lines]
    return [f"{row[1]} {row[0]}" for row in words if len(row) == 2 and f"  {row[1]}\n" in known]


# On the controller

AGAIN = (
    *("env", "UCF_FORCE_CONFFMISS=1", *REINSTALL),
    *("-o", "Dpkg::Options::=--force-confmiss"),
)
"""Installs a package again, with those of its settings that are gone."""


class Gone(Everywhere):
    """Settings that are gone."""

    def ours(self, run: HostSeal, aspect: str, line: str) -> bool:
        """What a task removed."""
        return line.rpartition(" ")[0] in run.governed()

    def explain(self, expected: Mapping[str, Any], found: Mapping[str, Any]) -> str:
        """Which are gone."""
        known = set(expected.get("settings") or ())
        return f"gone: {in_words([line for line in found.get('settings') or () if line not in known])}"

    def undo(self, found: Obstacles, aspect: str, line: str, manifest: Manifest) -> None:
        """Its package brings it again; what no package has is named."""
        path, _, package = line.rpartition(" ")
        if package != NO_PACKAGE:
            found.undo(f"that {path} is gone, for {package}'s", *AGAIN, package)


KINDS = (
    Gone(
        "gone",
        look_at_gone,
        {"settings": is_list},
        always=("settings",),
        never_none=("settings",),
        stands_alone=True,
    ),
)
