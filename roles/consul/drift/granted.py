"""granted: what Consul itself allows and no role granted: tokens, policies, roles, logins, queries.

What was there at the first seal is known. `consul-access` (`../files`) says it with what the role has made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.drift.kinds.check import BESIDE_ASPECTS, BESIDE_OURS, look_at_beside
from infra.drift.kinds.known import Known
from roles.consul.drift.agent import AS_ROOT

if TYPE_CHECKING:
    from infra.drift.manifest import Manifest
    from infra.drift.repair import Obstacles

ANONYMOUS, PROGRAM = "anonymous", "/usr/local/lib/causeway/consul-access"
REMOVED_BY = {
    "token": ("acl", "token", "delete", "-accessor-id"),
    "policy": ("acl", "policy", "delete", "-name"),
    "role": ("acl", "role", "delete", "-name"),
    "auth-method": ("acl", "auth-method", "delete", "-name"),
    "binding-rule": ("acl", "binding-rule", "delete", "-id"),
}
"""What it is → the words by which Consul's program removes one."""


class Granted(Known):
    """What Consul allows beside what the role granted; what was there is changed back by hand."""

    def key_of(self, aspect: str, line: str) -> str:
        """The anonymous token is one; all else by what it is, and its name."""
        what, _, rest = line.partition(" ")
        return what if what == ANONYMOUS else f"{what} {rest.partition(' ')[0]}"

    def set_back(self, found: Obstacles, aspect: str, line: str, before: str) -> None:
        """What was shut to whom has no token a repair shuts again unasked."""
        if before == f"{ANONYMOUS} nothing":
            found.run("took from Consul's anonymous token what it may", PROGRAM, "close-anonymous")

    def undo(self, found: Obstacles, aspect: str, line: str, manifest: Manifest) -> None:
        """The command that removes it."""
        what, name = line.split()[:2]
        if what == "query":
            found.undo(f"Consul's {line}", PROGRAM, "delete-query", name)
        elif what in REMOVED_BY:
            found.undo(f"Consul's {line}", "sh", "-c", AS_ROOT, "consul", *REMOVED_BY[what], name)


KINDS = (Granted("granted", look_at_beside, BESIDE_ASPECTS, **BESIDE_OURS),)
