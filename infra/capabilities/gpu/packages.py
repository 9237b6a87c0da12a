"""What a stack's parts are called in each repository: the only place that knows the names of packages."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from infra.declaration import GpuStackSpec

Part = Literal[
    "driver",
    "persistence",
    "mps",
    "open",
    "proprietary",
    "toolkit",
    "fabric",
    "subnet",
    "dcgm",
    "exporter",
    "containers",
]


@dataclass(frozen=True)
class Source:
    """A repository of packages for Debian 13."""

    name: str
    url: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    keyring: str
    """The file of the keys that nodes have of it, or that a given key becomes."""
    packages: Mapping[Part, tuple[str, ...]]
    """`{cuda}` is CUDA's release as 13-0, `{major}` its first number, `{dcgm}` that of
    DCGM. A part that is missing the repository does not have; one without packages comes with another."""
    metapackages: tuple[str, ...]
    """What pulls a driver in, in whatever version is the newest."""


UNNAMED_FROM = 580
"""From this branch on NVIDIA's names of packages have no branch in them."""
BRANCHED = ("fabric",)

SOURCES: Mapping[Literal["nvidia", "debian"], Source] = {
    "debian": Source(
        "Debian's repository",
        "http://deb.debian.org/debian",
        ("trixie",),
        ("contrib", "non-free", "non-free-firmware"),
        "/usr/share/keyrings/debian-archive-keyring.gpg",
        {
            "driver": ("nvidia-smi", "libcuda1"),
            "persistence": ("nvidia-persistenced",),
            "mps": ("nvidia-cuda-mps",),
            "open": ("nvidia-open-kernel-dkms",),
            "proprietary": ("nvidia-kernel-dkms",),
            "toolkit": ("nvidia-cuda-toolkit",),
        },
        ("nvidia-driver",),
    ),
    "nvidia": Source(
        "NVIDIA's repository",
        "https://developer.download.nvidia.com/compute/cuda/repos/debian13/x86_64",
        ("/",),
        (),
        "/usr/share/keyrings/cuda-archive-keyring.gpg",
        {
            "driver": ("nvidia-driver-cuda",),
            "persistence": ("nvidia-persistenced",),
            "mps": (),
            "open": ("nvidia-kernel-open-dkms",),
            "proprietary": ("nvidia-kernel-dkms",),
            "toolkit": ("cuda-toolkit-{cuda}",),
            "fabric": ("nvidia-fabricmanager",),
            "subnet": ("nvlsm",),
            "containers": ("nvidia-container-toolkit", "nvidia-container-toolkit-base"),
            "dcgm": ("datacenter-gpu-manager-{dcgm}-core", "datacenter-gpu-manager-{dcgm}-cuda{major}"),
            "exporter": ("datacenter-gpu-manager-exporter",),
        },
        ("cuda-drivers", "nvidia-open"),
    ),
}
"""Debian: `apt-cache search` in trixie, non-free. NVIDIA: the Driver Installation Guide (Debian, "compute
only"), the CUDA Installation Guide, the Fabric Manager and DCGM user guides; not tried, for want of a
machine that reaches it."""

GIVEN_KEY = "/etc/apt/keyrings/causeway-gpu.asc"
"""Where a key from the controller lies on a node."""
PATTERNS = ("*nvidia*", "libcuda*", "libnvcuvid*", "libnvoptix*", "cuda-drivers*")
"""Names of packages that have the driver's version, in both repositories."""
WORDS: Mapping[Part, str] = {
    "fabric": "Fabric Manager",
    "dcgm": "DCGM",
    "exporter": "exporter of DCGM's",
    "containers": "Container Toolkit",
}


def lacking(stack: GpuStackSpec, *, fabric: bool) -> Iterator[str]:
    """The parts, in words, that a stack needs and its source does not have."""
    needed: Mapping[Part, bool] = {
        "fabric": fabric,
        "dcgm": stack.dcgm is not None,
        "exporter": stack.dcgm_exporter is not None,
        "containers": stack.container_toolkit is not None,
    }
    there = SOURCES[stack.source.kind].packages
    yield from (WORDS[part] for part, is_needed in needed.items() if is_needed and part not in there)


def wanted(
    stack: GpuStackSpec, modules: Literal["open", "proprietary"], fabric: str | None, subnet: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Package → version, without Debian's epoch and revision; the kernel's apart. Empty is any version.

    `fabric`: Fabric Manager's version, where it is needed.
    """
    source = SOURCES[stack.source.kind]
    parts: list[tuple[Part, str]] = [("driver", stack.driver), ("persistence", stack.driver)]
    if stack.mps:
        parts.append(("mps", stack.driver))
    if stack.cuda_toolkit:
        parts.append(("toolkit", stack.cuda))
    if fabric:
        parts.append(("fabric", fabric))
    if subnet:
        parts.append(("subnet", ""))  # its numbers are its own
    if stack.dcgm:
        parts.append(("dcgm", stack.dcgm))
    if stack.dcgm_exporter:
        parts.append(("exporter", stack.dcgm_exporter))
    if stack.container_toolkit:
        parts.append(("containers", stack.container_toolkit))
    packages = {name: version for part, version in parts for name in _names(source, part, stack)}
    return packages, dict.fromkeys(_names(source, modules, stack), stack.driver)


def _names(source: Source, part: Part, stack: GpuStackSpec) -> Iterator[str]:
    branch = int(stack.driver.partition(".")[0])
    for name in source.packages[part]:
        full = name.format(
            cuda=stack.cuda.replace(".", "-"),
            major=stack.cuda.partition(".")[0],
            dcgm=(stack.dcgm or "").partition(".")[0],
        )
        yield f"{full}-{branch}" if part in BRANCHED and branch < UNNAMED_FROM else full
