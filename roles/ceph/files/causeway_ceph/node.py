"""Ceph's daemons on this node: made, enabled and started as /etc/ceph/causeway.json has them.

    node.py mons [--dry-run]       this node's monitor, where it has one
    node.py daemons [--dry-run]    OSDs, manager, metadata server
    node.py gateways [--dry-run]   object gateway; one that runs with older files is started again
    node.py restart                those that run with older files, one after the other
    node.py renew KIND             those of a kind (mon, mgr, osd, mds, rgw) whose program is an older one
    node.py current                refuses where there are any
    node.py check                  where its OSDs lie among the others, a line each, for the watch over drift

Prints a JSON object: changes, units that hold, those that were started before their files were written
(stale), and kinds of daemons whose program was replaced while they run (outdated).
It may be ended at any moment and run again: what is made is made beside its place, and moved there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import socket
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import disks
from asked import Cluster, RefusedError, cluster, entities, run, settings, wait
from disks import OSDS, write
from quorum import has_voice

DATA = Path("/var/lib/ceph")
BOOTSTRAP = ("client.bootstrap-osd", str(DATA / "bootstrap-osd/ceph.keyring"))
AS_CEPH = ("--setuser", "ceph", "--setgroup", "ceph")
MON_KEYRING = "/etc/ceph/ceph.mon.keyring"
CONFIG = Path("/etc/ceph/ceph.conf")
RENEWED_S = 300
"""For a daemon with a new program: its first start may convert what it keeps; a gateway's first one makes
what it keeps its users in."""
DROP_INS = Path("/etc/systemd/system")
STARTED = Path("/run/causeway-ceph")
"""Of each unit that was started again for its files: which start that was, and what was in them."""
GATEWAY = Path("/etc/ceph/gateway")
GATEWAY_CONFIG = GATEWAY / "ceph.conf"
PREFIXES = {"ceph-radosgw@": "rgw", **{f"ceph-{kind}@": kind for kind in ("mon", "mgr", "osd", "mds")}}
"""How units of daemons begin → their kind, in Ceph's words."""
REPLACED = " (deleted)"
"""What the kernel adds to the name of a program or library that was replaced (proc(5), maps)."""
KEYRINGS = {
    "ceph-mon": "mon/ceph-",
    "ceph-mgr": "mgr/ceph-",
    "ceph-mds": "mds/ceph-",
    "ceph-radosgw": "radosgw/ceph-",
}


class Node:
    """This node's part of a cluster."""

    def __init__(self, wanted: Mapping[str, Any], dry_run: bool = False) -> None:
        self.wanted = wanted
        self.name = str(wanted["host"])
        self.dry_run = dry_run
        self.changes: list[str] = []

    # Monitors

    def mons(self) -> list[str]:
        """Make and start this node's monitor; the units that hold. Sizes first: monitors are told by them."""
        self.require_sizes()
        if self.name not in [mon["name"] for mon in self.wanted["mons"]]:
            return []
        folder, unit = DATA / f"mon/ceph-{self.name}", f"ceph-mon@{self.name}"
        is_there = (folder / "store.db").exists()
        if is_there and not is_active(unit) and self.was_taken_out():
            is_there = False
            self.set_aside(folder)
        if not is_there:
            self.keep_what_others_know()
            self.change("monitor made", lambda: self.make_mon(folder))
        return [self.started(unit)]

    def require_sizes(self) -> None:
        """Refuse another size for an OSD's file than it was made with: how full it may be goes by that."""
        for osd in self.wanted["osds"]:
            folder = self.made(osd) if osd["kind"] == "file" else None
            if folder and is_resized(osd, folder) and self.is_kept(osd, folder):
                refuse_other_size(osd, folder)

    def is_kept(self, osd: Mapping[str, Any], folder: Path) -> bool:
        """Whether an OSD that was made here is one of the cluster's; nobody is asked about one that runs."""
        return is_active(f"ceph-osd@{number_of(folder)}") or not is_forgotten(self.known(osd))

    def was_taken_out(self) -> bool:
        """Whether the other monitors, where a majority answers, do not count this one any more."""
        if len(self.wanted["mons"]) == 1:
            return False
        try:
            with cluster(*BOOTSTRAP) as ask:
                return self.name not in {mon["name"] for mon in ask("mon dump")["mons"]}
        except RefusedError:
            return False

    def keep_what_others_know(self) -> None:
        """Refuse to begin a cluster anew beside disks that belong to one: they would be strangers to it."""
        if len(self.wanted["mons"]) == 1 and any(OSDS.glob("ceph-*/whoami")):
            raise RefusedError(
                "the only monitor has lost its data, and OSDs are here: a new one would not know them. "
                "Rebuild its store from them, as docs/storage.md says (ceph-objectstore-tool, update-mon-db)"
            )

    def make_mon(self, folder: Path) -> None:
        """The monitor's store, by way of a folder beside it."""
        scratch = folder.with_name(f"{folder.name}.new")
        for old in (scratch, folder):
            shutil.rmtree(old, ignore_errors=True)
        monmap = Path("/etc/ceph/causeway.monmap")
        members = [
            word
            for mon in self.wanted["mons"]
            for word in ("--addv", mon["name"], f"[v2:{mon['address']}:3300/0]")
        ]
        run("monmaptool", "--create", "--clobber", "--fsid", self.wanted["fsid"], *members, str(monmap))
        monmap.chmod(0o644)
        scratch.mkdir()
        shutil.chown(scratch, "ceph", "ceph")
        words = [
            "--id",
            self.name,
            "--mon-data",
            str(scratch),
            "--monmap",
            str(monmap),
            "--keyring",
            MON_KEYRING,
        ]
        run("ceph-mon", "--mkfs", *words, *AS_CEPH)
        scratch.rename(folder)

    def told(self) -> list[str]:
        """The unit of this node's monitor, which takes the key that they know each other by as it starts.

        Until other identities are set, the one before counts: by it a replaced administrator is let in.
        """
        own = DATA / f"mon/ceph-{self.name}/keyring"
        if not own.exists():
            return []
        key = entities(Path(MON_KEYRING))["mon."]["key"]
        if entities(own)["mon."]["key"] != key:
            self.change("key of the monitors replaced", partial(write_mon_key, own, key))
        return [f"ceph-mon@{self.name}"]

    # What the monitors' cluster is for

    def daemons(self) -> list[str]:
        """Make and start everything else; the units that hold."""
        self.require_room()
        units = self.told() + [self.started(self.osd(osd)) for osd in self.wanted["osds"]]
        self.put_back()
        self.set_classes()
        return units + [self.started(f"ceph-{kind}@{self.name}") for kind in self.wanted["daemons"]]

    def require_room(self) -> None:
        """Before an OSD is made in a file: all of them have room for what they may come to hold.

        Files grow as they are written. An OSD whose file cannot grow ends, and never starts again.
        """
        files = [(osd, self.made(osd)) for osd in self.wanted["osds"] if osd["kind"] == "file"]
        if all(folder for _, folder in files):
            return
        blocks = [folder / "block" for _, folder in files if folder]
        owed = sum(osd["size_gib"] for osd, _ in files) * 1024**3
        owed -= sum(block.stat().st_blocks * 512 for block in blocks if block.is_file())
        free = shutil.disk_usage(DATA).free
        if owed > free:
            raise RefusedError(
                f"OSDs in files take {owed / 1024**3:.1f} GiB more of the disk below {DATA} until they are "
                f"full, and {free / 1024**3:.1f} are free: declare a smaller size_gib, fewer OSDs, or "
                "disks"
            )

    def gateways(self) -> list[str]:
        """Start this node's object gateway, or start it again, until it answers; the unit that holds."""
        unit = self.started(f"ceph-radosgw@rgw.{self.name}")
        if not self.dry_run:
            self.restart([unit])
        if self.changes and not self.dry_run:
            wait_for_gateway()
        return [unit]

    def osd(self, osd: Mapping[str, Any]) -> str:
        """The unit of one OSD, made if it is not there."""
        known = self.known(osd)
        if folder := self.made(osd):
            if self.is_kept(osd, folder):
                refuse_other_encryption(osd, folder)
                return f"ceph-osd@{number_of(folder)}"
            self.give_up(osd, folder)
        if osd["kind"] == "device":
            disks.check_device(osd, known)
        if self.dry_run:
            self.changes.append(f"OSD on {osd['place']} made")
            return "ceph-osd@new"
        return f"ceph-osd@{self.make_osd(known, osd)}"

    def known(self, osd: Mapping[str, Any]) -> str:
        """The UUID of an OSD: of cluster, node and place."""
        return str(uuid.uuid5(uuid.UUID(self.wanted["fsid"]), f"{self.name}/{osd['place']}"))

    def made(self, osd: Mapping[str, Any]) -> Path | None:
        """The folder of an OSD that was made to its end."""
        folders = (path.parent for path in OSDS.glob("ceph-*/mkfs_done"))
        return next((folder for folder in folders if read(folder / "fsid") == self.known(osd)), None)

    def places(self) -> dict[int, dict[str, str]]:
        """Number → kind → name of what an OSD of this node's lies in; nothing where it lies nowhere."""
        folders = [folder for osd in self.wanted["osds"] if (folder := self.made(osd))]
        if not folders:
            return {}
        with as_osd(number_of(folders[0])) as ask:
            numbers = sorted(map(number_of, folders))
            return {number: ask("osd find", id=number)["crush_location"] for number in numbers}

    def put_back(self) -> None:
        """OSDs where their node is: that keeps copies apart. One that starts lies there by itself."""
        places = self.places()
        if not self.dry_run and not all(places.values()):
            # One that has just been made lies somewhere before it is up.
            with contextlib.suppress(RefusedError):
                wait("not all OSDs are up", lambda: all(map(is_up, places)))
            places = self.places()
        wanted = dict(word.split("=", 1) for word in self.wanted["location"])
        for number in [number for number, place in places.items() if place != wanted]:
            self.change(f"OSD {number} put back to its host", partial(self.put, number))

    def put(self, number: int) -> None:
        """One OSD in its place, with the weight that it has, or its size in TiB, as it takes it itself."""
        with as_osd(number) as ask:
            size = int(ask("osd metadata", id=number)["bluestore_bdev_size"])
            fields = {"weight": round(size / 1024**4, 4), "args": self.wanted["location"]}
            ask("osd crush create-or-move", id=number, **fields)

    def set_classes(self) -> None:
        """OSDs of the class that is declared for them: Ceph's own guess binds at their first start."""
        there = self.classes()
        for number, (wanted, found) in there.items():
            if found != wanted:
                self.change(f"OSD {number} is of class {wanted}", partial(self.set_class, number, wanted))

    def classes(self) -> dict[int, tuple[str, str]]:
        """Number → declared class and the one in force, of OSDs of which one is declared."""
        wanted = {
            number_of(folder): osd["device_class"]
            for osd in self.wanted["osds"]
            if osd.get("device_class") and (folder := self.made(osd))
        }
        if not wanted:
            return {}
        with as_osd(min(wanted)) as ask:
            found = ask("osd crush get-device-class", ids=[str(number) for number in sorted(wanted)])
        known = {one["osd"]: one.get("device_class", "") for one in found}
        return {number: (tier, known.get(number, "")) for number, tier in sorted(wanted.items())}

    def set_class(self, number: int, tier: str) -> None:
        """Ceph binds no second class: the first one goes before."""
        with as_osd(number) as ask:
            ask("osd crush rm-device-class", ids=[str(number)])
            ask("osd crush set-device-class", ids=[str(number)], **{"class": tier})

    def state(self) -> list[str]:
        """Where this node's OSDs lie, a line each, with the class of those that have one declared."""
        classes = {number: found for number, (_, found) in self.classes().items()}
        return [
            " ".join([f"OSD {number}:", *described(place, classes.get(number), OSDS / f"ceph-{number}")])
            for number, place in self.places().items()
        ]

    def give_up(self, osd: Mapping[str, Any], folder: Path) -> None:
        """An OSD that was made here, and that the cluster has forgotten: the others have what it held."""
        if osd["kind"] == "device":
            raise RefusedError(
                f"the cluster has forgotten the OSD on {osd['path']}: where what it holds may go, "
                f"`wipefs --all {osd['path']} && rm -r {folder}`, and run it again"
            )
        self.set_aside(folder)

    def set_aside(self, folder: Path) -> None:
        """Out of the way of what is made anew; somebody may want to look."""
        when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        aside = DATA / "aside" / f"{folder.parent.name}-{folder.name}-{when}"

        def move() -> None:
            aside.parent.mkdir(mode=0o700, exist_ok=True)
            folder.rename(aside)

        self.change(f"{folder}, which the cluster has forgotten, moved to {aside}", move)

    def make_osd(self, known: str, osd: Mapping[str, Any]) -> int:
        """Ask for a number, and make the store; a number that was asked for before is given again."""
        pending = OSDS / f"new-{known}"
        told = disks.secrets(pending, known, bool(osd.get("encrypted")))
        with cluster(*BOOTSTRAP) as ask:
            number = int(ask("osd new", json.dumps(told).encode(), uuid=known)["osdid"])
        folder = OSDS / f"ceph-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        write(folder / "keyring", f"[osd.{number}]\n\tkey = {told['cephx_secret']}\n")
        for path in (folder, folder / "keyring"):
            shutil.chown(path, "ceph", "ceph")
        words = ["--id", str(number), "--osd-uuid", known, "--osd-data", str(folder)]
        if osd["kind"] == "file":
            words += ["--bluestore-block-size", str(int(osd["size_gib"] * 1024**3))]
        else:
            (folder / "block").symlink_to(disks.prepare(osd, known, number, told))
            disks.open_disk(number)
        run("ceph-osd", "--mkfs", *words, *AS_CEPH)
        pending.unlink()
        self.changes.append(f"OSD {number} on {osd['place']} made")
        return number

    # Units

    def started(self, unit: str) -> str:
        """A unit, enabled and active."""
        state = run("systemctl", "show", "--property=ActiveState,UnitFileState", "--value", unit).split()
        if state != ["active", "enabled"]:
            self.change(f"{unit} started", lambda: run("systemctl", "enable", "--now", unit))
        return unit

    def stale(self, units: list[str]) -> list[str]:
        """Those that were started before their files were written.

        A file may be younger than the daemon that read it, where the clock was set back: what was started
        again for it has read it, and is not started again at every run until then.
        """
        found = []
        for unit in units:
            words = ("--property=ActiveEnterTimestamp", "--timestamp=unix", "--value")
            since = float(run("systemctl", "show", *words, unit).strip().lstrip("@") or 0)
            younger = max(path.stat().st_mtime for path in files_of(unit)) > since + 1
            if younger and read(STARTED / unit) != begun_with(unit):
                found.append(unit)
        return found

    def restart(self, units: list[str]) -> None:
        """Start stale units again, one after the other; each is back before the next one goes."""
        for unit in self.stale(units):
            run("systemctl", "restart", unit)
            STARTED.mkdir(exist_ok=True)
            write(STARTED / unit, begun_with(unit))
            if unit.startswith("ceph-osd@"):
                number = int(unit.partition("@")[2])
                wait(f"OSD {number} is not up", lambda number=number: is_up(number))
            self.changes.append(f"{unit} restarted")

    # New packages

    def renew(self, kind: str) -> None:
        """Start a kind's outdated daemons again, all at once: a node's OSDs are in one failure domain."""
        units = [unit for unit in outdated() if kind_of(unit) == kind]
        self.changes += [f"{unit} runs its new program" for unit in units]
        if not units or self.dry_run:
            return
        numbers = [int(unit.partition("@")[2]) for unit in units] if kind == "osd" else []
        before = {number: up_from(number) for number in numbers}
        run("systemctl", "restart", *units)
        for number in numbers:
            # One that was killed counts as up until it has begun anew.
            wait(
                f"OSD {number} is not up",
                lambda number=number: is_up(number) and up_from(number) > before[number],
                RENEWED_S,
            )
        # The others have yet to miss one that does not come back.
        for unit in units if kind == "mon" else ():
            wait(f"{unit} has no voice", lambda unit=unit: has_voice(socket_of(unit)), RENEWED_S)
        if kind == "rgw":
            wait_for_gateway()

    def change(self, what: str, do: Callable[[], object]) -> None:
        """Note a change, and make it unless nothing is to be changed."""
        self.changes.append(what)
        if not self.dry_run:
            do()


def begun_with(unit: str) -> str:
    """Which start of a unit is the last one, and what is in its files."""
    whole = hashlib.sha256()
    for path in files_of(unit):
        whole.update(path.read_bytes())
    start = run("systemctl", "show", "--property=InvocationID", "--value", unit).strip()
    return f"{start} {whole.hexdigest()}"


def outdated() -> list[str]:
    """Units of Ceph's daemons here that run a program or library that was replaced since they began."""
    argv = ("systemctl", "list-units", "--plain", "--no-legend", "--state=active", "ceph-*@*.service")
    names = [line.split()[0].removesuffix(".service") for line in run(*argv).splitlines()]
    return sorted(name for name in names if kind_of(name) and is_replaced(main_process(name)))


def kind_of(unit: str) -> str:
    """mon, mgr, osd, mds or rgw; empty for what is none of them."""
    return next((kind for prefix, kind in PREFIXES.items() if unit.startswith(prefix)), "")


def main_process(unit: str) -> int:
    """The process of a unit; 0 where it has none."""
    return int(run("systemctl", "show", "--property=MainPID", "--value", unit).strip() or 0)


def is_replaced(process: int, proc: Path = Path("/proc")) -> bool:
    """Whether a process runs what is no longer there. Memory that it shares has no place below /usr."""
    try:
        names = (
            line.split(maxsplit=5)[5:] for line in (proc / str(process) / "maps").read_text().splitlines()
        )
        return any(name[0].startswith("/usr/") and name[0].endswith(REPLACED) for name in names if name)
    except OSError:  # it has just ended
        return False


def socket_of(unit: str) -> str:
    """Where a daemon answers on its node (`admin_socket` of Ceph's options)."""
    return "/run/ceph/ceph-{}.{}.asok".format(*unit.removeprefix("ceph-").split("@", 1))


def gateway_at() -> list[tuple[str, int]]:
    """Where this node's gateway is to answer."""
    found = re.findall(r" ssl_endpoint=(\S+):(\d+) ", read(GATEWAY_CONFIG))
    return [(host, int(port)) for host, port in found]


def wait_for_gateway() -> None:
    """Until it answers wherever it is to: its unit is active as soon as its process is there."""
    for host, port in gateway_at():
        wait(f"the gateway does not answer at {host}:{port}", partial(answers, (host, port)), RENEWED_S)


def answers(place: tuple[str, int]) -> bool:
    """Whether something takes connections there."""
    try:
        socket.create_connection(place, timeout=5).close()
    except OSError:
        return False
    return True


def files_of(unit: str) -> list[Path]:
    """What a daemon reads as it starts. A gateway has settings of its own: nothing else restarts for them."""
    kind, _, name = unit.partition("@")
    is_gateway = kind == "ceph-radosgw"
    paths = [GATEWAY_CONFIG if is_gateway else CONFIG, *DROP_INS.glob(f"{kind}@.service.d/*.conf")]
    paths += [DATA / f"{KEYRINGS[kind]}{name}/keyring"] if kind in KEYRINGS else []
    paths += GATEWAY.glob("*.pem") if is_gateway else ()
    return [path for path in paths if path.exists()]


def is_active(unit: str) -> bool:
    """Whether a unit runs."""
    return run("systemctl", "show", "--property=ActiveState", "--value", unit).strip() == "active"


def described(place: Mapping[str, str], tier: str | None, folder: Path) -> list[str]:
    """Where an OSD lies, its class where one is declared, and whether what it keeps is encrypted."""
    found = ["=".join(one) for one in sorted(place.items())] + ([f"class={tier}"] if tier is not None else [])
    return (found or ["nowhere"]) + (["encrypted"] if disks.is_encrypted(folder) else [])


def is_resized(osd: Mapping[str, Any], folder: Path) -> bool:
    """Whether the file of an OSD has another size than declared."""
    block = folder / "block"
    return block.is_file() and abs(block.stat().st_size - osd["size_gib"] * 1024**3) >= 1 << 20


def refuse_other_size(osd: Mapping[str, Any], folder: Path) -> None:
    """The file of an OSD that is there is neither made larger nor smaller."""
    size_gib, number = (folder / "block").stat().st_size / 1024**3, number_of(folder)
    raise RefusedError(
        f"OSD {number} was made with {size_gib:g} GiB and is declared with {osd['size_gib']:g}. Declare what "
        f"it has; or, to make it anew, an OSD at a time, {emptied(number)}, and run it again"
    )


def emptied(number: int) -> str:
    """By which commands the cluster forgets an OSD, once the others have what it holds."""
    return (
        f"`ceph osd out {number}`, wait until `ceph osd safe-to-destroy {number}` says so, "
        f"`systemctl disable --now ceph-osd@{number}`, `ceph osd purge {number} --yes-i-really-mean-it`"
    )


def refuse_other_encryption(osd: Mapping[str, Any], folder: Path) -> None:
    """An OSD that is there keeps its disk as it was made."""
    if disks.is_encrypted(folder) == bool(osd.get("encrypted")):
        return
    number, declared = number_of(folder), "encrypted" if osd.get("encrypted") else "in the clear"
    raise RefusedError(
        f"OSD {number} was made otherwise, and its disk {osd['path']} is declared {declared}. To make it "
        f"anew, a disk at a time: {emptied(number)}, `wipefs --all {osd['path']} && rm -r {folder}`, and run "
        "it again"
    )


def is_forgotten(known: str) -> bool:
    """Whether the cluster knows no OSD by this UUID."""
    with cluster(*BOOTSTRAP) as ask:
        return known not in {osd["uuid"] for osd in ask("osd dump")["osds"]}


def number_of(folder: Path) -> int:
    """The number of the OSD whose folder it is."""
    return int(folder.name.partition("-")[2])


def as_osd(number: int) -> contextlib.AbstractContextManager[Cluster]:
    """A connection in the name of one of this node's OSDs."""
    return cluster(f"osd.{number}", str(OSDS / f"ceph-{number}/keyring"))


def is_up(number: int) -> bool:
    """Whether the monitors see an OSD."""
    with as_osd(number) as ask:
        return any(osd["osd"] == number and osd["up"] for osd in ask("osd dump")["osds"])


def up_from(number: int) -> int:
    """The epoch of the cluster's map in which an OSD came up last; 0 for one that never did."""
    with as_osd(number) as ask:
        return next((int(osd["up_from"]) for osd in ask("osd dump")["osds"] if osd["osd"] == number), 0)


def write_mon_key(keyring: Path, key: str) -> None:
    """As `ceph-mon --mkfs` leaves it."""
    beside = keyring.with_name("keyring.new")
    write(beside, f'[mon.]\n\tkey = {key}\n\tcaps mon = "allow *"\n')
    shutil.chown(beside, "ceph", "ceph")
    beside.rename(keyring)


def read(path: Path) -> str:
    """A file's text without its line's end; empty where it is not there."""
    return path.read_text().strip() if path.exists() else ""


def main(step: str, *more: str) -> None:
    """The program."""
    node = Node(settings(), "--dry-run" in more)
    units: list[str] = []
    if step == "check":
        print(*node.state(), sep="\n")
        return
    if step == "renew":
        node.renew(more[0])
    elif step == "current":
        if (left := outdated()) and not node.dry_run:
            raise RefusedError(
                f"{', '.join(left)}: still the older program. The upgrade stopped before it; mend what "
                "stopped it, and run again: it goes on from there"
            )
    elif step == "restart":
        units = list(dict.fromkeys(node.mons() + node.daemons()))
        node.restart(units)
    else:
        units = {"mons": node.mons, "daemons": node.daemons, "gateways": node.gateways}[step]()
    kinds = sorted({kind_of(unit) for unit in outdated()})
    state = node.state() if step == "daemons" and not node.dry_run else []
    said = {"changes": node.changes, "units": units, "outdated": kinds, "fsid": node.wanted["fsid"]}
    print(json.dumps({**said, "state": state, "stale": [] if node.dry_run else node.stale(units)}))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (RefusedError, OSError, KeyError, ValueError) as error:
        sys.exit(str(error))
