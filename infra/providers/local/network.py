"""A region's network: a namespace with its bridge, its router and its NAT, and one uplink to the host.

The region's own traffic never meets the host's bridges or iptables. Traffic to another region has no path
but a WAN link, which the router or the region's gateway nodes hold: without one the router answers
"unreachable", and the host drops what tries its uplinks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, ip_network
from shutil import which

from infra.errors import CausewayError
from infra.process import run
from infra.providers.local import names, netns

UPLINK_MTU_BYTES = 1500
LEAF_ALIAS = "fabric leaf"
LAST_RESORT = 4_000_000_000
"""Metric of the "unreachable" routes to other regions: any WAN link's route comes before it."""

HOST_RULES = f"""
table inet {names.NFT_TABLE}
delete table inet {names.NFT_TABLE}
table inet {names.NFT_TABLE} {{
  chain forward {{
    type filter hook forward priority -10; policy accept;
    iifname "{names.UPLINK_PREFIX}*" oifname "{names.UPLINK_PREFIX}*" counter drop
  }}
  chain postrouting {{
    type nat hook postrouting priority 100; policy accept;
    ip saddr {names.UPLINK_NETWORK} oifname != "{names.UPLINK_PREFIX}*" masquerade
  }}
}}
"""

# A firewall whose FORWARD policy is "drop" (docker, ufw) also drops what our table accepts, so the admission
# has to stand in that chain itself.
FORWARD_ADMISSION = tuple(
    [side, f"{names.UPLINK_PREFIX}+", "-m", "comment", "--comment", names.NFT_TABLE, "-j", "ACCEPT"]
    for side in ("-i", "-o")
)


@dataclass(frozen=True)
class Leaf:
    """A leaf of the region's fabric: a bridge that holds the leaf's address in each of its subnets."""

    bridge: str
    addresses: tuple[IPv4Interface, ...]


@dataclass(frozen=True)
class RegionNetwork:
    """One region's network on this machine; the router holds the range's first address."""

    stack: str
    region: str
    cidr: IPv4Network
    mtu_bytes: int
    wan_gateway: IPv4Address | None = None
    """Where traffic for other regions goes, when gateway nodes hold the WAN links."""
    leafs: tuple[Leaf, ...] = ()
    """The fabric, which the namespace routes between as spines would; nothing else reaches it."""

    @property
    def router(self) -> str:
        """The name of the router's namespace."""
        return names.router_netns(self.stack, self.region)

    @property
    def gateway(self) -> IPv4Interface:
        """The router's address in the region."""
        return IPv4Interface((self.cidr.network_address + 1, self.cidr.prefixlen))


@dataclass(frozen=True)
class NetworkState:
    """Whether a region's network stands as declared; if not, the first thing that is wrong."""

    up: bool
    problem: str | None = None


def ensure(net: RegionNetwork, peers: Sequence[IPv4Network]) -> None:
    """Make the region's network, complete a half-made one, or change it to what is declared.

    `peers` are the ranges of the cluster's other regions. Doing it twice changes nothing.
    """
    with netns.locked():
        netns.add(net.stack, net.router, {"kind": "router", "region": net.region})
        netns.sysctl(None, "net.ipv4.ip_forward", "1")
        netns.sysctl(net.router, "net.ipv4.ip_forward", "1")
        _bridge(net)
        _leafs(net)
        # Nodes would remember a redirect past the address that gateways hand from one to the other.
        for where in ("all", names.BRIDGE):
            netns.sysctl(net.router, f"net.ipv4.conf.{where}.send_redirects", "0")
        _uplink(net)
        _refuse_peers(net, peers)
        _hand_over_peers(net, peers)
        run(netns.inside(net.router, ["nft", "-f", "-"]), stdin=_router_rules(net, peers))
        run(["nft", "-f", "-"], stdin=HOST_RULES)
        _admit_forwarding()


def inspect(net: RegionNetwork, peers: Sequence[IPv4Network]) -> NetworkState:
    """Look whether all that `ensure` makes is there, and nothing that it takes away; changes nothing."""
    problem = next(_problems(net, peers), None)
    return NetworkState(problem is None, problem)


def _problems(net: RegionNetwork, peers: Sequence[IPv4Network]) -> Iterator[str]:
    if not netns.exists(net.router):
        yield f"the namespace {net.router} is gone"
        return
    inner = netns.links(net.router)
    yield from _bridge_problems(net, inner)
    if _handed_over(net) != _hand_overs(net, peers):
        taker = f"just {net.wan_gateway}" if net.wan_gateway else "nobody"
        yield f"{net.router} is to hand other regions' traffic to {taker}, and does not"
    if _refused(net) != {str(peer) for peer in peers}:
        yield f"{net.router} does not refuse just what is for the other regions"
    device = names.host_uplink(net.stack, net.region)
    if device not in netns.links(None) or names.ROUTER_UPLINK not in inner:
        yield f"the uplink {device} is gone"
    elif not netns.read(None, "-4", "route", "show", str(net.cidr), "dev", device):
        yield f"the host has no route to {net.cidr}"
    if not _has_table(net.router, "ip") or not _has_table(None, "inet"):
        yield f"the nft table {names.NFT_TABLE} is gone"
    elif _rules_differ(net, peers):
        yield f"the nft table {names.NFT_TABLE} in {net.router} says something else"


def _bridge_problems(net: RegionNetwork, inner: Mapping[str, netns.Record]) -> Iterator[str]:
    bridge = inner.get(names.BRIDGE)
    if bridge is None or str(net.gateway) not in netns.addresses(bridge) or "UP" not in bridge["flags"]:
        yield f"the bridge in {net.router} does not carry {net.gateway}"
    elif bridge["mtu"] != net.mtu_bytes:
        yield f"the bridge's MTU is {bridge['mtu']} bytes, not {net.mtu_bytes}"
    for leaf in net.leafs:
        found = netns.addresses(inner[leaf.bridge]) if leaf.bridge in inner else []
        if set(found) != {str(address) for address in leaf.addresses}:
            yield f"the leaf {leaf.bridge} in {net.router} is gone or changed"
    for name in _surplus_leafs(net, inner):
        yield f"the leaf {name} in {net.router} is not declared"


def remove(stack: str, region: str) -> None:
    """Remove a region's network with its uplink and the host's route; nothing happens when it is gone.

    With the last region of all stacks the host's rules go, too; forwarding stays on, as others may use it.
    """
    with netns.locked():
        # By hand, because the kernel takes a namespace's interfaces down some time after it is deleted.
        if region in uplinks(stack):
            netns.batch(None, [f"link del {names.host_uplink(stack, region)}"])
        netns.delete(stack, names.router_netns(stack, region))
        if not any(name.startswith(names.UPLINK_PREFIX) for name in netns.links(None)):
            _release_host()


def uplinks(stack: str) -> list[str]:
    """The regions of a stack that hold an uplink on the host, known by the uplinks' aliases."""
    start = names.uplink_alias(stack, "")
    aliases = [link.get("ifalias", "") for link in netns.links(None).values()]
    return sorted(alias.removeprefix(start) for alias in aliases if alias.startswith(start))


def _release_host() -> None:
    # Declared before it is deleted, so that deleting what is not there is no error.
    run(["nft", "-f", "-"], stdin="\n".join(HOST_RULES.splitlines()[:3]) + "\n")
    for rule in FORWARD_ADMISSION if which("iptables") else ():
        if _iptables("-C", rule):
            _iptables("-D", rule)


def _bridge(net: RegionNetwork) -> None:
    link = netns.links(net.router).get(names.BRIDGE)
    lines = []
    if link is None:
        # An address of its own keeps the bridge from taking its lowest port's, which comes and goes.
        address = names.mac(net.stack, net.region, names.BRIDGE)
        lines.append(f"link add {names.BRIDGE} address {address} type bridge")
    lines += netns.set_addresses(link, names.BRIDGE, str(net.gateway))
    lines.append(f"link set {names.BRIDGE} mtu {net.mtu_bytes} up")
    netns.batch(net.router, lines)


def _leafs(net: RegionNetwork) -> None:
    """A bridge per leaf; those of a fabric that is declared no longer go."""
    present = netns.links(net.router)
    lines = [f"link del {name}" for name in _surplus_leafs(net, present)]
    for leaf in net.leafs:
        if leaf.bridge not in present:
            address = names.mac(net.stack, net.region, leaf.bridge)
            lines.append(f"link add {leaf.bridge} address {address} type bridge")
        held = netns.addresses(present[leaf.bridge]) if leaf.bridge in present else []
        addresses = [str(address) for address in leaf.addresses]
        lines += [f"addr del {address} dev {leaf.bridge}" for address in held if address not in addresses]
        lines += [f"addr add {address} dev {leaf.bridge}" for address in addresses if address not in held]
        lines.append(f'link set {leaf.bridge} mtu {names.LEAF_MTU_BYTES} alias "{LEAF_ALIAS}" up')
    netns.batch(net.router, lines)


def _surplus_leafs(net: RegionNetwork, present: Mapping[str, netns.Record]) -> list[str]:
    wanted = {leaf.bridge for leaf in net.leafs}
    return [
        name for name, link in present.items() if link.get("ifalias") == LEAF_ALIAS and name not in wanted
    ]


def _uplink(net: RegionNetwork) -> None:
    """The cable to the host: /31, aliased on the host's side, with the routes of both ends."""
    device = names.host_uplink(net.stack, net.region)
    outer, inner = netns.links(None), netns.links(net.router)
    if device not in outer or names.ROUTER_UPLINK not in inner:
        stale = [f"link del {device}"] if device in outer else []
        netns.batch(
            None, [*stale, f"link add {device} type veth peer name {names.ROUTER_UPLINK} netns {net.router}"]
        )
        outer.pop(device, None)
        inner.pop(names.ROUTER_UPLINK, None)
    link = outer.get(device)
    host = _uplink_address(net, netns.addresses(link) if link else ())
    router = host + 1
    lines = netns.set_addresses(link, device, f"{host}/31")
    alias = f'link set {device} mtu {UPLINK_MTU_BYTES} alias "{names.uplink_alias(net.stack, net.region)}" up'
    netns.batch(None, [*lines, alias, f"route replace {net.cidr} via {router} dev {device}"])
    lines = netns.set_addresses(inner.get(names.ROUTER_UPLINK), names.ROUTER_UPLINK, f"{router}/31")
    lines.append(f"link set {names.ROUTER_UPLINK} mtu {UPLINK_MTU_BYTES} up")
    netns.batch(net.router, [*lines, f"route replace default via {host} dev {names.ROUTER_UPLINK}"])
    routes = netns.read(None, "-4", "route", "show", "dev", device)
    old = [r["dst"] for r in routes if r.get("protocol") != "kernel" and r["dst"] != str(net.cidr)]
    netns.batch(None, [f"route del {dst} dev {device}" for dst in old])


def _uplink_address(net: RegionNetwork, present: Iterable[str]) -> IPv4Address:
    """The even address of a /31 nobody uses: the one already there, else the first free after our hash."""
    for text in present:
        held = IPv4Interface(text)
        if held.ip in names.UPLINK_NETWORK and held.network.prefixlen == 31:
            return held.network.network_address
    routes = netns.read(None, "-4", "route", "show", "table", "all")
    taken = [ip_network(r["dst"]) for r in routes if r["dst"][0].isdigit()]
    taken = [t for t in taken if t.prefixlen > 0 and t.overlaps(names.UPLINK_NETWORK)]
    total = names.UPLINK_NETWORK.num_addresses // 2
    start = int(names.short_hash(net.stack, net.region), 16)
    for step in range(total):
        first = names.UPLINK_NETWORK.network_address + 2 * ((start + step) % total)
        if not any(IPv4Network((first, 31)).overlaps(t) for t in taken):
            return first
    raise CausewayError(
        f"no free /31 is left in {names.UPLINK_NETWORK} for the uplink of {net.region}",
        "look at `ip route`: something routes this range away",
    )


def _refuse_peers(net: RegionNetwork, peers: Sequence[IPv4Network]) -> None:
    """Without a WAN link a node is told at once that the other region is unreachable."""
    wanted, present = {str(peer) for peer in peers}, _refused(net)
    lines = [f"route del unreachable {dst} metric {LAST_RESORT}" for dst in sorted(present - wanted)]
    lines += [f"route add unreachable {dst} metric {LAST_RESORT}" for dst in sorted(wanted - present)]
    netns.batch(net.router, lines)


def _refused(net: RegionNetwork) -> set[str]:
    return {route["dst"] for route in netns.read(net.router, "-4", "route", "show", "type", "unreachable")}


def _hand_over_peers(net: RegionNetwork, peers: Sequence[IPv4Network]) -> None:
    """Send what nodes without a route of their own have for other regions to the gateway nodes."""
    wanted = _hand_overs(net, peers)
    lines = [f"route del {dst} dev {names.BRIDGE}" for dst in sorted(_handed_over(net).keys() - wanted)]
    lines += [f"route replace {dst} via {via} dev {names.BRIDGE}" for dst, via in sorted(wanted.items())]
    netns.batch(net.router, lines)


def _hand_overs(net: RegionNetwork, peers: Sequence[IPv4Network]) -> dict[str, str]:
    """Other region's range → the address that takes its traffic."""
    return {str(peer): str(net.wan_gateway) for peer in peers} if net.wan_gateway else {}


def _handed_over(net: RegionNetwork) -> dict[str, str]:
    """The same as the router has it now."""
    routes = netns.read(net.router, "-4", "route", "show", "dev", names.BRIDGE)
    return {route["dst"]: route.get("gateway", "") for route in routes if route.get("protocol") != "kernel"}


def _router_rules(net: RegionNetwork, peers: Sequence[IPv4Network]) -> str:
    inside = ", ".join(str(cidr) for cidr in sorted({net.cidr, *peers}))
    table = f"table ip {names.NFT_TABLE}"
    return f"""{table}
delete {table}
{table} {{
  chain forward {{
    type filter hook forward priority 0; policy accept;
{_fabric_rules(net)}
  }}
  chain postrouting {{
    type nat hook postrouting priority 100; policy accept;
    ip daddr {{ {inside} }} accept
    oifname "{names.ROUTER_UPLINK}" ip saddr {net.cidr} masquerade
  }}
}}
"""


def _fabric_rules(net: RegionNetwork) -> str:
    """A fabric is joined to no other network."""
    if not net.leafs:
        return ""
    leafs = "{ " + ", ".join(f'"{leaf.bridge}"' for leaf in net.leafs) + " }"
    return f"    iifname {leafs} oifname != {leafs} drop\n    iifname != {leafs} oifname {leafs} drop"


def _rules_differ(net: RegionNetwork, peers: Sequence[IPv4Network]) -> bool:
    """Compared as nft itself prints both: what is wanted is loaded into a throw-away namespace."""
    show = ["nft", "list", "table", "ip", names.NFT_TABLE]
    attempt = ["unshare", "--net", "--", "sh", "-c", f"nft -f - && {' '.join(show)}"]
    return run(attempt, stdin=_router_rules(net, peers)) != run(netns.inside(net.router, show))


def _has_table(where: str | None, family: str) -> bool:
    argv = ["nft", "list", "tables", family]
    return f"table {family} {names.NFT_TABLE}" in run(netns.inside(where, argv) if where else argv)


def _admit_forwarding() -> None:
    if which("iptables") is None:
        return
    if "-P FORWARD ACCEPT" in run(["iptables", "-w", "-S", "FORWARD"]):
        return
    for rule in FORWARD_ADMISSION:
        if not _iptables("-C", rule):
            _iptables("-I", rule)


def _iptables(action: str, rule: Sequence[str]) -> bool:
    """Whether `iptables ACTION FORWARD rule` succeeded; -C fails for a rule that is not there."""
    try:
        run(["iptables", "-w", action, "FORWARD", *rule])
    except CausewayError:
        if action != "-C":
            raise
        return False
    return True
