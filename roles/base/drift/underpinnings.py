"""underpinnings: what a node starts from and no role wrote, beside `surroundings`: before systemd, for its
network, for images and containers, and what is called as packages change.

What was there at the first seal is known; what comes later is a difference.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from infra.drift.kind import Found, How, is_list
from infra.drift.kinds.known import with_known
from infra.drift.looks import Look
from infra.drift.node import text_of
from roles.base.drift.surroundings import ROOTS_HOME, SYSTEMDS, Surroundings, strange_files

if TYPE_CHECKING:
    from infra.drift.manifest import Manifest
    from infra.drift.repair import Obstacles

UNDERPINNING_FILES = {
    "first": (
        *(f"/var/lib/cloud/scripts/{x}" for x in ("per-boot", "per-once", "per-instance")),
        *("/etc/cloud/cloud.cfg", "/etc/cloud/cloud.cfg.d", "/etc/grub.d", "/boot/grub/custom.cfg"),
    ),
    "network": (
        *(f"/etc/NetworkManager/{x}" for x in ("NetworkManager.conf", "conf.d", "system-connections")),
        *("/etc/dhcpcd.conf", "/etc/dhcpcd.enter-hook", "/etc/dhcpcd.exit-hook"),
        *("/run/systemd/network", "/usr/local/lib/systemd/network"),
    ),
    "called": ("/etc/apt/mirrors", "/etc/needrestart", "/etc/ca-certificates/update.d"),
    "plugins": ("/etc/sudo.conf",),
    "daemons": tuple(f"/usr/local/lib/systemd/{x}.conf.d" for x in ("system", *SYSTEMDS)),
    "units": (
        *("/etc/containers/systemd", "/run/containers/systemd", "/usr/local/lib/systemd/user"),
        f"{ROOTS_HOME}/.config/containers/systemd",
    ),
    "images": (
        *(f"/etc/containers/{x}" for x in ("registries.conf", "registries.conf.d", "policy.json")),
        *(f"/etc/containers/{x}" for x in ("containers.conf", "containers.conf.d", "storage.conf")),
        *(f"{ROOTS_HOME}/.config/containers/{x}" for x in ("registries.conf", "registries.conf.d")),
        *(f"{ROOTS_HOME}/.config/containers/{x}" for x in ("policy.json", "containers.conf", "storage.conf")),
        *(f"{ROOTS_HOME}/.config/containers/{x}" for x in ("containers.conf.d", "registries.d")),
        *("/etc/cni/net.d", "/etc/cdi"),
    ),
}
"""Files that are read together, by what they are for."""
MADE_ANEW = ("/etc/cdi/nvidia.yaml", "/etc/cni/net.d/cni.lock", "/run/systemd/network/10-netplan-")
"""How those begin that a toolkit writes for the devices that it finds, what starts a container to lock its
network, and netplan at each boot."""
RENEWED = "kubeconfig"
"""How those of a network of containers end whose token is another every few hours."""
KERNEL_LINE, STARTED = "/proc/cmdline", "kernel started with "
IN_CONTAINER = "/run/systemd/container"
OF_THE_BOOT = ("BOOT_IMAGE=", "initrd=", "root=", "resume=", "panic=-1")
"""How words begin that each update of the kernel may change; the last is GRUB's where it needs no initrd."""


GPU_HOSTS_FILE = "/etc/default/grub.d/90-causeway-gpu.cfg"
OF_GPU_HOSTS = ("hugepagesz=", "hugepages=", "default_hugepagesz=", "intel_iommu=", "amd_iommu=", "iommu")
"""What role cuda_base tells the kernel by that file, and holds against what is in force by itself."""


def look_at_underpinnings(node: Look, key: str, how: How) -> Found:
    """Each list of what was added, by what it is for."""
    found = {what: lasting(strange_files(node, starts)) for what, starts in UNDERPINNING_FILES.items()}
    found["first"] += kernel_line(node)
    return with_known(node, found)


def lasting(lines: list[str]) -> list[str]:
    """Without what is made anew, and says something else then."""
    return [
        line
        for line in lines
        if not (line.startswith(MADE_ANEW) or line.rpartition(" ")[0].endswith(RENEWED))
    ]


def kernel_line(node: Look) -> list[str]:
    """What the kernel was told as it started, but for which one it is. A container has none of its own."""
    if os.path.exists(IN_CONTAINER):
        return []
    passed = (*OF_THE_BOOT, *(OF_GPU_HOSTS if GPU_HOSTS_FILE in node.keys_of("file") else ()))
    return [STARTED + word for word in text_of(KERNEL_LINE, "").split() if not word.startswith(passed)]


# On the controller


class Underpinnings(Surroundings):
    """What a node starts from."""

    def undo(self, found: Obstacles, aspect: str, line: str, manifest: Manifest) -> None:
        """A file is moved away. What the kernel was told is there until the next boot, and named only."""
        if line.startswith(STARTED):
            return
        self._file(found, aspect, line.rpartition(" ")[0])
        if aspect == "units":
            found.run("had systemd read its files again", "systemctl", "daemon-reload")


KINDS = (
    Underpinnings(
        "underpinnings",
        look_at_underpinnings,
        dict.fromkeys(UNDERPINNING_FILES, is_list),
        always=tuple(UNDERPINNING_FILES),
        never_none=tuple(UNDERPINNING_FILES),
        said={
            "first": "read or run before all else",
            "network": "read for the network",
            "called": "called as packages change",
            "plugins": "read by sudo",
            "daemons": "read by systemd's daemons",
            "units": "unit of a container or user",
            "images": "read for images and containers",
        },
        stands_alone=True,
    ),
)
