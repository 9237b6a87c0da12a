"""Container nodes: each a systemd container in a network namespace that outlives it."""

import json
import re
import time
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from infra.errors import CausewayError
from infra.process import run
from infra.providers.local import names, netns
from infra.providers.local.node import (
    Node,
    NodeState,
    await_ssh,
    nameservers,
    plug_in,
    router_of,
    unplug,
)

READY_TIMEOUT_S = 90.0
DISCARD_WITHIN_S = 60.0
"""What was killed takes seconds to let go of its memory and its mounts, on a busy machine more."""
DISCARD_PAUSE_S = 0.5
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


def records(stack: str, region: str, pool: str) -> dict[str, dict[str, Any]]:
    """`podman ps`'s record of every container of the pool, by node name."""
    return _records(stack=stack, region=region, pool=pool)


def standing(stack: str) -> list[str]:
    """The node names of all containers of a stack, running or not."""
    return list(_records(stack=stack))


def _records(**labels: str) -> dict[str, dict[str, Any]]:
    chosen = [f"--filter=label={names.LABEL}{key}={value}" for key, value in labels.items()]
    records = json.loads(run(["podman", "ps", "--all", "--format=json", *chosen]) or "[]")
    return {record["Labels"][names.LABEL + "node"]: record for record in records}


def images(stack: str, region: str, pool: str) -> dict[str, str]:
    """Node name → the tag of the image that its container was made from."""
    return {name: str(record["Image"]) for name, record in records(stack, region, pool).items()}


def begun(stack: str, region: str, pool: str) -> set[str]:
    """The node names of the pool whose namespaces were made: some may have no container yet."""
    place = {"kind": "node", "region": region, "pool": pool}
    return {note["node"] for note in netns.owned(stack).values() if place.items() <= note.items()}


def remove(stack: str, name: str) -> None:
    """Remove a node's container, its namespace and its cables."""
    discard(names.node(stack, name))
    unwire(stack, name)


def discard(*containers: str) -> None:
    """Remove containers, whatever state a killed podman left them in; it is no error when there are none."""
    if not containers:
        return
    deadline = time.monotonic() + DISCARD_WITHIN_S
    while True:
        try:
            run(
                ["podman", "rm", "--force", "--ignore", "--time=0", *containers],
                timeout_s=120 + 2 * len(containers),
            )
        except CausewayError:
            # Each try gets one step further: what was killed with its conmon is noted as stopped by the first
            # one, which fails; a /dev/shm that a killed podman has not noted is unmounted by one that fails.
            if time.monotonic() > deadline:
                raise
            time.sleep(DISCARD_PAUSE_S)
        else:
            return


def bring_up(node: Node, record: dict[str, Any] | None) -> None:
    """Adopt, start or make the container, and wait until it answers by SSH."""
    _wire(node)
    if record is None or not _adopt(node, record):
        discard(node.container)
        run(_create_command(node), timeout_s=300, hint=f"see `podman logs {node.container}`")
        _admit(node)
    elif record["State"] != "running" or not _admitted(record["Pid"], node):
        _admit(node)
    await_ssh(node, READY_TIMEOUT_S, f"see `podman exec {node.container} systemctl status ssh`")


def _adopt(node: Node, record: dict[str, Any]) -> bool:
    """Get a standing container to run; False where a new one has to take its place."""
    if record["Labels"].get(names.LABEL + "definition") != _definition(node):
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


def _definition(node: Node) -> str:
    """The size of /dev/shm is left out: the role `base` changes it by a remount."""
    return node.definition(RECIPE)


def _create_command(node: Node) -> list[str]:
    facts = {
        "stack": node.stack,
        "region": node.region,
        "pool": node.pool,
        "node": node.name,
        "address": node.address,
        "urn": node.urn,
        "checkout": names.CHECKOUT,
        "definition": _definition(node),
    }
    return [
        *["podman", "run", "--detach", "--name", node.container, "--hostname", node.name],
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
    """Cable the node's namespace to its region's bridges; also where a namespace or a cable was lost."""
    with netns.locked():
        router = router_of(node)
        netns.add(node.stack, node.container, node.note)
        ports, inner = netns.links(router), netns.links(node.container)
        for cable in node.cables:
            if cable.port not in ports or cable.device not in inner:
                stale = [f"link del {cable.port}"] if cable.port in ports else []
                pair = f"type veth peer name {cable.device} address {cable.mac} netns {node.container}"
                netns.batch(router, [*stale, f"link add {cable.port} {pair}"])
        plug_in(node, router)
        device = names.NODE_INTERFACE
        lines = netns.set_addresses(inner.get(device), device, f"{node.address}/{node.prefixlen}")
        lines.append(f"link set {device} mtu {node.mtu_bytes} up")
        lines.append(f"route replace default via {node.gateway} dev {device}")
        netns.batch(node.container, lines)


def unwire(stack: str, name: str) -> None:
    """Remove a node's cables and its namespace; the container must be gone."""
    namespace = names.node(stack, name)
    with netns.locked():
        # By hand: the kernel is slow to clear a deleted namespace, and a new node would meet the old port.
        unplug(stack, netns.owned(stack).get(namespace, {}).get("region", ""), name)
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


def state(name: str, record: dict[str, Any]) -> NodeState:
    """What a node is; it counts as running once its eth0 carries the address."""
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
