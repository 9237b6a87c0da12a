"""Another ceph-fuse takes over a mount whose key was replaced; who works there does not notice.

    causeway_cephfs.py older UNIT KEYRING        says so where a unit's ceph-fuse began before its keyring
    causeway_cephfs.py take-over MOUNT COMMAND…  what the unit does to reload

A ceph-fuse reads its key once. Its session outlives the key in the cluster, until a monitor starts again or
its ticket ends; then it is refused. So a new one is started at a place of its own and mounted beneath the old
mount, which is taken off: whoever opens a file meets the new one, and the old one ends with the last file
that is still open there. It may be ended anywhere and run again.

All its life a ceph-fuse remounts the place that it was started at, once at its start and wherever the
cluster wants room in its cache (`remount_cb` in Ceph's src/client/fuse_ll.cc), and ends at once where that
fails, under whoever works there. So the new one's place leads to the mount afterwards, and it is told to
go on.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STAGING = Path("/run/causeway-cephfs")
SURVIVE = "--client_die_on_failed_dentry_invalidate=false"
PATIENCE_S = 60
"""For a new client to be told of the file system."""
OPEN_TREE, MOVE_MOUNT = 428, 429
"""System calls, the same on all machines; glibc of older systems has no names for them."""
AT_FDCWD, CLONE, FROM_DESCRIPTOR, BENEATH = -100, 1, 0x4, 0x200
"""From linux/fcntl.h and linux/mount.h; `BENEATH` since Linux 6.5."""
LIBC = ctypes.CDLL(None, use_errno=True)


def main_process(unit: str) -> int:
    """The process of a unit; 0 where it has none."""
    argv = ("systemctl", "show", "--property=MainPID", "--value", unit)
    return int(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def ticks_of(process: int) -> int:
    """When a process began, in ticks since the boot (proc(5), stat: the field after its name's bracket)."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])


def began(process: int) -> float:
    """When a process began, in seconds since 1970 as the clock has it now."""
    ago = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks_of(process) / os.sysconf("SC_CLK_TCK")
    return time.time() - ago


def is_older(unit: str, keyring: Path) -> bool:
    """Whether a unit's ceph-fuse has read another key. One that is down will read this one.

    Times are wrong where the clock was set back. So a client that was found older is noted with the keyring
    of that moment: one that came after it has read that, whenever it says that it began.
    """
    process = main_process(unit)
    if not process or began(process) >= keyring.stat().st_mtime:
        return False
    noted, client = STAGING / f"{unit}.older", f"{process} {ticks_of(process)}"
    digest = hashlib.sha256(keyring.read_bytes()).hexdigest()
    before = noted.read_text().split("\n") if noted.exists() else ["", ""]
    if before[1] == digest and before[0] != client:
        return False
    STAGING.mkdir(exist_ok=True, mode=0o700)
    part = noted.with_suffix(".part")
    part.write_text(f"{client}\n{digest}")
    part.replace(noted)
    return True


def mounts(place: Path) -> int:
    """How many lie upon each other there."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return sum(line.split()[4] == str(place) for line in lines)


def take_off(place: Path, but: int = 0) -> None:
    """Take all mounts off but the lowest ones; a client ends when nobody uses what it had mounted."""
    while mounts(place) > but:
        subprocess.run(("umount", "--lazy", place), check=True)


def take_over(mount: Path, command: list[str]) -> None:
    """Start a client, and put its mount in the place of the one that is there."""
    name = str(mount).strip("/").replace("/", "-")
    for left in STAGING.glob(f"{name}.*"):
        lead(left, mount)
    take_off(mount, but=1)
    STAGING.mkdir(exist_ok=True, mode=0o700)
    place = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=STAGING))
    client = subprocess.Popen([*command, SURVIVE, place], start_new_session=True)
    try:
        wait_for(client, place)
        put_beneath(place, mount)
    except BaseException as error:
        take_off(place)
        place.rmdir()
        client.kill()
        if isinstance(error, OSError):
            sys.exit(f"{mount}: {error}; before Linux 6.5 nothing can be taken over. The old client goes on")
        raise
    tell_systemd(client.pid)
    lead(place, mount)
    take_off(mount, but=1)


def lead(place: Path, mount: Path) -> None:
    """Have the place that a client was started at lead to its mount, as long as the client may live."""
    if not place.is_symlink():
        take_off(place)
        place.rmdir()
        place.symlink_to(mount)


def wait_for(client: subprocess.Popen[bytes], place: Path) -> None:
    """Until a client has mounted; SystemExit where it ended instead."""
    deadline = time.monotonic() + PATIENCE_S
    while not mounts(place):
        if client.poll() is not None or time.monotonic() > deadline:
            sys.exit("the new client did not mount: is its key the cluster's? The old one goes on")
        time.sleep(0.05)


def put_beneath(place: Path, mount: Path) -> None:
    """What is mounted at a place also beneath what is mounted at another. OSError before Linux 6.5."""
    tree = called(OPEN_TREE, AT_FDCWD, os.fsencode(place), CLONE | os.O_CLOEXEC)
    called(MOVE_MOUNT, tree, b"", AT_FDCWD, os.fsencode(mount), FROM_DESCRIPTOR | BENEATH)
    os.close(tree)


def called(number: int, *words: int | bytes) -> int:
    """What a system call returns."""
    found = int(LIBC.syscall(number, *words))
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


def tell_systemd(process: int) -> None:
    """This is the unit's process now: the old one may end (sd_notify(3))."""
    address = os.environ["NOTIFY_SOCKET"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
        connection.connect(address.replace("@", "\0", 1) if address.startswith("@") else address)
        connection.send(f"MAINPID={process}".encode())


if __name__ == "__main__":
    if sys.argv[1] == "older":
        print("older" * is_older(sys.argv[2], Path(sys.argv[3])))
    else:
        take_over(Path(sys.argv[2]), sys.argv[3:])
