"""timekeeping: the time servers that chrony asks, and who may ask it, beside what its files say."""

from __future__ import annotations

from infra.drift.kind import Found, How
from infra.drift.kinds.effective import lines_of, program_files
from infra.drift.kinds.live import LIVE, LIVE_ASPECTS, LIVE_LIMIT_S, Live, in_force
from infra.drift.looks import Look
from infra.drift.node import run
from roles.base.drift.chrony import CHRONY_FILES

OF_A_SOURCE = 10
"""So many fields has chronyc's row of a source; that of the clock in force has more."""
ITSELF, ALLOWED = "7F7F0101", "208 "
"""What chrony calls its own clock where it goes by that, and how it says that somebody may ask."""
NOBODYS = ("192.0.2.1", "198.18.0.1", "2001:db8::1")
"""Addresses of documentation and of benchmarks (RFC 5737, 2544, 3849): no role lets them ask."""


def look_at_timekeeping(node: Look, key: str, how: How) -> Found:
    """Servers that it was told to ask, to leave or to forget; whom it was told to answer."""
    return in_force(node, lambda: told_of_time(node))


def told_of_time(node: Look) -> list[str]:
    """How what chrony asks differs from its files. A name that is not known yet is no server yet."""
    words = [line.split() for data in chrony_files(node) for line in lines_of(data)]
    may_ask = askers(words)
    checks = [f"accheck {address}" for address in may_ask]
    try:
        said = run(["chronyc", "-c", "-N", "-m", "sources", "activity", "tracking", *checks], LIVE_LIMIT_S)
    except ValueError as error:
        if "Cannot talk to daemon" in str(error):
            raise TimeoutError("chronyd does not answer") from None
        raise
    rows = [line.split(",") for line in said.splitlines()]
    asked = {row[2] for row in rows if len(row) == OF_A_SOURCE}
    named = {line[1] for line in words if len(line) > 1 and line[0] in ("server", "peer", "pool")}
    offline = next((row[1] for row in rows if len(row) == 5), "0")
    found = [f"only in force: {name}" for name in asked - named]
    found += [f"only in its files: {name}" for name in named - asked if is_address(name)]
    found += [f"{offline} servers are not asked"] * (offline != "0")
    itself = any(row[0] == ITSELF for row in rows) and not any(line[0] == "local" for line in words)
    found += ["only in force: local"] * itself
    answers = [row[0].startswith(ALLOWED) for row in rows if len(row) == 1]
    for (address, named_so), so in zip(may_ask.items(), answers):
        found += [f"only in {'force' if so else 'its files'}: allow {address}"] * (so != named_so)
    return found


def chrony_files(node: Look) -> list[bytes]:
    """What chrony's files say."""
    return list(program_files(node, {"inputs": CHRONY_FILES}).values())


def askers(words: list[list[str]]) -> dict[str, bool]:
    """Some addresses, and whether chrony's files let them ask: nobody's, and the first of each network there;
    where there is none, the servers'.

    None where the files refuse some, or name some otherwise than by their network.
    """
    servers = [line[1] for line in words if len(line) > 1 and line[0] == "server" and is_address(line[1])]
    networks = [line[1] if len(line) > 1 else "all" for line in words if line[0] == "allow"]
    if any(line[0] == "deny" for line in words) or not all("/" in network for network in networks):
        return {}
    others = NOBODYS if networks else (*NOBODYS, *servers)
    return {**dict.fromkeys(others, False), **{network.partition("/")[0]: True for network in networks}}


def is_address(name: str) -> bool:
    """Whether it is an address and no name."""
    return ":" in name or name.replace(".", "").isdigit()


# On the controller

KINDS = (Live("timekeeping", look_at_timekeeping, LIVE_ASPECTS, **LIVE, unit="chrony.service"),)
