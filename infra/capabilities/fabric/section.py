"""The fabric in the contract: how RDMA traffic is marked, and every host's ports."""

from ipaddress import IPv4Address, IPv4Network
from typing import ClassVar, Literal

from pydantic import Field

from infra.ground.contract import Part, Section


class Roce(Part):
    """How RDMA traffic is marked. `tos` is the IP header's byte: the DSCP, and ECN-capable."""

    dscp: int
    tos: int
    priority: int
    cnp_dscp: int
    cnp_priority: int


class FabricRegion(Part):
    """What the fabric ports of a region's hosts share."""

    kind: str
    link_gbps: int
    planes: int
    rails: int
    mtu_bytes: int
    roce: Roce
    nccl: dict[str, str] = Field(default={})
    """What NCCL is told on all hosts alike, by the names of its variables; `roce` adds what each has."""
    rail_cidrs: tuple[IPv4Network, ...]
    """Hosts' addresses on each rail, plane by plane: reached through the port on that rail and plane."""


class Nic(Part):
    """One fabric port of a host, and the port of the leaf (counted from 0) it is cabled to."""

    name: str
    address: IPv4Address
    prefix: int
    gateway: IPv4Address
    """The leaf's address, by which the rest of the rail is reached."""
    rail: int
    plane: int
    leaf: str
    port: int


class FabricSection(Section):
    """Where a region has one."""

    capability: ClassVar = "fabric"
    version: Literal[1] = 1
    regions: dict[str, FabricRegion]
    """Those that have one."""
    hosts: dict[str, tuple[Nic, ...]]
    """Those on it: NIC by NIC and within a NIC plane by plane."""


SECTION = FabricSection
