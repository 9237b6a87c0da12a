"""What roles are told of the service discovery."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from infra.ground.capability import SecretKind
from infra.ground.contract import Part, Section

SECRETS: Mapping[str, SecretKind] = {
    "consul-gossip": "random",
    "consul-ca": "authority",
    "consul-acl": "random",
}
"""For gossip, certificates and tokens."""
STUB = "consul-stub"
"""The endpoint of a node's own name server, which hands questions for .consul to the agent."""


class Datacenter(Part):
    """One region's share."""

    name: str
    servers: tuple[str, ...]
    """Hosts, in declared order."""
    resolver: Literal["set", "keep"] = "set"
    """Whether the region's nodes ask it by the resolver that all their programs use."""


class Service(Part):
    """What others find: a port, and how it is asked whether it is well."""

    name: str
    port: int
    check: str


class DiscoverySection(Section):
    """How services are found."""

    capability: ClassVar = "discovery"
    version: Literal[1] = 1
    kind: Literal["consul"]
    primary: str
    """The region in which rights are granted for all."""
    datacenters: dict[str, Datacenter]
    """By region; one for every region."""
    services: dict[str, tuple[Service, ...]]
    """Pool → what each of its nodes offers."""


SECTION = DiscoverySection
