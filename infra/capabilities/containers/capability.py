"""What runs containers on nodes, and the registries that regions have of images."""

from collections.abc import Mapping

from infra.capabilities.containers.rules import RULES
from infra.capabilities.containers.section import (
    PULL,
    PUSH,
    Cache,
    ContainersSection,
    Registry,
    Runtime,
    Server,
)
from infra.declaration import ClusterSpec, ImageRegistrySpec, NodePoolSpec
from infra.declaration.containers import ContainerRuntimeSpec
from infra.ground.capability import Capability, Planned, Report, SecretKind
from infra.ground.endpoint import EVERYONE, Destination, Endpoint, HostSet, Ports
from infra.ground.nodes import pool_key
from infra.ground.remote import destination


class Containers(Capability[ContainersSection]):
    """Where a pool declares `container_runtime`, or `registries` are declared."""

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
        servers = tuple(_server(one, planned) for one in spec.registries)
        return ContainersSection(pools=pools, servers=servers) if pools or servers else None

    def endpoints(self, plan: ContainersSection, planned: Planned) -> tuple[Endpoint, ...]:
        """Nodes that run containers pull, and registries from each other; anybody may come to push."""
        pulls = HostSet(pools=tuple(plan.pools), hosts=tuple(one.host for one in plan.servers))
        return tuple(
            Endpoint(
                f"registry-{use}-{one.region}",
                HostSet(hosts=(one.host,)),
                (Ports.one(port),),
                "replication",
                sources=sources,
            )
            for one in plan.servers
            for use, port, sources in (("pull", PULL, pulls), ("push", PUSH, EVERYONE))
            if use == "pull" or one.push_username
        )

    def destinations(self, plan: ContainersSection) -> tuple[Destination, ...]:
        """The registries of which ours keep what is pulled."""
        return tuple(
            destination(f"registry-{one.region}-{cache.name}", cache.url, HostSet(hosts=(one.host,)))
            for one in plan.servers
            for cache in one.caches
        )

    def secrets(self, plan: ContainersSection) -> Mapping[str, SecretKind]:
        """The registries' authority, and passwords."""
        return plan.secrets()

    def given(self, spec: ClusterSpec) -> Mapping[str, str]:
        """Of who pushes, and by which other registries are asked."""
        return {
            path: secret
            for index, one in enumerate(spec.registries)
            for path, secret in (
                (f"registries[{index}].push.password_secret", one.push.password_secret if one.push else None),
                *(
                    (f"registries[{index}].caches[{number}].password_secret", cache.password_secret)
                    for number, cache in enumerate(one.caches)
                ),
            )
            if secret
        }

    def report(self, plan: ContainersSection) -> Report:
        """A line for each pool, and for each registry."""
        data = plan.model_dump(mode="json")
        lines = ["Containers"] if plan.pools else []
        lines += [f"  {key}: {in_words(one)}" for key, one in plan.pools.items()]
        lines += [registry_in_words(one, plan) for one in plan.servers]
        found = {"containers": data["pools"]} if plan.pools else {}
        return Report("\n".join(lines), found | ({"registries": data["servers"]} if plan.servers else {}))


def _server(declared: ImageRegistrySpec, planned: Planned) -> Server:
    host, *_ = planned.pool_nodes(declared.region, declared.pool)
    return Server(
        name=declared.name,
        region=declared.region,
        host=host.name,
        storage_path=declared.storage_path,
        caches=tuple(Cache(**one.model_dump()) for one in declared.caches),
        push_username=declared.push.username if declared.push else None,
        push_secret=declared.push.password_secret if declared.push else None,
        untagged_days=declared.retention.untagged_days,
        tagged_days=declared.retention.tagged_days,
    )


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


def registry_in_words(one: Server, plan: ContainersSection) -> str:
    """A registry: who serves it, what it holds, what goes."""
    kept = [cache.name for cache in one.caches] + [peer.name for peer in plan.peers(one)]
    images = f"images that {one.push_username} pushes" if one.push_username else "no images of its own"
    goes = f"untagged images go after {one.untagged_days} days"
    goes += f", tags after {one.tagged_days}" if one.tagged_days else ""
    caches = f"; keeps what is pulled of {', '.join(kept)}" if kept else ""
    return f"Registry {one.name} on {one.host}: {images}{caches}\n  {goes}, in {one.storage_path}"


CAPABILITY = Containers()
