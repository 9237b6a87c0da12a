"""What role `container_runtime` is told."""

from typing import ClassVar, Literal

from infra.ground.contract import Part, Section


class Registry(Part):
    """A registry, and the hosts that are asked in its place, in order."""

    name: str
    mirrors: tuple[str, ...]
    ca_file: str | None = None


class Runtime(Part):
    """The engine of a pool's nodes."""

    engine: Literal["podman", "containerd"]
    registries: tuple[Registry, ...]
    storage_path: str | None = None
    """None for the engine's own."""
    gpus: int
    """Devices that containers can be given by CDI; 0 where nothing describes them."""


class ContainersSection(Section):
    """Every pool that has an engine, by its key."""

    capability: ClassVar = "containers"
    version: Literal[1] = 1
    pools: dict[str, Runtime]


SECTION = ContainersSection
