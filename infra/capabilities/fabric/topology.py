"""A region's fabric: how many cables, which NIC goes to which port, and every address.

Its shape is that of `infra/ground/clos.py`. Nodes are numbered over the region's pools with NICs, in declared
order, and fill the leafs in that order.

Addresses: the lower half of the fabric's range is the hosts', in equal blocks, one for each rail of each
plane, so that a host needs one route per NIC. In a block, group g owns the g-th of equal subnets: its leaf
has the first address, node number i of the group the one i + 2 places from the start. The upper half is the
switches': links between them (/31 each, RFC 3021) from the bottom, loopbacks in its last eighth. More nodes
in the last pool therefore move no host's address.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network

from infra.declaration import FabricSpec, RegionSpec
from infra.ground.addresses import LINK_NETWORK, UPLINK_NETWORK, host_name
from infra.ground.clos import Shape, fabric_nodes, fabric_pools, nodes_per_group, ports_per_node

DEFAULT_RANGES = tuple(
    network
    for network in IPv4Network("100.64.0.0/10").subnets(new_prefix=14)
    if not network.overlaps(LINK_NETWORK) and not network.overlaps(UPLINK_NETWORK)
)
"""Ranges of fabrics that declare none, by the region's number; shared address space (RFC 6598)."""
RESERVED_IN_SUBNET = 3
"""The network's and the broadcast address, and the leaf's."""
LOOPBACK_SHARE = 8


@dataclass(frozen=True)
class FabricNic:
    """One port of a node: its name and address, and the leaf's port (counted from 0) it is cabled to."""

    name: str
    rail: int
    plane: int
    leaf: int
    """Number of the leaf in its plane."""
    port: int
    address: IPv4Address
    prefix: int
    gateway: IPv4Address
    """The leaf's address."""


def core_of(shape: Shape, spine: int, uplink: int) -> tuple[int, int]:
    """The core, and its port, to which a spine's uplink goes: to cores in turn, which fills all evenly."""
    port, core = divmod(spine * shape.spine_up + uplink, shape.cores)
    return core, port


def has_switches(region: RegionSpec) -> bool:
    """Whether the region's switches are Causeway's to configure."""
    return region.fabric is not None and region.fabric.switch is not None


def fabric_range(region_index: int, region: RegionSpec) -> IPv4Network | None:
    """The declared range, else the default one; None without a fabric, or where the defaults are used up."""
    if region.fabric is None:
        return None
    if region.fabric.cidr is not None:
        return region.fabric.cidr
    return DEFAULT_RANGES[region_index] if region_index < len(DEFAULT_RANGES) else None


@dataclass(frozen=True)
class Counts:
    """Switches and cables of a fabric, over all its planes. There are as many endpoints as node–leaf cables.

    All uplinks are cabled, also those of a leaf that has free ports.
    """

    leafs: int
    spines: int
    cores: int
    node_leaf_cables: int
    leaf_spine_cables: int
    spine_core_cables: int

    @classmethod
    def of(cls, shape: Shape) -> "Counts":
        """The counts of a shape."""
        planes = shape.fabric.planes
        return cls(
            shape.leafs * planes,
            shape.spines * planes,
            shape.cores * planes,
            shape.nodes * ports_per_node(shape.fabric),
            shape.leafs * shape.leaf_up * planes,
            shape.spines * shape.spine_up * planes,
        )


@dataclass(frozen=True)
class FabricPlan:
    """A region's fabric as it would be built."""

    region: str
    shape: Shape
    cidr: IPv4Network
    nodes: tuple[tuple[str, tuple[str, ...]], ...]
    """(name, names of its ports) of each node on the fabric, in order."""

    @property
    def fabric(self) -> FabricSpec:
        """What was declared."""
        return self.shape.fabric

    @property
    def counts(self) -> "Counts":
        """Switches and cables."""
        return Counts.of(self.shape)

    def switch_name(self, tier: str, plane: int, number: int) -> str:
        """`<region>-leaf-<number>`; with several planes `<region>-p<plane>-leaf-<number>`."""
        of_plane = f"p{plane}-" if self.fabric.planes > 1 else ""
        return f"{self.region}-{of_plane}{tier}-{number}"

    def rail_range(self, plane: int, rail: int) -> IPv4Network:
        """All hosts' addresses on one rail of one plane."""
        bits = 1 + _bits(ports_per_node(self.fabric))
        block = plane * self.fabric.rails + rail
        prefix = self.cidr.prefixlen + bits
        return IPv4Network((int(self.cidr.network_address) + block * 2 ** (32 - prefix), prefix))

    @cached_property
    def subnet_prefix(self) -> int:
        """Prefix length of the subnet that a group has on a rail."""
        return 32 - _subnet_bits(self.fabric)

    def node_nics(self) -> Iterator[tuple[str, tuple[FabricNic, ...]]]:
        """The nodes on the fabric, in order, each with its ports."""
        for number, (name, _) in enumerate(self.nodes):
            yield name, self.nics(number)

    def nics(self, node: int) -> tuple[FabricNic, ...]:
        """The ports of fabric node number `node`, NIC by NIC and within a NIC plane by plane."""
        fabric = self.fabric
        group, place = divmod(node, nodes_per_group(fabric))
        names = iter(self.nodes[node][1])
        return tuple(
            self._nic(next(names), plane, rail, group, place)
            for rail in range(fabric.rails)
            for plane in range(fabric.planes)
        )

    def _nic(self, name: str, plane: int, rail: int, group: int, place: int) -> FabricNic:
        by_rail = self.fabric.kind == "rail_optimized"
        leaf = group * self.fabric.rails + rail if by_rail else group
        port = place if by_rail else place * self.fabric.rails + rail
        base = int(self._rail_bases[plane][rail]) + group * 2 ** (32 - self.subnet_prefix)
        address, gateway = IPv4Address(base + 2 + place), IPv4Address(base + 1)
        return FabricNic(name, rail, plane, leaf, port, address, self.subnet_prefix, gateway)

    @cached_property
    def _rail_bases(self) -> list[list[IPv4Address]]:
        planes, rails = range(self.fabric.planes), range(self.fabric.rails)
        return [[self.rail_range(plane, rail).network_address for rail in rails] for plane in planes]


def longest_prefix(shape: Shape) -> int:
    """Prefix length of the smallest range that holds the addresses of hosts and switches."""
    counts = Counts.of(shape)
    hosts = _bits(shape.groups) + _subnet_bits(shape.fabric) + _bits(ports_per_node(shape.fabric))
    links = 2 * (counts.leaf_spine_cables + counts.spine_core_cables)
    switches = counts.leafs + counts.spines + counts.cores
    room = max(-(-links * LOOPBACK_SHARE // (LOOPBACK_SHARE - 1)), switches * LOOPBACK_SHARE)
    return 31 - max(hosts, _bits(room))


def _subnet_bits(fabric: FabricSpec) -> int:
    return _bits(nodes_per_group(fabric) + RESERVED_IN_SUBNET)


def _bits(number: int) -> int:
    """Bits that count to `number`: the power of two that holds it."""
    return (number - 1).bit_length()


def default_nic_names(fabric: FabricSpec) -> tuple[str, ...]:
    """`rail0`, `rail1` …; with several planes `rail0p0`, `rail0p1`, `rail1p0` …"""
    if fabric.planes == 1:
        return tuple(f"rail{rail}" for rail in range(fabric.rails))
    return tuple(f"rail{rail}p{plane}" for rail in range(fabric.rails) for plane in range(fabric.planes))


def plan_fabric(region_index: int, region: RegionSpec) -> FabricPlan | None:
    """The fabric of a region that has passed the checks; None where it has none, or no node on it."""
    fabric, cidr = region.fabric, fabric_range(region_index, region)
    if fabric is None or cidr is None or not fabric_nodes(region):
        return None
    nodes = tuple(
        (host_name(region, pool, number), pool.nic_names or default_nic_names(fabric))
        for pool in fabric_pools(region)
        for number in range(pool.count)
    )
    return FabricPlan(region.name, Shape(fabric, len(nodes)), cidr, nodes)
