"""sysfs: a file of /sys or /proc, one setting."""

from __future__ import annotations

from infra.drift.kind import Found, How, Kind, is_text
from infra.drift.looks import Look
from infra.drift.node import words_of


def look_at_sysfs(node: Look, key: str, how: How) -> Found:
    """The one value that the file has."""
    return {"value": words_of(key)}


KINDS = (Kind("sysfs", look_at_sysfs, {"value": is_text}, stands_alone=True),)
