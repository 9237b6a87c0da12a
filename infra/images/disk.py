"""An image as a disk: UEFI boots it on any machine, and its root grows to the disk at the first boot.

systemd-repart writes the table, and runs on the machine; the file systems are made by mkfs, in their places
(disk.sh). All of that runs in the image's own root, so it is the same wherever the disk is made, and takes no
loop device.
"""

import hashlib
import math
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Literal, get_args
from uuid import UUID

from infra.errors import BadInputError
from infra.images import forms
from infra.process import run
from infra.providers.local import image, vm_image
from infra.providers.local.baked import Baked
from infra.providers.local.image import Progress

SCRIPT = Path(__file__).with_name("disk.sh")
RAW, QCOW2 = "disk.raw", "disk.qcow2"
Format = Literal["raw", "qcow2"]
FORMATS: tuple[Format, ...] = get_args(Format)
CONSOLE = re.compile(r"tty[A-Z]*[0-9]+(,[0-9]+([noe][78]?)?)?")
"""As the kernel takes it: https://docs.kernel.org/admin-guide/serial-console.html."""
MIB = 1024**2
BLOCK_BYTES = 4096
ESP_MIB = 512
"""A kernel with its initrd takes 50 MiB, and some stand side by side."""
JOURNAL_MIB = 256
"""For the disk that it grows to; of a small file system mkfs would make a small one for good."""
ROOM_MIB = 256
"""What a machine may write before its root has grown."""
OVERHEAD = 1.1
"""Of ext4's own tables over files, 5 % were measured."""


@dataclass(frozen=True)
class Layout:
    """The names of a disk and its parts. They follow from what it is made of: no clock, no chance."""

    seed: str
    root_mib: int

    def uuid(self, part: str) -> UUID:
        """The UUID of a part, as a random one looks (RFC 9562, version 4)."""
        return UUID(bytes=hashlib.sha256(f"{self.seed} {part}".encode()).digest()[:16], version=4)

    @property
    def volume(self) -> str:
        """The serial number of the FAT file system: 8 hex digits."""
        return hashlib.sha256(f"{self.seed} volume".encode()).hexdigest()[:8]

    def definitions(self) -> Mapping[str, str]:
        """File → what systemd-repart reads of it. The root is last: what grows has nothing behind it."""
        parts = (("10-esp.conf", "esp", "ESP", ESP_MIB), ("50-root.conf", "root", "root", self.root_mib))
        return {
            file: f"[Partition]\nType={kind}\nLabel={label}\nUUID={self.uuid(kind)}\n"
            f"SizeMinBytes={mib}M\nSizeMaxBytes={mib}M\n"
            for file, kind, label, mib in parts
        }

    def words(self, console: str) -> list[str]:
        """The arguments of disk.sh."""
        names = (self.uuid(part) for part in ("disk", "esp", "root", "file system"))
        sizes = (ESP_MIB, self.root_mib, JOURNAL_MIB)
        return [f"console=tty0 console={console}", *map(str, names), self.volume, *map(str, sizes)]


def export(
    baked: Baked, folder: Path, public_key: str, console: str, kind: Format, progress: Progress
) -> None:
    """Write the disk into a new folder, with signed checksums.

    PUBLIC_KEY may log in as root, CONSOLE is where the kernel speaks beside the screen. BadInputError for one
    that no kernel knows; raises as `forms.export`.
    """
    if not CONSOLE.fullmatch(console):
        raise BadInputError(f"{console!r} is no console of a kernel's", hint="as in ttyS1,115200n8")

    def make(root: Path, part: Path) -> Path:
        for name in (vm_image.KERNEL, vm_image.INITRD):
            (part / name).unlink()  # they are on the disk
        _let_in(root, public_key)
        layout = Layout(_seed(baked, public_key, console), root_mib(root))
        _pack(root, part, layout, console, int(baked.manifest["source_date"]))
        return _as_qcow2(part) if kind == "qcow2" else part / RAW

    forms.export(baked, folder, "disk", make, progress)


def root_mib(root: Path) -> int:
    """How large the root's file system is: by what its files hold, and never by what they take here."""
    stats = [path.lstat() for path in root.rglob("*")]
    files = {stat.st_ino: stat.st_size for stat in stats if S_ISREG(stat.st_mode)}
    blocks = len(stats) + sum(math.ceil(size / BLOCK_BYTES) for size in files.values())
    return math.ceil(blocks * BLOCK_BYTES * OVERHEAD / MIB) + JOURNAL_MIB + ROOM_MIB


def _seed(baked: Baked, public_key: str, console: str) -> str:
    """One hash over what the disk is made of."""
    parts = (baked.root.encode(), public_key.strip().encode(), console.encode())
    digest = hashlib.sha256(b"\0".join((*parts, vm_image.RECIPE.read_bytes(), SCRIPT.read_bytes())))
    return digest.hexdigest()


def _let_in(root: Path, public_key: str) -> None:
    """As a file: whoever takes the key away later has taken it away."""
    file = root / "root/.ssh/authorized_keys"
    file.touch(mode=0o600)
    file.write_text(f"{public_key.strip()}\n")


def _pack(root: Path, part: Path, layout: Layout, console: str, source_date: int) -> None:
    work = part / "work"
    (work / "repart.d").mkdir(parents=True)
    for file, text in layout.definitions().items():
        (work / "repart.d" / file).write_text(text)
    forms.within(root, work, ["sh", "-s", *layout.words(console)], SCRIPT.read_text(), source_date)
    (work / RAW).rename(part / RAW)
    shutil.rmtree(work)


def _as_qcow2(part: Path) -> Path:
    """The disk as QEMU and OpenStack take it, compressed, in place of the raw one."""
    words = (
        "-f",
        "raw",
        "-O",
        "qcow2",
        "-c",
        "-o",
        "compression_type=zstd",
        str(part / RAW),
        str(part / QCOW2),
    )
    run(["qemu-img", "convert", *words], timeout_s=image.BUILD_LIMIT_S, hint="install qemu-utils")
    (part / RAW).unlink()
    return part / QCOW2
