"""timekeeping: the time servers that chrony asks, beside those that its files name."""

from __future__ import annotations

from infra.drift.kind import Found, How
from infra.drift.kinds.effective import lines_of, program_files
from infra.drift.kinds.live import LIVE, LIVE_ASPECTS, LIVE_LIMIT_S, Live, in_force
from infra.drift.looks import Look
from infra.drift.node import run
from roles.base.drift.chrony import CHRONY_FILES


def look_at_timekeeping(node: Look, key: str, how: How) -> Found:
    """Servers that it was told to ask, to leave or to forget."""
    return in_force(node, lambda: told_of_time(node))


def told_of_time(node: Look) -> list[str]:
    """How what chrony asks differs from its files. A name that is not known yet is no server yet."""
    try:
        said = run(["chronyc", "-c", "-N", "-m", "sources", "activity"], LIVE_LIMIT_S)
    except ValueError as error:
        if "Cannot talk to daemon" in str(error):
            raise TimeoutError("chronyd does not answer") from None
        raise
    rows = [line.split(",") for line in said.splitlines()]
    asked = {row[2] for row in rows if len(row) > 5}
    named = set()
    for data in program_files(node, {"inputs": CHRONY_FILES}).values():
        words = [line.split() for line in lines_of(data)]
        named |= {line[1] for line in words if len(line) > 1 and line[0] in ("server", "peer", "pool")}
    offline = next((row[1] for row in rows if len(row) == 5), "0")
    found = [f"only in force: {name}" for name in asked - named]
    found += [f"only in its files: {name}" for name in named - asked if is_address(name)]
    return found + [f"{offline} servers are not asked"] * (offline != "0")


def is_address(name: str) -> bool:
    """Whether it is an address and no name."""
    return ":" in name or name.replace(".", "").isdigit()


# On the controller

KINDS = (Live("timekeeping", look_at_timekeeping, LIVE_ASPECTS, **LIVE, unit="chrony.service"),)
