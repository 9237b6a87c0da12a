"""Regions, their node pools, and where their nodes come from."""

from typing import Annotated, Literal

from pydantic import Field

from infra.spec.base import Address, Cidr, Float, Int, Locale, Spec, Timezone

PoolRole = Literal["control", "gpu", "storage", "gateway"]


class LocalProvider(Spec):
    """Nodes on this machine: podman containers that run systemd and sshd."""

    kind: Literal["local"] = "local"


class ExistingProvider(Spec):
    """Machines you already have, reached by SSH: configured, never created and never deleted."""

    kind: Literal["existing"]
    ssh_user: str = "root"
    """A user who is root or may run sudo without a password."""
    ssh_key_file: str | None = None
    """Path of the private key on the controller; unset means the stack's own generated key."""


Provider = Annotated[LocalProvider | ExistingProvider, Field(discriminator="kind")]


class ExistingHost(Spec):
    """One machine of an `existing` pool."""

    address: Address
    ssh_port: Int = Field(default=22, ge=1, le=65535)
    host_key: str
    """The machine's public SSH host key (`ssh-ed25519 AAAA…`), so that no connection is ever unchecked."""


class NodePoolSpec(Spec):
    """Nodes of one kind that are made, changed and removed together."""

    name: str
    role: PoolRole
    count: Int
    gpus: Int = 0
    """GPUs per node. On `local` nodes they are declared but simulated."""
    gpu_model: str | None = None
    nics: Int = 0
    """Fabric NICs per node, not counting the management interface."""
    nic_gbps: Int | None = None
    shm_gib: Float | None = Field(default=None, gt=0)
    """Size of /dev/shm, which NCCL uses within a node; unset keeps what the machine has (local nodes: 1 GiB)."""
    hosts: tuple[ExistingHost, ...] = ()
    """The machines, for the provider `existing` only; as many as `count`."""


class RegionSpec(Spec):
    """One site: its nodes share a failure domain, a time zone and an address range."""

    name: str
    provider: Provider = LocalProvider()
    timezone: Timezone = "Etc/UTC"
    locale: Locale = "C.UTF-8"
    cidr: Cidr
    mtu_bytes: Int = Field(default=1500, ge=576, le=9216)
    """MTU of the region's management network; a WAN link's MTU cannot be larger."""
    pools: tuple[NodePoolSpec, ...]
