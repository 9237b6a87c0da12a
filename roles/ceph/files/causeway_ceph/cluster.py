"""What the cluster is to hold, brought about from a node that has the administrator's key.

    cluster.py ground [--dry-run]     identities with their rights, and options
    cluster.py objects [--dry-run]    where copies go, pools, the file system, what is exported
    cluster.py drain HOST… [--let-go=HOST…] [--until=T] [--dry-run]
                                      has the others take over what hosts hold that are about to go
    cluster.py refill HOST… [--dry-run]  has hosts that were drained hold data again
    cluster.py forget HOST… [--lossy] [--dry-run]   takes out what hosts had that are gone for good
    cluster.py check ground|objects   how all of it is, a line each, for the watch over drift

Prints a JSON object with the changes. Each step looks first, so that all of it may be run again.
What is in no declaration is left alone, except identities named `client.export.…`.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from asked import (
    ADMIN,
    PATIENCE_S,
    NotYetError,
    OtherKeyError,
    RefusedError,
    cluster,
    entities,
    run,
    settings,
    wait,
)
from pools import Pools
from state import (
    EXPORTED,
    KEYRING,
    STATES,
    USERS,
    USERS_AT,
    closed,
    full_ratios,
    narrower,
    options_there,
    own_lines,
)
from upgrade import BEGUN

USER = "export."
"""How their names begin: one that is no longer declared is barred."""
S3_ADMIN = "radosgw-admin"
RETURN_S = 120
"""How long OSDs that are down may take to come back where others are to be drained."""
KIB_PER_GIB = 1 << 20
LOST = {"down", "incomplete", "stale", "unknown"}
UNDECIDED = {"creating", "peering", "activating"}
"""States of placement groups, as docs/rados/operations/pg-states.rst of Ceph has them."""


class Wanted(Pools):
    """The declared cluster, held against the one that is there."""

    # Hosts that are about to go

    def drain(self, hosts: Sequence[str], let_go: Sequence[str], until: float) -> None:
        """Have the others take over what their OSDs hold, copy by copy, while all of them still serve.

        LET_GO: hosts that go as well, and what they hold may be lost. RefusedError where the others cannot
        take over, or have not by UNTIL (seconds since 1970): they go on, and so does the next call.
        """
        tree = self.tree()
        parting = {number for host in (*hosts, *let_go) for number in osds_of(tree, host)}
        self.require_majority({*hosts, *let_go})
        if going := sorted(number for host in hosts for number in osds_of(tree, host)):
            self.require_room(going, self.staying(parting, min(until, time.time() + RETURN_S)))
            for number in going:
                if tree[number]["reweight"]:
                    self.change(f"osd.{number} takes no data any more", "osd out", ids=[str(number)])
            if not self.dry_run:
                self.emptied(going, until)
        self.keep_majority({*hosts, *let_go})

    def monitors(self, hosts: AbstractSet[str]) -> tuple[list[str], set[str]]:
        """All monitors, and those in the quorum that are not on these hosts."""
        found = self.ask("quorum_status")
        return [mon["name"] for mon in found["monmap"]["mons"]], set(found["quorum_names"]) - hosts

    def require_majority(self, hosts: AbstractSet[str]) -> None:
        """Without the monitors of these hosts the others decide, once those are taken out."""
        mons, staying = self.monitors(hosts)
        rest = [name for name in mons if name not in hosts]
        if len(rest) < len(mons) and 2 * len(staying) <= len(rest):
            away = [name for name in rest if name not in staying]
            raise RefusedError(
                f"of the monitors that stay {len(staying)} of {len(rest)} answer, which is no majority: "
                + (f"bring {', '.join(away)} back first, or forget it" if away else "one has to stay")
            )

    def keep_majority(self, hosts: AbstractSet[str]) -> None:
        """Take the monitors of these hosts out, while they have a say, where the rest has no majority."""
        mons, staying = self.monitors(hosts)
        for name in [name for name in mons if name in hosts]:
            if 2 * len(staying) <= len(mons) and staying:
                self.change(f"monitor {name} removed", "mon remove", name=name)
                mons.remove(name)

    def staying(self, parting: AbstractSet[int], until: float) -> list[int]:
        """The OSDs that take over, which are places enough.

        One that is down and has not been given up may be back in a moment: a node starts again, or is so busy
        that the others missed its OSD. RefusedError where too few are up until then (seconds since 1970).
        """
        while True:
            tree = self.tree()
            kept = [one for one in tree.values() if one["type"] == "osd" and one["reweight"]]
            stay = [one for one in kept if one["id"] not in parting]
            away = [one["name"] for one in stay if one["status"] != "up"]
            staying = [one["id"] for one in stay if one["status"] == "up"]
            try:
                self.require_places(tree, staying, away)
            except RefusedError:
                if not away or self.dry_run or time.time() > until:
                    raise
                time.sleep(1)
            else:
                return staying

    def require_places(
        self, tree: Mapping[int, Mapping[str, Any]], staying: Sequence[int], away: Sequence[str]
    ) -> None:
        """No pool has more copies than there are places left. AWAY: OSDs that are down, for the error."""
        domain, parents = (
            self.wanted["failure_domain"],
            {child: one for one in tree.values() for child in one.get("children", ())},
        )
        classes = {pool["name"]: pool.get("device_class") for pool in self.wanted["pools"]}
        for name, pool in sorted(self.there().items()):
            osds = [n for n in staying if classes.get(name) in (None, "", tree[n].get("device_class"))]
            places = {above(n, domain, parents) for n in osds} - {None}
            if pool["size"] > len(places):
                down = f"bring {', '.join(away)} back, which is down; or " if away else ""
                raise RefusedError(
                    f"pool {name} has {pool['size']} copies or parts, each in a {domain} of its own, and "
                    f"{len(places)} would be left: {down}add one, or declare fewer copies, in an `up` "
                    "before it"
                )

    def require_room(self, going: Sequence[int], staying: Sequence[int]) -> None:
        """All that is held has room on those that stay, with the distance at which Ceph stops moving data."""
        osds = {one["id"]: one for one in self.ask.mgr("osd df")["nodes"]}
        ratio = full_ratios(self.ask)["backfillfull"]
        named = {pool.get("device_class") or "" for pool in self.wanted["pools"]}
        for tier in sorted({"", *named}):
            of_tier = [n for n in (*going, *staying) if tier in ("", osds[n].get("device_class"))]
            used = sum(osds[number]["kb_used"] for number in of_tier)
            room = sum(osds[number]["kb"] for number in of_tier if number in staying) * ratio
            if used > room:
                which = f" of class {tier}" if tier else ""
                raise RefusedError(
                    f"{used / KIB_PER_GIB:.1f} GiB are held, and the OSDs{which} that stay take "
                    f"{room / KIB_PER_GIB:.1f}: add one first, or delete something"
                )

    def emptied(self, osds: Sequence[int], until: float) -> None:
        """Wait until nothing is on these OSDs that is not whole elsewhere."""
        while held := self.not_empty(osds):
            if time.time() > until:
                raise RefusedError(f"not all data is moved yet: {held}; it goes on by itself")
            time.sleep(1)

    def not_empty(self, osds: Sequence[int]) -> str:
        """Which of these OSDs still hold something; nothing where none does.

        The manager answers without an error, and knows what it was told within the last seconds. Of groups
        that nobody has told it of yet, after it began or new OSDs came, it says that it cannot tell.
        """
        try:
            safe = self.ask.mgr("osd safe-to-destroy", ids=[str(number) for number in osds])[
                "safe_to_destroy"
            ]
        except NotYetError as error:
            return str(error)
        return ", ".join(f"osd.{number}" for number in osds if number not in safe)

    def refill(self, hosts: Sequence[str]) -> None:
        """Their OSDs, where there are any, take data again."""
        tree = self.tree()
        for number in sorted(number for host in hosts for number in osds_of(tree, host)):
            if not tree[number]["reweight"]:
                self.change(f"osd.{number} takes data again", "osd in", ids=[str(number)])

    def tree(self) -> dict[int, dict[str, Any]]:
        """Places and OSDs, by number."""
        return {one["id"]: one for one in self.ask("osd tree")["nodes"]}

    # Hosts that are gone for good

    def forget(self, hosts: Sequence[str], lossy: bool) -> None:
        """Their OSDs and places; their monitors, where they are declared no more."""
        for host in hosts:
            self.forget_osds(host, lossy)
        wanted = {mon["name"] for mon in self.wanted["mons"]}
        for mon in self.ask("mon dump")["mons"]:
            if mon["name"] in set(hosts) - wanted:
                self.change(f"monitor {mon['name']} removed", "mon remove", name=mon["name"])

    def forget_osds(self, host: str, lossy: bool) -> None:
        """One host's OSDs. RefusedError for one that is up, and where one may have the only copy."""
        tree = self.tree()
        if (host, "host") not in {(one["name"], one["type"]) for one in tree.values()}:
            return
        osds = [tree[number] for number in osds_of(tree, host)]
        if osds and (name := self.still_up(host)):
            raise RefusedError(f"{name} of {host} is up: the host is not gone")
        if osds and not lossy and (lost := self.lost_groups()):
            raise RefusedError(
                f"{lost} placement groups have no copy elsewhere, or nobody knows of one: OSDs of {host} may "
                "have the only one. Bring it back; or, if what it held is lost, say so: --lossy"
            )
        for osd in osds:
            fields = {"id": osd["id"], "yes_i_really_mean_it": True}
            self.change(f"{osd['name']} of {host} removed", "osd purge-actual", **fields)
        self.change(f"place of {host} removed", "osd crush rm", name=host)

    def still_up(self, host: str) -> str:
        """One of a host's OSDs that is up; of a host that has just gone the others notice within a minute."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            tree = self.tree()
            alive = [tree[n]["name"] for n in osds_of(tree, host) if tree[n]["status"] == "up"]
            if not alive or self.dry_run or time.monotonic() > deadline:
                return alive[0] if alive else ""
            time.sleep(1)

    def lost_groups(self) -> int:
        """How many placement groups could not be served whole by the OSDs that are up.

        Right after an OSD went, the others have yet to agree.
        """
        deadline = time.monotonic() + PATIENCE_S
        while count := self.groups_in(LOST | UNDECIDED):
            if self.dry_run or time.monotonic() > deadline:
                break
            time.sleep(1)
        return count

    def groups_in(self, these: AbstractSet[str]) -> int:
        """How many placement groups are in one of these states."""
        states = self.ask("status")["pgmap"].get("pgs_by_state", ())
        return sum(one["count"] for one in states if these & set(one["state_name"].split("+")))

    # Identities and options

    def ground(self) -> None:
        """Identities with exactly their rights, and options; an export that is there keeps its key yet."""
        there = self.identities()
        for name, one in declared().items():
            kept = there.get(name) if name.startswith(EXPORTED) else None
            self.identity(name, {**one, "key": kept["key"]} if kept else one, there)
        for name in sorted(set(there) - set(declared())):
            if name.startswith(EXPORTED):
                self.change(f"{name} loses its rights", "auth rm", entity=name)
        self.options()
        self.ratios()

    def keys_of_exports(self) -> None:
        """Keys of exports that were replaced, once nothing is left to be started again.

        A monitor that starts after it says no more to who has the key before, so a client in use would not
        hear of the metadata server that took over meanwhile.
        """
        there = self.identities()
        for name, one in declared().items():
            if name.startswith(EXPORTED):
                self.identity(name, one, there)

    def identities(self) -> dict[str, dict[str, Any]]:
        """Name → key and rights, as they are."""
        return {one["entity"]: one for one in self.ask("auth ls")["auth_dump"]}

    def identity(self, name: str, one: Mapping[str, Any], there: Mapping[str, Mapping[str, Any]]) -> None:
        """One identity's key and rights."""
        found = there.get(name)
        if found is None or {"key": found["key"], "caps": found["caps"]} != one:
            self.change(f"rights of {name}", "auth import", keyring(name, one).encode())

    def modules(self) -> None:
        """Modules of the managers, on or off; a manager that has just begun has not said which it has."""
        if not self.dry_run:
            wait("no manager has the modules that are to be on", self.modules_known, 120)
        there = self.ask("mgr module ls")
        for name, on in sorted(self.wanted["modules"].items()):
            if on and name not in there["enabled_modules"] + there["always_on_modules"]:
                self.change(f"module {name} on", "mgr module enable", module=name)
            elif not on and name in there["enabled_modules"]:
                self.change(f"module {name} off", "mgr module disable", module=name)

    def modules_known(self) -> bool:
        """Whether a manager has said that it has all that are to be on; a release may have dropped others."""
        there = self.ask("mgr module ls")
        known = {one["name"] for one in there["disabled_modules"]}
        known |= {*there["enabled_modules"], *there["always_on_modules"]}
        return {name for name, on in self.wanted["modules"].items() if on} <= known

    def options(self) -> None:
        """What the monitors keep for all daemons; what is declared is set for no daemon otherwise."""
        there = options_there(self.ask)
        for who, options in self.wanted["options"].items():
            for name, value in options.items():
                if there.get((who, name)) != value:
                    # Before the first manager runs, nobody knows the options of their modules.
                    force = {"force": True} if name.startswith("mgr/") else {}
                    self.change(f"{name} of {who}", "config set", who=who, name=name, value=value, **force)
        for who, name in narrower(there, self.wanted["options"]):
            self.change(f"{name} of {who} as declared for more", "config rm", who=who, name=name)

    def ratios(self) -> None:
        """How full an OSD may be."""
        there = full_ratios(self.ask)
        for name, ratio in self.wanted["ratios"].items():
            if there[name] != ratio:
                self.change(f"{name} ratio", f"osd set-{name}-ratio", ratio=ratio)

    # What is exported

    def filesystem(self) -> None:
        """The file system of all CephFS exports: a folder each."""
        declared = self.wanted.get("filesystem")
        if not declared:
            return
        name = declared["name"]
        there = {one["name"]: one for one in self.ask("fs ls")}
        if name not in there:
            self.change(
                f"file system {name} made",
                "fs new",
                fs_name=name,
                metadata=declared["metadata_pool"],
                data=declared["data_pools"][0],
            )
        known = there[name]["data_pools"] if name in there else declared["data_pools"][:1]
        for pool in declared["data_pools"]:
            if pool not in known:
                self.change(f"{pool} holds files of {name}", "fs add_data_pool", fs_name=name, pool=pool)
        self.reopen(name)
        if not self.dry_run:
            self.folders(declared)

    def reopen(self, name: str) -> None:
        """Have a metadata server take a file system again that somebody failed, or took down."""
        for what in closed(self.ask, name):
            var, val = ("joinable", "true") if what == "failed" else ("down", "false")
            self.change(f"file system {name} no longer {what}", "fs set", fs_name=name, var=var, val=val)

    def folders(self, declared: Mapping[str, Any]) -> None:
        """A folder of each export, with its quota, by a client of our own."""
        import cephfs

        wait(
            "no metadata server has taken {}".format(declared["name"]),
            lambda: self.served(declared["name"]),
            120,
        )
        files = cephfs.LibCephFS(conffile="/etc/ceph/ceph.conf", conf={"client_quota": "false"})
        files.mount(filesystem_name=declared["name"].encode())
        try:
            for export in declared["folders"]:
                self.folder(files, cephfs, export)
        finally:
            files.shutdown()

    def folder(self, files: Any, cephfs: Any, export: Mapping[str, Any]) -> None:
        """One folder: everybody may write in it who may mount it, as in /tmp."""
        path = "/" + export["name"]
        try:
            files.stat(path)
        except cephfs.ObjectNotFound:
            files.mkdir(path, 0o1777)
            files.chmod(path, 0o1777)
            self.changes.append(f"folder {path} made")
        for name, value in (
            ("ceph.quota.max_bytes", str(export.get("quota_bytes") or 0)),
            ("ceph.dir.layout.pool", export["pool"]),
            ("ceph.dir.layout.pool_namespace", export["name"]),
        ):
            if attribute(files, cephfs, path, name) != value:
                files.setxattr(path, name, value.encode(), 0)
                self.changes.append(f"{name} of {path}")

    def served(self, name: str) -> bool:
        """Whether a metadata server is active for a file system."""
        for one in self.ask("fs dump")["filesystems"]:
            if one["mdsmap"]["fs_name"] == name:
                return any(mds["state"] == "up:active" for mds in one["mdsmap"]["info"].values())
        return False

    def images(self) -> None:
        """Pools of block devices are set up for librbd."""
        names = [pool["name"] for pool in self.wanted["pools"] if pool["application"] == "rbd"]
        if names and not self.dry_run:
            import rbd

            for name in names:
                with self.ask.io(name) as pool:
                    rbd.RBD().pool_init(pool, True)

    def users(self) -> None:
        """Users of object storage, each with its key and quota; those not declared any more are barred."""
        declared = json.loads(USERS.read_text()) if USERS.exists() else {}
        if (self.dry_run or not declared) and USERS_AT[0] not in self.there():
            self.changes += ["users of object storage"] * bool(declared)
            return
        # Where none is declared any more, a node that came later does not have the program: another one has.
        if not declared and not shutil.which(S3_ADMIN):
            return
        there = set(json.loads(s3("user", "list")))
        for name, one in declared.items():
            self.user(name, one, name in there)
        for name in sorted(there - set(declared)):
            if name.startswith(USER) and not user(name)["data"]["suspended"]:
                self.changes.append(f"user {name} barred")
                if not self.dry_run:
                    s3("user", "suspend", "--uid", name)

    def user(self, name: str, one: Mapping[str, Any], there: bool) -> None:
        """One user. Its key goes by a pipe: a command line is everybody's to read."""
        if not there:
            self.changes.append(f"user {name} made")
            if self.dry_run:
                return
            try:
                s3("user", "create", "--uid", name, "--display-name", name)
            except RefusedError:
                # Another monitor's node was faster.
                if name not in json.loads(s3("user", "list")):
                    raise
        found = user(name)
        before = json.dumps(found, sort_keys=True)
        data, size = found["data"], one["quota_bytes"]
        if [(key["access_key"], key["secret_key"]) for key in data["keys"]] != [
            (one["access_key"], one["secret_key"])
        ]:
            data["keys"] = [{"user": name, "access_key": one["access_key"], "secret_key": one["secret_key"]}]
        # Ceph says it in KiB beside, which it rounds, and does not read.
        data["user_quota"].update(enabled=bool(size), max_size=size or -1)
        data["suspended"] = 0
        if json.dumps(found, sort_keys=True) != before:
            self.changes.append(f"key and quota of user {name}")
            if not self.dry_run:
                s3("metadata", "put", f"user:{name}", stdin=json.dumps(found))

    def settled(self) -> None:
        """Wait until every placement group can be written to."""
        wait("not all placement groups are active: see `ceph -s`", self.active, 180)

    def active(self) -> bool:
        """Whether every placement group is active; those that are being made are not."""
        status = json.loads(run("ceph", "--connect-timeout", "30", "status", "--format", "json"))["pgmap"]
        groups = {one["state_name"]: one["count"] for one in status.get("pgs_by_state", ())}
        return bool(groups) and all("active" in name.split("+") for name in groups)


def osds_of(tree: Mapping[int, Mapping[str, Any]], host: str) -> list[int]:
    """The numbers of a host's OSDs."""
    hosts = (one for one in tree.values() if (one["type"], one["name"]) == ("host", host))
    return [number for one in hosts for number in one["children"]]


def above(number: int, domain: str, parents: Mapping[int, Mapping[str, Any]]) -> str | None:
    """The name of the place of some type that an OSD is in; None where it is in none."""
    while place := parents.get(number):
        if place["type"] == domain:
            return str(place["name"])
        number = place["id"]
    return None


def s3(*words: str, stdin: str = "") -> str:
    """What the administration of object storage prints."""
    return run(S3_ADMIN, *words, stdin=stdin)


def user(name: str) -> dict[str, Any]:
    """A user, as gateways keep it."""
    found: dict[str, Any] = json.loads(s3("metadata", "get", f"user:{name}"))
    return found


def attribute(files: Any, cephfs: Any, path: str, name: str) -> str:
    """An attribute of a folder; `0` where it has none."""
    try:
        return files.getxattr(path, name).decode()
    except cephfs.NoData:
        return "0"


def declared() -> dict[str, dict[str, Any]]:
    """Name → key and rights of every identity but the monitors' own."""
    return {name: one for name, one in entities(KEYRING).items() if name != "mon."}


def keyring(name: str, one: Mapping[str, Any]) -> str:
    """An identity as `auth import` reads it."""
    caps = ['\tcaps {} = "{}"\n'.format(*pair) for pair in sorted(one["caps"].items())]
    return "[{}]\n\tkey = {}\n{}".format(name, one["key"], "".join(caps))


def who_asks() -> tuple[str, str]:
    """The administrator and its keyring; this node's monitor where the cluster has yet to hear of its key."""
    try:
        with cluster():
            return ADMIN
    except OtherKeyError:
        return "mon.", "/var/lib/ceph/mon/ceph-{host}/keyring".format(**settings())


def main(step: str, *more: str) -> None:
    """The program."""
    with cluster(*(who_asks() if step == "ground" else ADMIN)) as ask:
        if step == "check":
            for line in STATES[more[0]](ask, settings()):
                print(line)
            return
        wanted, hosts = Wanted(ask, settings(), "--dry-run" in more), [w for w in more if w[:2] != "--"]
        if step == "ground":
            wanted.ground()
        elif step == "forget":
            wanted.forget(hosts, "--lossy" in more)
        elif step == "drain":
            let_go = [word.removeprefix("--let-go=") for word in more if word.startswith("--let-go=")]
            until = [word.removeprefix("--until=") for word in more if word.startswith("--until=")]
            wanted.drain(hosts, let_go, float(until[0]) if until else 0)
        elif step == "refill":
            wanted.refill(hosts)
        else:
            wanted.modules()
            wanted.pools()
            wanted.settled()
            wanted.filesystem()
            wanted.images()
            wanted.users()
            wanted.keys_of_exports()
        # What a step has compared it answers for, also where another monitor's node made it.
        state = own_lines(STATES[step](ask, settings())) if step in STATES and not wanted.dry_run else []
        said = {"changes": wanted.changes, "state": state, "upgrading": BEGUN in ask("config-key ls")}
        print(json.dumps(said))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (RefusedError, OSError, KeyError, ValueError) as error:
        sys.exit(str(error))
