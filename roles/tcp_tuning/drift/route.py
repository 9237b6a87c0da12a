"""route: a route of the main table."""

from __future__ import annotations

from infra.drift.kind import Found, How, Kind, is_text
from infra.drift.looks import Look
from infra.drift.node import run


def look_at_route(node: Look, key: str, how: How) -> Found:
    """The route as iproute2 prints it; without what the kernel adds by itself."""
    table = node.once("routes", lambda: run(["ip", "-N", "route", "show"]))
    for line in table.splitlines():
        if line.split(None, 1)[:1] == [key]:
            words = line.replace(" linkdown", "").replace(" dead", "").split()[1:]
            return {"route": " ".join(words)}
    return {"route": None}


KINDS = (Kind("route", look_at_route, {"route": is_text}),)
