"""Every cable of a fabric: which port of which device is joined to which, and the addresses at both ends.

Leaf uplink j goes to spine j mod s of its pod, so that a leaf's links are spread evenly over the s spines.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from ipaddress import IPv4Address, IPv4Interface
from itertools import product
from typing import Literal, NamedTuple, TextIO

from infra.capabilities.fabric.models import model_of
from infra.capabilities.fabric.topology import LOOPBACK_SHARE, FabricPlan, core_of
from infra.declaration import FabricSpec
from infra.ground.clos import Pod, down_ports

Tier = Literal["leaf", "spine", "core"]


class Switch(NamedTuple):
    """One switch: its tier, its plane, and its number there."""

    tier: Tier
    plane: int
    number: int


@dataclass(frozen=True)
class SwitchLink:
    """A cable between two switches; ports are counted from 0, the two addresses are a /31."""

    lower: Switch
    lower_port: int
    lower_address: IPv4Interface
    upper: Switch
    upper_port: int
    upper_address: IPv4Interface


@dataclass(frozen=True)
class Cable:
    """One cable for those who lay it: device, port as it is printed there, and address of both ends."""

    region: str
    tier: str
    plane: int
    rail: int | None
    """Of the NIC; None between switches."""
    a: str
    a_port: str
    a_address: IPv4Interface
    b: str
    b_port: str
    b_address: IPv4Interface
    gbps: int


def switches(plan: FabricPlan) -> Iterator[Switch]:
    """All switches, plane by plane, from the leafs up."""
    shape = plan.shape
    counts: tuple[tuple[Tier, int], ...] = (
        ("leaf", shape.leafs), ("spine", shape.spines), ("core", shape.cores),
    )  # fmt: skip
    for plane in range(plan.fabric.planes):
        for tier, count in counts:
            yield from (Switch(tier, plane, number) for number in range(count))


def loopbacks(plan: FabricPlan) -> dict[Switch, IPv4Address]:
    """The address of each switch itself, from the last eighth of the switches' half."""
    size = plan.cidr.num_addresses
    base = plan.cidr.network_address + (size - size // 2 // LOOPBACK_SHARE)
    return {switch: base + number for number, switch in enumerate(switches(plan))}


def switch_links(plan: FabricPlan) -> Iterator[SwitchLink]:
    """All links between switches, from the leafs up within each plane."""
    base = int(plan.cidr.network_address) + plan.cidr.num_addresses // 2
    ends = (end for plane in range(plan.fabric.planes) for end in _ends(plan, plane))
    for number, (lower, lower_port, upper, upper_port) in enumerate(ends):
        low, high = (IPv4Interface((base + 2 * number + side, 31)) for side in (0, 1))
        yield SwitchLink(lower, lower_port, low, upper, upper_port, high)


def _ends(plan: FabricPlan, plane: int) -> Iterator[tuple[Switch, int, Switch, int]]:
    shape = plan.shape
    for pod in shape.pods:
        yield from _pod_ends(plan, plane, pod)
    for spine, uplink in product(range(shape.spines), range(shape.spine_up)):
        core, port = core_of(shape, spine, uplink)
        yield Switch("spine", plane, spine), shape.spine_down + uplink, Switch("core", plane, core), port


def _pod_ends(plan: FabricPlan, plane: int, pod: Pod) -> Iterator[tuple[Switch, int, Switch, int]]:
    first_up, ups = down_ports(plan.fabric), plan.shape.leaf_up
    for leaf in range(pod.leafs):
        for uplink in range(ups):
            number, spine = divmod(uplink, pod.spines)
            spine_port = leaf * (ups // pod.spines) + number
            lower = Switch("leaf", plane, pod.first_leaf + leaf)
            yield lower, first_up + uplink, Switch("spine", plane, pod.first_spine + spine), spine_port


def port_name(fabric: FabricSpec, port: int) -> str:
    """A switch port as its system names it: on SONiC after the first lane; else counted from 1."""
    if fabric.switch is None:
        return str(port + 1)
    return model_of(fabric.switch).port(port, fabric.link_gbps).name


def cables(plan: FabricPlan) -> Iterator[Cable]:
    """All cables: node by node, then between switches."""
    fabric, gbps = plan.fabric, plan.fabric.link_gbps
    for node, nics in plan.node_nics():
        for nic in nics:
            yield Cable(
                plan.region, "node-leaf", nic.plane, nic.rail,
                node, nic.name, IPv4Interface((nic.address, nic.prefix)),
                plan.switch_name("leaf", nic.plane, nic.leaf), port_name(fabric, nic.port),
                IPv4Interface((nic.gateway, nic.prefix)), gbps,
            )  # fmt: skip
    for link in switch_links(plan):
        lower, upper = link.lower, link.upper
        yield Cable(
            plan.region, f"{lower.tier}-{upper.tier}", lower.plane, None,
            plan.switch_name(*lower), port_name(fabric, link.lower_port), link.lower_address,
            plan.switch_name(*upper), port_name(fabric, link.upper_port), link.upper_address, gbps,
        )  # fmt: skip


def write_csv(found: Iterable[Cable], file: TextIO) -> None:
    """A line of headings and one per cable (RFC 4180, but with a line feed only)."""
    headings = [field.name for field in fields(Cable)]
    writer = csv.DictWriter(file, headings, lineterminator="\n")
    writer.writeheader()
    writer.writerows(vars(cable) for cable in found)
