"""What listens on hosts: declared once, by the capability that owns it.

Whoever opens ports, classes traffic, finds services or scrapes them reads these, and keeps no list.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

TrafficClass = Literal["management", "scheduler", "replication", "scavenger"]
"""As `wan_links[].classes` has them."""
Protocol = Literal["tcp", "udp", "vrrp", "esp", "icmp"]
Network = Literal["management", "fabric", "wan", "loopback"]
"""`wan`: the addresses at which links end. `loopback`: 127.0.0.1 of each node, declared for who looks whether
the port is free there; nobody else can ask it, so nothing has to be open."""


@dataclass(frozen=True)
class HostSet:
    """Hosts by what they share, so that thousands take no list of names; in it is who is in any part."""

    everyone: bool = False
    regions: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    """Keys of the contract's pools."""
    hosts: tuple[str, ...] = ()

    def has_pool(self, region: str, key: str) -> bool:
        """Whether a pool is in it as a whole, by itself or by its region."""
        return self.everyone or region in self.regions or key in self.pools


EVERYONE = HostSet(everyone=True)
NOBODY = HostSet()


@dataclass(frozen=True, order=True)
class Ports:
    """A range of ports, both ends included."""

    first: int
    last: int

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    @classmethod
    def one(cls, port: int) -> "Ports":
        """A range of one."""
        return cls(port, port)


def merged(ports: Iterable[Ports]) -> tuple[Ports, ...]:
    """The same ports in order, in ranges that do not overlap."""
    found: list[Ports] = []
    for each in sorted(ports):
        if found and each.first <= found[-1].last:
            found[-1] = Ports(found[-1].first, max(found[-1].last, each.last))
        else:
            found.append(each)
    return tuple(found)


@dataclass(frozen=True)
class Scrape:
    """It has metrics: by HTTPS, both sides with a certificate of monitoring's authority."""

    path: str = "/metrics"
    labels: tuple[tuple[str, str], ...] = ()
    """Of its series, beside those of its node."""
    samples: int | None = None
    """What it may have where it speaks for more than its node; a node's own limit holds otherwise."""
    interval_s: int | None = None
    """Seconds between two looks, and a little more than one may take, where that is more than usual."""
    told_by: str | None = None
    """The series by which a node says whether it has it (1) or not (0); unset means that all have."""


@dataclass(frozen=True)
class Probe:
    """A question that monitoring asks it on the server's own node: HTTPS, answered by 200."""

    name: str
    port: int
    path: str
    refuse: str
    """Regular expression of answers that are no good."""
    loopback: bool = True
    """Whether it answers on loopback; at its node's address otherwise."""


@dataclass(frozen=True)
class Destination:
    """Something outside of the cluster that hosts send to, by TCP."""

    name: str
    sources: HostSet
    host: str
    """A DNS name or an IPv4 address."""
    port: int


@dataclass(frozen=True)
class Endpoint:
    """Something that listens. `name` is unique together with `on`."""

    name: str
    on: HostSet
    ports: tuple[Ports, ...]
    traffic: TrafficClass
    """How gateways class it; no default, for whoever opens a port knows."""
    protocols: tuple[Protocol, ...] = ("tcp",)
    sources: HostSet = EVERYONE
    """Who may ask it."""
    network: Network = "management"
    check: str | None = None
    """Kind of the check by which the service discovery asks it; without one it is not registered."""
    scrape: Scrape | None = None
    probe: Probe | None = None
