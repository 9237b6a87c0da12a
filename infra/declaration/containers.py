"""What runs containers on a pool's nodes, and where it gets images."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator

from infra.declaration.base import FilePath, Spec, refusal

REGISTRY = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?")
MIRROR = re.compile(REGISTRY.pattern + r"(/[a-z0-9._-]+)*")


def _registry(value: str) -> str:
    if not REGISTRY.fullmatch(value):
        raise refusal("is not a registry by its host, such as docker.io", _host(value))
    return value


def _mirror(value: str) -> str:
    if not MIRROR.fullmatch(value):
        raise refusal("is not a mirror of the form host:port/path; it is asked by HTTPS", _host(value))
    return value


def _host(value: str) -> str | None:
    """The address without its scheme and a slash at its end, where nothing else is wrong with it."""
    found = re.sub(r"^https?://", "", value).rstrip("/")
    return found if found != value and MIRROR.fullmatch(found) else None


class RegistrySpec(Spec):
    """A registry of images, and who is asked in its place."""

    what: ClassVar = "a registry"
    name: Annotated[str, AfterValidator(_registry)]
    """Its host as images name it, such as `docker.io`."""
    mirrors: tuple[Annotated[str, AfterValidator(_mirror)], ...] = ()
    """Asked by HTTPS in this order, the registry itself last: first one in the region, then others."""
    ca_file: FilePath | None = None
    """File on this machine with the authority that signs the mirrors' certificates; unset: a public one."""


class ContainerRuntimeSpec(Spec):
    """What runs containers on each node of a pool."""

    what: ClassVar = "a container runtime"
    engine: Literal["podman", "containerd"] = "podman"
    """`podman` for people and schedulers such as Slurm, `containerd` for Kubernetes."""
    registries: tuple[RegistrySpec, ...] = ()
    """Registries that have mirrors."""
    storage_path: FilePath | None = None
    """Folder of images and containers, on a disk with room; unset means the engine's own below `/var/lib`."""
