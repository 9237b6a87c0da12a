"""interface: MTU, administrative state and queueing discipline of a network interface."""

from __future__ import annotations

import os

from infra.drift.kind import Found, How, Kind, is_flag, is_number, is_text
from infra.drift.looks import Look
from infra.drift.node import run, words_of


def look_at_interface(node: Look, key: str, how: How) -> Found:
    """As the kernel and `tc` have it; the root queueing discipline."""
    base = "/sys/class/net/" + key
    if not os.path.isdir(base):
        return {"mtu_bytes": None, "up": None, "qdisc": None}
    line = (run(["tc", "qdisc", "show", "dev", key, "root"]).splitlines() or [""])[0].split()
    return {
        "mtu_bytes": int(words_of(base + "/mtu")),
        "up": bool(int(words_of(base + "/flags"), 16) & 1),
        "qdisc": line[1] if len(line) > 1 else None,
    }


KINDS = (
    Kind(
        "interface",
        look_at_interface,
        {"mtu_bytes": is_number, "up": is_flag, "qdisc": is_text},
        knows_others=True,
    ),
)
