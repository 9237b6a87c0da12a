"""The provider `local` as Pulumi sees it: a resource per machine, region network, pool and WAN link."""

import threading
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Any

import pulumi

from infra.providers.lifecycle import Lifecycle, Managed, Properties
from infra.providers.local import baked, containers, host, image, network, nodes, signing, vm_image, vms, wan

_READ: set[str] = set()
"""Roots of baked images that this run has read: several pools may start from one."""
_ONE_READS = threading.Lock()


def say(line: str) -> None:
    """One line of progress: what a provider prints, Pulumi shows while it happens."""
    print(line, flush=True)


class MachineLifecycle(Lifecycle):
    """This machine: found able to hold the stack before anything is created, and the images of its nodes."""

    outputs = ("image", "vm_image")

    def identity(self, inputs: Properties) -> str:
        """One per stack."""
        return f"machine/{inputs['stack']}"

    def ensure(self, inputs: Properties, known: Properties) -> dict[str, Any]:
        """Refuse with every reason at once, or build the images that nodes are made from."""
        requirements = host.Requirements.of(inputs)
        host.require(requirements)
        made = {"image": image.ensure_image(say), "vm_image": ""}
        if requirements.vm_memory_mib:
            folder = vm_image.ensure_image(say)
            say(f"virtual machines run under {vms.accelerator_for(folder).upper()}")
            made["vm_image"] = str(folder)
        return made

    def observe(self, properties: Properties) -> list[str]:
        """A changed recipe asks for another image."""
        wanted = {"image": image.image_tag()}
        if properties.get("vm_image"):
            wanted["vm_image"] = str(vm_image.image_dir())
        return [f"the node image is now {tag}" for key, tag in wanted.items() if properties[key] != tag]

    def remove(self, properties: Properties) -> None:
        """The image stays: it is a cache that all stacks share."""


class Machine(Managed, module="causeway", name="Machine"):
    """This machine as the ground under a stack's local nodes."""

    image: pulumi.Output[str]
    vm_image: pulumi.Output[str]
    """"" where no virtual machine is declared."""

    def __init__(self, name: str, inputs: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(MachineLifecycle, name, inputs, opts)


class NetworkLifecycle(Lifecycle):
    """A region's bridge, router and uplink."""

    replace_on = ("stack", "region", "cidr")

    def identity(self, inputs: Properties) -> str:
        """One per region."""
        return f"{inputs['stack']}/{inputs['region']}"

    def ensure(self, inputs: Properties, known: Properties) -> dict[str, Any]:
        """Make it, or complete it."""
        network.ensure(_network(inputs), _peers(inputs))
        return {}

    def observe(self, properties: Properties) -> list[str]:
        """What is wrong with it, if anything."""
        state = network.inspect(_network(properties), _peers(properties))
        return [] if state.up else [state.problem or "it is gone"]

    def remove(self, properties: Properties) -> None:
        """Take bridge, router and uplink away."""
        network.remove(properties["stack"], properties["region"])


class LocalNetwork(Managed, module="causeway", name="LocalNetwork"):
    """A region's network on this machine."""

    def __init__(self, name: str, inputs: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(NetworkLifecycle, name, inputs, opts)


class NodePoolLifecycle(Lifecycle):
    """The nodes of one pool. Does its own concurrency; Pulumi sees one resource."""

    outputs = ("instances",)
    replace_on = ("stack", "region", "pool")
    quiet = ("baked",)

    def identity(self, inputs: Properties) -> str:
        """One per pool."""
        return f"{inputs['stack']}/{inputs['region']}/{inputs['pool']}"

    def ensure(self, inputs: Properties, known: Properties) -> dict[str, Any]:
        """Create what is missing, adopt what is right, replace what differs, remove what is too much."""
        key = (inputs["stack"], inputs["region"], inputs["pool"])
        with baked.in_use(*_baked_names(inputs)):
            states = nodes.reconcile(*key, _from_images(inputs), say)
        return {
            "instances": {
                state.name: {"id": state.instance_id, "host_key": state.host_key} for state in states
            }
        }

    def observe(self, properties: Properties) -> list[str]:
        """Nodes that are gone, stopped, not the ones we made, or cabled to something else."""
        found = nodes.inspect(properties["stack"], properties["region"], properties["pool"])
        misplugged = nodes.misplugged(_nodes(properties))
        drift = []
        for name, instance in properties["instances"].items():
            if name not in found:
                drift.append(f"{name}: the node is gone")
            elif not found[name].running:
                drift.append(f"{name}: the node does not run")
            elif found[name].instance_id != instance["id"]:
                drift.append(f"{name}: another node stands in its place")
            elif name in misplugged:
                drift.append(f"{name}: its cables are not those declared")
        return drift

    def remove(self, properties: Properties) -> None:
        """Take all nodes of the pool away."""
        nodes.remove_pool(properties["stack"], properties["region"], properties["pool"])


class LocalNodePool(Managed, module="causeway", name="LocalNodePool"):
    """A pool of nodes: containers or virtual machines."""

    instances: pulumi.Output[dict[str, Any]]

    def __init__(self, name: str, inputs: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(NodePoolLifecycle, name, inputs, opts)


class WanLinkLifecycle(Lifecycle):
    """An emulated WAN link between two regions' routers or gateway nodes: real delay, rate and loss."""

    replace_on = ("stack", "link", "a", "b", "a_gateway", "b_gateway")

    def identity(self, inputs: Properties) -> str:
        """One per link."""
        return f"{inputs['stack']}/{inputs['link']}"

    def ensure(self, inputs: Properties, known: Properties) -> dict[str, Any]:
        """Make it, or give it its new values; nodes are not touched."""
        wan.ensure(_link(inputs))
        return {}

    def observe(self, properties: Properties) -> list[str]:
        """What is wrong with it, if anything."""
        state = wan.inspect(_link(properties))
        return [] if state.up else [state.problem or "it is down"]

    def remove(self, properties: Properties) -> None:
        """Take the link away; the regions stay."""
        wan.remove(properties["stack"], properties["link"])


class LocalWanLink(Managed, module="causeway", name="LocalWanLink"):
    """A WAN link on this machine."""

    def __init__(self, name: str, inputs: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(WanLinkLifecycle, name, inputs, opts)


def _network(inputs: Properties) -> network.RegionNetwork:
    gateway = inputs.get("wan_gateway")
    return network.RegionNetwork(
        stack=inputs["stack"],
        region=inputs["region"],
        cidr=IPv4Network(inputs["cidr"]),
        mtu_bytes=int(inputs["mtu_bytes"]),
        wan_gateway=IPv4Address(gateway) if gateway else None,
        leafs=tuple(
            network.Leaf(bridge, tuple(map(IPv4Interface, addresses)))
            for bridge, addresses in inputs.get("leafs", {}).items()
        ),
    )


def _peers(inputs: Properties) -> list[IPv4Network]:
    return [IPv4Network(cidr) for cidr in inputs["peers"]]


def _nodes(inputs: Properties) -> list[nodes.Node]:
    shared = {
        "stack": inputs["stack"],
        "region": inputs["region"],
        "pool": inputs["pool"],
        "gateway": IPv4Address(inputs["gateway"]),
        "prefixlen": IPv4Network(inputs["cidr"]).prefixlen,
        "mtu_bytes": int(inputs["mtu_bytes"]),
        "image": inputs["image"],
        "public_key": inputs["public_key"],
        "urn": inputs["urn"],
        "shm_gib": inputs["shm_gib"],
        "kind": inputs.get("node_kind", "container"),
        "memory_mib": int(inputs.get("memory_mib", 0)),
    }
    fabric = inputs.get("fabric", {})
    return [
        nodes.Node(
            name=name,
            address=IPv4Address(address),
            fabric=tuple(nodes.FabricPort(port, leaf) for port, leaf in fabric.get(name, {}).items()),
            **shared,
        )
        for name, address in inputs["nodes"].items()
    ]


def _from_images(inputs: Properties) -> list[nodes.Node]:
    """The pool's nodes, each with its image: one that stands keeps what it was made from, whatever the node
    image is now; others start from the baked image of what is declared now, where it was built.
    """
    desired, wanted, made_from = _nodes(inputs), inputs.get("baked", ""), _made_from(inputs)
    new: str = inputs["image"]
    if wanted:
        stored = baked.stored()
        found = next((one for one in stored if one.name == wanted and one.signed), None)
        complaint = ""
        if found and {node.name for node in desired} - made_from.keys():
            try:
                new = _checked(found, machines=_are_machines(inputs))
            except baked.DamagedError as error:
                complaint = f"{error.message} ({error.hint})"
        _tell(inputs, stored, found, complaint)
    return [replace(node, image=made_from.get(node.name, new)) for node in desired]


def _checked(found: baked.Baked, *, machines: bool) -> str:
    """What new nodes start from of an image, all of it held against what was signed."""
    if machines:
        return str(vm_image.ensure_image(say, found))
    with _ONE_READS:
        if found.root not in _READ:
            say(f"reading image {found.name}, which is held against what was signed")
            baked.require_whole(found)
            _READ.add(found.root)
    return found.tag


def _made_from(inputs: Properties) -> dict[str, str]:
    """Each node of the pool that stands → what it was made from."""
    key = (inputs["stack"], inputs["region"], inputs["pool"])
    return vms.images(*key) if _are_machines(inputs) else containers.images(*key)


def _baked_names(inputs: Properties) -> list[str]:
    """The baked images that nodes of the pool stand on, or may be made from now."""
    standing = (baked.name_in(made_from) for made_from in _made_from(inputs).values())
    return [name for name in (inputs.get("baked"), *standing) if name]


def _are_machines(inputs: Properties) -> bool:
    return bool(inputs.get("node_kind") == "vm")


def _tell(inputs: Properties, stored: list[baked.Baked], found: baked.Baked | None, complaint: str) -> None:
    """Say from which image new nodes start; nothing where no image was ever built for the pool."""
    pool = f"{inputs['region']}-{inputs['pool']}"
    older = [one.name for one in stored if one.pool == pool]
    build = f"causeway image build {pool} --stack {inputs['stack']}"
    if complaint:
        say(f"new nodes of {pool} start from the plain image: {complaint}")
    elif found:
        say(f"new nodes of {pool} start from the baked image {found.name}, {found.age_days:.0f} days old")
    elif any(one.name == inputs["baked"] for one in stored):
        why = f"{inputs['baked']} is not signed by {signing.public_file()}"
        say(f"new nodes of {pool} start from the plain image: {why} ({build})")
    elif older:
        say(f"new nodes of {pool} start from the plain image: {older[0]} was baked of older inputs ({build})")


def _link(inputs: Properties) -> wan.Link:
    return wan.Link(
        stack=inputs["stack"],
        name=inputs["link"],
        a=inputs["a"],
        b=inputs["b"],
        a_address=IPv4Interface(inputs["a_address"]),
        b_address=IPv4Interface(inputs["b_address"]),
        rtt_ms=inputs["rtt_ms"],
        bandwidth_mbps=inputs["bandwidth_mbps"],
        loss_pct=inputs["loss_pct"],
        mtu_bytes=int(inputs["mtu_bytes"]),
        a_gateway=inputs.get("a_gateway"),
        b_gateway=inputs.get("b_gateway"),
        a_routes=_routes(inputs.get("a_routes", {})),
        b_routes=_routes(inputs.get("b_routes", {})),
    )


def _routes(metrics: Properties) -> wan.Routes:
    return tuple((IPv4Network(cidr), int(metric)) for cidr, metric in metrics.items())
