"""Container nodes: each a systemd container in a network namespace that outlives it.

`reconcile` is the only way nodes come and go. It looks at what stands, by labels, and changes what differs,
so it also finishes what a killed run has begun.
"""

import json
import re
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from typing import Any

from infra.errors import CausewayError
from infra.process import run
from infra.providers.local import names, netns

AT_ONCE = 4
"""Nodes worked on at the same time; a booting systemd keeps about half a core busy."""
READY_TIMEOUT_S = 90.0
RECIPE = 1
"""Counted up when `podman run`'s arguments change in a way that needs nodes to be made anew."""
HOST_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/=]{68}")
ED25519_PUBLIC = "etc/ssh/ssh_host_ed25519_key.pub"
AUTHORIZED_KEYS = "root/.ssh/authorized_keys"

# Runs in the node: takes the stack's key on stdin in place of an earlier one, which has the same comment, and
# leaves the keys of users; waits until the first boot has made the host key.
_ADMIT = f"""
umask 077; mkdir -p /root/.ssh; touch /{AUTHORIZED_KEYS}; read -r key
{{ echo "$key"; grep -v -e " ${{key#* * }}$" /{AUTHORIZED_KEYS} || true; }} > /{AUTHORIZED_KEYS}.new
mv /{AUTHORIZED_KEYS}.new /{AUTHORIZED_KEYS}
until [ -s /{ED25519_PUBLIC} ]; do sleep 0.1; done
cat /{ED25519_PUBLIC}
"""

Progress = Callable[[str], None]


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
    public_key: str
    """The stack's own key, which may log in as root, as in authorized_keys; users' keys stand beside it."""
    urn: str
    shm_gib: float | None
    """Size of /dev/shm; None leaves it at podman's 64 MiB."""

    @property
    def container(self) -> str:
        """The name of the container and of its network namespace."""
        return names.node(self.stack, self.name)

    @property
    def definition(self) -> str:
        """A hash of what a standing node cannot be given anew.

        Left out: the key and the addresses' surroundings, which are set again on every run, and the size of
        /dev/shm, which the role `base` changes by a remount.
        """
        words = [self.stack, self.region, self.pool, self.name, self.address, self.image, RECIPE]
        return sha256(json.dumps(words, default=str).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class NodeState:
    """What one node is. `host_key` ("ssh-ed25519 AAAA…") is "" when the node does not run."""

    name: str
    address: IPv4Address
    instance_id: str
    host_key: str
    running: bool
    """The container runs and its eth0 carries the address."""


def reconcile(
    stack: str, region: str, pool: str, desired: Sequence[Node], progress: Progress
) -> list[NodeState]:
    """Leave exactly the desired nodes standing in this pool, reachable by SSH; returns them in order.

    Adopts nodes whose definition matches, starts stopped ones, makes others anew, removes surplus ones. The
    region's network must stand. Raises one CausewayError that names every node that failed; all others are
    finished by then.
    """
    standing = _containers(stack, region, pool)
    wanted = {node.name for node in desired}
    _remove(stack, sorted((_known(stack, region, pool) | set(standing)) - wanted), progress)
    ready: list[str] = []
    failures: dict[str, str] = {}

    def work(node: Node) -> None:
        try:
            _reconcile_one(node, standing.get(node.name))
            ready.append(node.name)
            progress(f"{node.name} is ready ({len(ready)} of {len(desired)} nodes of {region}/{pool})")
        except CausewayError as error:
            failures[node.name] = error.message
            progress(f"{node.name} failed: {error.message}")

    _each(work, desired)
    if failures:
        raise CausewayError(
            f"{len(failures)} of {len(desired)} nodes of the pool {region}/{pool} failed: "
            + "; ".join(f"{name}: {failures[name]}" for name in sorted(failures)),
            "the other nodes stand; run it again to go on from there",
        )
    states = inspect(stack, region, pool)
    return [states[node.name] for node in desired]


def inspect(stack: str, region: str, pool: str) -> dict[str, NodeState]:
    """The pool's nodes as they are now, by name; changes nothing."""
    return {name: _state(name, record) for name, record in _containers(stack, region, pool).items()}


def remove_pool(stack: str, region: str, pool: str, progress: Progress = lambda _: None) -> None:
    """Remove every node of the pool, also half-made ones."""
    _remove(stack, sorted(_known(stack, region, pool) | set(_containers(stack, region, pool))), progress)


def _containers(stack: str, region: str, pool: str) -> dict[str, dict[str, Any]]:
    """`podman ps`'s record of every container of the pool, by node name."""
    filters = {"stack": stack, "region": region, "pool": pool}
    chosen = [f"--filter=label={names.LABEL}{key}={value}" for key, value in filters.items()]
    records = json.loads(run(["podman", "ps", "--all", "--format=json", *chosen]) or "[]")
    return {record["Labels"][names.LABEL + "node"]: record for record in records}


def _known(stack: str, region: str, pool: str) -> set[str]:
    """The node names of the pool whose namespaces were made: some may have no container yet."""
    place = {"kind": "node", "region": region, "pool": pool}
    return {note["node"] for note in netns.owned(stack).values() if place.items() <= note.items()}


def _each(work: Callable[[Any], None], items: Iterable[Any]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(work, items))


def _remove(stack: str, node_names: Sequence[str], progress: Progress) -> None:
    def work(name: str) -> None:
        run(["podman", "rm", "--force", "--ignore", "--time=0", names.node(stack, name)])
        unwire(stack, name)
        progress(f"{name} is removed")

    _each(work, node_names)


def _reconcile_one(node: Node, record: dict[str, Any] | None) -> None:
    _wire(node)
    if record is None or not _adopt(node, record):
        run(_create_command(node), timeout_s=300, hint=f"see `podman logs {node.container}`")
        _admit(node)
    elif record["State"] != "running" or not _admitted(record["Pid"], node):
        _admit(node)
    _await_ssh(node)


def _adopt(node: Node, record: dict[str, Any]) -> bool:
    """Get a standing container to run; False where a new one has to take its place."""
    if record["Labels"].get(names.LABEL + "definition") != node.definition:
        return False
    if record["State"] == "running":
        return True
    if record["State"] not in ("exited", "stopped", "paused"):
        return False  # a run was killed before the first start: there is nothing to keep
    try:
        run(["podman", "unpause" if record["State"] == "paused" else "start", node.container])
    except CausewayError:
        return False  # a node that does not start any more is of no use to anybody
    return True


def _create_command(node: Node) -> list[str]:
    facts = {
        "stack": node.stack,
        "region": node.region,
        "pool": node.pool,
        "node": node.name,
        "address": node.address,
        "urn": node.urn,
        "checkout": names.CHECKOUT,
        "definition": node.definition,
    }
    return [
        *["podman", "run", "--detach", "--replace", "--name", node.container, "--hostname", node.name],
        *["--systemd=always", "--privileged", "--no-hosts"],
        f"--network=ns:{names.netns_path(node.container)}",
        *[f"--dns={server}" for server in nameservers()],
        # Bytes, because podman's "g" takes no fraction.
        *([] if node.shm_gib is None else [f"--shm-size={round(node.shm_gib * 2**30)}b"]),
        # No --ulimit: one on the command line would discard those of containers.conf.
        *["--stop-timeout=5", "--log-driver=k8s-file", "--log-opt=max-size=1mb"],
        *[f"--label={names.LABEL}{key}={value}" for key, value in facts.items()],
        node.image,
    ]


def _wire(node: Node) -> None:
    """Put the node's namespace on its region's bridge; also where a namespace or its cable was lost."""
    router = names.router_netns(node.stack, node.region)
    port, device = names.bridge_port(node.stack, node.name), names.NODE_INTERFACE
    with netns.locked():
        if not netns.exists(router):
            raise CausewayError(
                f"the network of the region {node.region} does not stand", "make the region's network first"
            )
        note = {"kind": "node", "region": node.region, "pool": node.pool, "node": node.name}
        netns.add(node.stack, node.container, note)
        ports, inner = netns.links(router), netns.links(node.container)
        if port not in ports or device not in inner:
            stale = [f"link del {port}"] if port in ports else []
            mac = names.mac(node.stack, node.name)
            pair = f"type veth peer name {device} address {mac} netns {node.container}"
            netns.batch(router, [*stale, f"link add {port} {pair}"])
        mtu = f"mtu {node.mtu_bytes} up"
        netns.batch(
            router, [f"link set {port} master {names.BRIDGE} {mtu}", f'link set {port} alias "{node.name}"']
        )
        lines = netns.set_addresses(inner.get(device), device, f"{node.address}/{node.prefixlen}")
        lines += [f"link set {device} {mtu}", f"route replace default via {node.gateway} dev {device}"]
        netns.batch(node.container, lines)


def unwire(stack: str, name: str) -> None:
    """Remove a node's namespace and its port on the bridge; the container must be gone."""
    namespace, port = names.node(stack, name), names.bridge_port(stack, name)
    with netns.locked():
        note = netns.owned(stack).get(namespace, {})
        router = names.router_netns(stack, note.get("region", ""))
        # By hand: the kernel is slow to clear a deleted namespace, and a new node would meet the old port.
        if netns.exists(router) and port in netns.links(router):
            netns.batch(router, [f"link del {port}"])
        netns.delete(stack, namespace)


def _admit(node: Node) -> None:
    """Give the node its authorised key and wait for its own; `podman exec` is a channel we trust."""
    said = run(
        ["podman", "exec", "--interactive", node.container, "sh", "-ec", _ADMIT],
        stdin=node.public_key.strip() + "\n",
        timeout_s=READY_TIMEOUT_S,
        hint=f"the node did not boot: see `podman logs {node.container}`",
    )
    if not HOST_KEY.match(said):
        raise CausewayError(
            f"{node.name} has no ed25519 host key", f"see `podman exec {node.container} journalctl -u ssh`"
        )


def _admitted(pid: int, node: Node) -> bool:
    key = node.public_key.split()[:2]
    lines = _read(pid, AUTHORIZED_KEYS).splitlines()
    return any(line.split()[:2] == key for line in lines) and bool(_host_key(pid))


def _host_key(pid: int) -> str:
    """The host key out of the node's own file system: no SSH, so nobody in between."""
    found = HOST_KEY.match(_read(pid, ED25519_PUBLIC))
    return found.group() if found else ""


def _read(pid: int, path: str) -> str:
    """The head of a file of a node, by way of its first process: no `podman exec` per node."""
    try:
        with Path(f"/proc/{pid}/root/{path}").open(errors="replace") as stream:
            return stream.read(65536)
    except OSError:
        return ""


def _await_ssh(node: Node) -> None:
    """Wait until sshd greets; the route to the node is then proven, too."""
    deadline = time.monotonic() + READY_TIMEOUT_S
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
    raise CausewayError(
        f"sshd at {node.address} did not answer within {READY_TIMEOUT_S:g} s ({why})",
        f"see `podman exec {node.container} systemctl status ssh`",
    )


def _state(name: str, record: dict[str, Any]) -> NodeState:
    address = IPv4Address(record["Labels"][names.LABEL + "address"])
    running = record["State"] == "running"
    wired = running and _wired(record["Names"][0], address)
    return NodeState(
        name=name,
        address=address,
        instance_id=record["Id"],
        host_key=_host_key(record["Pid"]) if running else "",
        running=wired,
    )


def _wired(namespace: str, address: IPv4Address) -> bool:
    if not netns.exists(namespace):
        return False
    link = netns.links(namespace).get(names.NODE_INTERFACE)
    return link is not None and str(address) in {a.split("/")[0] for a in netns.addresses(link)}


def nameservers() -> list[str]:
    """The name servers a node can reach: the host's own, without those that only the host itself sees."""
    for path in (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf")):
        words = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        servers = [w[1].split("%")[0] for w in words if len(w) > 1 and w[0] == "nameserver"]
        reachable = [s for s in servers if not ip_address(s).is_loopback and ip_address(s).version == 4]
        if reachable:
            return reachable
    return []
