"""listing: the names in a directory whose meaning is the sum of its files."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from infra.drift.kind import Claim, Found, How, Kind, added, is_list
from infra.drift.looks import LEFT_OVER, Look, parent_change

if TYPE_CHECKING:
    from infra.drift.findings import Difference
    from infra.drift.manifest import Entry, Manifest
    from infra.drift.merge import HostSeal, Turn
    from infra.drift.repair import Obstacles


def look_at_listing(node: Look, key: str, how: How) -> Found:
    """The names in a directory; not those that nothing reads."""
    unread = left_over(key)
    try:
        names = {name for name in os.listdir(key) if not name.endswith(unread)}
    except FileNotFoundError:
        return {"names": None, "_since": parent_change(key)}
    names.update(name for name in node.want.get("names") or () if name.endswith(unread))
    return {"names": sorted(names), "_since": os.stat(key).st_ctime}


def left_over(folder: str) -> tuple[str, ...]:
    """Ends of names that what reads a directory passes over; not every cron does."""
    return () if folder == "/etc/cron.d" else LEFT_OVER


# On the controller

FOLDERS = (
    r"/etc/([^/]+/)*[^/]+\.d",
    r"/etc/(containers|containerd)/certs\.d/[^/]+",
    r"/etc/grafana/provisioning/[^/]+",
    "/etc/systemd/network",
)
"""By convention a program takes all that lies in a directory whose name ends in `.d`; others do likewise."""


@cache
def listed() -> re.Pattern[str]:
    """The directories that count, by whichever kind."""
    from infra.drift.kinds import KINDS

    return re.compile("|".join(folder for kind in KINDS.values() for folder in kind.folders))


class Listing(Kind):
    """A directory's names."""

    def following(self, claim: Claim) -> Iterator[Claim]:
        """The directory in which a file lies, or a directory: of registries' certificates each has one."""
        if claim.kind in ("file", "link", "absent", "directory"):
            folder = posixpath.dirname(claim.key)
            if listed().fullmatch(folder):
                yield Claim("listing", folder)

    def check(self, found: Mapping[str, Any]) -> None:
        """Each name is that of a file."""
        if any(part in ("", ".", "..") or "/" in part for part in found.get("names") or ()):
            raise ValueError("a name in it is none")

    def settled(self, run: HostSeal, before: Entry, entry: Entry, turn: Turn) -> Entry:
        """A new listing counts as far as tasks account for its names."""
        if before.want == entry.want:
            return entry
        governed = run.governed()
        old, new = set(before.want["names"] or ()), set(entry.want["names"] or ())
        old = {name for name in old if not name.endswith(left_over(entry.key))}
        strangers = {n for n in new - old if posixpath.join(entry.key, n) not in governed}
        lost = {n for n in old - new if posixpath.join(entry.key, n) not in governed}
        if strangers or lost:
            run.not_repaired.append(f"{', '.join(sorted(strangers | lost))} in {entry.key}")
        return entry.model_copy(update={"want": {"names": sorted((new - strangers) | lost)}})

    def obstacle(self, found: Obstacles, difference: Difference, manifest: Manifest) -> None:
        """Files that somebody put there."""
        found.added += [posixpath.join(difference.key, name) for name in added(difference, "names")]


KINDS = (
    Listing(
        "listing",
        look_at_listing,
        {"names": is_list},
        always=("names",),
        list_aspect="names",
        stands_alone=True,
        is_sum=True,
        folders=FOLDERS,
    ),
)
