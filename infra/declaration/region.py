"""Regions, their node pools, and where their nodes come from."""

from ipaddress import IPv4Address
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from infra.declaration.base import (
    Address,
    Bool,
    Cidr,
    FilePath,
    Float,
    Int,
    JumpAddress,
    KeyLine,
    Locale,
    ModelName,
    Spec,
    Timezone,
    UserName,
)
from infra.declaration.containers import ContainerRuntimeSpec
from infra.declaration.fabric import FabricSpec
from infra.declaration.gpu import GpuStackSpec

PoolRole = Literal["control", "gpu", "storage", "gateway"]
NodeKind = Literal["container", "vm"]

SHARED_OFFSET = 2
"""Which address of a region's network its gateways share."""


class ProviderTraits:
    """What a provider is, for everybody who would otherwise ask for its kind."""

    makes_nodes: ClassVar[bool]
    """It makes and deletes the nodes, at planned addresses; else they are declared, and outlive the stack."""
    makes_links: ClassVar[bool]
    """It makes the WAN links between its regions, which are the only paths between them."""
    owns_router: ClassVar[bool]
    """It makes the region's router, which has the first address of the region's range."""
    simulates_gpus: ClassVar[bool]
    """Its GPUs are declared, and there is none."""
    for_trials: ClassVar[bool]
    """Nobody works on its nodes: a check may alter one for a moment."""


class LocalProvider(ProviderTraits, Spec):
    """Nodes on this machine: podman containers that run systemd and sshd, or virtual machines."""

    what: ClassVar = "the provider local"
    makes_nodes: ClassVar[bool] = True
    makes_links: ClassVar[bool] = True
    owns_router: ClassVar[bool] = True
    simulates_gpus: ClassVar[bool] = True
    for_trials: ClassVar[bool] = True
    ssh_user: ClassVar[str] = "root"
    ssh_key_file: ClassVar[None] = None
    ssh_agent: ClassVar[bool] = False
    ssh_jump: ClassVar[tuple["JumpSpec", ...]] = ()
    sudo: ClassVar[Literal["passwordless"]] = "passwordless"
    sudo_password_secret: ClassVar[None] = None
    kind: Literal["local"] = "local"
    """Nodes are made on this machine."""
    node_kind: NodeKind = "container"
    """`vm` gives each node a kernel of its own (QEMU; KVM where it works), for more time and memory."""
    vm_memory_mib: Int = Field(default=1024, ge=512)
    """Memory of each virtual machine."""


class JumpSpec(Spec):
    """A machine through which SSH goes on."""

    what: ClassVar = "a jump host"
    address: JumpAddress
    """Its address, or a name that the controller resolves."""
    ssh_port: Int = Field(default=22, ge=1, le=65535)
    """Port of its SSH server."""
    ssh_user: UserName | None = None
    """Who logs in there; unset means the region's `ssh_user`. The key is the region's."""
    host_key: KeyLine
    """Its public SSH host key (`ssh-ed25519 AAAA…`)."""


class AdoptSpec(Spec):
    """What of machines you have stays yours. What is kept is neither set, nor watched, nor verified.

    What was replaced before something is kept here stays as it is then.
    """

    what: ClassVar = "what a provider adopts"
    hostname: Literal["set", "keep"] = "set"
    """The name that the machine has of itself."""
    hosts_file: Literal["replace", "managed_block"] = "replace"
    """`/etc/hosts`; `managed_block` writes a block at its end and leaves the rest, byte for byte."""
    time_servers: Literal["replace", "keep"] = "replace"
    """What sets the clock, and whom that asks. Kept, no control node of the region serves time."""
    timezone: Literal["set", "keep"] = "set"
    """The machine's time zone."""
    locale: Literal["set", "keep"] = "set"
    """The language of logins."""
    passwords: Literal["refuse", "keep"] = "refuse"
    """Logins by password; kept, they and root's login are as sshd's other files have them."""
    unattended_upgrades: Literal["set", "keep"] = "set"
    """Updates that install themselves. Kept, GPU driver and kernel are held back by nothing of ours."""
    resolver: Literal["set", "keep"] = "set"
    """`/etc/resolv.conf` and systemd-resolved, which are told who answers for names of nodes and services.

    Kept, the nodes find names of a discovery by its own port only, and each other by `/etc/hosts`.
    """


class ExistingProvider(ProviderTraits, Spec):
    """Machines you already have, reached by SSH: configured, never created and never deleted."""

    what: ClassVar = "the provider existing"
    makes_nodes: ClassVar[bool] = False
    makes_links: ClassVar[bool] = False
    owns_router: ClassVar[bool] = False
    simulates_gpus: ClassVar[bool] = False
    for_trials: ClassVar[bool] = False
    kind: Literal["existing"]
    """Nodes are machines you have."""
    ssh_user: UserName = "root"
    """A user who is root or may run every command by sudo."""
    sudo: Literal["passwordless", "password"] = "passwordless"
    """`password` where the machines' sudo asks that user for one. It is asked for once, on a terminal."""
    sudo_password_secret: str | None = None
    """Name of the secret that is the password, set by `causeway secret NAME`; then nobody is asked."""
    ssh_key_file: FilePath | None = None
    """Path of the private key on the controller; unset means the stack's own generated key."""
    ssh_agent: Bool = False
    """Take keys from the SSH agent (`SSH_AUTH_SOCK`) of whoever calls; also those with a passphrase.

    With `ssh_key_file` it is that key of the agent's alone, of which its `.pub` has to lie there.
    """
    ssh_jump: tuple[JumpSpec, ...] = ()
    """Jump hosts on the way to all machines of the region, the first one first."""
    ssh_host_ca: KeyLine | None = None
    """The authority (`ssh-ed25519 AAAA…`) that signs host keys: machines then need no `host_key`.

    A machine's certificate has to name its address.
    """
    adopt: AdoptSpec = AdoptSpec()
    """What of the machines stays as it is; unset means that roles set all they know."""
    take_over: tuple[str, ...] = ()
    """Roles that may take over a service of yours that runs there, such as `node_exporter`.

    Without it such a role does not come, and nothing is changed on the machine.
    """
    gateway_address: Address | None = None
    """The address that several gateways share (VRRP), needed where there are: a free one, not a router's."""


Provider = Annotated[LocalProvider | ExistingProvider, Field(discriminator="kind")]


class ExistingHost(Spec):
    """One machine of an `existing` pool."""

    what: ClassVar = "a host"
    name: str | None = None
    """Its own host name, a DNS label that no other node has; unset means `<region>-<pool>-<number>`."""
    address: Address
    """Its address, inside the region's range."""
    ssh_port: Int = Field(default=22, ge=1, le=65535)
    """Port of its SSH server."""
    host_key: KeyLine | None = None
    """The machine's public SSH host key (`ssh-ed25519 AAAA…`), so that no connection is ever unchecked.

    Needed, unless the region has `ssh_host_ca`.
    """


class ScratchSpec(Spec):
    """Space on each node's own disk that jobs use, and that is cleaned."""

    what: ClassVar = "a scratch"
    path: FilePath = "/scratch"
    """The folder; a disk of its own may be mounted there."""
    days: Int = Field(default=14, ge=1, le=3650)
    """What nobody has used for as many days is removed, unless it is open."""
    high_pct: Int = Field(default=85, ge=10, le=95)
    """Percent of the disk from which on what was not used for longest is removed."""
    low_pct: Int = Field(default=70, ge=5, le=90)
    """Percent of the disk at which that ends."""


class PoolRolesSpec(Spec):
    """Which roles of Ansible's a pool's nodes take, where not all that the declaration asks for."""

    what: ClassVar = "the roles of a pool"
    exclude: tuple[str, ...] = ()
    """Roles that its nodes do not take: what these would set stays yours. One that took it gives it back."""


class NodePoolSpec(Spec):
    """Nodes of one kind that are made, changed and removed together."""

    what: ClassVar = "a node pool"
    name: str
    """A DNS label of its own within the region; nodes are called `<region>-<pool>-<number>`."""
    role: PoolRole
    """What the nodes are for: decides which roles configure them."""
    node_kind: NodeKind | None = None
    """Containers or virtual machines, on `local` only; unset means what the region's provider says."""
    count: Int
    """Number of nodes. Changing it moves no address of another pool."""
    gpus: Int = 0
    """GPUs per node. On `local` nodes they are declared but simulated."""
    gpu_model: ModelName | None = None
    """Model and form factor, such as `h100-sxm`; needed where there are GPUs."""
    gpu_stack: GpuStackSpec | None = None
    """Driver and CUDA of its GPUs; unset means that they are somebody else's."""
    container_runtime: ContainerRuntimeSpec | None = None
    """What runs containers on its nodes; unset means none, or one that is somebody else's."""
    nics: Int = 0
    """Fabric NICs per node, not counting the management interface."""
    nic_gbps: Int | None = None
    """Port speed of each fabric NIC; needed where there are NICs."""
    nic_names: tuple[str, ...] = ()
    """Interface names of the fabric ports, NIC by NIC and within a NIC plane by plane.

    Unset means `rail0`, `rail1` …; with several planes `rail0p0`, `rail0p1`, `rail1p0` …
    """
    shm_gib: Float | None = Field(default=None, ge=0.0625, le=65_536)
    """Size of /dev/shm, which NCCL uses within a node; unset keeps the machine's own (local nodes: 1 GiB)."""
    scratch: ScratchSpec | None = None
    """Node-local space for jobs; unset means none, or one that is somebody else's."""
    roles: PoolRolesSpec = PoolRolesSpec()
    """Which roles its nodes take; unset means all that the declaration asks for."""
    hosts: tuple[ExistingHost, ...] = ()
    """The machines, for the provider `existing` only; as many as `count`."""


class MirrorsSpec(Spec):
    """Where the nodes of a region get what they install, in place of public servers.

    Packages are checked by their distribution's signatures and artefacts by checksum, whoever sent them.
    """

    what: ClassVar = "the mirrors of a region"
    packages: str | None = None
    """The distribution's archive (`http://mirror.example.org/debian`); unset: what the machines ask now."""
    security: str | None = None
    """Its security updates; unset: `packages` with `-security` for Debian, `packages` itself for Ubuntu."""
    components: tuple[str, ...] = ()
    """Parts of the archive; unset means Debian's `main`, and Ubuntu's `main` and `universe`."""
    artefacts: str | None = None
    """Large programs that no package brings: each below this URL, named by its SHA-256."""
    proxy: str | None = None
    """The HTTP proxy by which all of these, and other archives of packages, are asked; unset means none."""
    ca_file: FilePath | None = None
    """File on this machine with the authority that signs the mirrors' certificates; unset: a public one."""

    def urls(self) -> dict[str, str]:
        """What is declared of `packages`, `security`, `artefacts` and `proxy` → its URL."""
        named = ((use, getattr(self, use)) for use in ("packages", "security", "artefacts", "proxy"))
        return {use: url for use, url in named if url is not None}

    def asked(self) -> dict[str, str]:
        """Whom nodes themselves connect to: the proxy where there is one, else each mirror, as in `urls`."""
        return self.urls() if self.proxy is None else {"proxy": self.proxy}


class RegionSpec(Spec):
    """One site: its nodes share a failure domain, a time zone and an address range."""

    what: ClassVar = "a region"
    name: str
    """A DNS label of its own."""
    provider: Provider = LocalProvider()
    """Where the nodes come from."""
    timezone: Timezone = "Etc/UTC"
    """A name of the tz database, such as `Asia/Tokyo`."""
    locale: Locale = "C.UTF-8"
    """The nodes' language and country, such as `ja_JP.UTF-8`."""
    cidr: Cidr
    """The region's own IPv4 network. Every pool gets a sixteenth of it, the region itself the first."""
    mtu_bytes: Int = Field(default=1500, ge=576, le=9216)
    """MTU of the region's management network; a WAN link's MTU cannot be larger."""
    fabric: FabricSpec | None = None
    """The network between the region's fabric NICs."""
    mirrors: MirrorsSpec | None = None
    """Where its nodes get packages and programs; unset means where they do now."""
    pools: tuple[NodePoolSpec, ...]
    """The nodes; a new pool at the end moves no address."""

    @property
    def adopt(self) -> AdoptSpec:
        """What of its nodes stays as it is: nothing where they are made."""
        return self.provider.adopt if isinstance(self.provider, ExistingProvider) else AdoptSpec()

    @property
    def take_over(self) -> tuple[str, ...]:
        """Roles that may take over services that run on its nodes: none are there where they are made."""
        return self.provider.take_over if isinstance(self.provider, ExistingProvider) else ()

    def shared_gateway_address(self) -> IPv4Address | None:
        """The address that the region's gateways share, where there are several; one of them holds it.

        None where it is not declared among machines you have: there the first addresses are often routers'.
        None in a network that has no room for it.
        """
        if isinstance(self.provider, ExistingProvider):
            return self.provider.gateway_address
        return self.cidr.network_address + SHARED_OFFSET if self.cidr.num_addresses > SHARED_OFFSET else None

    def node_kind(self, pool: NodePoolSpec) -> NodeKind | None:
        """What a pool's nodes are; None for machines that exist already."""
        if isinstance(self.provider, ExistingProvider):
            return None
        return pool.node_kind or self.provider.node_kind
