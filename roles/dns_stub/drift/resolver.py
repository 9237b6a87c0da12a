"""resolver: where programs are told whom to ask for names, on nodes where systemd-resolved answers them.

It depends on the link at /etc/resolv.conf whether they ask it, and no task makes that. What is no link at the
first seal is written by something else, as DHCP, and is not compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from infra.drift.kind import Claim, Found, How, Kind, Task, in_words, is_text
from infra.drift.looks import Look

if TYPE_CHECKING:
    from infra.drift.findings import Difference
    from infra.drift.manifest import Manifest
    from infra.drift.repair import Obstacles

NO_RESOLVER_LINK = "no link"


def look_at_resolver(node: Look, key: str, how: How) -> Found:
    """Where the link leads."""
    if node.want.get("leads") == NO_RESOLVER_LINK:
        return {"leads": NO_RESOLVER_LINK}
    if not os.path.islink(key):
        return {"leads": NO_RESOLVER_LINK}
    return {"leads": os.readlink(key), "_since": os.lstat(key).st_ctime}


# On the controller

RESOLVED = "systemd-resolved.service"
LINK_AGAIN = """
if [ -e "$2" ] || [ -L "$2" ]; then
    aside=/var/lib/causeway/aside/$(date -u +%Y%m%dT%H%M%SZ)
    mkdir -p -m 0700 /var/lib/causeway/aside && mkdir -p "$aside/etc" && cp -a "$2" "$aside/etc/"
fi
ln --symbolic --force --no-dereference "$1" "$2"
"""
"""Keeps what is there, and puts the link in its place at once: names are asked for all the while."""


class Resolver(Kind):
    """The link."""

    def following(self, claim: Claim) -> Iterator[Claim]:
        """It, from the unit that is to answer."""
        if claim.kind == "unit" and claim.key == RESOLVED and claim.reported.get("active") == "active":
            yield Claim("resolver", "/etc/resolv.conf")

    def untouched(self, task: Task) -> set[str]:
        """All of it: a start of the unit makes no link."""
        return {"leads"}

    def explain(self, expected: Mapping[str, Any], found: Mapping[str, Any]) -> str:
        """What is there."""
        now = found.get("leads")
        is_now = "is no link" if now == NO_RESOLVER_LINK else f"leads to {in_words(now)}"
        return f"{is_now}, expected one to {in_words(expected.get('leads'))}"

    def obstacle(self, found: Obstacles, difference: Difference, manifest: Manifest) -> None:
        """The link as it was sealed; what is in its place is moved away."""
        path, leads = difference.key, str(difference.expected.get("leads") or "")
        if "leads" in difference.found:
            found.thaw.append(path)
            found.run(f"{path} leads to {leads}", "sh", "-c", LINK_AGAIN, "link", leads, path, first=True)


KINDS = (
    Resolver(
        "resolver",
        look_at_resolver,
        {"leads": is_text},
        always=("leads",),
        never_none=("leads",),
        stands_alone=True,
    ),
)
