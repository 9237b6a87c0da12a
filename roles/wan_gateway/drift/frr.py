"""frr: what FRR's daemons do, beside the file that they were started with."""

from __future__ import annotations

import os
import time

from infra.drift.kind import Found, How
from infra.drift.kinds.live import LIVE, LIVE_ASPECTS, LIVE_LIMIT_S, Live, differing_lines, in_force
from infra.drift.looks import Look
from infra.drift.node import run, text_of

FRR_FILE = "/etc/frr/frr.conf"
FRR_PIDS, FRR_STARTS_S = "/run/frr", 10
FRR_WORDLESS = ("!", "#", "end", "exit", "Building ", "Current ", "frr version ", "hostname ")
"""How lines begin that say nothing of what FRR does."""


def look_at_frr(node: Look, key: str, how: How) -> Found:
    """Where the running configuration of all daemons and the file differ."""

    def read() -> list[str]:
        now = run(["vtysh", "-c", "show running-config"], LIVE_LIMIT_S)
        return differing_lines(frr_lines(node, now), frr_lines(node, text_of(FRR_FILE, "")))

    return in_force(node, read, lambda _: frr_is_up(), FRR_STARTS_S + 1)


def frr_is_up() -> bool:
    """Whether all of FRR's daemons have run for a moment: each reads the file for itself as it starts."""
    try:
        pids = [f"{FRR_PIDS}/{name}" for name in os.listdir(FRR_PIDS) if name.endswith(".pid")]
        began = max([os.stat(path).st_mtime for path in pids], default=0)
    except OSError:  # one of them has just gone
        return False
    return abs(time.time() - began) > FRR_STARTS_S


def frr_lines(node: Look, text: str) -> list[str]:
    """Its lines, each behind those that it belongs to: what a router says of a neighbour is said of that one.

    A list of prefixes has numbers in force that nobody gave it; a password is replaced by its hash.
    """
    found: list[str] = []
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        words = line.split()
        if not words or line.lstrip().startswith(FRR_WORDLESS):
            continue
        if "prefix-list" in words[:2] and "seq" in words:
            del words[words.index("seq") : words.index("seq") + 2]
        if "password" in words:
            words = [*words[: words.index("password") + 1], node.digest(words[-1].encode())]
        depth = len(line) - len(line.lstrip())
        above = [(at, said) for at, said in above if at < depth]
        above.append((depth, " ".join(words)))
        found.append(" / ".join(said for _, said in above))
    return found


# On the controller

KINDS = (Live("frr", look_at_frr, LIVE_ASPECTS, **LIVE, unit="frr.service", again="reload"),)
