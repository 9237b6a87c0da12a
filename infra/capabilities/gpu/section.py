"""What roles are told of GPU stacks."""

from typing import ClassVar, Literal

from infra.ground.contract import Part, Section


class GpuHost(Part):
    """What each node of a pool has beside its GPUs; 0, an empty text and `keep` leave it as it is."""

    hugepages_2m: int = 0
    hugepages_1g: int = 0
    governor: str = ""
    iommu: str = ""
    acs: str = "keep"
    sriov_vfs: int = 0
    dpu_mode: str = ""
    nics: tuple[tuple[str, ...], ...] = ()
    """The fabric NICs, each by the names of its ports; none where these are not known."""


class GpuPool(Part):
    """What each node of a pool is to have."""

    gpus: int
    model: str
    driver: str
    packages: dict[str, str]
    """Package → version; empty is any."""
    kernel_packages: dict[str, str]
    """The same of what only a node with a kernel of its own has."""
    source: Literal["nvidia", "debian"]
    mirror: str | None = None
    key_file: str | None = None
    fabric_manager: bool
    subnet_manager: bool
    dcgm: bool
    dcgm_exporter: bool = False
    mig_profile: str
    mig_count: int
    mps: bool
    time_slices: int
    persistence: bool
    power_cap_w: float
    host: GpuHost = GpuHost()


class GpuSection(Section):
    """Every pool that has a stack, by its key."""

    capability: ClassVar = "gpu"
    version: Literal[1] = 1
    pools: dict[str, GpuPool]
    exporters: tuple[str, ...] = ()
    """The pools whose nodes are asked by DCGM's exporter: declared, and with GPUs that are there."""


SECTION = GpuSection
