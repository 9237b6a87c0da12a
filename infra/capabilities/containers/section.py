"""What roles `container_runtime` and `registry` are told."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from infra.ground.capability import SecretKind
from infra.ground.contract import Contract, Declared, Part, Section
from infra.ground.secrets import GIVEN

PULL, PUSH = 5000, 5001
"""Ports of a region's registry: for nodes with a certificate, and for who pushes."""
AUTHORITY = "registry-ca"
"""It signs what registries show, and what nodes show them."""


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


class Cache(Part):
    """A registry of others, of which one of ours keeps what is pulled."""

    name: str
    url: str
    username: str | None = None
    password_secret: str | None = None
    ca_file: str | None = None


class Server(Part):
    """A region's registry."""

    name: str
    region: str
    host: str
    storage_path: str
    caches: tuple[Cache, ...] = ()
    push_username: str | None = None
    push_secret: str | None = None
    untagged_days: int
    tagged_days: int | None = None

    def given(self) -> tuple[str, ...]:
        """The names of the secrets that the user gives for it."""
        return tuple(
            GIVEN + name
            for name in (self.push_secret, *(one.password_secret for one in self.caches))
            if name is not None
        )


class ContainersSection(Section):
    """Every pool that has an engine, by its key, and the registries of all regions."""

    capability: ClassVar = "containers"
    version: Literal[1] = 1
    pools: dict[str, Runtime]
    servers: tuple[Server, ...] = ()

    def secrets(self) -> Mapping[str, SecretKind]:
        """What registries read."""
        given: dict[str, SecretKind] = {name: "given" for one in self.servers for name in one.given()}
        return {AUTHORITY: "authority", **given} if self.servers else {}

    def declared(self, contract: Contract, region: str) -> Iterator[Declared]:
        """The hosts that say how their registry is."""
        del contract
        for one in self.servers:
            if one.region == region:
                yield Declared("registry", 1, {"instance": one.host})

    def peers(self, server: Server) -> tuple[Server, ...]:
        """The registries of other regions that have images of their own."""
        return tuple(one for one in self.servers if one.push_username and one != server)


SECTION = ContainersSection
