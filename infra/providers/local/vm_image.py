"""The images that virtual machines of this machine start from: a container node's root, plain or baked, with
a kernel.

`ensure_image` returns a folder of the cache with `root.ext4`, `vmlinuz`, `initrd` and `build`, a word that no
other build has: disks are overlays of one particular `root.ext4`. The folder's name carries a hash of all the
image is made of; that of a baked image stands beside what else is known of it.

`python -m infra.providers.local.vm_image` prints the folder.
"""

import hashlib
import shlex
import shutil
import sys
from pathlib import Path
from typing import Literal
from uuid import uuid4

from infra.errors import CausewayError
from infra.process import run
from infra.providers.local import image
from infra.providers.local.baked import Baked, unpack

RECIPE = image.RECIPE / "machine.sh"
DISK_GIB = 16
"""Size of a node's disk; it takes what the node writes."""
KERNEL, INITRD, ROOT, BUILD = "vmlinuz", "initrd", "root.ext4", "build"
FILE_SYSTEM = (
    # All of a new sparse file reads as zeros: the kernel need not clear inode tables behind the node's back.
    *("mkfs.ext4", "-q", "-F", "-L", "root", "-E", "lazy_itable_init=1,assume_storage_prezeroed=1"),
)


def image_dir(baked: Baked | None = None) -> Path:
    """The folder that the image has, plain or of a baked one, whether it exists or not."""
    root = baked.root if baked else image.image_hash()
    digest = hashlib.sha256(f"{root} {DISK_GIB} {FILE_SYSTEM}\0".encode() + RECIPE.read_bytes())
    return (baked.folder if baked else image.images_dir()) / f"vm-{digest.hexdigest()[:12]}"


def ensure_image(progress: image.Progress, baked: Baked | None = None) -> Path:
    """Return the folder of the image, building it first where it is missing.

    Raises CausewayError when the disk is too full, a tool is missing or fails, or the baked image has not the
    bytes that were signed.
    """
    folder = image_dir(baked)
    with image.locked(folder.with_suffix(".lock"), progress):
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
            part.rename(folder)
    return folder


def _build(base: Path, folder: Path) -> None:
    root = with_kernel(base, "vm", folder)
    disk = folder / ROOT
    run(["truncate", f"--size={DISK_GIB}G", str(disk)])
    run([*FILE_SYSTEM, "-d", str(root), str(disk)], timeout_s=image.BUILD_LIMIT_S)
    shutil.rmtree(root)
    (folder / BUILD).write_text(uuid4().hex)


def with_kernel(base: Path, form: Literal["vm", "netboot"], folder: Path) -> Path:
    """Unpack a root (a tar file) into a folder and add a kernel, which lies beside it; the root's path."""
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
    run(command, hint=hint, timeout_s=image.BUILD_LIMIT_S, env={"TMPDIR": str(image.SCRATCH)})
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
