"""A region's fabric: that it can be built, that both ends of every cable agree, that its buffers suffice."""

import re
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Network
from typing import ClassVar

from infra.capabilities.fabric import buffers, models
from infra.capabilities.fabric import topology as fabric
from infra.declaration import ClusterSpec, FabricSpec, NodePoolSpec, RegionSpec, SwitchSpec
from infra.ground import clos
from infra.ground.addresses import UPLINK_NETWORK
from infra.ground.problem import Problem, Severity, listing, nearest, show
from infra.ground.rule import pools
from infra.ground.rules.pools import NIC_GBPS, closest
from infra.ground.rules.regions import SPECIAL

MOST_OVERSUBSCRIBED = 2.0
"""Beyond, collectives of training wait for the network (NVIDIA and Meta build 1:1 below the cores)."""
INTERFACE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
"""What Linux takes (IFNAMSIZ) and every tool prints unquoted."""
RADIXES = (32, 64, 128, 256, 512)
"""Switches that are sold, in ports."""
EITHER_SIDE = ("dscp", "priority", "cnp_dscp", "cnp_priority")


def _fabrics(spec: ClusterSpec) -> Iterator[tuple[str, int, RegionSpec, FabricSpec]]:
    """(path, number of the region, the region, its fabric) of each region that has one."""
    for index, region in enumerate(spec.regions):
        if region.fabric is not None:
            yield f"regions[{index}].fabric", index, region, region.fabric


def _switches(spec: ClusterSpec) -> Iterator[tuple[str, FabricSpec, SwitchSpec]]:
    for path, _, _, found in _fabrics(spec):
        if found.switch is not None:
            yield path, found, found.switch


def _fabric_pools(spec: ClusterSpec) -> Iterator[tuple[str, NodePoolSpec, FabricSpec]]:
    """(path, pool, its fabric) of each pool that is on one."""
    for path, region, _, pool in pools(spec):
        if region.fabric is not None and pool.nics > 0:
            yield path, pool, region.fabric


class FabricHasNodes:
    """Without a NIC on it there is nothing to plan."""

    id: ClassVar[str] = "fabric-nodes"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Fabrics of regions where no pool has NICs."""
        for path, _, region, _ in _fabrics(spec):
            if not clos.fabric_pools(region):
                hint = "give nics and nic_gbps to the pools that are on it"
                yield Problem(path, f"no pool of region {region.name} has nics", hint=hint)


class FabricSpeedsAgree:
    """Every plane takes one port of each NIC; nothing else splits a NIC's speed."""

    id: ClassVar[str] = "fabric-speed"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Links of a speed that no port has, and NICs that are not planes × link_gbps."""
        for path, _, _, found in _fabrics(spec):
            if found.link_gbps not in NIC_GBPS:
                allowed = listing(NIC_GBPS)
                message = f"{show(found.link_gbps)} Gbit/s is not one of {allowed}"
                suggestion = closest(found.link_gbps, NIC_GBPS)
                yield Problem(f"{path}.link_gbps", message, show(found.link_gbps), allowed, suggestion)
        for path, pool, found in _fabric_pools(spec):
            wanted = found.planes * found.link_gbps
            if found.link_gbps in NIC_GBPS and pool.nic_gbps not in (None, wanted):
                message = (
                    f"{show(pool.nic_gbps)} Gbit/s, but the fabric has {found.planes} "
                    f"plane{'s' * (found.planes > 1)} of {found.link_gbps} Gbit/s"
                )
                hint = f"declare nic_gbps: {wanted}, or another link_gbps or number of planes"
                yield Problem(f"{path}.nic_gbps", message, show(pool.nic_gbps), str(wanted), hint=hint)


class FabricRailsAreNics:
    """NIC i of a node is on rail i."""

    id: ClassVar[str] = "fabric-rails"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Pools that have more or fewer NICs than the fabric has rails."""
        for path, pool, found in _fabric_pools(spec):
            if pool.nics != found.rails:
                message = f"{pool.nics} NICs, but the fabric has {found.rails} rails"
                suggestion = str(found.rails)
                yield Problem(f"{path}.nics", message, str(pool.nics), suggestion, suggestion)


class FabricLeafHasThePorts:
    """A leaf's ports go down to nodes and up to spines, each once."""

    id: ClassVar[str] = "fabric-ports"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Leafs with more ports in use than the radix, and those that cannot take the NICs of one node."""
        for path, _, _, found in _fabrics(spec):
            down, up = clos.down_ports(found), clos.up_ports(found)
            if down + up > found.radix:
                most = clos.down_ports(found.model_copy(update={"leaf_down_ports": None}))
                message = (
                    f"{down} ports down need {up} up at {found.oversubscription:g}:1, "
                    f"and radix {found.radix} has not {down + up}"
                )
                yield Problem(f"{path}.leaf_down_ports", message, str(down), f"at most {most}", str(most))
            elif not clos.nodes_per_group(found):
                message = (
                    f"a leaf has {down} ports down, and {found.kind} takes all {found.rails} NICs of a node "
                    "to one leaf"
                )
                hint = "use a larger radix, or kind: rail_optimized, which takes one NIC of a node to a leaf"
                yield Problem(f"{path}.radix", message, str(found.radix), hint=hint)


class FabricHoldsItsNodes:
    """A Clos network ends where its switches have no port left."""

    id: ClassVar[str] = "fabric-size"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Fabrics with more nodes than their radix can join, with what would."""
        for path, _, region, found in _fabrics(spec):
            nodes, most = clos.fabric_nodes(region), clos.max_nodes(found)
            # A leaf that takes no node at all is for the rule above to say.
            if most < nodes and clos.nodes_per_group(found):
                message = (
                    f"{nodes:,} nodes with {nodes * clos.ports_per_node(found):,} endpoints: radix "
                    f"{found.radix} carries at most {most:,} nodes ({clos.max_endpoints(found):,} "
                    f"endpoints) in {clos.max_tiers(found)} tiers"
                )
                if not most:
                    message = f"radix {found.radix} does not reach a leaf for each of {found.rails} rails"
                allowed = f"{most:,} nodes"
                yield Problem(
                    f"{path}.radix", message, str(found.radix), allowed, hint=_what_fits(found, nodes)
                )


def _what_fits(found: FabricSpec, nodes: int) -> str:
    """A sentence with the next radix, or the kind with another tier, that would hold so many nodes."""
    taller = found.model_copy(update={"kind": "fat_tree"})
    if clos.max_tiers(found) < clos.max_tiers(taller) and clos.max_nodes(taller) >= nodes:
        return "a third tier would hold them: kind: fat_tree"
    for radix in RADIXES:
        larger = found.model_copy(update={"radix": radix})
        if clos.max_nodes(larger) >= nodes:
            return f"radix {radix} would hold them ({clos.max_nodes(larger):,} nodes)"
    return "split the region"


class FabricIsNotOversubscribed:
    """Collectives of training load all links at once, so a leaf needs half as many ports up as down."""

    id: ClassVar[str] = "fabric-oversubscription"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Fabrics of GPU nodes with more than 2:1 at the leafs."""
        for path, _, region, found in _fabrics(spec):
            training = any(pool.gpus for pool in clos.fabric_pools(region))
            if training and found.oversubscription > MOST_OVERSUBSCRIBED:
                message = f"{show(found.oversubscription)}:1 is too much for a training fabric"
                allowed = f"1 to {MOST_OVERSUBSCRIBED:g}"
                yield Problem(
                    f"{path}.oversubscription", message, show(found.oversubscription), allowed,
                    f"{MOST_OVERSUBSCRIBED:g}",
                )  # fmt: skip


class FabricRangeIsFree:
    """Hosts reach the fabric's addresses through other ports than any others."""

    id: ClassVar[str] = "fabric-range"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Ranges that overlap others or are too small, and fabrics for which no default is left."""
        taken: dict[str, IPv4Network] = {
            f"region {region.name}'s {region.cidr}": region.cidr for region in spec.regions
        }
        taken |= SPECIAL | {f"the regions' uplinks ({UPLINK_NETWORK})": UPLINK_NETWORK} | _reached(spec)
        for path, index, region, found in _fabrics(spec):
            network, longest = fabric.fabric_range(index, region), _longest_prefix(region, found)
            fits = f"a /{longest} fits"
            if network is None:
                message = f"is missing; there is no default for region {index + 1}"
                yield Problem(f"{path}.cidr", message, hint=f"declare a range of its own: {fits}")
                continue
            overlap = next((what for what, other in taken.items() if other.overlaps(network)), None)
            if overlap is not None:
                yield Problem(f"{path}.cidr", f"{network} overlaps {overlap}", str(network))
            taken[f"region {region.name}'s fabric {network}"] = network
            if network.prefixlen > longest:
                message = f"{network} is too small for the fabric's hosts and switches"
                yield Problem(f"{path}.cidr", message, str(network), f"/{longest} or larger", hint=fits)


def _reached(spec: ClusterSpec) -> dict[str, IPv4Network]:
    """What gateways and the controller reach outside of all regions, and would look for in the fabric."""
    found: dict[str, IPv4Network] = {}
    for link in spec.wan_links:
        for end in filter(None, (link.a_end, link.b_end)):
            found[f"{end.address.network}, where {link.name} is handed over"] = end.address.network
            if end.public_address is not None:
                found[f"{end.public_address}, an end of {link.name}"] = IPv4Network(end.public_address)
    for region in spec.regions:
        for jump in region.provider.ssh_jump:
            with suppress(ValueError):  # a name
                found[f"{jump.address}, a jump host of region {region.name}"] = IPv4Network(jump.address)
    return found


def _longest_prefix(region: RegionSpec, found: FabricSpec) -> int:
    """Of the smallest range that holds the fabric; any will do where other rules refuse the fabric itself."""
    nodes = clos.fabric_nodes(region)
    if not 1 <= nodes <= clos.max_nodes(found):
        return 32
    return fabric.longest_prefix(clos.Shape(found, nodes))


class FabricSidesAgree:
    """A packet that hosts send as lossless has to be so in every switch, and nothing else has to."""

    id: ClassVar[str] = "fabric-roce"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Switches that are set to another marking than the hosts, and data marked like notifications."""
        for path, _, _, found in _fabrics(spec):
            for name, other in (("cnp_dscp", "dscp"), ("cnp_priority", "priority")):
                value = getattr(found.roce, name)
                if value == getattr(found.roce, other):
                    message = (
                        f"{value} is also {other}: notifications would wait behind the data they slow down"
                    )
                    yield Problem(f"{path}.roce.{name}", message, str(value), f"not {value}")
        for path, found, switch in _switches(spec):
            for name in EITHER_SIDE:
                here, there = getattr(found.roce, name), getattr(switch, name)
                if there is not None and there != here:
                    message = f"{there} on the switches, but hosts have roce.{name} {here}"
                    yield Problem(f"{path}.switch.{name}", message, str(there), str(here), str(here))


class FabricMtuFits:
    """A hop with a smaller MTU drops what does not fit, and says nothing: the fabric does not fragment."""

    id: ClassVar[str] = "fabric-mtu"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Hosts' packets that are larger than the switches take."""
        for path, found, switch in _switches(spec):
            if found.mtu_bytes > switch.mtu_bytes:
                message = f"{found.mtu_bytes} is larger than the switches' mtu_bytes of {switch.mtu_bytes}"
                most = str(switch.mtu_bytes)
                yield Problem(f"{path}.mtu_bytes", message, str(found.mtu_bytes), f"at most {most}", most)


class SwitchModelIsKnown:
    """Which lanes a port has differs from model to model, and a port with other lanes never comes up."""

    id: ClassVar[str] = "switch-model"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Models whose ports are not known, that have another chip, or whose ports have another speed."""
        for path, found, switch in _switches(spec):
            if switch.hwsku is None:
                continue
            path, name = f"{path}.switch.hwsku", switch.hwsku
            fitting = list(models.hwskus(switch.asic, found.link_gbps))
            message = ""
            if name not in models.HWSKUS:
                message = f"the ports of {name} are not known here"
            elif models.HWSKUS[name][0].asic != switch.asic:
                message = f"{name} has the chip {models.HWSKUS[name][0].asic}, but asic is {switch.asic}"
            elif fitting and name not in fitting:
                message = f"{name} has no ports of {found.link_gbps} Gbit/s"
            if message:
                hint = f"{switch.asic} with such ports: {listing(fitting)}" if fitting else ""
                suggestion = nearest(name, fitting) if name not in models.HWSKUS else None
                yield Problem(path, message, name, listing(fitting), suggestion, hint)


class SwitchHasTheSpeed:
    """A chip's lanes end at a speed."""

    id: ClassVar[str] = "switch-speed"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Links of a speed that no port of the chip has."""
        for path, found, switch in _switches(spec):
            have = models.speeds(switch.asic)
            if found.link_gbps not in have and found.link_gbps in NIC_GBPS:
                message = (
                    f"{switch.asic} has ports of {min(have)} to {max(have)} Gbit/s, links have "
                    f"{found.link_gbps}"
                )
                fast = [name for name in buffers.ASICS if found.link_gbps in models.speeds(name)]
                yield Problem(
                    f"{path}.switch.asic", message, switch.asic, listing(fast), next(iter(fast), None)
                )


class SwitchHasThePorts:
    """Ports that a switch has not cannot be configured; a larger radix needs another model."""

    id: ClassVar[str] = "switch-capacity"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Switches with more ports than the declared model has, or the chip's model that stands for all."""
        for path, found, switch in _switches(spec):
            ports = models.model_of(switch).ports(found.link_gbps)
            if ports and found.radix > ports:
                name = switch.hwsku or f"a switch with {switch.asic}"
                message = f"{name} has {ports} ports of {found.link_gbps} Gbit/s, not {found.radix}"
                yield Problem(f"{path}.radix", message, str(found.radix), f"at most {ports}", str(ports))


class SwitchBuffersFit:
    """Headroom is reserved for every port, and what is left must hold a queue until ECN has slowed it down.

    Otherwise ports pause each other before anything is marked.
    """

    id: ClassVar[str] = "switch-buffers"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Switches whose buffer is too small for the radix, the speed and the cables."""
        for path, found, switch in _switches(spec):
            model = models.model_of(switch)
            if not 0 < found.radix <= model.ports(found.link_gbps):
                continue
            shared = buffers.shared_bytes(found, switch)
            kmin = buffers.ecn_thresholds(found.link_gbps, shared, found.radix).min_bytes
            if kmin < (least := buffers.ecn_floor_bytes(found.link_gbps)):
                each = buffers.headroom(model, found.link_gbps, switch.cable_m, switch.mtu_bytes).size
                whole = buffers.ASICS[model.asic].buffer_bytes
                message = (
                    f"headroom of {found.radix} × {each:,} bytes leaves {max(shared, 0):,} of {model.asic}'s"
                    f" {whole:,}, less than the {2 * found.radix * least:,} that marking by ECN needs"
                )
                hint = "use shorter cables, fewer ports, or a switch with more buffer"
                yield Problem(f"{path}.switch.cable_m", message, show(switch.cable_m), hint=hint)


class NicNamesFit:
    """Settings are made by interface name, so each port has one of its own."""

    id: ClassVar[str] = "nic-names"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Names that are too few or too many, that stand twice, or that no interface can have."""
        for path, region, _, pool in pools(spec):
            if not pool.nic_names:
                continue
            wanted = max(pool.nics, 0) * (region.fabric.planes if region.fabric else 1)
            if len(pool.nic_names) != wanted:
                message = f"{len(pool.nic_names)} names for {wanted} fabric ports"
                yield Problem(f"{path}.nic_names", message, str(len(pool.nic_names)), str(wanted))
            for number, name in enumerate(pool.nic_names):
                if not INTERFACE_NAME.fullmatch(name):
                    message = f"{show(name)} is not an interface name (1 to 15 of a-z, 0-9, '_', '.', '-')"
                    yield Problem(f"{path}.nic_names[{number}]", message, show(name))
                elif name in pool.nic_names[:number]:
                    message = f"{show(name)} stands twice"
                    yield Problem(f"{path}.nic_names[{number}]", message, show(name))


class LosslessEndsAtTheEdge:
    """A pause frame takes half a round trip to arrive: over a WAN it comes too late, and stops everything."""

    id: ClassVar[str] = "link-lossless"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Links with a priority that is to be lossless."""
        for index, link in enumerate(spec.wan_links):
            if link.pfc_priorities:
                shown = listing(link.pfc_priorities)
                message = f"{shown}: no class is lossless on a WAN link"
                hint = "take pfc_priorities out: RoCE ends at the region's edge"
                yield Problem(f"wan_links[{index}].pfc_priorities", message, shown, hint=hint)
