"""New programs of Ceph's, daemon by daemon: who is next, and whether the cluster can do without it now.

    upgrade.py turns OUTDATED    in which order daemons are to start again; OUTDATED: JSON, host → kinds
    upgrade.py ready KIND HOST [--after=LAST] [--dry-run]    wait until a host's may; LAST: as told last
    upgrade.py finish [--after=LAST] [--dry-run]    wait until all are back, and end what was begun

Prints a JSON object with the changes, and what the next call is to be told. The order is that of Ceph's
release notes ("Upgrading non-cephadm clusters"). It may be ended at any moment: what it has set it says in
the monitors' own store, and the next call goes on from there.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from asked import Cluster, RefusedError, cluster, run, settings

KINDS = ("mon", "mgr", "osd", "mds", "rgw")
"""In the order in which they are started again."""
BEGUN, OURS = "causeway/upgrade", "causeway/noout"
"""Keys in the monitors' store: an upgrade has not ended; `noout` is ours. An operator's own stays."""
PATIENCE_S = 600
"""For each gate: copies that a node has missed while it was away are brought up to date meanwhile."""
WHOLE = {"active", "clean"}
CARE = {"scrubbing", "deep", "repair", "snaptrim", "snaptrim_wait"}
"""States of placement groups: what they have to be, and what may go on meanwhile."""


def turns(outdated: Mapping[str, Sequence[str]], leads: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Kind and host, in order. A host's daemons of one kind go together, and who leads goes last of its kind.

    `outdated`: host → kinds of its daemons that run an older program; `leads`: kind → hosts.
    """
    return [
        (kind, host)
        for kind in KINDS
        for host in sorted(outdated, key=lambda host: (host in leads.get(kind, ()), host))
        if kind in outdated[host]
    ]


class Last(NamedTuple):
    """What was started again last: a kind's daemons on a host, and the number that they had before."""

    kind: str
    host: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}:{self.host}"

    @classmethod
    def read(cls, text: str) -> Last | None:
        """As it was written; None for nothing."""
        if not text:
            return None
        kind, number, host = text.split(":", 2)
        return cls(kind, host, int(number))


class Upgrade:
    """A cluster some of whose daemons run older programs than their nodes have."""

    def __init__(self, ask: Cluster, wanted: Mapping[str, Any], target: str, dry_run: bool = False) -> None:
        """`target`: what `ceph --version` says here, which is what daemons say once they are done."""
        self.ask = ask
        self.wanted = wanted
        self.target = target
        self.dry_run = dry_run
        self.changes: list[str] = []

    def leads(self) -> dict[str, list[str]]:
        """Kind → hosts whose daemon leads now: the others' are started again first, so it changes once."""
        return {
            "mon": [self.ask("quorum_status")["quorum_leader_name"]],
            "mgr": [self.ask("mgr dump")["active_name"]],
            "mds": self.active(),
        }

    def ready(self, kind: str, host: str, after: Last | None) -> Last:
        """Wait until a host's daemons of a kind may start again; RefusedError where that takes too long."""
        before = KINDS[: KINDS.index(kind)]
        self.wait(f"{kind} of {host} is not started again", lambda: self.troubles(before, after))
        self.note(BEGUN)
        if kind == "osd":
            self.begin_osds()
        elif "osd" in before:
            self.end_osds()
        return Last(kind, host, self.numbers(kind).get(host, 0))

    def finish(self, after: Last | None) -> None:
        """Wait until all is well, and end what was begun."""
        self.wait("the upgrade has not ended", lambda: self.troubles(KINDS if after else (), after))
        self.end_osds()
        self.require_release()
        if not list(self.older(KINDS)):  # on nodes that are in no run yet it goes on
            self.note(BEGUN, False)

    def wait(self, what: str, troubles: Callable[[], Iterator[str]]) -> None:
        """Until there is no trouble any more; RefusedError with all there is where it takes too long."""
        deadline = time.monotonic() + PATIENCE_S
        while found := self.told(troubles):
            if self.dry_run:
                return
            if time.monotonic() > deadline:
                raise RefusedError(f"{what}: {'; '.join(found)}. The next run goes on from here")
            time.sleep(0.5)

    def told(self, troubles: Callable[[], Iterator[str]]) -> list[str]:
        """All of the troubles; monitors that elect a leader do not answer."""
        try:
            return list(troubles())
        except RefusedError as error:
            return [str(error)]

    # What may be in the way

    def troubles(self, done: Sequence[str], after: Last | None) -> Iterator[str]:
        """What speaks against the next step, a sentence each. `done`: kinds that are to be done with."""
        quorum = self.ask("quorum_status")
        away = {mon["name"] for mon in quorum["monmap"]["mons"]} - set(quorum["quorum_names"])
        if away:
            yield f"monitors without a voice: {', '.join(sorted(away))}"
        if not self.ask("mgr dump")["available"]:
            yield "no manager is active"
        osds = self.ask("osd dump")["osds"]
        if down := [f"osd.{osd['osd']}" for osd in osds if osd["in"] and not osd["up"]]:
            yield f"down: {', '.join(down)}"
        states = self.ask("status")["pgmap"].get("pgs_by_state", ())
        if hurt := [
            f"{one['count']} {one['state_name']}" for one in states if not is_whole(one["state_name"])
        ]:
            yield f"placement groups: {', '.join(hurt)}"
        if self.wanted.get("filesystem") and not self.active():
            yield "the file system is not served"
        if after:
            yield from self.not_back(after)
        yield from self.older(done)

    def active(self) -> list[str]:
        """Hosts whose metadata servers are active."""
        found = (one["mdsmap"]["info"].values() for one in self.ask("fs dump")["filesystems"])
        return [mds["name"] for info in found for mds in info if mds["state"] == "up:active"]

    def numbers(self, kind: str) -> dict[str, int]:
        """Host → its manager's or metadata server's number in the cluster: a new one at each start."""
        if kind == "mgr":
            dump = self.ask("mgr dump")
            return {
                dump["active_name"]: dump["active_gid"],
                **{one["name"]: one["gid"] for one in dump["standbys"]},
            }
        if kind == "mds":
            dump = self.ask("fs dump")
            active = [mds for one in dump["filesystems"] for mds in one["mdsmap"]["info"].values()]
            return {mds["name"]: mds["gid"] for mds in (*active, *dump["standbys"])}
        return {}

    def not_back(self, last: Last) -> Iterator[str]:
        """What was started last and is not back. The cluster misses one late: its number says that it is new.

        A monitor and a gateway are asked on their node (node.py).
        """
        if last.kind == "osd":
            yield from self.osds_not_heard_of(last.host)
        elif (
            last.kind in ("mgr", "mds") and self.numbers(last.kind).get(last.host, last.number) == last.number
        ):
            yield f"the {last.kind} of {last.host} is not back"

    def osds_not_heard_of(self, host: str) -> Iterator[str]:
        """A host's OSDs whose placement groups have not said how they are since they are up.

        Managers tell what OSDs have told them, every few seconds: what is from before is `clean` as well.
        """
        nodes = self.ask("osd tree")["nodes"]
        hosts = [one for one in nodes if (one["type"], one["name"]) == ("host", host)]
        numbers = {number for one in hosts for number in one["children"]}
        for osd in self.ask("osd dump")["osds"]:
            if osd["osd"] in numbers and osd["in"]:
                name, told = f"osd.{osd['osd']}", self.ask.mgr("pg ls-by-osd", osd=osd["osd"])
                if "pg_stats" not in told:
                    yield f"no manager knows yet how {name} is"
                elif old := sum(one["reported_epoch"] < osd["up_from"] for one in told["pg_stats"]):
                    yield f"{old} placement groups of {name} have not been heard of since it is back"

    def older(self, kinds: Sequence[str]) -> Iterator[str]:
        """Kinds of which a daemon runs another version than is installed here."""
        found = self.ask("versions")
        for kind in kinds:
            for version, count in sorted(found.get(kind, {}).items()):
                if version != self.target:
                    yield f"{count} {kind} run {version}, and {self.target} is installed here"

    # What goes on meanwhile

    def noted(self, key: str) -> bool:
        """Whether a key is in the monitors' store."""
        return key in self.ask("config-key ls")

    def note(self, key: str, there: bool = True) -> None:
        """Have a key in the monitors' store, or have it no more."""
        if there and not self.noted(key):
            self.tell("config-key set", key=key, val="yes")
        elif not there and self.noted(key):
            self.tell("config-key rm", key=key)

    def noout(self) -> bool:
        """Whether OSDs that are down keep their data."""
        return "noout" in self.ask("osd dump")["flags_set"]

    def begin_osds(self) -> None:
        """No data moves because an OSD is away for a moment. First it is written down whose doing that is."""
        if not self.noout():
            self.note(OURS)
            self.tell("osd set", key="noout")
            self.changes.append("noout set")

    def end_osds(self) -> None:
        """As it was before."""
        if not self.noted(OURS):
            return
        if self.noout():
            self.tell("osd unset", key="noout")
            self.changes.append("noout taken off")
        self.note(OURS, False)

    def require_release(self) -> None:
        """Once all OSDs are of a newer release, older ones are let in no more, and what is new in it is used.

        Releases are named along the alphabet.
        """
        versions = self.ask("versions").get("osd", {})
        name, there = release(self.target), self.ask("osd dump")["require_osd_release"]
        if set(versions) == {self.target} and name > there:
            self.tell("osd require-osd-release", release=name)
            self.changes.append(f"OSDs have to be of {name}")

    def tell(self, prefix: str, **fields: Any) -> None:
        """A command, unless nothing is to be changed."""
        if not self.dry_run:
            self.ask(prefix, **fields)


def is_whole(state: str) -> bool:
    """Whether a placement group has all its copies, and all of them are alike; scrubs and trims may go on."""
    words = set(state.split("+"))
    return words >= WHOLE and words <= WHOLE | CARE


def release(version: str) -> str:
    """`ceph version 18.2.7 (…) reef (stable)` → `reef`."""
    return version.split()[4]


def main(step: str, *more: str) -> None:
    """The program."""
    words = [word for word in more if not word.startswith("--")]
    last = [word.removeprefix("--after=") for word in more if word.startswith("--after=")]
    after = Last.read(last[0]) if last else None
    order: list[tuple[str, str]] = []
    with cluster() as ask:
        upgrade = Upgrade(ask, settings(), run("ceph", "--version").strip(), "--dry-run" in more)
        if step == "turns":
            order = turns(json.loads(words[0]), upgrade.leads())
        elif step == "ready":
            after = upgrade.ready(words[0], words[1], after)
        else:
            upgrade.finish(after)
    print(json.dumps({"changes": upgrade.changes, "turns": order, "after": str(after or "")}))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (RefusedError, OSError, KeyError, ValueError, IndexError) as error:
        sys.exit(str(error))
