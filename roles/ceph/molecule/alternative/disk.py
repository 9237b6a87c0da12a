"""A disk for an OSD: a loop device of its own, by the name of a disk, for as long as this process lives.

The kernel gives it back when nobody has it open any more (LO_FLAGS_AUTOCLEAR, linux/loop.h), so that nothing
is left of it once the node is gone.
"""

import fcntl
import os
import signal
import stat
from pathlib import Path

SIZE, NAME = 2 << 30, Path("/dev/disk/by-id/test-disk")
GET_FREE, CONFIGURE, AUTOCLEAR, FLAGS_AT, CONFIG_BYTES = 0x4C82, 0x4C0A, 4, 8 + 52, 304
TRIES = 20
"""Somebody else may have taken the free one by then."""


def device() -> int:
    """A loop device over a file, open."""
    backing = os.open("/var/lib/test-disk", os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(backing, SIZE)
    config = bytearray(CONFIG_BYTES)
    config[:4], config[FLAGS_AT] = backing.to_bytes(4, "little"), AUTOCLEAR
    for _ in range(TRIES):
        with Path("/dev/loop-control").open("rb") as control:
            number = fcntl.ioctl(control, GET_FREE)
        path = Path(f"/dev/loop{number}")
        if not path.exists():
            os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(7, number))
        held = os.open(path, os.O_RDWR)
        try:
            fcntl.ioctl(held, CONFIGURE, config)
        except OSError:
            os.close(held)
            continue
        NAME.parent.mkdir(parents=True, exist_ok=True)
        NAME.unlink(missing_ok=True)
        NAME.symlink_to(path)
        return held
    raise SystemExit("no loop device is free")


if __name__ == "__main__":
    held = device()
    signal.pause()
