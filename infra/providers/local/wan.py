"""WAN links: real delay, rate and loss between two regions, in both directions.

A link ends in a region's gateway node, which routes by itself; without one, in the region's router.
Two engines. `netem` shapes the ports of a bridge in a namespace of the carrier's own, where the kernel has
sch_netem: at the ends, a gateway's traffic classes would take its place. Where not, two vde switches, each
with a TAP in the namespace of its end, are joined by `wirefilter`, which does the same in user space.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Literal

from infra.errors import CausewayError
from infra.process import run
from infra.providers.local import daemons, names, netns

Engine = Literal["netem", "wirefilter"]
SIDES = ("a", "b")
PORTS = ("to-a", "to-b")
Routes = tuple[tuple[IPv4Network, int], ...]
"""Networks that a router sends over a link, each with the route's metric: the smallest one carries."""

WIREFILTER_MAX_MTU_BYTES = 1500
"""A vde switch's packet buffer holds one ordinary Ethernet frame."""
MIN_QUEUE_BYTES = 128 * 1024


@dataclass(frozen=True)
class Link:
    """One link between two regions of a stack; `a_address` and `b_address` share a /30."""

    stack: str
    name: str
    a: str
    b: str
    a_address: IPv4Interface
    b_address: IPv4Interface
    rtt_ms: float
    bandwidth_mbps: float
    loss_pct: float
    """In each direction."""
    mtu_bytes: int
    a_gateway: str | None = None
    """The node the link ends in at a; None for the region's router."""
    b_gateway: str | None = None
    a_routes: Routes = ()
    """What a's router sends over the link; a gateway node finds its own routes."""
    b_routes: Routes = ()

    @property
    def one_way_ms(self) -> float:
        """Half of the round trip: each direction delays by this."""
        return self.rtt_ms / 2

    @property
    def rate_bytes_s(self) -> int:
        """The rate of each direction, in bytes per second."""
        return max(round(self.bandwidth_mbps * 1e6 / 8), 1)

    @property
    def queue_bytes(self) -> int:
        """What one direction holds, on the wire and waiting: half a BDP of delay plus one BDP of buffer.

        One bandwidth-delay product is the classic router buffer (Villamizar and Song, 1994): enough for one
        loss-based flow to keep the link busy, and a bound on how far a queue can stretch the round trip.
        """
        bdp_bytes = self.rate_bytes_s * self.rtt_ms / 1000
        return round(bdp_bytes * 1.5) + MIN_QUEUE_BYTES


@dataclass(frozen=True)
class LinkState:
    """Whether a link stands as declared; if not, the first thing that is wrong."""

    up: bool
    problem: str | None
    engine: Engine


@dataclass(frozen=True)
class _End:
    """One end of a link: the namespace it is in, a router's or a gateway node's, and what lies beyond it."""

    place: str
    peer_place: str
    address: IPv4Interface
    via: IPv4Address
    routes: Routes | None
    """The routes over the link, all ours to set; None in a gateway node."""


def _ends(link: Link) -> tuple[_End, _End]:
    a, b = _place(link.stack, link.a, link.a_gateway), _place(link.stack, link.b, link.b_gateway)
    return (
        _End(a, b, link.a_address, link.b_address.ip, None if link.a_gateway else link.a_routes),
        _End(b, a, link.b_address, link.a_address.ip, None if link.b_gateway else link.b_routes),
    )


def _place(stack: str, region: str, gateway: str | None) -> str:
    return names.router_netns(stack, region) if gateway is None else names.node(stack, gateway)


@cache
def supported_engine() -> Engine:
    """The engine this machine has: netem is tried on the loopback of a throw-away namespace."""
    attempt = ["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    try:
        run(["unshare", "--net", "--", *attempt])
    except CausewayError:
        return "wirefilter"
    return "netem"


def ensure(link: Link) -> None:
    """Make the link, complete a half-made one, or change it; the nodes do not notice but by the traffic.

    Both regions' networks and the gateway nodes it ends in must stand. Raises CausewayError where the machine
    cannot emulate it.
    """
    engine = supported_engine()
    if engine == "wirefilter" and link.mtu_bytes > WIREFILTER_MAX_MTU_BYTES:
        raise CausewayError(
            f"the WAN link {link.name} has an MTU of {link.mtu_bytes} bytes, but without netem in the kernel "
            f"this machine emulates links of at most {WIREFILTER_MAX_MTU_BYTES}",
            f"declare mtu_bytes: {WIREFILTER_MAX_MTU_BYTES}, or use a kernel with sch_netem",
        )
    with netns.locked():
        for end in _ends(link):
            if not netns.exists(end.place):
                raise CausewayError(
                    f"the WAN link {link.name} needs the namespace {end.place}, which does not stand",
                    "make both regions' networks and gateway nodes first",
                )
        names.link_dir(link.stack, link.name).mkdir(parents=True, exist_ok=True)
        if engine == "netem":
            _ensure_carrier(link)
        else:
            _ensure_wire(link)
        for end in _ends(link):
            _address_and_route(link, end)


def inspect(link: Link) -> LinkState:
    """Look whether everything `ensure` makes is there and runs with these parameters; changes nothing."""
    engine = supported_engine()
    problem = next(_problems(link, engine), None)
    return LinkState(problem is None, problem, engine)


def remove(stack: str, name: str) -> None:
    """Remove a link: its processes, its interfaces and, with them, its routes."""
    with netns.locked():
        folder = names.link_dir(stack, name)
        daemons.stop_all(folder)
        device = names.link_interface(name)
        for place in netns.owned(stack):
            if netns.exists(place) and device in netns.links(place):
                netns.batch(place, [f"link del {device}"])
        netns.delete(stack, names.carrier_netns(stack, name))
        shutil.rmtree(folder, ignore_errors=True)
        names.prune(folder.parent)


def _problems(link: Link, engine: Engine) -> Iterator[str]:
    device = names.link_interface(link.name)
    for end in _ends(link):
        if not netns.exists(end.place):
            yield f"the namespace {end.place} is gone"
            return
        interface = netns.links(end.place).get(device)
        if interface is None or "UP" not in interface["flags"]:
            yield f"the interface {device} in {end.place} is gone or down"
            return
        if str(end.address) not in netns.addresses(interface) or interface["mtu"] != link.mtu_bytes:
            yield f"{device} in {end.place} does not carry {end.address} at MTU {link.mtu_bytes}"
        if end.routes is not None and _present_routes(end, device) != set(end.routes):
            wanted = ", ".join(str(network) for network, _ in end.routes) or "no network"
            yield f"{end.place} does not route just {wanted} over the link"
    if engine == "netem":
        carrier = names.carrier_netns(link.stack, link.name)
        shaped = netns.exists(carrier) and all(
            "netem" in run(["tc", "-n", carrier, "qdisc", "show", "dev", port]) for port in PORTS
        )
        if not shaped:
            yield f"the line in {carrier} is gone, or has lost its delay and loss"
    for role, argv in _commands(link).items() if engine == "wirefilter" else ():
        if not daemons.running(names.link_dir(link.stack, link.name) / f"{role}.pid", argv):
            yield f"the process of {role} does not run with the declared parameters"


def _present_routes(end: _End, device: str) -> set[tuple[IPv4Network, int]]:
    routes = netns.read(end.place, "-4", "route", "show", "dev", device)
    ours = [route for route in routes if route.get("protocol") != "kernel"]
    return {(IPv4Network(route["dst"]), route.get("metric", 0)) for route in ours}


def _address_and_route(link: Link, end: _End) -> None:
    device = names.link_interface(link.name)
    lines = netns.set_addresses(netns.links(end.place)[device], device, str(end.address))
    mac, peer_mac = (names.mac(link.stack, link.name, place) for place in (end.place, end.peer_place))
    lines.append(f'link set {device} address {mac} mtu {link.mtu_bytes} alias "WAN {link.name}" up')
    # A leased line asks for nobody's MAC address: the first packet must not wait for, or be lost with, ARP.
    lines.append(f"neigh replace {end.via} lladdr {peer_mac} dev {device} nud permanent")
    if end.routes is not None:
        stale = sorted(_present_routes(end, device) - set(end.routes))
        lines += [f"route del {network} dev {device} metric {metric}" for network, metric in stale]
        lines += [
            f"route replace {network} via {end.via} dev {device} metric {metric}"
            for network, metric in end.routes
        ]
    netns.batch(end.place, lines)


def _ensure_carrier(link: Link) -> None:
    """A bridge with a cable to each end; its ports delay, drop and pace what they send."""
    device, carrier = names.link_interface(link.name), names.carrier_netns(link.stack, link.name)
    netns.add(link.stack, carrier, {"kind": "carrier", "link": link.name})
    ports = netns.links(carrier)
    lines = [] if names.BRIDGE in ports else [f"link add {names.BRIDGE} type bridge"]
    lines.append(f"link set {names.BRIDGE} mtu {link.mtu_bytes} up")
    for port, end in zip(PORTS, _ends(link), strict=True):
        at_end = device in netns.links(end.place)
        if port not in ports or not at_end:
            netns.batch(end.place, [f"link del {device}"] if at_end else [])
            lines.append(f"link add {port} type veth peer name {device} netns {end.place}")
        lines.append(f"link set {port} master {names.BRIDGE} mtu {link.mtu_bytes} up")
    netns.batch(carrier, lines)
    for port in PORTS:
        run(["tc", "-n", carrier, "qdisc", "replace", "dev", port, "root", *netem_arguments(link)])


def netem_arguments(link: Link) -> list[str]:
    """The qdisc that one direction of the link is."""
    limit_packets = max(link.queue_bytes // link.mtu_bytes, 100)
    return [
        *["netem", "limit", str(limit_packets), "delay", f"{link.one_way_ms:g}ms"],
        *["loss", f"{link.loss_pct:g}%", "rate", f"{link.rate_bytes_s * 8}bit"],
    ]


def _commands(link: Link) -> dict[str, list[str]]:
    """The three processes of a wirefilter link; a changed parameter shows as a changed command."""
    folder = names.link_dir(link.stack, link.name)
    device = names.link_interface(link.name)
    commands = {
        side: ["vde_switch", "-s", f"{folder}/{side}", "-t", device, "-p", f"{folder}/{side}.pid", "-d"]
        for side in SIDES
    }
    commands["wire"] = [
        *["wirefilter", "--daemon", "--pidfile", f"{folder}/wire.pid", "-M", f"{folder}/wire.mgmt"],
        *["-v", f"{folder}/a:{folder}/b", "-d", f"{link.one_way_ms:g}", "-l", f"{link.loss_pct:g}"],
        *["-b", str(link.rate_bytes_s), "-c", str(link.queue_bytes)],
    ]
    return commands


def _ensure_wire(link: Link) -> None:
    folder, device = names.link_dir(link.stack, link.name), names.link_interface(link.name)
    commands = _commands(link)
    wire = folder / "wire.pid"
    for side, end in zip(SIDES, _ends(link), strict=True):
        pid_file = folder / f"{side}.pid"
        if daemons.running(pid_file, commands[side]) and device in netns.links(end.place):
            continue
        # The wire goes, too: it holds on to the old switch's socket.
        daemons.stop([*daemons.processes(pid_file), *daemons.processes(wire)])
        shutil.rmtree(folder / side, ignore_errors=True)
        # Started inside, the switch makes its TAP there: it never shows up among the host's interfaces.
        daemons.start(netns.inside(end.place, commands[side]), commands[side], pid_file)
    if not daemons.running(wire, commands["wire"]):
        daemons.stop(daemons.processes(wire))
        (folder / "wire.mgmt").unlink(missing_ok=True)
        daemons.start(commands["wire"], commands["wire"], wire)
