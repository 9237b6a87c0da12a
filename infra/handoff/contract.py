"""The contract: the only schema of what Ansible, verification and drift get to see.

It holds no secret: keys are named by path. Paths are relative to the checkout, so that a moved
checkout keeps working. Values that many hosts share stand once, on their pool or region.
"""

import re
from dataclasses import asdict
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from infra.errors import CausewayError
from infra.planning.plan import Plan
from infra.planning.wan import CongestionControl
from infra.spec import ClusterSpec, ExistingProvider, NodePoolSpec, RegionSpec

SCHEMA_VERSION: Literal[1] = 1


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LinkContract(_Part):
    """One WAN link: as declared, and what planning made of it."""

    a: str
    b: str
    kind: str
    rtt_ms: float
    bandwidth_mbps: float
    loss_pct: float
    mtu_bytes: int
    mss_bytes: int
    bdp_bytes: int
    tcp_buffer_max_bytes: int
    congestion_control: CongestionControl
    reason: str
    expected_cubic_mbps: float


class WanRoute(_Part):
    """How a region's nodes reach one other region: the settings of the link that leads there."""

    region: str
    cidr: IPv4Network
    link: str
    congestion_control: CongestionControl
    mtu_bytes: int


class RegionContract(_Part):
    """What all nodes of a region share."""

    provider: Literal["local", "existing"]
    cidr: IPv4Network
    timezone: str
    locale: str
    mtu_bytes: int
    ssh_user: str
    ssh_private_key_file: str
    tcp_buffer_max_bytes: int
    """The largest socket buffer any link of the region needs; 0 for a region without links."""
    wan_routes: tuple[WanRoute, ...]


class PoolContract(_Part):
    """What all nodes of a pool share. The key in `Contract.pools` is `<region>-<pool>`."""

    region: str
    name: str
    role: str
    gpus: int
    gpu_model: str | None = None
    gpus_simulated: bool
    nics: int
    nic_gbps: int | None = None
    shm_gib: float | None = None


class HostContract(_Part):
    """One node. `pool` is a key of `Contract.pools`."""

    pool: str
    address: IPv4Address
    ssh_port: int = 22


class Contract(_Part):
    """Everything right of Pulumi starts from this. Keys are names: regions, pools, hosts, links."""

    schema_version: Literal[1] = SCHEMA_VERSION
    stack: str
    cluster: str
    known_hosts_file: str
    regions: dict[str, RegionContract]
    pools: dict[str, PoolContract]
    hosts: dict[str, HostContract]
    links: dict[str, LinkContract]
    waves: tuple[tuple[str, ...], ...]

    @field_validator("regions", "pools", "hosts", "links")
    @classmethod
    def _in_natural_order(cls, parts: dict[str, Any]) -> dict[str, Any]:
        """`gpu-2` before `gpu-10`, always: Pulumi hands mappings back in an order of its own."""
        return dict(sorted(parts.items(), key=lambda item: _natural(item[0])))

    def region_of(self, host: str) -> str:
        """The name of the region a host stands in; KeyError for an unknown host."""
        return self.pools[self.hosts[host].pool].region

    def region_hosts(self, region: str) -> tuple[str, ...]:
        """The names of a region's hosts, in natural order."""
        return tuple(name for name in self.hosts if self.region_of(name) == region)


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def stack_dir(stack: str) -> Path:
    """Where a stack keeps its files, relative to the checkout."""
    return Path(".causeway") / "stacks" / stack


def build_contract(spec: ClusterSpec, plan: Plan, stack: str) -> Contract:
    """The contract of a declaration and its plan."""
    links = {
        link.name: LinkContract(
            **link.model_dump(exclude={"name", "flows", "mtu_bytes"}), **asdict(plan.links[link.name])
        )
        for link in spec.wan_links
    }
    return Contract(
        stack=stack,
        cluster=spec.name,
        known_hosts_file=str(stack_dir(stack) / "ssh" / "known_hosts"),
        regions={region.name: _region(spec, region, links, stack) for region in spec.regions},
        pools={
            f"{region.name}-{pool.name}": _pool(region, pool)
            for region in spec.regions
            for pool in region.pools
        },
        hosts={
            node.name: HostContract(
                pool=f"{node.region}-{node.pool}", address=node.address, ssh_port=node.ssh_port
            )
            for node in plan.nodes
        },
        links=links,
        waves=spec.rollout(),
    )


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


def _region(
    spec: ClusterSpec, region: RegionSpec, links: dict[str, LinkContract], stack: str
) -> RegionContract:
    own = {name: link for name, link in links.items() if region.name in (link.a, link.b)}
    provider = region.provider
    existing = provider if isinstance(provider, ExistingProvider) else None
    generated_key = str(stack_dir(stack) / "ssh" / "id_ed25519")
    return RegionContract(
        provider=provider.kind,
        cidr=region.cidr,
        timezone=region.timezone,
        locale=region.locale,
        mtu_bytes=region.mtu_bytes,
        ssh_user=existing.ssh_user if existing else "root",
        ssh_private_key_file=(existing and existing.ssh_key_file) or generated_key,
        tcp_buffer_max_bytes=max((link.tcp_buffer_max_bytes for link in own.values()), default=0),
        wan_routes=_routes(spec, region.name, own),
    )


def _routes(spec: ClusterSpec, region: str, own: dict[str, LinkContract]) -> tuple[WanRoute, ...]:
    """One route per neighbouring region; where two links lead to it, the one declared first."""
    routes: dict[str, WanRoute] = {}
    for name, link in own.items():
        route = _route(spec, region, name, link)
        routes.setdefault(route.region, route)
    return tuple(routes.values())


def _route(spec: ClusterSpec, region: str, name: str, link: LinkContract) -> WanRoute:
    far = spec.region(link.b if link.a == region else link.a)
    return WanRoute(
        region=far.name,
        cidr=far.cidr,
        link=name,
        congestion_control=link.congestion_control,
        mtu_bytes=link.mtu_bytes,
    )


def _pool(region: RegionSpec, pool: NodePoolSpec) -> PoolContract:
    return PoolContract(
        region=region.name,
        gpus_simulated=region.provider.kind == "local" and pool.gpus > 0,
        **pool.model_dump(exclude={"count", "hosts", "nic_names"}),
    )
