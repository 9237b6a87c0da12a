"""agent: whether Consul's agent answers, and what it was told beside its files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from infra.drift.kind import Found, How, added
from infra.drift.kinds.live import LIVE, LIVE_ASPECTS, Live, dns_answer, in_force
from infra.drift.looks import Look
from infra.drift.node import text_of

if TYPE_CHECKING:
    from infra.drift.findings import Difference
    from infra.drift.manifest import Manifest
    from infra.drift.repair import Obstacles

CONSUL_DATA, CONSUL_DNS_PORT = "/var/lib/consul/", 8600
MAINTENANCE = "_node_maintenance"
AS_ROOT = 'set -a; . /etc/default/consul; exec consul "$@"'


def look_at_agent(node: Look, key: str, how: How) -> Found:
    """It keeps what it is told, a service or a check, in a file each; those of its own files it does not."""

    def read() -> list[str]:
        dns_answer(CONSUL_DNS_PORT, "consul", 2, 1)
        return [*told_agent("services", "Service", "ID"), *told_agent("checks", "Check", "CheckID")]

    return in_force(node, read)


def told_agent(folder: str, part: str, name: str) -> list[str]:
    """The names of what it was told of one sort."""
    try:
        files = os.listdir(CONSUL_DATA + folder)
    except FileNotFoundError:
        return []
    found = []
    for file in files:
        import json  # only where there is something: it is slow to load

        data = json.loads(text_of(f"{CONSUL_DATA}{folder}/{file}", "{}"))
        if isinstance(data.get(part), dict):
            found.append(f"{part.lower()} {data[part].get(name)}")
    return found


# On the controller


class Agent(Live):
    """Consul's agent."""

    def obstacle(self, found: Obstacles, difference: Difference, manifest: Manifest) -> None:
        """What somebody registered is taken back with consent; a node in maintenance may be so on purpose."""
        if difference.found.get("differs") is None or difference.found.get("answers") is False:
            super().obstacle(found, difference, manifest)
        for line in added(difference, "differs"):
            part, _, name = line.partition(" ")
            argv = ["services", "deregister", f"-id={name}"]
            if part == "check":
                argv = ["maint", "-disable"] if name == MAINTENANCE else []
            if argv:
                found.undo(f"agent told of {line}", "sh", "-c", AS_ROOT, "consul", *argv)


KINDS = (
    Agent(
        "agent",
        look_at_agent,
        LIVE_ASPECTS,
        **LIVE,
        unit="consul.service",
        folders=(r"/etc/consul\.d",),  # it reads all that is there (-config-dir)
    ),
)
