"""Service discovery: how a region finds its services, and those of the other regions."""

from typing import ClassVar, Literal

from pydantic import Field

from infra.declaration.base import Int, Spec


class ConsulDiscovery(Spec):
    """Consul: one datacenter per region, federated over the WAN links."""

    what: ClassVar = "the service discovery"
    kind: Literal["consul"]
    """Consul."""
    servers: Int | None = None
    """Servers of each region, on its first control nodes; unset means as many as it has, up to 5 and odd."""
    primary: str | None = None
    """Name of the region that rights are granted in, for all; unset means the first of the first wave."""
    datacenters: dict[str, str] = Field(default={})
    """Region → name of its datacenter, where that is not the region's own."""


DiscoverySpec = ConsulDiscovery
"""What `discovery` may be; another kind joins here, told apart by `kind`."""
