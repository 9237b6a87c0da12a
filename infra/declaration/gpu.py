"""GPUs' software: one stack for each pool, of versions that fit together."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from infra.declaration.base import Bool, FilePath, Float, Int, Repository, Spec, refusal

DRIVER = re.compile(r"[1-9][0-9]{2}\.[0-9]{1,3}(\.[0-9]{1,3})?")
CUDA = re.compile(r"[1-9][0-9]\.[0-9]{1,2}")
DCGM = re.compile(r"[1-9]\.[0-9]{1,2}(\.[0-9]{1,2})?")
EXPORTER = re.compile(r"[1-9]\.[0-9]{1,2}\.[0-9]{1,2}")
TOOLKIT = re.compile(r"1\.[0-9]{1,2}\.[0-9]{1,2}")
Governor = Literal["performance", "powersave", "schedutil", "ondemand", "conservative"]
PROFILE = re.compile(r"[1-7]g\.[1-9][0-9]{0,2}gb")


def _quoted(value: object) -> object:
    """YAML reads 13.10 as the number 13.1."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise refusal("is a number; a version is a text, in quotes", f'"{value}"')
    return value


def _driver(value: str) -> str:
    if not DRIVER.fullmatch(value):
        raise refusal("is not a driver's version, such as 580.95.05")
    return value


def _cuda(value: str) -> str:
    if not CUDA.fullmatch(value):
        found = re.match(r"[1-9][0-9]\.[0-9]{1,2}", value)
        raise refusal("is not a CUDA release by major and minor, such as 13.0", found[0] if found else None)
    return value


def _dcgm(value: str) -> str:
    if not DCGM.fullmatch(value):
        raise refusal("is not a version of DCGM, such as 4.6")
    return value


def _exporter(value: str) -> str:
    if not EXPORTER.fullmatch(value):
        raise refusal("is not a version of DCGM's exporter, such as 4.8.3")
    return value


def _toolkit(value: str) -> str:
    if not TOOLKIT.fullmatch(value):
        raise refusal("is not a version of the Container Toolkit, such as 1.18.0")
    return value


def _profile(value: str) -> str:
    if not PROFILE.fullmatch(value):
        raise refusal("is not a MIG profile, such as 1g.10gb")
    return value


def _word(value: object) -> object:
    """Some readers of YAML take `on` and `off` for truth values."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


class MigSpec(Spec):
    """How each GPU is divided."""

    what: ClassVar = "the MIG layout"
    profile: Annotated[str, AfterValidator(_profile)]
    """What each part is, such as `1g.10gb`: the share of the processors and of the memory."""
    count: Int = Field(ge=1, le=7)
    """Parts of each GPU."""


class GpuSourceSpec(Spec):
    """Whose packages a stack is made of, and where nodes find them."""

    what: ClassVar = "a source of GPU packages"
    kind: Literal["nvidia", "debian"] = "nvidia"
    """NVIDIA's repository, or Debian's non-free, which has one driver for each of its releases."""
    mirror: Repository | None = None
    """A mirror of it, with the same layout; unset means the maker's own."""
    key_file: FilePath | None = None
    """File on this machine with the key that signs it; unset means the one that nodes have from Debian's
    `debian-archive-keyring` or NVIDIA's `cuda-keyring`."""


class GpuHostSpec(Spec):
    """What GPUs need of the machine around them. What is unset stays as the machine has it.

    Nodes that cannot have a setting say so, and why; a container has its host's.
    """

    what: ClassVar = "the tuning of GPU hosts"
    hugepages_2m: Int | None = Field(default=None, ge=1, le=33_554_432)
    """Huge pages of 2 MiB on each node (`vm.nr_hugepages`)."""
    hugepages_1g: Int | None = Field(default=None, ge=1, le=65_536)
    """Huge pages of 1 GiB on each node, reserved at boot."""
    governor: Governor | None = None
    """cpufreq's governor of every CPU."""
    iommu: Annotated[Literal["passthrough", "on", "off"] | None, BeforeValidator(_word)] = None
    """`passthrough` (`iommu=pt`) lets devices reach memory untranslated, as GPUDirect wants it. It is a
    parameter of the kernel, in force after a reboot.
    """
    acs: Annotated[Literal["keep", "off"], BeforeValidator(_word)] = "keep"
    """PCI Access Control Services of the bridges above GPUs and fabric NICs: `off` lets these reach each
    other directly, on bare metal only.
    """
    sriov_vfs: Int | None = Field(default=None, ge=1, le=127)
    """SR-IOV virtual functions of each fabric port."""
    dpu_mode: Literal["dpu", "nic"] | None = None
    """Whether BlueField-3 cards run their own system, which has the ports (`dpu`), or are plain NICs (`nic`).
    In force after a power cycle.
    """


class GpuStackSpec(Spec):
    """What runs a pool's GPUs. Versions are exact, and held on the nodes."""

    what: ClassVar = "a GPU stack"
    driver: Annotated[str, BeforeValidator(_quoted), AfterValidator(_driver)]
    """The driver's version, such as `580.95.05`."""
    cuda: Annotated[str, BeforeValidator(_quoted), AfterValidator(_cuda)]
    """The CUDA release that jobs are built with, such as `13.0`."""
    cuda_toolkit: Bool = False
    """Whether the nodes have CUDA's compilers and libraries themselves; containers bring their own."""
    dcgm: Annotated[str, BeforeValidator(_quoted), AfterValidator(_dcgm)] | None = None
    """The version of DCGM, such as `4.6`; unset means none."""
    dcgm_exporter: Annotated[str, BeforeValidator(_quoted), AfterValidator(_exporter)] | None = None
    """The version of DCGM's exporter, such as `4.8.3`, by which monitoring asks DCGM; unset means none.

    Each is made with one version of DCGM: 4.8.3 with 4.6.0.
    """
    container_toolkit: Annotated[str, BeforeValidator(_quoted), AfterValidator(_toolkit)] | None = None
    """The version of NVIDIA's Container Toolkit, such as `1.18.0`, which describes the GPUs to engines (CDI).

    Unset means none.
    """
    source: GpuSourceSpec = GpuSourceSpec()
    """Where the packages come from."""
    kernel_modules: Literal["auto", "open", "proprietary"] = "auto"
    """Which of NVIDIA's kernel modules; `auto` takes the open ones wherever the GPU has them."""
    mig: MigSpec | None = None
    """Parts of each GPU; unset means whole GPUs."""
    mps: Bool = False
    """Whether jobs share a GPU by NVIDIA's Multi-Process Service, which does not keep their faults apart."""
    time_slices: Int | None = Field(default=None, ge=2, le=256)
    """Kubernetes' pods that take turns on a GPU, which keeps neither memory nor faults apart."""
    persistence: Bool = True
    """Whether the driver stays loaded between jobs."""
    power_cap_w: Float | None = Field(default=None, ge=10, le=10_000)
    """Watts that each GPU may draw; unset means its own limit."""
    host: GpuHostSpec = GpuHostSpec()
    """Huge pages, CPU governor, IOMMU and the like; unset leaves them as they are."""
