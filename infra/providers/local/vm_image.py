"""The images that virtual machines of this machine start from: a container node's root, plain or baked, with
a kernel.

`ensure_image` returns a folder of the cache with `root.ext4`, `vmlinuz`, `initrd` and `build`, a word that no
other build has: disks are overlays of one particular `root.ext4`. The folder's name carries a hash of all the
image is made of; that of a baked image stands beside what else is known of it.

`python -m infra.providers.local.vm_image` prints the folder.
"""

import errno
import hashlib
import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Literal
from uuid import uuid4

from infra.errors import CausewayError
from infra.files import checksum
from infra.process import run
from infra.providers.local import image, signing, vm_notes
from infra.providers.local.baked import Baked, DamagedError, unpack

RECIPE = image.RECIPE / "machine.sh"
DISK_GIB = 16
"""Size of a node's disk; it takes what the node writes."""
KERNEL, INITRD, ROOT, BUILD = "vmlinuz", "initrd", "root.ext4", "build"
SUMS = "sums.json"
"""What a form of a baked image was when it was made, signed: file → SHA-256."""
BLOCK_BYTES = 1024**2
FILE_SYSTEM = (
    # All of a new sparse file reads as zeros: the kernel need not clear inode tables behind the node's back.
    *("mkfs.ext4", "-q", "-F", "-L", "root", "-E", "lazy_itable_init=1,assume_storage_prezeroed=1"),
)


def image_dir(baked: Baked | None = None) -> Path:
    """The folder that the image has, plain or of a baked one, whether it exists or not."""
    root = baked.root if baked else image.image_hash()
    known = SUMS if baked else ""
    digest = hashlib.sha256(f"{root} {DISK_GIB} {FILE_SYSTEM}{known}\0".encode() + RECIPE.read_bytes())
    return (baked.folder if baked else image.images_dir()) / f"vm-{digest.hexdigest()[:12]}"


def ensure_image(progress: image.Progress, baked: Baked | None = None) -> Path:
    """Return the folder of the image, building it first where it is missing.

    Raises CausewayError when the disk is too full, a tool is missing or fails, or the baked image has not the
    bytes that were signed, nor its form, on which machines stand: else it is made again.
    """
    folder = image_dir(baked)
    with image.locked(folder.with_suffix(".lock"), progress):
        if baked and folder.exists() and (damaged := _not_as_made(folder)):
            if standing := vm_notes.made_from(folder):
                raise DamagedError(
                    f"{folder / damaged} is not what was signed",
                    f"machines stand on it: take them down ({', '.join(standing)})",
                )
            shutil.rmtree(folder)
        if not folder.exists():
            image.require_space(folder.parent, image.SCRATCH)
            part = folder.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            base = unpack(baked, part / "baked") if baked else image.ensure_tar(progress)
            kind = f"the baked image {baked.name}" if baked else "virtual machines"
            progress(f"image of {kind}: installing the kernel (once; about 40 s)")
            _build(base, part)
            shutil.rmtree(part / "baked", ignore_errors=True)
            if baked:
                (part / SUMS).write_text(json.dumps(_sums(part)))
                signing.sign(part / SUMS)
            part.rename(folder)
    return folder


def _not_as_made(folder: Path) -> str:
    """The first file of a form that is not what was signed; "" where all are."""
    if not signing.is_signed(folder / SUMS):
        return SUMS
    noted, now = json.loads((folder / SUMS).read_text()), _sums(folder)
    return next((name for name in now if noted.get(name) != now[name]), "")


def _sums(folder: Path) -> dict[str, str]:
    """File → SHA-256, "" where it is gone; of the disk, which is sparse, over what is not zeros and where."""
    files = (folder / name for name in (KERNEL, INITRD, ROOT, BUILD))
    how = {ROOT: _sparse_checksum}
    return {file.name: how.get(file.name, checksum)(file) if file.is_file() else "" for file in files}


def _sparse_checksum(file: Path) -> str:
    digest, size = hashlib.sha256(), file.stat().st_size
    digest.update(f"{size}".encode())
    with file.open("rb") as opened:
        at = 0
        while (data := _next_data(opened.fileno(), at)) is not None:
            at = data - data % BLOCK_BYTES
            opened.seek(at)
            if (block := opened.read(BLOCK_BYTES)).strip(b"\0"):
                digest.update(f" {at} ".encode() + block)
            at += BLOCK_BYTES
    return digest.hexdigest()


def _next_data(descriptor: int, at: int) -> int | None:
    """Where the next bytes are that are no hole; None where none are."""
    try:
        return os.lseek(descriptor, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None


def _build(base: Path, folder: Path) -> None:
    root = with_kernel(base, "vm", folder)
    disk = folder / ROOT
    run(["truncate", f"--size={DISK_GIB}G", str(disk)])
    run([*FILE_SYSTEM, "-d", str(root), str(disk)], timeout_s=image.BUILD_LIMIT_S)
    shutil.rmtree(root)
    (folder / BUILD).write_text(uuid4().hex)


def with_kernel(
    base: Path, form: Literal["vm", "netboot", "disk"], folder: Path, source_date: int | None = None
) -> Path:
    """Unpack a root (a tar file) into a folder and add a kernel, which lies beside it; the root's path.

    With `source_date` (seconds since 1970) its initrd has no time that is younger.
    """
    root = folder / "root"
    quoted = shlex.quote(str(base))
    command = [
        *("mmdebstrap", "--quiet", "--mode=root", "--variant=custom", "--format=directory"),
        "--skip=update,cleanup/apt",
        f"--setup-hook=mmtarfilter '--path-exclude=/dev/*' < {quoted} | tar -C \"$1\" -x --warning=none",
        f'--customize-hook=chroot "$1" sh -s {form} < {shlex.quote(str(RECIPE))}',
        *("", str(root)),
    ]
    hint = "check that http://deb.debian.org/debian/ answers"
    env = {"TMPDIR": str(image.SCRATCH)}
    if source_date is not None:
        env["SOURCE_DATE_EPOCH"] = str(source_date)
    run(command, hint=hint, timeout_s=image.BUILD_LIMIT_S, env=env)
    for name, link in ((KERNEL, "vmlinuz"), (INITRD, "initrd.img")):
        shutil.copy(root / (root / link).readlink(), folder / name)
    return root


def main() -> int:
    """Print the folder of the image, building it first where needed; progress goes to stderr."""
    try:
        print(ensure_image(lambda line: print(line, file=sys.stderr, flush=True)))
    except CausewayError as error:
        print(f"error: {error}", file=sys.stderr)
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
