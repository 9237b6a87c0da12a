"""Address ranges: of the right kind, apart from each other, and large enough."""

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network
from typing import ClassVar

from infra.declaration import ClusterSpec, RegionSpec
from infra.ground.addresses import LINK_NETWORK, MAX_POOLS, pool_capacity
from infra.ground.problem import Problem, Severity, listing
from infra.ground.rule import pools

PRIVATE = tuple(IPv4Network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))
"""RFC 1918. Not 100.64.0.0/10 (RFC 6598): routers reach this machine and each other from there."""
SPECIAL = {
    "loopback (127.0.0.0/8)": IPv4Network("127.0.0.0/8"),
    "link-local (169.254.0.0/16)": IPv4Network("169.254.0.0/16"),
    "multicast (224.0.0.0/4)": IPv4Network("224.0.0.0/4"),
    "reserved (240.0.0.0/4)": IPv4Network("240.0.0.0/4"),
    "this host (0.0.0.0/8)": IPv4Network("0.0.0.0/8"),
    f"the WAN links' own transfer range ({LINK_NETWORK})": LINK_NETWORK,
}
TRIES = 4096


def free_network(prefix_length: int, start: IPv4Network, used: Iterable[IPv4Network]) -> str | None:
    """The next private network of that size after `start` that touches none of `used`; None if none near."""
    home = next((block for block in PRIVATE if start.subnet_of(block)), PRIVATE[0])
    if prefix_length < home.prefixlen:
        return None
    taken, step = [*used, LINK_NETWORK], 1 << (32 - prefix_length)
    offset = (int(start.network_address) - int(home.network_address)) // step if start.subnet_of(home) else 0
    slots = 1 << (prefix_length - home.prefixlen)
    for number in range(offset, offset + min(slots, TRIES)):
        base = int(home.network_address) + number % slots * step
        candidate = IPv4Network((base, prefix_length))
        if not any(candidate.overlaps(network) for network in taken):
            return str(candidate)
    return None


def _others(spec: ClusterSpec, index: int) -> list[IPv4Network]:
    return [region.cidr for number, region in enumerate(spec.regions) if number != index]


class CidrIsUsable:
    """Not loopback, multicast, link-local, reserved, nor the links' own range, wherever the nodes are."""

    id: ClassVar[str] = "cidr-special"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Ranges that touch one that has another meaning."""
        for index, region in enumerate(spec.regions):
            for what, network in SPECIAL.items():
                if region.cidr.overlaps(network) and region.cidr.prefixlen:
                    message = f"{region.cidr} overlaps {what}"
                    yield _range_problem(spec, index, message)
                    break


class CidrIsPrivate:
    """Nodes that Causeway makes are addressed from a private range; machines you have, as they are."""

    id: ClassVar[str] = "cidr-private"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """`local` regions whose range is public."""
        for index, region in enumerate(spec.regions):
            special = any(region.cidr.overlaps(network) for network in SPECIAL.values())
            private = any(region.cidr.subnet_of(network) for network in PRIVATE)
            if region.provider.makes_nodes and not private and (not special or not region.cidr.prefixlen):
                yield _range_problem(spec, index, f"{region.cidr} is not a private range (RFC 1918)")


def _range_problem(spec: ClusterSpec, index: int, message: str) -> Problem:
    cidr = spec.regions[index].cidr
    suggestion = free_network(max(cidr.prefixlen, 16), cidr, _others(spec, index))
    allowed = listing(PRIVATE)
    return Problem(f"regions[{index}].cidr", message, str(cidr), allowed, suggestion)


class CidrsAreApart:
    """Two regions that share addresses cannot be routed to each other."""

    id: ClassVar[str] = "cidr-overlap"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Every region whose range an earlier one overlaps, with the next free one of the same size."""
        for index, region in enumerate(spec.regions):
            earlier = next(
                (other for other in spec.regions[:index] if other.cidr.overlaps(region.cidr)), None
            )
            if earlier is not None:
                used = [region.cidr for region in spec.regions]
                free = free_network(region.cidr.prefixlen, region.cidr, used)
                message = f"{region.cidr} overlaps {earlier.name}'s {earlier.cidr}"
                yield Problem(f"regions[{index}].cidr", message, str(region.cidr), suggestion=free)


class CidrHoldsItsPools:
    """Every pool owns a sixteenth of its region's range."""

    id: ClassVar[str] = "cidr-size"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Regions with a pool that is larger than its block, with the range that would fit."""
        for index, region in enumerate(spec.regions):
            fullest = [pool for number, pool in enumerate(region.pools) if self._too_many(region, number)]
            if not fullest:
                continue
            pool = max(fullest, key=lambda pool: pool.count)
            room = pool_capacity(region.cidr, 0)
            message = (
                f"{region.cidr} is too small: a pool gets a sixteenth of it, "
                f"room for {room} nodes, and pool {pool.name} has {pool.count}"
            )
            prefix = self._prefix_that_fits(region)
            free = free_network(prefix, region.cidr, _others(spec, index)) if prefix else None
            hint = "" if free else f"split the pool: the largest range (10.0.0.0/8) has room for {1 << 20}"
            yield Problem(
                f"regions[{index}].cidr", message, str(region.cidr), f"/{prefix or 8} or larger", free, hint
            )

    @staticmethod
    def _too_many(region: RegionSpec, number: int) -> bool:
        pool = region.pools[number]
        return (
            region.provider.makes_nodes
            and number < MAX_POOLS
            and pool.count > pool_capacity(region.cidr, number)
        )

    @staticmethod
    def _prefix_that_fits(region: RegionSpec) -> int | None:
        """The longest prefix whose blocks hold every pool; None when even a /8 does not."""
        for prefix in range(region.cidr.prefixlen, 7, -1):
            network = IPv4Network((0, prefix))
            counts = (pool.count for pool in region.pools[:MAX_POOLS])
            if all(count <= pool_capacity(network, number) for number, count in enumerate(counts)):
                return prefix
        return None


class PoolsFitTheBlocks:
    """Sixteen blocks a region, one of them the region's own."""

    id: ClassVar[str] = "pools-per-region"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Regions with no pool or with more than fifteen."""
        for index, region in enumerate(spec.regions):
            path, number = f"regions[{index}].pools", len(region.pools)
            if not number:
                yield Problem(path, "no pool: a region has at least one", "0", f"1 to {MAX_POOLS}")
            elif number > MAX_POOLS:
                message = f"{number} pools; a region has {MAX_POOLS} at most"
                hint = "join pools of the same kind, or split the region"
                yield Problem(path, message, str(number), f"1 to {MAX_POOLS}", hint=hint)


class ClusterHasRegions:
    """A cluster without a region is a file somebody has not finished."""

    id: ClassVar[str] = "regions"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """A cluster that declares no region."""
        if not spec.regions:
            yield Problem("regions", "no region: a cluster has at least one", "0", "1 or more")


class RegionHasControl:
    """Control nodes run what a region needs of its own: service discovery, monitoring."""

    id: ClassVar[str] = "control-pool"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Regions where no pool has the role control."""
        with_control = {region.name for _, region, _, pool in pools(spec) if pool.role == "control"}
        for index, region in enumerate(spec.regions):
            if region.pools and region.name not in with_control:
                message = f"region {region.name} has no pool of role control"
                hint = "its control services (discovery, monitoring) will have no home"
                yield Problem(f"regions[{index}].pools", message, hint=hint)
