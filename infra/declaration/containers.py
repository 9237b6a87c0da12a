"""What runs containers on a pool's nodes, where it gets images, and the registries that regions have."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from infra.declaration.base import FilePath, Int, Spec, UserName, refusal
from infra.declaration.hosts import is_authority

REGISTRY = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?")
MIRROR = re.compile(REGISTRY.pattern + r"(/[a-z0-9._-]+)*")


def _registry(value: str) -> str:
    if not (REGISTRY.fullmatch(value) and is_authority(value)):
        raise refusal("is not a registry by its host, such as docker.io", _host(value))
    return value


def _mirror(value: str) -> str:
    if not (MIRROR.fullmatch(value) and is_authority(value.partition("/")[0])):
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


class ImageCacheSpec(Spec):
    """A registry of others, of which a region keeps what its nodes pull."""

    what: ClassVar = "a cache"
    name: Annotated[str, AfterValidator(_registry)]
    """Its host as images name it, such as `docker.io`."""
    url: str
    """Where it is asked, such as `https://registry-1.docker.io`."""
    username: UserName | None = None
    """By which name it is asked; unset means by none."""
    password_secret: str | None = None
    """Name of the secret that is the password or token, set by `causeway secret NAME`."""
    ca_file: FilePath | None = None
    """File on this machine with the authority that signs its certificate; unset: a public one."""


class PushSpec(Spec):
    """Who may push images, from wherever the region's network is reached."""

    what: ClassVar = "a user who pushes"
    username: UserName = "push"
    """By which name."""
    password_secret: str
    """Name of the secret that is the password, set by `causeway secret NAME`."""


class ImageRetentionSpec(Spec):
    """What goes from a registry by itself."""

    what: ClassVar = "a registry's retention"
    untagged_days: Int = Field(default=30, ge=1, le=3650)
    """Days after which an image goes that no tag names any more."""
    tagged_days: Int | None = Field(default=None, ge=1, le=3650)
    """Days after which a tag goes that was not pushed again; unset means never."""


class ImageRegistrySpec(Spec):
    """A region's registry of images, for the nodes of all regions that run containers."""

    what: ClassVar = "a region's registry"
    name: Annotated[str, AfterValidator(_registry)]
    """The registry as images name it, such as `images.tokyo`: nodes are told where it is."""
    region: str
    """The region."""
    pool: str
    """A pool of that region; its first node serves."""
    storage_path: FilePath = "/srv/registry"
    """Folder of all images, on a disk with room."""
    push: PushSpec | None = None
    """Who may push images; unset means that it holds none of its own."""
    caches: tuple[ImageCacheSpec, ...] = ()
    """Registries of which it keeps what is pulled."""
    retention: ImageRetentionSpec = ImageRetentionSpec()
    """What goes by itself."""
