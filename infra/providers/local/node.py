"""What a node shall be, what it is, and the cables that join it to its region, for every kind of node."""

import json
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import IPv4Address, ip_address
from pathlib import Path

from infra.declaration import NodeKind
from infra.errors import CausewayError
from infra.providers.local import names, netns

Progress = Callable[[str], None]


@dataclass(frozen=True)
class FabricPort:
    """A fabric port of a node and the leaf it is cabled to; addresses and MTU are the node's own to set."""

    name: str
    leaf: str
    """The leaf's bridge in the region's namespace."""


@dataclass(frozen=True)
class Cable:
    """One cable from a node to a bridge of its region."""

    device: str
    """The interface's name in the node."""
    mac: str
    port: str
    """The interface at the other end, in the region's namespace."""
    alias: str
    bridge: str
    mtu_bytes: int
    """MTU at the bridge's end: the largest packet the cable takes."""


@dataclass(frozen=True)
class Node:
    """What one node shall be."""

    stack: str
    region: str
    pool: str
    name: str
    address: IPv4Address
    gateway: IPv4Address
    prefixlen: int
    mtu_bytes: int
    image: str
    """For a container the image's tag, for a virtual machine the image's folder."""
    public_key: str
    """The stack's own key, which may log in as root, as in authorized_keys; users' keys stand beside it."""
    urn: str
    shm_gib: float | None
    """Size of a container's /dev/shm; None leaves it at podman's 64 MiB."""
    kind: NodeKind = "container"
    memory_mib: int = 0
    """Of a virtual machine."""
    fabric: tuple[FabricPort, ...] = ()

    @property
    def container(self) -> str:
        """The name of the container and of its network namespace, or of the virtual machine."""
        return names.node(self.stack, self.name)

    @property
    def cables(self) -> tuple[Cable, ...]:
        """The management interface's cable, then those of the fabric ports."""
        return (
            Cable(
                device=names.NODE_INTERFACE,
                mac=names.mac(self.stack, self.name),
                port=names.bridge_port(self.stack, self.name),
                alias=self.name,
                bridge=names.BRIDGE,
                mtu_bytes=self.mtu_bytes,
            ),
            *(
                Cable(
                    device=port.name,
                    mac=names.mac(self.stack, self.name, port.name),
                    port=names.bridge_port(self.stack, self.name, port.name),
                    alias=f"{self.name} {port.name}",
                    bridge=port.leaf,
                    mtu_bytes=names.LEAF_MTU_BYTES,
                )
                for port in self.fabric
            ),
        )

    def definition(self, *more: object) -> str:
        """A hash of what a standing node cannot be given anew; `more` is what its kind adds.

        Left out: the addresses' surroundings, which are set again on every run.
        """
        words = [self.stack, self.region, self.pool, self.name, self.address, self.image, *more]
        return sha256(json.dumps(words, default=str).encode()).hexdigest()[:16]

    @property
    def note(self) -> dict[str, str]:
        """What is written beside whatever is made for this node, so that it is found again."""
        return {"kind": "node", "region": self.region, "pool": self.pool, "node": self.name}


@dataclass(frozen=True)
class NodeState:
    """What one node is. `host_key` ("ssh-ed25519 AAAA…") is "" when the node does not run."""

    name: str
    address: IPv4Address
    instance_id: str
    host_key: str
    running: bool
    """The node runs and its cables are plugged in."""


def router_of(node: Node) -> str:
    """The namespace of the node's region. Raises CausewayError when it does not stand."""
    router = names.router_netns(node.stack, node.region)
    if not netns.exists(router):
        raise CausewayError(
            f"the network of the region {node.region} does not stand", "make the region's network first"
        )
    return router


def plug_in(node: Node, router: str) -> None:
    """Join the bridge's end of every cable to its bridge, and take away cables the node has no longer."""
    ports = netns.links(router)
    wanted = {cable.port for cable in node.cables}
    lines = [f"link del {port}" for port in _ports_of(node.name, ports) if port not in wanted]
    for cable in node.cables:
        lines.append(f"link set {cable.port} master {cable.bridge} mtu {cable.mtu_bytes} up")
        lines.append(f'link set {cable.port} alias "{cable.alias}"')
    netns.batch(router, lines)


def misplugged(desired: Sequence[Node]) -> set[str]:
    """The names of those nodes of a region that have not just the declared cables."""
    found: set[str] = set()
    ports: dict[str, dict[str, netns.Record]] = {}
    for node in desired:
        router = names.router_netns(node.stack, node.region)
        if router not in ports:
            ports[router] = netns.links(router) if netns.exists(router) else {}
        if set(_ports_of(node.name, ports[router])) != {cable.port for cable in node.cables}:
            found.add(node.name)
    return found


def unplug(stack: str, region: str, name: str) -> None:
    """Remove every cable of a node, from the bridge's end."""
    router = names.router_netns(stack, region)
    if netns.exists(router):
        netns.batch(router, [f"link del {port}" for port in _ports_of(name, netns.links(router))])


def _ports_of(name: str, links: dict[str, netns.Record]) -> list[str]:
    """The bridges' ports that carry this node's name in their alias."""
    return [port for port, link in links.items() if link.get("ifalias", "").split(" ")[0] == name]


def await_ssh(node: Node, limit_s: float, hint: str) -> None:
    """Wait until sshd greets; the route to the node is then proven, too."""
    deadline = time.monotonic() + limit_s
    why = "nothing answers"
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((str(node.address), 22), timeout=2) as connection:
                connection.settimeout(5)
                greeting = connection.recv(64)
                if greeting.startswith(b"SSH-"):
                    return
                why = f"it said {greeting!r}"
        except OSError as error:
            why = str(error)
        time.sleep(0.1)
    raise CausewayError(f"sshd at {node.address} did not answer within {limit_s:g} s ({why})", hint)


def nameservers() -> list[str]:
    """The name servers a node can reach: the host's own, without those that only the host itself sees."""
    for path in (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf")):
        words = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        servers = [w[1].split("%")[0] for w in words if len(w) > 1 and w[0] == "nameserver"]
        reachable = [s for s in servers if not ip_address(s).is_loopback and ip_address(s).version == 4]
        if reachable:
            return reachable
    return []
