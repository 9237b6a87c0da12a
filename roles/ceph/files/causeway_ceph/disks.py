"""The disks of OSDs: looked at before one is taken, encrypted where that is declared, open while one runs.

    disks.py open NUMBER     what this OSD keeps its data on is there, and its daemon's
    disks.py close NUMBER    nobody reads it any more

An encrypted disk has LUKS 2. Its key is random, and kept by the monitors (`dm-crypt/osd/UUID/luks`); beside
the OSD lies an identity that may read this one key and nothing else. So ceph-volume has it, too
(docs.ceph.com, "ceph-volume lvm: Encryption", "config-key layout"). A disk that is taken away tells nobody
anything, and none does any more once the cluster has forgotten its OSD.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from asked import OtherKeyError, RefusedError, cluster, entities, run

OSDS = Path("/var/lib/ceph/osd")
MAPPED = Path("/dev/mapper")
LOCKBOX, LINK = "lockbox.keyring", "disk"
"""In an OSD's folder: the identity that reads the disk's key, and the disk."""
KEY_BYTES = 128
WRONG_KEY = 2
"""How cryptsetup ends then, and for nothing else (cryptsetup(8), RETURN CODES)."""
# The key is random: what makes a guess of a password costly would only make a start so.
FORMAT = ("--type", "luks2", "--batch-mode", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000")


def check_device(osd: Mapping[str, Any], known: str) -> None:
    """Refuse a device that is another one than declared, or holds something that nobody gave away.

    What an earlier try of the OSD `known` left there is its own.
    """
    path = osd["path"]
    if not Path(path).is_block_device():
        raise RefusedError(f"{path} is not a block device here")
    shown = run("lsblk", "--json", "--bytes", "--output", "SERIAL,SIZE,MOUNTPOINTS,FSTYPE,PTTYPE", path)
    device = json.loads(shown)["blockdevices"][0]
    serial = osd.get("serial")
    if serial and device["serial"] != serial:
        raise RefusedError(f"{path} has serial number {device['serial']}, declared is {serial}")
    require_size(osd, int(device["size"]))
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


def require_size(osd: Mapping[str, Any], size_bytes: int) -> None:
    """Refuse a disk that is smaller than the plan counts with; vendors round by less than a percent."""
    declared_gib, size_gib = float(osd.get("size_gib") or 0), size_bytes / 1024**3
    if size_gib < declared_gib * 0.99:
        raise RefusedError(
            f"{osd['path']} has {size_gib:.1f} GiB, declared are {declared_gib:g}: a vendor's TB is 931.3 GiB"
        )


def parts_of(device: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A device of lsblk's, its partitions, and what is made of them."""
    yield device
    for child in device.get("children", ()):
        yield from parts_of(child)


def labelled(path: str) -> str:
    """The UUID of the OSD whose data a device has, in the clear or encrypted; empty where it has none's."""
    if found := encrypted_for(path):
        return found
    try:
        labels = json.loads(run("ceph-bluestore-tool", "show-label", "--dev", path))
    except (RefusedError, ValueError):
        return ""
    return str(labels.get(path, {}).get("osd_uuid", ""))


def encrypted_for(path: str) -> str:
    """The UUID in the header of an encrypted disk, which is its OSD's; empty where it has none."""
    try:
        return run("cryptsetup", "luksUUID", path).strip()
    except (RefusedError, OSError):
        return ""


# What the monitors are told


def lockbox_of(known: str) -> str:
    """Who reads the key of an OSD's disk; the monitors make this identity with `osd new`."""
    return f"client.osd-lockbox.{known}"


def secrets(pending: Path, known: str, encrypted: bool) -> dict[str, str]:
    """What `osd new` is told of an OSD, the same at each try, for it takes no other; kept in `pending`.

    The key of a disk is not kept there: an earlier try's is the monitors'.
    """
    kept = entities(pending) if pending.exists() else {}
    names = ["osd.new", *([lockbox_of(known)] if encrypted else [])]
    keys = {name: kept.get(name, {}).get("key") or new_key() for name in names}
    write(pending, "".join(f"[{name}]\n\tkey = {key}\n" for name, key in keys.items()))
    found = {"cephx_secret": keys["osd.new"]}
    if encrypted:
        found["cephx_lockbox_secret"] = keys[lockbox_of(known)]
        found["dmcrypt_key"] = known_key(known, pending) or base64.b64encode(os.urandom(KEY_BYTES)).decode()
    return found


def known_key(known: str, keyring: Path) -> str:
    """The key of an OSD's disk, as the monitors have it; empty where they know no such OSD."""
    try:
        with cluster(lockbox_of(known), str(keyring)) as ask:
            return str(ask("config-key get", key=f"dm-crypt/osd/{known}/luks"))
    except OtherKeyError:
        return ""


# On the disk


def prepare(osd: Mapping[str, Any], known: str, number: int, told: Mapping[str, str]) -> Path:
    """What the OSD is to keep its data on: the disk, or what is decrypted of it."""
    path, key = osd["path"], told.get("dmcrypt_key", "")
    if osd.get("wipe") and not is_own(path, known, key):
        run("wipefs", "--all", path)
    if not key:
        return Path(path)
    folder = OSDS / f"ceph-{number}"
    write(folder / LOCKBOX, f"[{lockbox_of(known)}]\n\tkey = {told['cephx_lockbox_secret']}\n")
    (folder / LINK).symlink_to(path)
    is_there = encrypted_for(path) == known
    if is_there and not opens(path, key):
        raise RefusedError(
            f"{path} is encrypted, and its key is gone with the OSD that the cluster has forgotten: "
            f"`wipefs --all {path}`, and run it again"
        )
    if not is_there:
        run("cryptsetup", "luksFormat", *FORMAT, "--uuid", known, "--key-file", "-", path, stdin=key)
    unlock(path, number, key)
    return mapped(number)


def is_own(path: str, known: str, key: str) -> bool:
    """Whether a disk holds what an earlier try of an OSD left, in the form that is declared."""
    return (
        labelled(path) == known and bool(encrypted_for(path)) == bool(key) and (not key or opens(path, key))
    )


def opens(path: str, key: str) -> bool:
    """Whether a key is the one of an encrypted disk; a disk that does not answer says nothing of that."""
    try:
        run("cryptsetup", "open", "--test-passphrase", "--key-file", "-", path, stdin=key)
    except RefusedError as refused:
        if refused.status != WRONG_KEY:
            raise
        return False
    return True


def mapped(number: int) -> Path:
    """What is decrypted of an OSD's disk."""
    return MAPPED / f"ceph-osd-{number}"


def unlock(path: str, number: int, key: str) -> None:
    """Decrypt a disk for its OSD. Its file system says what is free, so the disk may know it as well."""
    if not mapped(number).exists():
        words = ("--type", "luks2", "--allow-discards", "--key-file", "-")
        run("cryptsetup", "open", *words, path, mapped(number).name, stdin=key)


def is_encrypted(folder: Path) -> bool:
    """Whether what an OSD keeps its data on is decrypted from a disk."""
    return (folder / "block").is_symlink() and (folder / "block").readlink().parent == MAPPED


def open_disk(number: int) -> None:
    """Before an OSD starts: a device belongs to root at each boot, and an encrypted one is closed."""
    folder = OSDS / f"ceph-{number}"
    if is_encrypted(folder) and not mapped(number).exists():
        known = (folder / "fsid").read_text().strip()
        if not (key := known_key(known, folder / LOCKBOX)):
            raise RefusedError(f"the cluster has forgotten the OSD on {(folder / LINK).readlink()}")
        unlock(str(folder / LINK), number, key)
    if (folder / "block").is_block_device():
        shutil.chown((folder / "block").resolve(), "ceph", "ceph")


def close_disk(number: int) -> None:
    """After an OSD ended."""
    if mapped(number).exists():
        run("cryptsetup", "close", mapped(number).name)


# Files


def new_key() -> str:
    """A key as Ceph has them: type, time of making, length, 16 random bytes."""
    head = struct.pack("<HIIH", 1, int(time.time()), 0, 16)
    return base64.b64encode(head + os.urandom(16)).decode()


def write(path: Path, text: str) -> None:
    """A whole file, or none; nobody else may read it, not for a moment."""
    part = path.with_name(f"{path.name}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    part.rename(path)


if __name__ == "__main__":
    try:
        {"open": open_disk, "close": close_disk}[sys.argv[1]](int(sys.argv[2]))
    except (RefusedError, OSError) as error:
        sys.exit(str(error))
