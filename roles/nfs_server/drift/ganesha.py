"""ganesha: what nfs-ganesha was told to export over D-Bus, beside its file."""

from __future__ import annotations

import re

from infra.drift.kind import Found, How
from infra.drift.kinds.live import LIVE, LIVE_ASPECTS, LIVE_LIMIT_S, Live, in_force
from infra.drift.looks import Look
from infra.drift.node import run, text_of

GANESHA_FILE = "/etc/ganesha/ganesha.conf"
SHOW_EXPORTS = (
    *("busctl", "call", "org.ganesha.nfsd", "/org/ganesha/nfsd/ExportMgr"),
    *("org.ganesha.nfsd.exportmgr", "ShowExports"),
)
ITS_OWN = "0"
"""The number of the root that it makes of all paths."""


def look_at_ganesha(node: Look, key: str, how: How) -> Found:
    """Exports that its file does not have. One that does not answer, as while it starts, has told nothing."""

    def read() -> list[str]:
        try:
            said = run(list(SHOW_EXPORTS), LIVE_LIMIT_S)
        except (ValueError, TimeoutError):
            return []
        return told_to_ganesha(said, text_of(GANESHA_FILE, ""))

    return in_force(node, read)


def told_to_ganesha(said: str, settings: str) -> list[str]:
    """Number and path of what is in force, of busctl's words, and not in the file."""
    known = set(re.findall(r"^\s*(?:Export_Id|Path)\s*=\s*([^;\s]+)\s*;", settings, re.MULTILINE))
    return [
        f"only in force: export {number}, {path}"
        for number, path in re.findall(r'(\d+) "([^"]*)"', said)
        if number != ITS_OWN and not {number, path} <= known
    ]


# On the controller

KINDS = (Live("ganesha", look_at_ganesha, LIVE_ASPECTS, **LIVE, unit="nfs-ganesha.service"),)
