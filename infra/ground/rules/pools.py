"""What a node pool says about its machines."""

from collections.abc import Iterator
from typing import ClassVar

from infra.declaration import ClusterSpec
from infra.ground.problem import Problem, Severity, listing, nearest, show
from infra.ground.rule import pools

GPUS_PER_NODE = (1, 2, 4, 8, 16)
NIC_GBPS = (1, 10, 25, 40, 50, 100, 200, 400, 800)
"""Port speeds of IEEE 802.3 that NICs come in."""
GPU_MODELS = (
    "a10", "a30", "a40", "a100-pcie-40gb", "a100-pcie-80gb", "a100-sxm-40gb", "a100-sxm-80gb", "a800-sxm",
    "b200-sxm", "b300-sxm", "gb200", "gb300", "gh200", "h20-sxm", "h100-nvl", "h100-pcie", "h100-sxm",
    "h200-nvl", "h200-sxm", "h800-sxm", "l4", "l40", "l40s", "mi250x", "mi300a", "mi300x", "mi325x",
    "mi355x", "rtx-pro-6000", "t4", "v100-pcie", "v100-sxm",
)  # fmt: skip


def closest(value: int, known: tuple[int, ...]) -> str:
    """The known number nearest to `value`; of two at the same distance the larger."""
    return str(min(known, key=lambda number: (abs(number - value), -number)))


class CountIsPositive:
    """A pool of none is a pool that should not stand in the file."""

    id: ClassVar[str] = "pool-count"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Pools of zero or fewer nodes."""
        for path, _, _, pool in pools(spec):
            if pool.count < 1:
                message = f"{show(pool.count)} is not a number of nodes: a pool has at least 1"
                hint = "take the pool out of the declaration to have no such nodes"
                yield Problem(f"{path}.count", message, show(pool.count), "1 or more", hint=hint)


class GpusPerNode:
    """Boards come with a power of two of GPUs; anything else is a typing error."""

    id: ClassVar[str] = "gpus"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Numbers of GPUs that no node has, and GPU pools without any."""
        allowed = listing(GPUS_PER_NODE)
        for path, _, _, pool in pools(spec):
            if pool.gpus not in (0, *GPUS_PER_NODE):
                message = f"{show(pool.gpus)} is not one of {allowed}"
                suggestion = closest(abs(pool.gpus), GPUS_PER_NODE)
                yield Problem(f"{path}.gpus", message, show(pool.gpus), allowed, suggestion)
            elif pool.role == "gpu" and pool.gpus == 0:
                message = "0, in a pool of role gpu; its nodes have " + allowed
                yield Problem(f"{path}.gpus", message, "0", allowed, "8")


class GpusAreOnGpuNodes:
    """Groups, roles and health checks of GPUs follow the pool's role."""

    id: ClassVar[str] = "gpu-role"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """GPUs in a pool of another role."""
        for path, _, _, pool in pools(spec):
            if pool.gpus > 0 and pool.role != "gpu":
                message = f"GPUs in a pool of role {pool.role} are not set up"
                yield Problem(f"{path}.role", message, show(pool.role), "gpu", "gpu")


class GpuModelIsGiven:
    """Driver, MIG and acceptance figures depend on the model."""

    id: ClassVar[str] = "gpu-model"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """GPUs without a model, a model without GPUs."""
        for path, _, _, pool in pools(spec):
            if pool.gpus > 0 and pool.gpu_model is None:
                message = f"is missing; the pool has {pool.gpus} GPUs per node"
                hint = "for example gpu_model: h100-sxm"
                yield Problem(f"{path}.gpu_model", message, allowed=listing(GPU_MODELS), hint=hint)
            elif pool.gpu_model is not None and pool.gpus == 0 and pool.role != "gpu":
                message = f"{show(pool.gpu_model)}, but the pool has no gpus"
                hint = "add gpus, or take gpu_model out"
                yield Problem(f"{path}.gpu_model", message, show(pool.gpu_model), hint=hint)


class GpuModelIsKnown:
    """A new model is no error, a typing error in a known one is worth a word."""

    id: ClassVar[str] = "gpu-model-known"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Models that are not in the list."""
        for path, _, _, pool in pools(spec):
            if pool.gpu_model is not None and pool.gpu_model not in GPU_MODELS:
                message = f"{show(pool.gpu_model)} is not a model known here"
                suggestion = nearest(pool.gpu_model.lower(), GPU_MODELS)
                yield Problem(
                    f"{path}.gpu_model", message, show(pool.gpu_model), listing(GPU_MODELS), suggestion
                )


class NicsHaveASpeed:
    """A fabric NIC and its port speed are declared together."""

    id: ClassVar[str] = "nics"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """NICs without a speed, a speed without NICs, and speeds that no port has."""
        allowed = listing(NIC_GBPS)
        for path, _, _, pool in pools(spec):
            if pool.nics < 0:
                yield Problem(
                    f"{path}.nics", f"{show(pool.nics)} is less than 0", show(pool.nics), "0 or more"
                )
            elif pool.nics > 0 and pool.nic_gbps is None:
                message = f"is missing; the pool has {pool.nics} NICs per node"
                yield Problem(f"{path}.nic_gbps", message, allowed=allowed, hint=f"it is one of {allowed}")
            elif pool.nics == 0 and pool.nic_gbps is not None:
                message = f"{show(pool.nic_gbps)}, but the pool has no nics"
                hint = "add nics, or take nic_gbps out"
                yield Problem(f"{path}.nic_gbps", message, show(pool.nic_gbps), hint=hint)
            if pool.nic_gbps is not None and pool.nic_gbps not in NIC_GBPS:
                message = f"{show(pool.nic_gbps)} Gbit/s is not one of {allowed}"
                suggestion = closest(pool.nic_gbps, NIC_GBPS)
                yield Problem(f"{path}.nic_gbps", message, show(pool.nic_gbps), allowed, suggestion)


class NodeKindFits:
    """Only nodes that Causeway makes have a kind, and WAN links end where it can put an interface."""

    id: ClassVar[str] = "node-kind"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Kinds of machines that exist already, and gateways that are virtual machines."""
        linked = {name for link in spec.wan_links for name in (link.a, link.b)}
        for path, region, _, pool in pools(spec):
            kind = region.node_kind(pool)
            if pool.node_kind is not None and kind is None:
                message = f"{show(pool.node_kind)}, but {region.name}'s machines exist already"
                hint = "take node_kind out, or give the region provider: {kind: local}"
                yield Problem(f"{path}.node_kind", message, show(pool.node_kind), hint=hint)
            elif kind == "vm" and pool.role == "gateway" and region.name in linked:
                message = f"{show(kind)}, but local WAN links end in gateways that are containers"
                yield Problem(f"{path}.node_kind", message, show(kind), "container", "container")
