"""An image in a form for machines that nobody makes here: a folder, whole or not at all, and signed.

The root gets a kernel and what starts it, is cleaned as a build is, and has no time of this day: the same
image and the same words give the same bytes.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from infra import ROOT
from infra.errors import BadInputError
from infra.files import checksum
from infra.images.recipe import BUILDER
from infra.images.sbom import sbom
from infra.process import run
from infra.providers.local import image, signing, vm_image
from infra.providers.local.baked import MANIFEST, SBOM, Baked, in_use, require_beside, unpack
from infra.providers.local.image import Progress

SUMS, BILL = "SHA256SUMS", "machine.spdx.json"
"""The bill is of all that a machine has, with the kernel; the image's own is beside it, as it was signed."""
ENVIRONMENT = ("PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8")
INSIDE = """
root=$1 beside=$2
shift 2
mount --bind "$root" "$root/mnt"
mount -o remount,bind,noatime "$root/mnt"
mount --bind "$beside" "$root/media"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
exec chroot "$root" env -i "$@"
"""
"""Mounts that end with what runs there: nothing else sees them."""

Form = Literal["netboot", "disk"]
Make = Callable[[Path, Path], Path]
"""Writes a form's files, from a root into the folder that has it; the file that has the root."""


def export(baked: Baked, folder: Path, form: Form, make: Make, progress: Progress) -> None:
    """Write a form of an image into a new folder: what `make` writes, and what says what it is.

    BadInputError where the folder is there already; CausewayError where the image is not what was signed, or
    there is no room.
    """
    if folder.exists():
        raise BadInputError(f"{folder} is there already", hint="name a folder that is not")
    if not folder.parent.is_dir():
        raise BadInputError(f"there is no folder {folder.parent}", hint="make it first")
    part = folder.with_name(f".{folder.name}.part")
    with in_use(baked.name):
        require_beside(baked)  # what is handed on is signed once more
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        _write(baked, folder, part, form, make, progress)


def _write(baked: Baked, folder: Path, part: Path, form: Form, make: Make, progress: Progress) -> None:
    try:
        image.require_space(part, image.SCRATCH)
        _fill(baked, part, form, make, progress)
        sums = "".join(f"{checksum(file)}  {file.name}\n" for file in sorted(part.iterdir()))
        (part / SUMS).write_text(sums)
        signing.sign(part / SUMS)
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _fill(baked: Baked, part: Path, form: Form, make: Make, progress: Progress) -> None:
    source_date = int(baked.manifest["source_date"])
    progress(f"image {baked.name}: installing the kernel (about 60 s)")
    root = vm_image.with_kernel(unpack(baked, part / "baked"), form, part, source_date)
    shutil.rmtree(part / "baked")
    listed = (ROOT / BUILDER / "packages.py").read_text()
    packages = json.loads(within(root, part, ["python3", "-", "list"], listed, source_date))
    within(root, part, ["sh", "-s"], (ROOT / BUILDER / "clean.sh").read_text(), source_date)
    progress(f"image {baked.name}: packing it")
    packed = make(root, part)
    shutil.rmtree(root)
    bill = sbom(f"{baked.name}-{form}", checksum(packed), packages, source_date)
    (part / BILL).write_text(json.dumps(bill, indent=1) + "\n")
    for name in (MANIFEST, f"{MANIFEST}{signing.SUFFIX}", SBOM):
        shutil.copy(baked.folder / name, part / name)


def within(root: Path, beside: Path, argv: list[str], script: str, source_date: int) -> str:
    """What a program printed inside a root, given a script; no variable of this machine comes along.

    /mnt is the root once more, without what is mounted in it, and /media the folder `beside`.
    """
    told = (*ENVIRONMENT, f"SOURCE_DATE_EPOCH={source_date}")
    command = ["unshare", "--mount", "sh", "-ec", INSIDE, "sh", str(root), str(beside), *told, *argv]
    return run(command, stdin=script, timeout_s=image.BUILD_LIMIT_S, hint="is the disk full? df shows it")
