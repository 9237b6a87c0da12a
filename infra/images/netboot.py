"""An image as any machine boots it from the network: kernel, initrd, a squashfs, and what says so to iPXE.

Such a machine has its root in memory: it begins anew at each boot. The initrd is Debian's live-boot.
"""

import re
import shutil
from base64 import b64encode
from pathlib import Path

from infra.errors import BadInputError
from infra.files import checksum
from infra.process import run
from infra.providers.local import image, signing, vm_image
from infra.providers.local.baked import MANIFEST, SBOM, Baked, require_beside, unpack
from infra.providers.local.image import Progress

SQUASHFS, IPXE, SUMS = "root.squashfs", "boot.ipxe", "SHA256SUMS"
URL = re.compile(r"http://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?")
"""The initrd's program knows no TLS."""
KEYS = "ssh.authorized_keys.root"
"""The credential from which systemd lets somebody in."""


def export(baked: Baked, folder: Path, url: str, public_key: str, progress: Progress) -> None:
    """Write all that a boot server hands out into a new folder, with signed checksums.

    URL is where machines will find it, PUBLIC_KEY may log in as root. BadInputError where the folder is there
    already, or the initrd does not understand the URL; CausewayError where the image is not what was signed,
    or there is no room.
    """
    if not URL.fullmatch(url):
        raise BadInputError(f"{url!r} is no URL from which an initrd fetches", hint="http://HOST[:PORT]/PATH")
    if folder.exists():
        raise BadInputError(f"{folder} is there already", hint="name a folder that is not")
    if not folder.parent.is_dir():
        raise BadInputError(f"there is no folder {folder.parent}", hint="make it first")
    require_beside(baked)  # what is handed on is signed once more
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        image.require_space(part, image.SCRATCH)
        progress(f"image {baked.name}: installing the kernel (about 60 s)")
        root = vm_image.with_kernel(unpack(baked, part / "baked"), "netboot", part)
        progress(f"image {baked.name}: packing it as a squashfs")
        _pack(root, part / SQUASHFS, int(baked.manifest["source_date"]))
        for work in (root, part / "baked"):
            shutil.rmtree(work)
        (part / IPXE).write_text(_ipxe(url.rstrip("/"), public_key))
        for name in (MANIFEST, f"{MANIFEST}{signing.SUFFIX}", SBOM):
            shutil.copy(baked.folder / name, part / name)
        sums = "".join(f"{checksum(file)}  {file.name}\n" for file in sorted(part.iterdir()))
        (part / SUMS).write_text(sums)
        signing.sign(part / SUMS)
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _pack(root: Path, file: Path, source_date: int) -> None:
    times = {"SOURCE_DATE_EPOCH": str(source_date)}
    command = ["mksquashfs", str(root), str(file), "-comp", "zstd", "-noappend", "-quiet", "-no-progress"]
    run(command, timeout_s=image.BUILD_LIMIT_S, hint="install squashfs-tools", env=times)


def _ipxe(url: str, public_key: str) -> str:
    """What iPXE runs. It finds kernel and initrd where the script came from; the initrd has to be told."""
    key = b64encode(f"{public_key.strip()}\n".encode()).decode()
    options = (
        *("boot=live", f"fetch={url}/{SQUASHFS}", "panic=10"),
        f"systemd.set_credential_binary={KEYS}:{key}",
    )
    return (
        "#!ipxe\n"
        f"kernel {vm_image.KERNEL} initrd={vm_image.INITRD} {' '.join(options)}\n"
        f"initrd {vm_image.INITRD}\n"
        "boot\n"
    )
