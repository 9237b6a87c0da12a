"""Host names and addresses, decided by the declaration so that every run gives the same ones.

A region's range is cut into 16 equal blocks. Block 0 belongs to the region itself (its first
address is the router's, its second the one that gateways share); pool number i (from 0, in declared
order) owns block i + 1. Changing one pool's count therefore never renumbers another pool, and a pool
appended at the end renumbers none.
"""

from hashlib import sha256
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from infra.declaration import NodePoolSpec, RegionSpec

BLOCKS = 16
MAX_POOLS = BLOCKS - 1
LINK_NETWORK = IPv4Network("100.100.0.0/16")
"""Transfer networks of WAN links, one /30 each, in declared order; seen by the links' ends only."""
UPLINK_NETWORK = IPv4Network("100.90.0.0/16")
"""Links between a machine and the routers of the regions that stand on it, one /31 each."""
MAX_LINKS = LINK_NETWORK.num_addresses // 4
TUNNEL_NETWORK = IPv4Network("100.101.0.0/16")
"""The same for the inside of links of kind `vpn`."""
FIRST_TUNNEL_PORT = 49152
"""UDP, the first of those for private use (RFC 6335); a link's is its number in declared order after it."""
MAX_INTERFACE = 15
LONGEST_NUMBER = 10
FIRST_ASN = 64512
"""The first AS number for private use (RFC 6996); a region's is its number in declared order after it."""


def router_address(cidr: IPv4Network) -> IPv4Address:
    """The address by which a region's nodes reach everything outside the region."""
    return cidr.network_address + 1


def block_size(cidr: IPv4Network) -> int:
    """Addresses per block; 0 when the range is smaller than the number of blocks."""
    return cidr.num_addresses // BLOCKS


def pool_capacity(cidr: IPv4Network, pool_index: int) -> int:
    """How many nodes pool number `pool_index` can hold; the last block gives up the broadcast address.

    Blocks of one address hold none: the router would need two in block 0.
    """
    if pool_index >= MAX_POOLS:
        return 0
    size = block_size(cidr)
    return size - (pool_index == MAX_POOLS - 1) if size > 1 else 0


def pool_addresses(region: RegionSpec, pool_index: int) -> tuple[IPv4Address, ...]:
    """The addresses of a pool's nodes, in node order; declared ones where the machines exist already."""
    pool = region.pools[pool_index]
    if pool.hosts:
        return tuple(host.address for host in pool.hosts)
    start = region.cidr.network_address + (pool_index + 1) * block_size(region.cidr)
    return tuple(start + number for number in range(pool.count))


def host_name(region: RegionSpec, pool: NodePoolSpec, number: int) -> str:
    """What a machine is declared to be called, else `<region>-<pool>-<number>`: a DNS label of its own."""
    declared = pool.hosts[number].name if number < len(pool.hosts) else None
    return declared or f"{region.name}-{pool.name}-{number}"


def number_of(region: RegionSpec, pool: NodePoolSpec, name: str) -> int | None:
    """Which node of a pool has the name that its number makes; None where none has."""
    digits = name.removeprefix(f"{region.name}-{pool.name}-")
    number = int(digits) if digits.isdecimal() and len(digits) < LONGEST_NUMBER else pool.count
    return number if number < pool.count and host_name(region, pool, number) == name else None


def link_device(prefix: str, link: str) -> str:
    """The name of a link's network interface, `wan-trans-sea`; a hash stands in for too long a name."""
    plain = f"{prefix}-{link}"
    return plain if len(plain) <= MAX_INTERFACE else f"{prefix}-{sha256(link.encode()).hexdigest()[:8]}"


def link_interfaces(index: int) -> tuple[IPv4Interface, IPv4Interface]:
    """The interfaces at the two ends of link number `index`: (a's, b's), in one /30."""
    return _pair(LINK_NETWORK, index)


def tunnel_interfaces(index: int) -> tuple[IPv4Interface, IPv4Interface]:
    """The same for the tunnel inside link number `index`."""
    return _pair(TUNNEL_NETWORK, index)


def _pair(network: IPv4Network, index: int) -> tuple[IPv4Interface, IPv4Interface]:
    base = network.network_address + 4 * index
    return IPv4Interface(f"{base + 1}/30"), IPv4Interface(f"{base + 2}/30")
