"""An image as any machine boots it from the network: kernel, initrd, a squashfs, and what says so to iPXE.

Such a machine has its root in memory: it begins anew at each boot. The initrd is Debian's live-boot.
"""

import re
from base64 import b64encode
from pathlib import Path

from infra.errors import BadInputError
from infra.images import forms
from infra.process import run
from infra.providers.local import image, vm_image
from infra.providers.local.baked import Baked
from infra.providers.local.image import Progress

SQUASHFS, IPXE = "root.squashfs", "boot.ipxe"
URL = re.compile(r"http://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?")
"""The initrd's program knows no TLS."""
KEYS = "ssh.authorized_keys.root"
"""The credential from which systemd lets somebody in."""


def export(baked: Baked, folder: Path, url: str, public_key: str, progress: Progress) -> None:
    """Write all that a boot server hands out into a new folder, with signed checksums.

    URL is where machines will find it, PUBLIC_KEY may log in as root. BadInputError where the initrd does not
    understand the URL; raises as `forms.export`.
    """
    if not URL.fullmatch(url):
        raise BadInputError(f"{url!r} is no URL from which an initrd fetches", hint="http://HOST[:PORT]/PATH")

    def make(root: Path, part: Path) -> Path:
        _pack(root, part / SQUASHFS, int(baked.manifest["source_date"]))
        (part / IPXE).write_text(_ipxe(url.rstrip("/"), public_key))
        return part / SQUASHFS

    forms.export(baked, folder, "netboot", make, progress)


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
