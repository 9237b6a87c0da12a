"""Ceph's daemons on this node: made, enabled and started as /etc/ceph/causeway.json has them.

    node.py mons [--dry-run]       this node's monitor, where it has one
    node.py daemons [--dry-run]    OSDs, manager, metadata server
    node.py gateways [--dry-run]   object gateway; one that runs with older files is started again
    node.py restart                those that run with older files, one after the other

Prints a JSON object: changes, units that hold, and those that were started before their files were written.
It may be ended at any moment and run again: what is made is made beside its place, and moved there.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import struct
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from asked import RefusedError, cluster, run, settings, wait

DATA = Path("/var/lib/ceph")
OSDS = DATA / "osd"
BOOTSTRAP = ("client.bootstrap-osd", str(DATA / "bootstrap-osd/ceph.keyring"))
AS_CEPH = ("--setuser", "ceph", "--setgroup", "ceph")
MON_KEYRING = "/etc/ceph/ceph.mon.keyring"
CONFIG = Path("/etc/ceph/ceph.conf")
DROP_INS = Path("/etc/systemd/system")
GATEWAY = Path("/etc/ceph/gateway")
KEYRINGS = {"ceph-mgr": "mgr/ceph-", "ceph-mds": "mds/ceph-", "ceph-radosgw": "radosgw/ceph-"}


class Node:
    """This node's part of a cluster."""

    def __init__(self, wanted: Mapping[str, Any], dry_run: bool = False) -> None:
        self.wanted = wanted
        self.name = str(wanted["host"])
        self.dry_run = dry_run
        self.changes: list[str] = []

    # Monitors

    def mons(self) -> list[str]:
        """Make and start this node's monitor; the units that hold."""
        if self.name not in [mon["name"] for mon in self.wanted["mons"]]:
            return []
        folder = DATA / f"mon/ceph-{self.name}"
        if not (folder / "store.db").exists():
            self.keep_what_others_know()
            self.change("monitor made", lambda: self.make_mon(folder))
        return [self.started(f"ceph-mon@{self.name}")]

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

    # What the monitors' cluster is for

    def daemons(self) -> list[str]:
        """Make and start everything else; the units that hold."""
        units = [self.started(self.osd(osd)) for osd in self.wanted["osds"]]
        return units + [self.started(f"ceph-{kind}@{self.name}") for kind in self.wanted["daemons"]]

    def gateways(self) -> list[str]:
        """Start this node's object gateway, or start it again; the unit that holds."""
        unit = self.started(f"ceph-radosgw@rgw.{self.name}")
        if not self.dry_run:
            self.restart([unit])
        return [unit]

    def osd(self, osd: Mapping[str, Any]) -> str:
        """The unit of one OSD, made if it is not there: it is known by an UUID of cluster, node and place."""
        known = str(uuid.uuid5(uuid.UUID(self.wanted["fsid"]), f"{self.name}/{osd['place']}"))
        for folder in OSDS.glob("ceph-*"):
            if read(folder / "fsid") == known and (folder / "mkfs_done").exists():
                return f"ceph-osd@{folder.name.partition('-')[2]}"
        if osd["kind"] == "device":
            check_device(osd, known)
        if self.dry_run:
            self.changes.append(f"OSD on {osd['place']} made")
            return "ceph-osd@new"
        return f"ceph-osd@{self.make_osd(known, osd)}"

    def make_osd(self, known: str, osd: Mapping[str, Any]) -> int:
        """Ask for a number, and make the store; a number that was asked for before is given again."""
        pending = OSDS / f"new-{known}"
        key = read(pending) or new_key()
        write(pending, key)
        with cluster(*BOOTSTRAP) as ask:
            secret = json.dumps({"cephx_secret": key}).encode()
            number = int(ask("osd new", secret, uuid=known)["osdid"])
        folder = OSDS / f"ceph-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        write(folder / "keyring", f"[osd.{number}]\n\tkey = {key}\n")
        more = self.backing(osd, folder)
        for path in (folder, folder / "keyring"):
            shutil.chown(path, "ceph", "ceph")
        words = ["--id", str(number), "--osd-uuid", known, "--osd-data", str(folder)]
        run("ceph-osd", "--mkfs", *words, *more, *AS_CEPH)
        pending.unlink()
        self.changes.append(f"OSD {number} on {osd['place']} made")
        return number

    def backing(self, osd: Mapping[str, Any], folder: Path) -> list[str]:
        """What the OSD's data lies on: a device, which is linked to, or a file, which it makes itself."""
        if osd["kind"] == "file":
            return ["--bluestore-block-size", str(int(osd["size_gib"] * 1024**3))]
        if osd.get("wipe"):
            run("wipefs", "--all", osd["path"])
        (folder / "block").symlink_to(osd["path"])
        shutil.chown(Path(osd["path"]).resolve(), "ceph", "ceph")
        return []

    # Units

    def started(self, unit: str) -> str:
        """A unit, enabled and active."""
        state = run("systemctl", "show", "--property=ActiveState,UnitFileState", "--value", unit).split()
        if state != ["active", "enabled"]:
            self.change(f"{unit} started", lambda: run("systemctl", "enable", "--now", unit))
        return unit

    def stale(self, units: list[str]) -> list[str]:
        """Those that were started before their files were written."""
        shared = [CONFIG, *DROP_INS.glob("ceph-*@.service.d/*.conf")]
        found = []
        for unit in units:
            words = ("--property=ActiveEnterTimestamp", "--timestamp=unix", "--value")
            since = float(run("systemctl", "show", *words, unit).strip().lstrip("@") or 0)
            if max(path.stat().st_mtime for path in shared + own_files(unit)) > since + 1:
                found.append(unit)
        return found

    def restart(self, units: list[str]) -> None:
        """Start stale units again, one after the other; each is back before the next one goes."""
        for unit in self.stale(units):
            run("systemctl", "restart", unit)
            if unit.startswith("ceph-osd@"):
                number = int(unit.partition("@")[2])
                wait(f"OSD {number} is not up", lambda number=number: is_up(number))
            self.changes.append(f"{unit} restarted")

    def change(self, what: str, do: Callable[[], object]) -> None:
        """Note a change, and make it unless nothing is to be changed."""
        self.changes.append(what)
        if not self.dry_run:
            do()


def own_files(unit: str) -> list[Path]:
    """What a daemon reads beside what all of them do."""
    kind, _, name = unit.partition("@")
    paths = [DATA / f"{KEYRINGS[kind]}{name}/keyring"] if kind in KEYRINGS else []
    paths += GATEWAY.glob("*.pem") if kind == "ceph-radosgw" else ()
    return [path for path in paths if path.exists()]


def check_device(osd: Mapping[str, Any], known: str) -> None:
    """Refuse a device that is another one than declared, or holds something that nobody gave away.

    What an earlier try of the OSD `known` left there is its own.
    """
    path = osd["path"]
    if not Path(path).is_block_device():
        raise RefusedError(f"{path} is not a block device here")
    shown = run("lsblk", "--json", "--output", "SERIAL,MOUNTPOINTS,FSTYPE,PTTYPE", path)
    device = json.loads(shown)["blockdevices"][0]
    serial = osd.get("serial")
    if serial and device["serial"] != serial:
        raise RefusedError(f"{path} has serial number {device['serial']}, declared is {serial}")
    parts = list(parts_of(device))
    mounted = [place for part in parts for place in part.get("mountpoints") or () if place]
    if mounted:
        raise RefusedError(f"{path} is mounted at {', '.join(mounted)}")
    holds = device.get("fstype") or device.get("pttype") or ("partitions" if device.get("children") else "")
    if holds and not osd.get("wipe") and labelled(path) != known:
        raise RefusedError(
            f"{path} holds data ({holds}): declare `wipe: true` with its serial number "
            f"({device['serial']}) where it may be lost"
        )


def parts_of(device: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A device of lsblk's, its partitions, and what is made of them."""
    yield device
    for child in device.get("children", ()):
        yield from parts_of(child)


def labelled(path: str) -> str:
    """The UUID of the OSD whose data a device has; empty where it has none's."""
    try:
        labels = json.loads(run("ceph-bluestore-tool", "show-label", "--dev", path))
    except (RefusedError, ValueError):
        return ""
    return str(labels.get(path, {}).get("osd_uuid", ""))


def is_up(number: int) -> bool:
    """Whether the monitors see an OSD."""
    with cluster(f"osd.{number}", str(OSDS / f"ceph-{number}/keyring")) as ask:
        return any(osd["osd"] == number and osd["up"] for osd in ask("osd dump")["osds"])


def new_key() -> str:
    """A key as Ceph has them: type, time of making, length, 16 random bytes."""
    head = struct.pack("<HIIH", 1, int(time.time()), 0, 16)
    return base64.b64encode(head + os.urandom(16)).decode()


def read(path: Path) -> str:
    """A file's text without its line's end; empty where it is not there."""
    return path.read_text().strip() if path.exists() else ""


def write(path: Path, text: str) -> None:
    """A whole file, or none; nobody else may read it, not for a moment."""
    part = path.with_name(f"{path.name}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    part.rename(path)


def main(step: str, *more: str) -> None:
    """The program."""
    node = Node(settings(), "--dry-run" in more)
    units = (
        {"mons": node.mons, "daemons": node.daemons, "gateways": node.gateways}[step]()
        if step != "restart"
        else node.mons() + node.daemons()
    )
    if step == "restart":
        node.restart(units)
    stale = [] if node.dry_run else node.stale(units)
    print(json.dumps({"changes": node.changes, "units": units, "stale": stale}))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (RefusedError, OSError, KeyError, ValueError) as error:
        sys.exit(str(error))
