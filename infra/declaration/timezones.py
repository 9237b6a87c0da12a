"""Names of time zones: those that every node has, and what old ones are called now.

Debian 13 has old names (`Europe/Kiev`, `US/Eastern`) in a package of their own, which nodes do not have. What
is no old name stands in the tz database's tables of countries, or is no place's.
"""

import re
import zoneinfo
from functools import cache
from importlib import resources
from pathlib import Path

TABLES = ("zone.tab", "zone1970.tab")
RULES = "tzdata.zi"
NO_PLACE = frozenset(("UTC", "Etc/UTC", *(f"Etc/GMT{hours:+d}" for hours in (*range(-14, 0), *range(1, 13)))))
OF_OTHER_CLOCKS = re.compile(r"^(right|posix)/")
"""The same zones once more, by clocks that count leap seconds, and by those that do not."""


@cache
def names() -> frozenset[str]:
    """All that a node has; what this machine has where it has no tables; none where it has nothing."""
    lines = [line for table in TABLES for line in _text(table).splitlines() if not line.startswith("#")]
    listed = {line.split("\t")[2] for line in lines if line.count("\t") >= 2}
    return frozenset(listed | NO_PLACE) if listed else frozenset(zoneinfo.available_timezones())


def is_known(name: str) -> bool:
    """Whether a zone has or had that name, as this machine or the tz database's tables know."""
    if OF_OTHER_CLOCKS.sub("", name) in _links():
        return True
    try:
        return bool(zoneinfo.ZoneInfo(name).key)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False


def today(name: str) -> str | None:
    """What an old name's zone is called now, as far as the tz database tells."""
    name, links = OF_OTHER_CLOCKS.sub("", name), _links()
    for _ in range(len(links)):
        if name in names() or name not in links:
            break
        name = links[name]
    return name if name in names() else None


@cache
def _links() -> dict[str, str]:
    """Old name → the one that it stands for, which may be an old one as well."""
    words = [line.split() for line in _text(RULES).splitlines() if line.startswith("L ")]
    return {name: target for _, target, name in words}


def _text(name: str) -> str:
    """A file of the tz database, the system's or Python's own; empty where neither has it."""
    for folder in zoneinfo.TZPATH:
        file = Path(folder) / name
        if file.is_file():
            return file.read_text(encoding="utf-8")
    try:
        return (resources.files("tzdata") / "zoneinfo" / name).read_text(encoding="utf-8")
    except (ModuleNotFoundError, OSError):
        return ""
