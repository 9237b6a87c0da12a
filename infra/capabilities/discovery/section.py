"""What roles are told of the service discovery."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from infra.ground.capability import SecretKind
from infra.ground.contract import Part, Section

SECRETS: Mapping[str, SecretKind] = {
    "consul-gossip": "random",
    "consul-ca": "authority",
    "consul-acl": "random",
}
"""For gossip, certificates and tokens."""
STUB = "dns-stub"
"""The endpoint of a node's own name server, which its programs ask."""


class Datacenter(Part):
    """One region's share."""

    name: str
    servers: tuple[str, ...]
    """Hosts, in declared order; none in a region in which nobody answers."""
    resolver: Literal["set", "keep"] = "set"
    """Whether the region's nodes ask it by the resolver that all their programs use."""


class Service(Part):
    """What others find: a port, and how it is asked whether it is well."""

    name: str
    port: int
    check: str


class DiscoverySection(Section):
    """How services are found, or where none are declared, nodes by their names."""

    capability: ClassVar = "discovery"
    version: Literal[1] = 1
    kind: Literal["consul", "names"]
    """`names`: no discovery is declared, and regions' control nodes answer for the names of nodes."""
    primary: str
    """The region in which rights are granted for all; empty without rights."""
    datacenters: dict[str, Datacenter]
    """By region; one for every region."""
    services: dict[str, tuple[Service, ...]]
    """Pool → what each of its nodes offers; with the first one's ports where those differ."""
    elsewhere: dict[str, tuple[Service, ...]] = Field(default={})
    """Host → the same, where it has other ports than its pool's first."""

    @property
    def answered(self) -> dict[str, Datacenter]:
        """The regions whose nodes find all others by name without a list of their own."""
        found = self.datacenters.items()
        return {name: one for name, one in found if one.servers and one.resolver == "set"}


SECTION = DiscoverySection
