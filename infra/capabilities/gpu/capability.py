"""GPUs' software as declared: what fits together, and what each pool is to have."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from infra.capabilities.fabric.section import FabricSection
from infra.capabilities.gpu.fits import fit, is_switched, modules_for
from infra.capabilities.gpu.known import BRANCHES, MODELS, NVLINK5, version
from infra.capabilities.gpu.packages import SOURCES, wanted
from infra.capabilities.gpu.rules import RULES
from infra.capabilities.gpu.section import GpuHost, GpuPool, GpuSection
from infra.declaration import ClusterSpec, GpuHostSpec, GpuStackSpec, NodePoolSpec
from infra.ground.capability import Capability, Planned, Report
from infra.ground.nodes import pool_key


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
    source: str
    """Where its packages come from, in words."""
    host: str
    """How its hosts are tuned, in words; empty where they stay as they are."""


@dataclass(frozen=True)
class GpuPlan:
    """Every pool that has a stack, in declared order."""

    pools: tuple[PoolStack, ...]
    section: GpuSection


class Gpu(Capability[GpuPlan]):
    """Where a pool declares `gpu_stack`."""

    name = "gpu"
    uses = ("fabric",)
    rules = RULES

    def plan(self, spec: ClusterSpec, planned: Planned) -> GpuPlan | None:
        """From the declaration alone."""
        found = tuple(_stacks(spec))
        if not found:
            return None
        fabric = planned.section(FabricSection)
        pools = {}
        for stack, pool in found:
            nodes = planned.pool_nodes(stack.region, pool.name)
            ports = fabric.hosts.get(nodes[0].name, ()) if fabric and nodes else ()
            names = tuple(port.name for port in ports) or pool.nic_names
            pools[pool_key(stack.region, pool.name)] = _node(stack, pool, names)
        simulated = {region.name for region in spec.regions if region.provider.simulates_gpus}
        asked = tuple(
            pool_key(stack.region, pool.name)
            for stack, pool in found
            if pool.gpu_stack and pool.gpu_stack.dcgm_exporter and stack.region not in simulated
        )
        return GpuPlan(tuple(stack for stack, _ in found), GpuSection(pools=pools, exporters=asked))

    def section(self, plan: GpuPlan) -> GpuSection:
        """What nodes are to have."""
        return plan.section

    def report(self, plan: GpuPlan) -> Report:
        """A line for each pool."""
        lines = ["GPU stacks, as they are to be"]
        lines += [f"  {one.region} {one.pool}: {in_words(one)}" for one in plan.pools]
        return Report("\n".join(lines), {"gpu_stacks": [asdict(one) for one in plan.pools]})


def _stacks(spec: ClusterSpec) -> Iterator[tuple[PoolStack, NodePoolSpec]]:
    for region in spec.regions:
        for pool in region.pools:
            model = pool.gpu_model
            if pool.gpu_stack is not None and model is not None and model in MODELS:
                yield _stack(region.name, pool, pool.gpu_stack, model), pool


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
        source=SOURCES[stack.source.kind].name
        + (f" at {stack.source.mirror}" if stack.source.mirror else ""),
        host=_tuning(stack.host),
    )


def _tuning(host: GpuHostSpec) -> str:
    """`governor performance, iommu passthrough`."""
    declared = host.model_dump(exclude_defaults=True).items()
    return ", ".join(f"{name} {value}" for name, value in declared)


def _node(planned: PoolStack, pool: NodePoolSpec, ports: tuple[str, ...]) -> GpuPool:
    """What a node of the pool is to have, with its fabric ports; a pool without a stack has no plan."""
    stack = pool.gpu_stack
    if stack is None:
        raise ValueError(f"{pool.name} has no stack")
    packages, kernel = wanted(stack, planned.kernel_modules, planned.fabric_manager, planned.subnet_manager)
    return GpuPool(
        gpus=pool.gpus,
        model=planned.model,
        driver=stack.driver,
        packages=packages,
        kernel_packages=kernel,
        source=stack.source.kind,
        mirror=stack.source.mirror,
        key_file=stack.source.key_file,
        fabric_manager=planned.fabric_manager is not None,
        subnet_manager=planned.subnet_manager,
        dcgm=stack.dcgm is not None,
        dcgm_exporter=stack.dcgm_exporter is not None,
        mig_profile=stack.mig.profile if stack.mig else "",
        mig_count=stack.mig.count if stack.mig else 0,
        mps=stack.mps,
        time_slices=stack.time_slices or 0,
        persistence=stack.persistence,
        power_cap_w=stack.power_cap_w or 0,
        host=GpuHost(**stack.host.model_dump(exclude_none=True), nics=_by_nic(ports, pool.nics)),
    )


def _by_nic(ports: tuple[str, ...], nics: int) -> tuple[tuple[str, ...], ...]:
    """The ports of each NIC: they are named NIC by NIC, and within a NIC plane by plane."""
    planes = len(ports) // nics if nics else 0
    return tuple(ports[number : number + planes] for number in range(0, len(ports), planes)) if planes else ()


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
    parts.append(f"from {stack.source}")
    if stack.mig:
        parts.append(f"each GPU as {stack.mig}: {stack.parts} devices a node")
    if stack.host:
        parts.append(f"hosts with {stack.host}")
    return ", ".join(parts)


CAPABILITY = Gpu()
