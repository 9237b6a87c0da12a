"""The fabric of a region: the network between its GPU nodes, declared once for hosts and switches."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from infra.declaration.base import Cidr, Float, Int, Spec, refusal

FabricKind = Literal["rail_optimized", "fat_tree", "spine_leaf"]
SwitchAsic = Literal["spectrum", "spectrum-2", "spectrum-3", "spectrum-4"]


ALGORITHM = r"(ring|tree|collnetchain|collnetdirect|nvls|nvlstree|pat)"
FUNCTION = r"(broadcast|reduce|allgather|reducescatter|allreduce)"
CHOICE = rf"\^?{ALGORITHM}(,{ALGORITHM})*"
ALGO = re.compile(rf"({FUNCTION}:)?{CHOICE}(;{FUNCTION}:{CHOICE})*", re.IGNORECASE)
HWSKU = re.compile(r"[A-Za-z0-9_-]{1,255}")
NODE_PATH = re.compile(r"(/[A-Za-z0-9._+-]+)+")


def _algo(value: str) -> str:
    if not ALGO.fullmatch(value):
        raise refusal("is not a choice of NCCL's algorithms, such as ring,tree or allreduce:tree")
    return value


def _node_path(value: str) -> str:
    if not NODE_PATH.fullmatch(value):
        raise refusal("is not the path of a file on the nodes, such as /etc/nccl-topology.xml")
    return value


def _hwsku(value: str) -> str:
    if not HWSKU.fullmatch(value):
        name = value.strip().replace(" ", "-")
        meant = name if HWSKU.fullmatch(name) else None
        raise refusal("is not a model as SONiC names it, such as ACS-SN5600", meant)
    return value


Hwsku = Annotated[str, AfterValidator(_hwsku), Field(json_schema_extra={"pattern": f"^{HWSKU.pattern}$"})]


class RoceSpec(Spec):
    """RoCEv2 marking: hosts send it, switches map it, and both must mean the same."""

    what: ClassVar = "the RoCE marking"
    dscp: Int = Field(default=26, ge=0, le=63)
    """DSCP of RDMA data."""
    priority: Int = Field(default=3, ge=0, le=7)
    """The one lossless priority: the only one with PFC."""
    cnp_dscp: Int = Field(default=48, ge=0, le=63)
    """DSCP of congestion notification packets."""
    cnp_priority: Int = Field(default=6, ge=0, le=7)
    """Priority of congestion notification packets, served strictly before data."""


class SwitchSpec(Spec):
    """The switches of a fabric, all of one model.

    `dscp` to `cnp_priority` say what the switches are set to where that is not Causeway's to decide.
    """

    what: ClassVar = "the switch"
    kind: Literal["sonic"] = "sonic"
    """The network operating system."""
    asic: SwitchAsic
    """The switching chip: with speed and cable it decides the headroom of the lossless class."""
    hwsku: Hwsku | None = None
    """The model as SONiC names it, such as `ACS-SN5600`: it says which lanes a port has. Unset leaves the one
    the switch knows of itself, and takes the ports for those of ACS-MSN2700, ACS-MSN3700, ACS-MSN4700 or
    ACS-SN5600, by the chip.
    """
    cable_m: Float = Field(default=40.0, gt=0, le=2000)
    """Length of the longest cable, which headroom has to cover."""
    mtu_bytes: Int = Field(default=9216, ge=1280, le=9216)
    """MTU of every switch port."""
    dscp: Int | None = Field(default=None, ge=0, le=63)
    """DSCP that goes into the lossless class; unset means that of `roce`."""
    priority: Int | None = Field(default=None, ge=0, le=7)
    """The lossless priority; unset means that of `roce`."""
    cnp_dscp: Int | None = Field(default=None, ge=0, le=63)
    """DSCP that goes into the class of congestion notifications; unset means that of `roce`."""
    cnp_priority: Int | None = Field(default=None, ge=0, le=7)
    """Priority of that class; unset means that of `roce`."""


class NcclSpec(Spec):
    """What NCCL is told beside what follows from the fabric. Unset means what NCCL finds out by itself."""

    what: ClassVar = "what NCCL is told"
    algo: Annotated[str, AfterValidator(_algo)] | None = None
    """Algorithms as `NCCL_ALGO` has them, such as `ring,tree` or `allreduce:tree` (from NCCL 2.24 on)."""
    qps_per_connection: Int | None = Field(default=None, ge=1, le=128)
    """Queue pairs of each connection: several spread it over the paths of a fabric with spines."""
    net_gdr_level: Literal["LOC", "PIX", "PXB", "PHB", "SYS"] | None = None
    """How far apart GPU and NIC may be for GPUDirect RDMA: `LOC` is never, `PIX` one PCI switch, `PXB`
    several, `PHB` one NUMA node, `SYS` anywhere.
    """
    topo_file: Annotated[str, AfterValidator(_node_path)] | None = None
    """A file with the topology of a node, which the nodes have; where a virtual machine shows another one."""


class FabricSpec(Spec):
    """A Clos network of equal switches that joins the fabric NICs of a region's nodes."""

    what: ClassVar = "a fabric"
    kind: FabricKind
    """`rail_optimized`: NIC i of every node goes to a leaf of rail i. `fat_tree`: all NICs of a node go to
    the same leaf. `spine_leaf`: likewise, in two tiers at most.
    """
    radix: Int = Field(ge=2, le=1024)
    """Ports of one switch at `link_gbps`, breakout counted."""
    rails: Int = Field(ge=1, le=32)
    """Fabric NICs of each node, as in the pools' `nics`."""
    link_gbps: Int
    """Speed of every link. With `planes` a NIC has one port of this speed in each plane."""
    oversubscription: Float = Field(default=1.0, ge=1)
    """Ports down to ports up of a leaf; training fabrics have 1 to 2."""
    core_oversubscription: Float = Field(default=1.0, ge=1)
    """Ports down to ports up of a spine, where there are cores."""
    leaf_down_ports: Int | None = Field(default=None, ge=1, le=1024)
    """Ports of a leaf that go to nodes; unset means as many as `radix` and `oversubscription` allow."""
    planes: Int = Field(default=1, ge=1, le=8)
    """Fabrics of the same shape side by side; each NIC has a port in each."""
    mtu_bytes: Int = Field(default=9000, ge=1280, le=9216)
    """MTU of the hosts' fabric NICs."""
    cidr: Cidr | None = None
    """Range of all fabric addresses; unset means a /14 of 100.64.0.0/10, by the region's number."""
    roce: RoceSpec = RoceSpec()
    """How RDMA traffic is marked."""
    nccl: NcclSpec = NcclSpec()
    """What NCCL is told beside what follows from the fabric."""
    switch: SwitchSpec | None = None
    """The switches; unset means that none is configured."""
