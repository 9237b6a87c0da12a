"""The contract: the only schema of what Ansible, verification and drift get to see.

It holds no secret: keys are named by path. Paths are relative to the checkout, so that a moved
checkout keeps working. Values that many hosts share stand once, on their pool or region.
"""

import re
from importlib import import_module
from importlib.util import find_spec
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SerializeAsAny,
    ValidationError,
    field_validator,
)

from infra.declaration import NodeKind, TrafficClasses
from infra.errors import CausewayError
from infra.ground.endpoint import HostSet

SCHEMA_VERSION: Literal[2] = 2
CongestionControl = Literal["bbr", "cubic"]
CAPABILITY = re.compile(r"[a-z][a-z0-9_]*")
S = TypeVar("S", bound="Section")


def in_natural_order(parts: dict[str, Any]) -> dict[str, Any]:
    """`gpu-2` before `gpu-10`, always: Pulumi hands mappings back in an order of its own."""
    return dict(sorted(parts.items(), key=lambda item: natural(item[0])))


def natural(name: str) -> list[tuple[int, str]]:
    """By what names are sorted in that order."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


class Part(BaseModel):
    """Anything in the contract: immutable, and a key nobody knows is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class LinkEndContract(Part):
    """Where a link ends in a region: at which host, with which address where Causeway makes the link."""

    gateway: str | None = None
    """A host of role gateway; None for the region's router."""
    address: IPv4Interface | None = None
    """Planned for a link that is made here, declared for one that a carrier hands over; else None."""
    public_address: IPv4Address | None = None
    """By which the far end reaches this one, where that is another one."""
    tunnel_address: IPv4Interface | None = None
    """Inside the tunnel, for kind `vpn`."""


class LinkContract(Part):
    """One WAN link: as declared, and what planning made of it."""

    a: str
    b: str
    kind: str
    backup_of: str | None = None
    rtt_ms: float
    bandwidth_mbps: float
    loss_pct: float
    mtu_bytes: int
    """The largest packet inside the link's tunnel, where its kind has one."""
    handover_mtu_bytes: int
    """The largest packet the carrier takes at the link's ends."""
    mss_bytes: int
    bdp_bytes: int
    tcp_buffer_max_bytes: int
    congestion_control: CongestionControl
    reason: str
    expected_cubic_mbps: float
    classes: TrafficClasses
    tunnel_port: int | None = None
    """UDP port of the tunnel at both ends, for kind `vpn`."""
    ends: dict[str, LinkEndContract]
    """By region: `a` and `b`."""

    _in_order = field_validator("ends")(in_natural_order)


class WanRoute(Part):
    """How a region's nodes reach one other region.

    Sizes are the primary path's; buffers and congestion control hold on the backup path, too.
    """

    region: str
    cidr: IPv4Network
    path: tuple[str, ...]
    """The links on the way, in travelling order."""
    backup_path: tuple[str, ...]
    """The links while those of `path` are down; none when there is no other way."""
    rtt_ms: float
    bandwidth_mbps: float
    loss_pct: float
    """Of the primary path, as declared."""
    congestion_control: CongestionControl
    reason: str
    mtu_bytes: int
    mss_bytes: int


class RoceContract(Part):
    """How RDMA traffic is marked. `tos` is the IP header's byte: the DSCP, and ECN-capable."""

    dscp: int
    tos: int
    priority: int
    cnp_dscp: int
    cnp_priority: int


class FabricContract(Part):
    """What the fabric ports of a region's hosts share."""

    kind: str
    link_gbps: int
    planes: int
    rails: int
    mtu_bytes: int
    roce: RoceContract
    rail_cidrs: tuple[IPv4Network, ...]
    """Hosts' addresses on each rail, plane by plane: reached through the port on that rail and plane."""


class FabricNicContract(Part):
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


class RegionContract(Part):
    """What all nodes of a region share."""

    provider: str
    """Its kind, for people; what follows from it are the next four."""
    makes_nodes: bool
    makes_links: bool
    simulates_gpus: bool
    for_trials: bool
    cidr: IPv4Network
    mtu_bytes: int
    ssh_user: str
    ssh_private_key_file: str
    asn: int
    """The region's private AS number, for BGP between gateways."""
    gateways: tuple[str, ...]
    """Hosts at which the region's WAN links end; none where its router does that."""
    gateway_address: IPv4Address | None = None
    """Where nodes send traffic for other regions; None where only the machines' own routes know."""
    tcp_buffer_max_bytes: int
    """The largest socket buffer any route of the region needs; 0 for a region without links."""
    wan_routes: tuple[WanRoute, ...]
    """One for every region that links lead to, also through others, in declared order."""
    fabric: FabricContract | None = None


class PoolContract(Part):
    """What all nodes of a pool share. The key in `Contract.pools` is `<region>-<pool>`."""

    region: str
    name: str
    role: str
    node_kind: NodeKind | None = None
    """What the nodes are where Causeway makes them; None for machines that exist already."""
    gpus: int
    gpu_model: str | None = None
    gpus_simulated: bool
    nics: int
    nic_gbps: int | None = None


class HostContract(Part):
    """One node. `pool` is a key of `Contract.pools`."""

    pool: str
    address: IPv4Address
    ssh_port: int = 22
    fabric: tuple[FabricNicContract, ...] = ()
    """NIC by NIC and within a NIC plane by plane; empty for a node that is not on the fabric."""


class Section(Part):
    """What one capability says in the contract: only what the inventory, the roles and the checks read.

    Its model is `SECTION` in `infra/capabilities/<capability>/section.py`, and has a version of its own.
    """

    capability: ClassVar[str]


def _sections(value: Any) -> Any:
    """Each part by its capability's model, every mapping in it in natural order."""
    return {name: _section(name, part) for name, part in value.items()} if isinstance(value, dict) else value


def _section(name: str, part: Any) -> Section:
    """The model is found by its dotted name, for nothing in this module knows a capability."""
    if isinstance(part, Section):
        return type(part).model_validate(_ordered(part.model_dump()))
    if not CAPABILITY.fullmatch(name) or find_spec(f"infra.capabilities.{name}") is None:
        raise ValueError(f"{name} is no capability of this version")
    model: type[Section] = import_module(f"infra.capabilities.{name}.section").SECTION
    return model.model_validate(_ordered(part))


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return in_natural_order({key: _ordered(part) for key, part in value.items()})
    return [_ordered(part) for part in value] if isinstance(value, list | tuple) else value


class Contract(Part):
    """Everything right of Pulumi starts from this. Keys are names: regions, pools, hosts, links."""

    schema_version: Literal[2] = SCHEMA_VERSION
    stack: str
    cluster: str
    known_hosts_file: str
    regions: dict[str, RegionContract]
    pools: dict[str, PoolContract]
    hosts: dict[str, HostContract]
    links: dict[str, LinkContract]
    sections: Annotated[dict[str, SerializeAsAny[Section]], BeforeValidator(_sections)] = {}
    """By capability, for those that are declared."""
    waves: tuple[tuple[str, ...], ...]

    _in_order = field_validator("regions", "pools", "hosts", "links", "sections")(in_natural_order)

    def section(self, model: type[S]) -> S | None:
        """A capability's part; None where it is not declared."""
        found = self.sections.get(model.capability)
        return found if isinstance(found, model) else None

    def members(self, of: HostSet) -> tuple[str, ...]:
        """The hosts in a set, in natural order."""
        if of.everyone:
            return tuple(self.hosts)
        pools = {key for key, pool in self.pools.items() if of.has_pool(pool.region, key)}
        names = frozenset(of.hosts)
        return tuple(name for name, host in self.hosts.items() if host.pool in pools or name in names)

    def region_of(self, host: str) -> str:
        """The name of the region a host stands in; KeyError for an unknown host."""
        return self.pools[self.hosts[host].pool].region

    def region_hosts(self, region: str) -> tuple[str, ...]:
        """The names of a region's hosts, in natural order."""
        return tuple(name for name in self.hosts if self.region_of(name) == region)

    def route(self, source: str, target: str) -> WanRoute | None:
        """How a region reaches another one; None where no links lead there."""
        return next((route for route in self.regions[source].wan_routes if route.region == target), None)


def load_contract(path: Path) -> Contract:
    """Read a contract file. CausewayError when it is missing or was written by another version."""
    try:
        return Contract.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise CausewayError(
            f"no contract at {path}", hint="./run up writes it once the nodes stand"
        ) from None
    except ValidationError as error:
        raise CausewayError(
            f"{path} is not a contract of schema version {SCHEMA_VERSION}: {error.errors()[0]['msg']}",
            hint="run ./run up again with this version of Causeway",
        ) from None
