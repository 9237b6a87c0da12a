"""A complete SONiC `config_db.json` for every switch of a fabric.

Tables and fields are those of SONiC's YANG models (sonic-buildimage, src/sonic-yang-models). Where its own
templates (qos_config.j2, buffers_defaults_objects.j2) mean something else, this follows the declaration: they
send DSCP 26 to a lossy class and make two priorities lossless.

Nodes of a group share a VLAN per rail, whose gateway is the leaf. Switches are joined by routed /31 links and
eBGP (RFC 7938): each leaf has an AS number of its own, the spines of a pod share one, and so do all cores. So
no path goes down and up again, which keeps pauses from going round in circles.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface

from infra.capabilities.fabric import buffers
from infra.capabilities.fabric.cabling import Switch, SwitchLink, loopbacks, port_name, switch_links, switches
from infra.capabilities.fabric.models import Model, model_of
from infra.capabilities.fabric.topology import FabricPlan
from infra.declaration import SwitchSpec

Table = dict[str, dict[str, str]]
ConfigDb = dict[str, Table]
"""Table → key (parts joined by `|`) → field → value."""

TABLES = frozenset({
    "BGP_BBR", "BGP_NEIGHBOR", "BUFFER_PG", "BUFFER_POOL", "BUFFER_PORT_EGRESS_PROFILE_LIST",
    "BUFFER_PORT_INGRESS_PROFILE_LIST", "BUFFER_PROFILE", "BUFFER_QUEUE", "CABLE_LENGTH", "DEVICE_METADATA",
    "DEVICE_NEIGHBOR", "DEVICE_NEIGHBOR_METADATA", "DSCP_TO_TC_MAP", "FLEX_COUNTER_TABLE", "INTERFACE",
    "LOOPBACK_INTERFACE", "MAP_PFC_PRIORITY_TO_QUEUE", "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP", "PFC_WD", "PORT",
    "PORT_QOS_MAP", "QUEUE", "SCHEDULER", "TC_TO_PRIORITY_GROUP_MAP", "TC_TO_QUEUE_MAP", "VLAN",
    "VLAN_INTERFACE", "VLAN_MEMBER", "WRED_PROFILE",
})  # fmt: skip
"""All that a switch may get: one that a switch does not get is planned as empty."""
OTHER_WAYS = frozenset({
    "BGP_INTERNAL_NEIGHBOR", "BGP_PEER_RANGE", "BREAKOUT_CFG", "DEFAULT_LOSSLESS_BUFFER_PARAMETER",
    "LOSSLESS_TRAFFIC_PATTERN", "PORTCHANNEL", "PORTCHANNEL_INTERFACE", "PORTCHANNEL_MEMBER",
    "VLAN_SUB_INTERFACE",
})  # fmt: skip
"""Tables that would give the same ports, neighbours and buffers another meaning: planned as empty, always."""
MAP = "CAUSEWAY"
"""Name of every map; a switch has one of a kind."""
CLASSES = range(8)
DSCPS = range(64)
FIRST_VLAN = 100
FIRST_ASN = {"core": 4_200_000_000, "spine": 4_201_000_000, "leaf": 4_210_000_000}
"""For private use (RFC 6996)."""
ASNS_PER_PLANE = 1_000_000
SONIC_TYPE = {"leaf": "ToRRouter", "spine": "LeafRouter", "core": "SpineRouter"}
WITHOUT_FEC_GBPS = (1, 10, 40)
"""Lanes of at most 10 Gbit/s; faster ones need RS-FEC on fibre, those of PAM4 always (IEEE 802.3)."""
SHARED_ALL, SHARED_LOSSY, SHARED_LOSSLESS = "7", "3", "0"
"""α as a power of two: 128, 8 and 1 times what is free of a pool, as in SONiC's tables for these chips."""


@dataclass(frozen=True)
class _End:
    """What a port leads to: the other device and its port; our address and theirs on that link or VLAN."""

    device: str
    port: str
    address: IPv4Interface
    peer_address: IPv4Interface
    peer: Switch | None = None
    """The switch; None for a node."""
    rail: int = 0


@dataclass(frozen=True)
class _Config:
    """One switch and all that its configuration depends on."""

    plan: FabricPlan
    spec: SwitchSpec
    switch: Switch
    ends: dict[int, _End]
    loopbacks: dict[Switch, IPv4Address]

    @property
    def used(self) -> list[str]:
        """Names of the ports that lead somewhere."""
        return [port_name(self.plan.fabric, port) for port in self.ends]

    def named(self, *, routed: bool) -> Iterator[tuple[str, _End]]:
        """The ports to switches, or those to nodes."""
        for port, end in self.ends.items():
            if (end.peer is not None) == routed:
                yield port_name(self.plan.fabric, port), end

    def database(self) -> ConfigDb:
        """The whole configuration, without tables that have no entry."""
        tables = self._device() | self._ports() | self._underlay() | self._vlans()
        tables |= self._classes() | self._queues() | self._buffers() | self._watchdog()
        return {name: table for name, table in tables.items() if table}

    def _device(self) -> ConfigDb:
        loopback = self.loopbacks[self.switch]
        localhost = {
            "hostname": self.plan.switch_name(*self.switch),
            "type": SONIC_TYPE[self.switch.tier],
            "bgp_asn": str(asn(self.plan, self.switch)),
            "bgp_router_id": str(loopback),
            "buffer_model": "traditional",
            "docker_routing_config_mode": "separated",
        }
        if self.spec.hwsku:
            localhost["hwsku"] = self.spec.hwsku
        return {
            "DEVICE_METADATA": {"localhost": localhost},
            "BGP_BBR": {"all": {"status": "disabled"}},  # or spines would take routes back from below
            "LOOPBACK_INTERFACE": {"Loopback0": {}, f"Loopback0|{loopback}/32": {}},
        }

    def _ports(self) -> ConfigDb:
        return {
            "PORT": {
                port_name(self.plan.fabric, port): self._port(port) for port in range(self.plan.fabric.radix)
            },
            "CABLE_LENGTH": {MAP: dict.fromkeys(self.used, f"{_whole_m(self.spec)}m")},
            "DEVICE_NEIGHBOR": {
                port_name(self.plan.fabric, port): {"name": end.device, "port": end.port}
                for port, end in self.ends.items()
            },
        }

    def _port(self, port: int) -> dict[str, str]:
        gbps, end = self.plan.fabric.link_gbps, self.ends.get(port)
        on_box = self.model.port(port, gbps)
        fields = {
            "alias": on_box.alias,
            "index": str(on_box.cage),
            "lanes": ",".join(map(str, on_box.lanes)),
            "speed": str(gbps * 1000),
            "autoneg": "off",
            "fec": "none" if gbps in WITHOUT_FEC_GBPS else "rs",
            "mtu": str(self.spec.mtu_bytes),
            "admin_status": "up" if end else "down",
        }
        return fields | ({"description": f"{end.device} {end.port}"} if end else {})

    @property
    def model(self) -> Model:
        """What it is as hardware."""
        return model_of(self.spec)

    def _underlay(self) -> ConfigDb:
        tables: dict[str, Table] = defaultdict(dict)
        for port, end in self.named(routed=True):
            assert end.peer is not None  # noqa: S101 - that is what `routed` says
            tables["INTERFACE"] |= {port: {}, f"{port}|{end.address}": {}}
            tables["BGP_NEIGHBOR"][str(end.peer_address.ip)] = {
                "name": end.device,
                "asn": str(asn(self.plan, end.peer)),
                "local_addr": str(end.address.ip),
                "keepalive": "3",
                "holdtime": "10",
                "rrclient": "0",
                "nhopself": "0",
                "admin_status": "up",
            }
            tables["DEVICE_NEIGHBOR_METADATA"][end.device] = {
                "type": SONIC_TYPE[end.peer.tier],
                "lo_addr": f"{self.loopbacks[end.peer]}/32",
            }
        return dict(tables)

    def _vlans(self) -> ConfigDb:
        tables: dict[str, Table] = defaultdict(dict)
        for port, end in self.named(routed=False):
            number = FIRST_VLAN + end.rail
            name = f"Vlan{number}"
            tables["VLAN"][name] = {"vlanid": str(number), "mtu": str(self.spec.mtu_bytes)}
            tables["VLAN_INTERFACE"] |= {name: {}, f"{name}|{end.address}": {}}
            tables["VLAN_MEMBER"][f"{name}|{port}"] = {"tagging_mode": "untagged"}
        return dict(tables)

    def _classes(self) -> ConfigDb:
        """Which packet is of which class, and which class may pause: the one lossless priority."""
        roce = self.plan.fabric.roce
        lossy = best_effort_class(self.plan)
        classes = dict.fromkeys(map(str, DSCPS), str(lossy))
        classes |= {str(roce.dscp): str(roce.priority), str(roce.cnp_dscp): str(roce.cnp_priority)}
        itself = {str(number): str(number) for number in CLASSES}
        lossless = {str(roce.priority): str(roce.priority)}
        port = {
            "dscp_to_tc_map": MAP,
            "tc_to_queue_map": MAP,
            "tc_to_pg_map": MAP,
            "pfc_to_queue_map": MAP,
            "pfc_to_pg_map": MAP,
            "pfc_enable": str(roce.priority),
            "pfcwd_sw_enable": str(roce.priority),
        }
        return {
            "DSCP_TO_TC_MAP": {MAP: classes},
            "TC_TO_QUEUE_MAP": {MAP: itself},
            "TC_TO_PRIORITY_GROUP_MAP": {MAP: dict.fromkeys(itself, str(lossy)) | lossless},
            "MAP_PFC_PRIORITY_TO_QUEUE": {MAP: itself},
            "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP": {MAP: lossless},
            "PORT_QOS_MAP": {"global": {"dscp_to_tc_map": MAP}} | {name: dict(port) for name in self.used},
        }

    def _queues(self) -> ConfigDb:
        """Data and best effort share a port by halves, after notifications; data that waits is marked."""
        roce = self.plan.fabric.roce
        fabric = self.plan.fabric
        shared = buffers.shared_bytes(fabric, self.spec)
        ecn = buffers.ecn_thresholds(fabric.link_gbps, shared, fabric.radix)
        marking = {"ecn": "ecn_all"}
        for colour in ("green", "yellow", "red"):
            marking |= {
                f"wred_{colour}_enable": "true",
                f"{colour}_min_threshold": str(ecn.min_bytes),
                f"{colour}_max_threshold": str(ecn.max_bytes),
                f"{colour}_drop_probability": str(ecn.probability_pct),
            }
        queues = {
            best_effort_class(self.plan): {"scheduler": "best_effort"},
            roce.priority: {"scheduler": "lossless", "wred_profile": "lossless"},
            roce.cnp_priority: {"scheduler": "cnp"},
        }
        return {
            "SCHEDULER": {
                "best_effort": {"type": "DWRR", "weight": "50"},
                "lossless": {"type": "DWRR", "weight": "50"},
                "cnp": {"type": "STRICT"},
            },
            "WRED_PROFILE": {"lossless": marking},
            "QUEUE": self._each(queues),
        }

    def _buffers(self) -> ConfigDb:
        fabric, roce = self.plan.fabric, self.plan.fabric.roce
        shared = str(buffers.shared_bytes(fabric, self.spec))
        room = buffers.headroom(self.model, fabric.link_gbps, self.spec.cable_m, self.spec.mtu_bytes)
        lossless = f"pg_lossless_{fabric.link_gbps * 1000}_{_whole_m(self.spec)}m_profile"
        lossy, cnp = best_effort_class(self.plan), roce.cnp_priority
        return {
            "BUFFER_POOL": {
                "ingress_lossless_pool": {"type": "ingress", "mode": "dynamic", "size": shared},
                "egress_lossless_pool": {
                    "type": "egress",
                    "mode": "dynamic",
                    "size": str(buffers.ASICS[self.model.asic].buffer_bytes),
                },
                "egress_lossy_pool": {"type": "egress", "mode": "dynamic", "size": shared},
            },
            "BUFFER_PROFILE": {
                lossless: {
                    "pool": "ingress_lossless_pool",
                    "size": str(room.size),
                    "xon": str(room.xon),
                    "xoff": str(room.xoff),
                    "dynamic_th": SHARED_LOSSLESS,
                },
                "ingress_lossless_profile": _profile("ingress_lossless_pool", SHARED_ALL),
                "ingress_lossy_profile": _profile("ingress_lossless_pool", SHARED_LOSSY),
                "egress_lossless_profile": _profile("egress_lossless_pool", SHARED_ALL),
                "egress_lossy_profile": _profile("egress_lossy_pool", SHARED_ALL, buffers.LOSSY_QUEUE_BYTES),
                "q_lossy_profile": _profile("egress_lossy_pool", SHARED_LOSSY),
            },
            "BUFFER_PG": self._each(
                {lossy: {"profile": "ingress_lossy_profile"}, roce.priority: {"profile": lossless}}
            ),
            "BUFFER_QUEUE": self._each(
                {
                    lossy: {"profile": "q_lossy_profile"},
                    cnp: {"profile": "q_lossy_profile"},
                    roce.priority: {"profile": "egress_lossless_profile"},
                }
            ),
            "BUFFER_PORT_INGRESS_PROFILE_LIST": {
                port: {"profile_list": "ingress_lossless_profile,ingress_lossy_profile"} for port in self.used
            },
            "BUFFER_PORT_EGRESS_PROFILE_LIST": {
                port: {"profile_list": "egress_lossless_profile,egress_lossy_profile"} for port in self.used
            },
        }

    def _watchdog(self) -> ConfigDb:
        """A port that is paused for too long drops what waits, instead of stopping the ports before it."""
        time_ms, poll_ms = buffers.watchdog_ms(self.plan.fabric.radix)
        port = {"action": "drop", "detection_time": str(time_ms), "restoration_time": str(time_ms)}
        counters = ("PORT", "QUEUE", "PFCWD", "PG_WATERMARK", "QUEUE_WATERMARK")
        return {
            "PFC_WD": {"GLOBAL": {"POLL_INTERVAL": str(poll_ms)}} | {name: dict(port) for name in self.used},
            "FLEX_COUNTER_TABLE": {name: {"FLEX_COUNTER_STATUS": "enable"} for name in counters},
        }

    def _each(self, by_class: dict[int, dict[str, str]]) -> Table:
        """`port|class` for every port that is used."""
        return {
            f"{port}|{number}": dict(fields)
            for port in self.used
            for number, fields in sorted(by_class.items())
        }


def _whole_m(spec: SwitchSpec) -> int:
    return -int(-spec.cable_m // 1)


def _profile(pool: str, alpha: str, size: int = 0) -> dict[str, str]:
    return {"pool": pool, "size": str(size), "dynamic_th": alpha}


def best_effort_class(plan: FabricPlan) -> int:
    """The class of all other packets: the lowest that neither data nor notifications have."""
    roce = plan.fabric.roce
    return next(number for number in CLASSES if number not in (roce.priority, roce.cnp_priority))


def asn(plan: FabricPlan, switch: Switch) -> int:
    """The AS number of a switch: a leaf's own, that of its pod for a spine, one for all cores of a plane."""
    number = switch.number if switch.tier == "leaf" else 0
    if switch.tier == "spine":
        number = next(
            n for n, pod in enumerate(plan.shape.pods) if switch.number < pod.first_spine + pod.spines
        )
    return FIRST_ASN[switch.tier] + switch.plane * ASNS_PER_PLANE + number


def switch_files(plan: FabricPlan) -> Iterator[tuple[str, str]]:
    """`<switch>/config_db.json` and what is in it, for every switch."""
    for name, database in switch_configs(plan):
        yield f"{name}/config_db.json", json.dumps(database, indent=1) + "\n"


def switch_configs(plan: FabricPlan) -> Iterator[tuple[str, ConfigDb]]:
    """Name and configuration of every switch; none where the declaration has no `switch`."""
    spec = plan.fabric.switch
    if spec is None:
        return
    ends = _ends(plan)
    addresses = loopbacks(plan)
    for switch in switches(plan):
        own = dict(sorted(ends[switch].items()))
        yield plan.switch_name(*switch), _Config(plan, spec, switch, own, addresses).database()


def _ends(plan: FabricPlan) -> dict[Switch, dict[int, _End]]:
    ends: dict[Switch, dict[int, _End]] = defaultdict(dict)
    for node, nics in plan.node_nics():
        for nic in nics:
            gateway = IPv4Interface((nic.gateway, nic.prefix))
            address = IPv4Interface((nic.address, nic.prefix))
            end = _End(node, nic.name, gateway, address, rail=nic.rail)
            ends[Switch("leaf", nic.plane, nic.leaf)][nic.port] = end
    for link in switch_links(plan):
        ends[link.lower][link.lower_port] = _upper_end(plan, link)
        ends[link.upper][link.upper_port] = _lower_end(plan, link)
    return ends


def _upper_end(plan: FabricPlan, link: SwitchLink) -> _End:
    name, port = plan.switch_name(*link.upper), port_name(plan.fabric, link.upper_port)
    return _End(name, port, link.lower_address, link.upper_address, link.upper)


def _lower_end(plan: FabricPlan, link: SwitchLink) -> _End:
    name, port = plan.switch_name(*link.lower), port_name(plan.fabric, link.lower_port)
    return _End(name, port, link.upper_address, link.lower_address, link.lower)
