"""Two regions and a link of a test file's own: names and ranges that meet nobody else's."""

from dataclasses import dataclass, replace
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path

from infra.process import run
from infra.providers.local import image, names, network, nodes, sweep, wan

Pools = tuple[list[nodes.Node], list[nodes.Node]]
"""The nodes of tokyo, and those of shanghai."""


@dataclass(frozen=True)
class Ground:
    """Where one test file stands its things up."""

    tag: str
    range: IPv4Network

    @property
    def stack(self) -> str:
        """The same on every run from this checkout, so that the next run finds what a dead one left."""
        return f"{self.tag}-{names.short_hash(str(names.CHECKOUT))}"

    @property
    def neighbour(self) -> str:
        """A stack whose name begins with ours."""
        return self.stack + "-b"

    @property
    def tokyo(self) -> network.RegionNetwork:
        return self._region("tokyo", 0)

    @property
    def shanghai(self) -> network.RegionNetwork:
        return self._region("shanghai", 1)

    @property
    def link(self) -> wan.Link:
        return wan.Link(
            stack=self.stack,
            name="trans-sea",
            a="tokyo",
            b="shanghai",
            a_address=IPv4Interface("100.100.255.1/30"),
            b_address=IPv4Interface("100.100.255.2/30"),
            a_routes=((self.shanghai.cidr, 1000),),
            b_routes=((self.tokyo.cidr, 1000),),
            rtt_ms=40,
            bandwidth_mbps=40,
            loss_pct=0,
            mtu_bytes=1500,
        )

    def cidr(self, number: int) -> IPv4Network:
        return list(self.range.subnets(new_prefix=20))[number]

    def node(self, public_key: str) -> nodes.Node:
        """A node of tokyo to copy others from."""
        return nodes.Node(
            stack=self.stack,
            region="tokyo",
            pool="gpu",
            name="tokyo-gpu-0",
            address=self.tokyo.cidr[256],
            gateway=self.tokyo.gateway.ip,
            prefixlen=self.tokyo.cidr.prefixlen,
            mtu_bytes=self.tokyo.mtu_bytes,
            image=image.ensure_image(print),
            public_key=public_key,
            urn="urn:pulumi:engine::test",
            shm_gib=0.5,
        )

    def networks(self) -> None:
        network.ensure(self.tokyo, [self.shanghai.cidr])
        network.ensure(self.shanghai, [self.tokyo.cidr])

    def sweep(self) -> None:
        for stack in (self.stack, self.neighbour):
            sweep.sweep(stack)

    def _region(self, name: str, number: int) -> network.RegionNetwork:
        return network.RegionNetwork(self.stack, name, self.cidr(number), 9000)


def pool_of(base: nodes.Node, net: network.RegionNetwork, count: int) -> list[nodes.Node]:
    home = replace(base, region=net.region, gateway=net.gateway.ip)
    return [replace(home, name=f"{net.region}-gpu-{i}", address=net.cidr[256 + i]) for i in range(count)]


def reconcile(desired: list[nodes.Node]) -> list[nodes.NodeState]:
    first = desired[0]
    return nodes.reconcile(first.stack, first.region, first.pool, desired, print)


def new_key(folder: Path) -> Path:
    path = folder / "id_ed25519"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)])
    return path
