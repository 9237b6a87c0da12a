"""The contract: the only schema of what Ansible, verification and drift get to see.

It holds no secret: keys are named by path. Paths are relative to the checkout, so that a moved
checkout keeps working. Values that many hosts share stand once, on their pool or region.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from ipaddress import IPv4Address, IPv4Network
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

from infra.declaration import NodeKind
from infra.errors import CausewayError
from infra.ground.endpoint import HostSet
from infra.ground.names import natural

SCHEMA_VERSION: Literal[2] = 2
CAPABILITY = re.compile(r"[a-z][a-z0-9_]*")
S = TypeVar("S", bound="Section")


def _ordered(value: Any) -> Any:
    if type(value) in (tuple, list):
        return type(value)(map(_ordered, value))
    if not isinstance(value, dict):
        return value
    return {key: _ordered(value[key]) for key in sorted(value, key=natural)}


class Part(BaseModel):
    """Anything in the contract: immutable, and a key nobody knows is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @field_validator("*")
    @classmethod
    def _in_natural_order(cls, value: Any) -> Any:
        """`gpu-2` before `gpu-10`, always: Pulumi hands mappings back in an order of its own."""
        return _ordered(value)


class JumpContract(Part):
    """A machine through which SSH goes on. Its host key is public."""

    address: str
    ssh_port: int
    ssh_user: str
    host_key: str


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
    """Empty where any key of the agent's will do."""
    ssh_agent: bool = False
    ssh_jump: tuple[JumpContract, ...] = ()
    sudo_source: str = ""
    """Where the password for sudo comes from (`infra.ground.sudo`); empty where it asks for none."""
    take_over: tuple[str, ...] = ()
    """Roles that may take services over that run there and are somebody's."""


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
    excluded_roles: tuple[str, ...] = ()
    """Roles that its nodes do not take."""


class HostContract(Part):
    """One node. `pool` is a key of `Contract.pools`."""

    pool: str
    address: IPv4Address
    ssh_port: int = 22


@dataclass(frozen=True)
class Declared:
    """A value of the declaration that alerts compare with: a region's series `causeway_declared_<name>`."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    """Beside `region`."""


class Section(Part):
    """What one capability says in the contract: only what the inventory, the roles and the checks read.

    Its model is `SECTION` in `infra/capabilities/<capability>/section.py`, and has a version of its own.
    """

    capability: ClassVar[str]
    """Its name."""

    def declared(self, contract: "Contract", region: str) -> Iterator[Declared]:
        """What its rules for Prometheus compare with in one region."""
        del contract, region
        yield from ()


def _sections(value: Any) -> Any:
    """Each part by its capability's model."""
    return {name: _section(name, part) for name, part in value.items()} if isinstance(value, dict) else value


def _section(name: str, part: Any) -> Section:
    """The model is found by its dotted name, for nothing in this module knows a capability."""
    if isinstance(part, Section):
        return part.model_validate(dict(part))  # a copy that was changed has not been looked at
    package = f"infra.capabilities.{name}"
    known = CAPABILITY.fullmatch(name) and find_spec(package) and find_spec(f"{package}.section")
    if not known:
        raise ValueError(f"{name} is no capability of this version with a section")
    model: type[Section] = import_module(f"{package}.section").SECTION
    return model.model_validate(part)


class Contract(Part):
    """Everything right of Pulumi starts from this. Keys are names: regions, pools, hosts."""

    schema_version: Literal[2] = SCHEMA_VERSION
    stack: str
    cluster: str
    known_hosts_file: str
    regions: dict[str, RegionContract]
    pools: dict[str, PoolContract]
    hosts: dict[str, HostContract]
    sections: Annotated[dict[str, SerializeAsAny[Section]], BeforeValidator(_sections)] = {}
    """By capability, for those that are declared."""
    waves: tuple[tuple[str, ...], ...]

    def section(self, model: type[S]) -> S | None:
        """A capability's part; None where it is not declared."""
        found = self.sections.get(model.capability)
        return found if isinstance(found, model) else None

    def need(self, model: type[S]) -> S:
        """The part of a capability that every cluster has; CausewayError where it is missing all the same."""
        found = self.section(model)
        if found is None:
            raise CausewayError(
                f"the contract of stack {self.stack} says nothing of {model.capability}",
                hint="./run up writes it anew",
            )
        return found

    def members(self, of: HostSet) -> tuple[str, ...]:
        """The hosts in a set, in natural order."""
        if of.everyone:
            return tuple(self.hosts)
        pools = {key for key, pool in self.pools.items() if of.has_pool(pool.region, key)}
        names = frozenset(of.hosts)
        return tuple(name for name, host in self.hosts.items() if host.pool in pools or name in names)

    def addresses(self) -> dict[str, str]:
        """Host → its address."""
        return {name: str(host.address) for name, host in self.hosts.items()}

    def region_of(self, host: str) -> str:
        """The name of the region a host stands in; KeyError for an unknown host."""
        return self.pools[self.hosts[host].pool].region

    def region_hosts(self, region: str) -> tuple[str, ...]:
        """The names of a region's hosts, in natural order."""
        return tuple(name for name in self.hosts if self.region_of(name) == region)


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
