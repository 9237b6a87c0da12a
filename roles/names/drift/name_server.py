"""name_server: whether the server of names on a node answers at all."""

from __future__ import annotations

from infra.drift.kind import Found, How
from infra.drift.kinds.live import LIVE, LIVE_ASPECTS, Live, dns_answer, in_force
from infra.drift.looks import Look

NAMES_PORT = 8653
NAMES_TEXT, NAMES_CHAOS = 16, 3


def look_at_name_server(node: Look, key: str, how: How) -> Found:
    """It is asked for its version, which it knows by itself."""

    def read() -> list[str]:
        dns_answer(NAMES_PORT, "version.bind", NAMES_TEXT, NAMES_CHAOS)
        return []

    return in_force(node, read)


# On the controller

KINDS = (Live("name_server", look_at_name_server, LIVE_ASPECTS, **LIVE, unit="causeway-names.service"),)
