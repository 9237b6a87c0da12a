"""stub: whether the stub that passes questions for one zone on answers at all."""

from __future__ import annotations

from infra.drift.kind import Found, How
from infra.drift.kinds.live import LIVE, LIVE_ASPECTS, Live, dns_answer, in_force
from infra.drift.looks import Look

TEXT, CHAOS = 16, 3


def look_at_stub(node: Look, key: str, how: How) -> Found:
    """It is asked for its version, which it knows by itself."""

    def read() -> list[str]:
        dns_answer(53, "version.bind", TEXT, CHAOS)
        return []

    return in_force(node, read)


# On the controller

KINDS = (Live("stub", look_at_stub, LIVE_ASPECTS, **LIVE, unit="causeway-dns.service"),)
