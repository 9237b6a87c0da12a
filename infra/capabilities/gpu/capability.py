"""GPUs' software as declared: what fits together, and what each pool is to have."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from infra.capabilities.gpu.fits import fit, is_switched, modules_for
from infra.capabilities.gpu.known import BRANCHES, MODELS, NVLINK5, version
from infra.capabilities.gpu.rules import RULES
from infra.declaration import ClusterSpec, GpuStackSpec, NodePoolSpec
from infra.ground.capability import Capability, Planned, Report
from infra.ground.contract import Section


@dataclass(frozen=True)
class PoolStack:
    """What a pool's nodes are to have."""

    region: str
    pool: str
    model: str
    driver: str
    cuda: str
    cuda_runs: str
    """`infra.capabilities.gpu.fits.Fit`, in words."""
    branch: str
    """What NVIDIA says of the driver's branch; empty where it says nothing."""
    kernel_modules: Literal["open", "proprietary"]
    fabric_manager: str | None
    """Its version, exactly the driver's; None where no switches join the GPUs."""
    subnet_manager: bool
    """Whether `nvlsm` and ib_umad are needed beside it."""
    mig: str | None
    """Parts of each GPU, as `7 x 1g.10gb`."""
    parts: int
    """Devices that a node offers: GPUs, or parts of them."""


@dataclass(frozen=True)
class GpuPlan:
    """Every pool that has a stack, in declared order."""

    pools: tuple[PoolStack, ...]


class Gpu(Capability[GpuPlan]):
    """Where a pool declares `gpu_stack`."""

    name = "gpu"
    rules = RULES

    def plan(self, spec: ClusterSpec, planned: Planned) -> GpuPlan | None:
        """From the declaration alone."""
        found = tuple(_stacks(spec))
        return GpuPlan(found) if found else None

    def section(self, plan: GpuPlan) -> Section | None:
        """Nobody reads it on a node yet."""
        return None

    def report(self, plan: GpuPlan) -> Report:
        """A line for each pool."""
        lines = ["GPU stacks, as they are to be"]
        lines += [f"  {one.region} {one.pool}: {in_words(one)}" for one in plan.pools]
        return Report("\n".join(lines), {"gpu_stacks": [asdict(one) for one in plan.pools]})


def _stacks(spec: ClusterSpec) -> Iterator[PoolStack]:
    for region in spec.regions:
        for pool in region.pools:
            model = pool.gpu_model
            if pool.gpu_stack is not None and model is not None and model in MODELS:
                yield _stack(region.name, pool, pool.gpu_stack, model)


def _stack(region: str, pool: NodePoolSpec, stack: GpuStackSpec, model: str) -> PoolStack:
    driver, switched = version(stack.driver), is_switched(model, pool.gpus)
    branch, modules = BRANCHES.get(driver[0]), modules_for(model, stack.kernel_modules)
    if modules is None:
        raise ValueError(f"{stack.kernel_modules} kernel modules do not drive {model}: a rule refuses them")
    return PoolStack(
        region=region,
        pool=pool.name,
        model=model,
        driver=stack.driver,
        cuda=stack.cuda,
        cuda_runs=str(fit(driver, version(stack.cuda))),
        branch=f"{branch.designation} until {branch.ends:%B %Y}" if branch else "",
        kernel_modules=modules,
        fabric_manager=stack.driver if switched else None,
        subnet_manager=switched and MODELS[model].nvswitch >= NVLINK5,
        mig=f"{stack.mig.count} x {stack.mig.profile}" if stack.mig else None,
        parts=pool.gpus * (stack.mig.count if stack.mig else 1),
    )


def in_words(stack: PoolStack) -> str:
    """Everything of one pool, in a line."""
    parts = [
        f"driver {stack.driver}" + (f" ({stack.branch})" if stack.branch else ""),
        f"{stack.kernel_modules} kernel modules",
        f"CUDA {stack.cuda} {stack.cuda_runs}",
    ]
    if stack.fabric_manager:
        parts.append(
            f"Fabric Manager {stack.fabric_manager}" + (" with nvlsm" if stack.subnet_manager else "")
        )
    if stack.mig:
        parts.append(f"each GPU as {stack.mig}: {stack.parts} devices a node")
    return ", ".join(parts)


CAPABILITY = Gpu()
