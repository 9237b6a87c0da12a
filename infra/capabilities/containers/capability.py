"""What runs containers on nodes."""

from infra.capabilities.containers.rules import RULES
from infra.capabilities.containers.section import ContainersSection, Registry, Runtime
from infra.declaration import ClusterSpec, NodePoolSpec
from infra.declaration.containers import ContainerRuntimeSpec
from infra.ground.capability import Capability, Planned, Report
from infra.ground.nodes import pool_key


class Containers(Capability[ContainersSection]):
    """Where a pool declares `container_runtime`."""

    name = "containers"
    rules = RULES

    def plan(self, spec: ClusterSpec, planned: Planned) -> ContainersSection | None:
        """From the declaration alone."""
        pools = {
            pool_key(region.name, pool.name): _runtime(pool.container_runtime, pool)
            for region in spec.regions
            for pool in region.pools
            if pool.container_runtime is not None
        }
        return ContainersSection(pools=pools) if pools else None

    def report(self, plan: ContainersSection) -> Report:
        """A line for each pool."""
        lines = ["Containers"]
        lines += [f"  {key}: {in_words(one)}" for key, one in plan.pools.items()]
        return Report("\n".join(lines), {"containers": plan.model_dump(mode="json")["pools"]})


def _runtime(declared: ContainerRuntimeSpec, pool: NodePoolSpec) -> Runtime:
    stack = pool.gpu_stack
    parts = stack.mig.count if stack and stack.mig else 1
    return Runtime(
        engine=declared.engine,
        registries=tuple(Registry(**one.model_dump()) for one in declared.registries),
        storage_path=declared.storage_path,
        gpus=pool.gpus * parts if stack and stack.container_toolkit else 0,
    )


def in_words(runtime: Runtime) -> str:
    """Everything of one pool, in a line."""
    mirrored = [f"{one.name} by {', '.join(one.mirrors)}" for one in runtime.registries if one.mirrors]
    gpus = f"{runtime.gpus} GPUs or parts of them by CDI" if runtime.gpus else "no GPUs by CDI"
    where = f" in {runtime.storage_path}" if runtime.storage_path else ""
    return "; ".join([f"{runtime.engine}{where}", gpus, *mirrored])


CAPABILITY = Containers()
