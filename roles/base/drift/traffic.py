"""traffic: what decides where packets go, beside what the roles set: rules, routes, nftables, queueing.

The kernel is asked by netlink (rtnetlink(7), linux/netfilter/nf_tables.h): a program for each would cost a
scan more than all its other looks.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from infra.drift.kind import Claim, Found, How, is_list
from infra.drift.kinds.known import Known, with_known
from infra.drift.looks import Look
from infra.drift.node import text_of

if TYPE_CHECKING:
    from infra.drift.manifest import Entry, Manifest
    from infra.drift.merge import HostSeal
    from infra.drift.repair import Obstacles

NETLINK, RAW, LINK_LIMIT_S = 16, 3, 5
ROUTE, XFRM, NETFILTER = 0, 6, 12
GET_LINK, GET_ADDRESS, GET_ROUTE, GET_NEIGHBOUR, GET_RULE = 18, 22, 26, 30, 34
GET_QDISC, GET_FILTER, GET_CHAIN, GET_POLICY = 38, 46, 0x0A04, 0x15
REQUEST_DUMP, ERROR, DONE = 0x301, 2, 3
INET, INET6 = 2, 10
FAMILIES = {1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}
"""Of nftables."""
BY_OTHERS = (1, 2, 9, 11, 12, 13, 14, 16, 18, 42, 96, *range(186, 199))
"""Protocols of routes that come and go by themselves (linux/rtnetlink.h): redirects, the kernel's own, router
advertisements, routing daemons', DHCP's, keepalived's, and those that role tcp_tuning keeps."""
CLONED = 0x200
FLAGS = -1
"""Where the look at links has the flags of one, which are no attribute."""
OF_ROUTE = ": "
METRICS = {
    **{2: "mtu", 3: "window", 4: "rtt", 5: "rttvar", 6: "ssthresh", 7: "cwnd", 8: "advmss", 9: "reordering"},
    **{10: "hoplimit", 11: "initcwnd", 13: "rto_min", 14: "initrwnd", 15: "quickack", 16: "congctl"},
}
"""What is said of a route (linux/rtnetlink.h) → iproute2's word."""
LINK_SCOPE, HOST_SCOPE = 253, 254
ROUTE_TYPES = {2: "local", 6: "blackhole", 7: "unreachable", 8: "prohibit", 9: "throw"}
ACTIONS = {1: "lookup", 2: "goto", 6: "blackhole", 7: "unreachable", 8: "prohibit"}
ROOT, INGRESS, OWN_HANDLES = 0xFFFFFFFF, 0xFFFFFFF1, 0x8000
"""Parents of queueing disciplines; from which number on the kernel gives them their handles itself."""
DIRECTIONS, POLICY_BYTES = ("in", "out", "fwd"), 168
"""Of IPsec's policies (linux/xfrm.h): those of single sockets are their programs'."""
PERMANENT, LASTING, LEARNED, PROXY = 0x80, 0x80, 0x10, 0x08
"""State of a neighbour, flag of an address: given by somebody; flags of a neighbour: a routing daemon's, one
for whom the node answers."""
SHARED_FILE, RAILS_FILE = "/etc/keepalived/keepalived.conf", "/etc/causeway/roce.json"
"""Files of roles that name addresses which come and go as their programs see fit, beside the node's own."""
TUNNELS_FILE = "/etc/wireguard/{}.conf"
LEGACY_TABLES = ("/proc/net/ip_tables_names", "/proc/net/ip6_tables_names", "/proc/net/arp_tables_names")
EPHEMERAL = ("veth", "lxc", "cali", "cni", "vnet", "tap")
"""How interfaces of containers and virtual machines begin: what manages these sets them up."""
OVERLAYS = ("docker", "br-", "flannel", "vxlan", "cilium", "kube")
"""How interfaces of networks of containers begin, of which a daemon knows the neighbours."""


def look_at_traffic(node: Look, key: str, how: How) -> Found:
    """Rules and routes that somebody set, base chains of nftables, queueing disciplines and filters."""
    from _socket import if_nameindex

    names = dict(if_nameindex())
    lasting = {index: name for index, name in names.items() if not name.startswith(EPHEMERAL)}
    routes = list(set_routes(lasting))
    return with_known(
        node,
        {
            "rules": [
                rule_line(data) for _, data in dumped(ROUTE, GET_RULE, bytes(12)) if data[0] in (INET, INET6)
            ],
            "routes": [line for line, _ in routes],
            "metrics": [line for line in map(metrics_line, routes) if is_of_known(node, line)],
            "chains": [
                line for line in chain_lines() if " ".join(line.split()[:2]) not in node.keys_of("nft")
            ],
            "queues": queue_lines(lasting),
            "addresses": of_known_interfaces(node, address_lines(node, lasting)),
            "inner": of_known_interfaces(node, address_lines(node, lasting, inner=True)),
            "neighbours": of_quiet_interfaces(node, neighbour_lines(lasting)),
            "proxies": of_known_interfaces(node, proxy_lines(lasting)),
            "programs": program_lines(node, lasting),
            "policies": policy_lines(node, names),
        },
    )


def dumped(protocol: int, kind: int, body: bytes) -> list[tuple[int, bytes]]:
    """All that the kernel has of one sort: type and content of each message. OSError where it refuses."""
    from _socket import socket

    link = socket(NETLINK, RAW, protocol)
    link.settimeout(LINK_LIMIT_S)
    found: list[tuple[int, bytes]] = []
    try:
        link.bind((0, 0))
        link.send(word(16 + len(body)) + word(kind, 2) + word(REQUEST_DUMP, 2) + word(1) + word(0) + body)
        while True:
            data = link.recv(1 << 17)
            while len(data) >= 16:
                size, what = value(data, 0), value(data, 4, 2)
                if what == DONE:
                    return found
                if what == ERROR:
                    code = (1 << 32) - value(data, 16)
                    raise OSError(code, os.strerror(code))
                found.append((what, data[16:size]))
                data = data[(size + 3) // 4 * 4 :]
    finally:
        link.close()


def word(number: int, size: int = 4) -> bytes:
    """A number as the kernel has it."""
    return number.to_bytes(size, sys.byteorder)


def value(data: bytes, at: int = 0, size: int = 4) -> int:
    """The number that stands there."""
    return int.from_bytes(data[at : at + size], sys.byteorder)


def attributes_of(data: bytes) -> dict[int, bytes]:
    """What follows a message's head: type → content."""
    found = {}
    while len(data) >= 4:
        size = max(value(data, 0, 2), 4)
        found[value(data, 2, 2) & 0x3FFF] = data[4:size]
        data = data[(size + 3) // 4 * 4 :]
    return found


def ending(data: bytes) -> str:
    """A text that ends in a zero."""
    return data.partition(b"\0")[0].decode("utf-8", "replace")


def network(family: int, data: bytes | None, bits: int) -> str:
    """An address with its length, as `ip` prints it; all of them where there is none."""
    from _socket import inet_ntop

    whole = 32 if family == INET else 128
    text = inet_ntop(family, data or bytes(whole // 8))
    return text if bits == whole else f"{text}/{bits}"


def set_routes(names: dict[int, str]) -> Iterator[tuple[str, dict[int, bytes]]]:
    """Routes that somebody set, of all tables, as `ip route` takes them; with their attributes."""
    for _, data in dumped(ROUTE, GET_ROUTE, bytes(12)):
        family, bits, protocol, kind = data[0], data[1], data[5], data[7]
        has = attributes_of(data[12:])
        if family not in (INET, INET6) or protocol in BY_OTHERS or value(data, 8) & CLONED:
            continue
        words = [ROUTE_TYPES.get(kind, "")] * (kind != 1) + [network(family, has.get(1), bits)]
        if 4 in has and value(has[4]) not in names:
            continue
        for code, name in ((5, "via"), (7, "src")):
            words += [name, network(family, has[code], 8 * len(has[code]))] if code in has else []
        words += ["dev", names[value(has[4])]] if 4 in has else []
        words += ["nexthop", has[9].hex()] if 9 in has else []
        table = value(has[15]) if 15 in has else data[4]
        words += ["table", str(table)] * (table != 254)
        words += ["metric", str(value(has[6]))] if 6 in has else []
        yield " ".join(words), has


def metrics_line(route: tuple[str, dict[int, bytes]]) -> str:
    """What a route says beyond where it leads, as `ip route` takes it: MTU, windows, congestion control."""
    line, has = route
    words = []
    for code, data in sorted(attributes_of(has.get(8, b"")).items()):
        words += [METRICS[code], ending(data) if code == 16 else str(value(data))] if code in METRICS else []
    return f"{line}{OF_ROUTE}{' '.join(words)}" if words else ""


def is_of_known(node: Look, line: str) -> bool:
    """Whether it is of a route that was sealed: of another one its metrics go with it."""
    known = node.want.get("routes") or ()
    return bool(line) and (node.mode == "seal" or line.partition(OF_ROUTE)[0] in known)


def rule_line(data: bytes) -> str:
    """A rule, as `ip rule` takes it; what that has no short word for as numbers."""
    family, has = data[0], attributes_of(data[12:])
    words = ["-6"] * (family == INET6) + ["priority", str(value(has[6]) if 6 in has else 0)]
    words += ["not"] * (value(data, 8) & 2 > 0)
    words += ["from", network(family, has[2], data[2]) if 2 in has else "all"]
    words += ["to", network(family, has[1], data[1])] if 1 in has else []
    words += ["tos", str(data[3])] if data[3] else []
    for code, name in ((3, "iif"), (17, "oif")):
        words += [name, ending(has[code])] if code in has else []
    words += ["fwmark", f"{value(has[10]):#x}/{value(has[16]):#x}"] if 10 in has and 16 in has else []
    words += ["ipproto", str(has[22][0])] if 22 in has else []
    for code, name in ((20, "uidrange"), (23, "sport"), (24, "dport")):
        if code in has:
            size = len(has[code]) // 2
            words += [name, f"{value(has[code], 0, size)}-{value(has[code], size, size)}"]
    action = ACTIONS.get(data[7], str(data[7]))
    words += [action] + [str(value(has[15]) if 15 in has else data[4])] * (action == "lookup")
    return " ".join(words)


def chain_lines() -> list[str]:
    """Base chains of nftables: where a table takes hold of packets."""
    try:
        chains = dumped(NETFILTER, GET_CHAIN, bytes(4))
    except OSError:
        return []  # a kernel without nftables
    found = []
    for _, data in chains:
        has = attributes_of(data[4:])
        if 4 in has:
            hook = attributes_of(has[4])
            where = ending(has.get(7, b"")), int.from_bytes(hook[1], "big"), int.from_bytes(hook[2], "big")
            policy = int.from_bytes(has.get(5, b"\1"), "big")
            said = f"{where[0]} hook {where[1]} priority {where[2] - (where[2] >> 31 << 32)}"
            table = f"{FAMILIES.get(data[0], data[0])} {ending(has[1])}"
            found.append(f"{table} {ending(has[3])}: {said} policy {'accept' if policy else 'drop'}")
    return found


def queue_lines(names: dict[int, str]) -> list[str]:
    """Queueing disciplines that somebody set, and filters, as `tc` names them."""
    found, shaped = [], set()
    for _, data in dumped(ROUTE, GET_QDISC, bytes(20)):
        index, handle, parent = value(data, 4), value(data, 8), value(data, 12)
        kind = ending(attributes_of(data[20:]).get(1, b""))
        if handle and index in names:
            shaped.add(index)
            given = f"handle {handle >> 16:x}: " if handle >> 16 < OWN_HANDLES else ""
            place = "root" if parent == ROOT else f"parent {number_pair(parent)}"
            what = kind if parent == INGRESS else f"{place} {given}{kind}"
            found.append(f"qdisc dev {names[index]} {what}")
    for index in sorted(shaped):
        for parent in (0, 0xFFFFFFF2, 0xFFFFFFF3):  # the root's, those of what comes in and of what goes out
            try:
                filters = dumped(
                    ROUTE, GET_FILTER, bytes(4) + word(index) + bytes(4) + word(parent) + bytes(4)
                )
            except OSError:
                continue  # nothing takes filters there
            for _, data in filters:
                kind, info = ending(attributes_of(data[20:]).get(1, b"")), value(data, 16)
                place = f"parent {number_pair(value(data, 12))} pref {info >> 16} {kind}"
                found.append(f"filter dev {names[index]} {place}")
    return found


def address_lines(node: Look, names: dict[int, str], inner: bool = False) -> list[str]:
    """Addresses that somebody gave an interface: not DHCP's, the kernel's own, or a role's programs'.

    INNER: those of IPv4 that are for the node itself alone.
    """
    from _socket import inet_ntop

    found, others = [], node.once("addresses of programs", addresses_of_programs)
    for _, data in node.once("addresses", lambda: dumped(ROUTE, GET_ADDRESS, bytes(8))):
        family, bits, scope, index, has = data[0], data[1], data[3], value(data, 4), attributes_of(data[8:])
        flags = value(has[8]) if 8 in has else data[2]
        if family not in (INET, INET6) or not flags & LASTING or index not in names:
            continue
        address = inet_ntop(family, has.get(2) or has[1])
        by_kernel = scope >= (LINK_SCOPE if family == INET6 else HOST_SCOPE)
        wanted = by_kernel and family == INET and names[index] != "lo" if inner else not by_kernel
        if not wanted or address in others or is_tunnel(node, names[index]):
            continue
        found.append(f"{address}/{bits} dev {names[index]}")
    return found


def addresses_of_programs() -> set[str]:
    """Those that keepalived gives and takes, and those of the rails."""
    shared = text_of(SHARED_FILE, "").partition("virtual_ipaddress {")[2].partition("}")[0].split()
    return {word.partition("/")[0] for word in shared} | addresses_in(RAILS_FILE)


def addresses_in(path: str) -> set[str]:
    """The addresses that a role's file of JSON gives to interfaces."""
    words = text_of(path, "").replace('"', " ").split()  # `json` takes as long as all the looking
    return {word.partition("/")[0] for name, word in zip(words, words[2:]) if name == "address"}


def of_known_interfaces(node: Look, lines: list[str]) -> list[str]:
    """Those of interfaces that had an address at the seal: with a new link or rail come its addresses."""
    known = with_loopback(node.want.get("addresses") or ())
    return [line for line in lines if line.split()[2] in known or node.mode == "seal"]


def with_loopback(lines: Iterable[str]) -> set[str]:
    """The interfaces that these addresses are of, and the one that every node has."""
    return {"lo", *(line.split()[2] for line in lines)}


def of_quiet_interfaces(node: Look, lines: list[str]) -> list[str]:
    """Those of the same interfaces, but for one that had neighbours at the seal: who made it sets them."""
    set_by_others = {line.split()[2] for line in node.want.get("neighbours") or ()}
    return [line for line in of_known_interfaces(node, lines) if line.split()[2] not in set_by_others]


def is_tunnel(node: Look, name: str) -> bool:
    """Whether an interface is a tunnel of a role's, which is compared with its file."""
    return TUNNELS_FILE.format(name) in node.keys_of("file")


def proxy_lines(names: dict[int, str]) -> list[str]:
    """Addresses of others for whom the node was told to answer."""
    found = []
    for _, data in dumped(ROUTE, GET_NEIGHBOUR, bytes(10) + bytes([PROXY, 0])):
        family, index, has = data[0], value(data, 4), attributes_of(data[12:])
        if family in (INET, INET6) and data[10] & PROXY and index in names:
            found.append(f"{network(family, has[1], 8 * len(has[1]))} dev {names[index]}")
    return found


def neighbour_lines(names: dict[int, str]) -> list[str]:
    """Neighbours whose hardware address somebody set."""
    found = []
    for _, data in dumped(ROUTE, GET_NEIGHBOUR, bytes(12)):
        family, index, state, flags = data[0], value(data, 4), value(data, 8, 2), data[10]
        has = attributes_of(data[12:])
        lasts = index in names and not names[index].startswith(OVERLAYS)
        if family in (INET, INET6) and state & PERMANENT and not flags & LEARNED and lasts:
            address = network(family, has[1], 8 * len(has[1]))
            found.append(f"{address} dev {names[index]} lladdr {has.get(2, b'').hex(':')}")
    return found


def links_there(node: Look) -> list[dict[int, bytes]]:
    """The attributes of each link, with its number as the first of them and its flags as the last."""
    found: list[dict[int, bytes]] = node.once(
        "links",
        lambda: [
            {0: data[4:8], **attributes_of(data[16:]), FLAGS: data[8:12]}
            for _, data in dumped(ROUTE, GET_LINK, bytes(16))
        ],
    )
    return found


def program_lines(node: Look, names: dict[int, str]) -> list[str]:
    """What takes packets before nftables, or beside it: XDP programs, tables of the old iptables."""
    found = []
    for has in links_there(node):
        index, attached = value(has[0]), attributes_of(has.get(43, b""))
        if attached.get(2, b"\0") != b"\0" and index in names:
            found.append(f"xdp dev {names[index]}")
    for path in LEGACY_TABLES:
        tool = path.rpartition("/")[2].replace("_names", "").replace("_", "")
        found += [f"{tool}-legacy table {name}" for name in text_of(path, "").split()]
    return found


def policy_lines(node: Look, names: dict[int, str]) -> list[str]:
    """IPsec's policies, as `ip xfrm policy` takes them, and what they do with packets.

    None where there were some at the seal: a daemon sets them with its tunnels.
    """
    if node.want.get("policies"):
        return []
    try:
        policies = dumped(XFRM, GET_POLICY, bytes(POLICY_BYTES))
    except OSError:
        return []  # a kernel without IPsec
    return [line for _, data in policies if (line := policy_line(data, names))]


def policy_line(data: bytes, names: dict[int, str]) -> str:
    """One policy (struct xfrm_userpolicy_info); empty for a socket's."""
    family, index, direction = value(data, 40, 2), value(data, 48), data[160]
    if direction >= len(DIRECTIONS) or family not in (INET, INET6):
        return ""
    size = 4 if family == INET else 16
    words = ["src", network(family, data[16 : 16 + size], data[43])]
    words += ["dst", network(family, data[:size], data[42])]
    words += ["dev", names.get(index, str(index))] if index else []
    words += ["proto", str(data[44])] if data[44] else []
    for name, at in (("sport", 36), ("dport", 32)):
        words += [name, str(int.from_bytes(data[at : at + 2], "big"))] if any(data[at + 2 : at + 4]) else []
    words += ["dir", DIRECTIONS[direction]]
    has = attributes_of(data[POLICY_BYTES:])
    words += ["mark", f"{value(has[21]):#x}", "mask", f"{value(has[21], 4):#x}"] if 21 in has else []
    words += ["if_id", f"{value(has[31]):#x}"] if 31 in has else []
    return f"{' '.join(words)}{OF_ROUTE}{'block' if data[161] else 'allow'} priority {value(data, 152)}"


def number_pair(handle: int) -> str:
    """A handle, as `tc` prints it."""
    return f"{handle >> 16:x}:{handle & 0xFFFF or '':x}" if handle & 0xFFFF else f"{handle >> 16:x}:"


# On the controller

OBJECTS = {"rules": "rule", "routes": "route", "neighbours": "neighbour"}
OBJECTS |= dict.fromkeys(("addresses", "inner"), "address")
"""Of `ip`."""
KEEPER = "causeway-wan-gateway.service"
CLASSES = (" root handle 1: htb ", " parent 1:10 ", " parent 1:20 ", " parent 1:30 ", " parent 1:40 ")
"""What the keeper of the traffic classes sets on the links of a gateway."""


def taking_away(aspect: str, line: str) -> list[str]:
    """The command for what a line of an aspect names."""
    words = line.split()
    if aspect == "programs" and words[0] == "xdp":
        return ["ip", "link", "set", "dev", words[-1], "xdp", "off"]
    if aspect == "programs":
        return [words[0], "--table", words[-1], "--flush"]
    if aspect == "policies":
        return ["ip", "xfrm", "policy", "delete", *line.partition(OF_ROUTE)[0].split()]
    if aspect == "chains":
        return ["nft", "delete", "table", *words[:2]]
    if aspect == "metrics":
        return [*of_routes(line), "replace", *line.partition(OF_ROUTE)[0].split()]
    if aspect == "queues":
        return ["tc", words[0], "del", *words[1:]]
    if aspect == "proxies":
        return ["ip", "neighbour", "del", "proxy", *words]
    if words[0] == "-6":
        return ["ip", "-6", OBJECTS[aspect], "del", *words[1:]]
    if aspect == "routes":
        return [*of_routes(line), "del", *words]
    return ["ip", OBJECTS[aspect], "del", *words]


def of_routes(line: str) -> list[str]:
    """How a command about a route begins: of IPv6's the family is said."""
    return ["ip", *["-6"] * (":" in "".join(line.split()[:2])), "route"]


def known_by(aspect: str, line: str) -> str:
    """What of a line stays the same where it is changed: for what else there is one only."""
    words = line.split()
    if aspect == "routes":
        place = words[words[0] in ROUTE_TYPES.values()]
        said = (f"{name} {word}" for word, name in zip(words[1:], words) if name in ("table", "metric"))
        return " ".join([place, *said])
    if aspect in ("addresses", "inner"):
        return " ".join([words[0].partition("/")[0], *words[1:]])
    if aspect == "neighbours":
        return line.partition(" lladdr ")[0]
    if aspect == "metrics":
        return line.partition(OF_ROUTE)[0]
    return line.partition(":")[0] if aspect == "chains" else line


def in_its_place(put: list[str], take: list[str]) -> list[str]:
    """What puts one thing back, and only then takes the other away, unless it gave way by that."""
    return ["sh", "-c", f"{shlex.join(put)} && {{ {shlex.join(take)} 2> /dev/null || true; }}"]


class Traffic(Known):
    """Where packets go."""

    def following(self, claim: Claim) -> Iterator[Claim]:
        """Every node has a name, and a way for its packets."""
        if claim.kind == "hostname":
            yield Claim("traffic", "all")

    def comes_along(self, before: Entry, aspect: str, line: str) -> bool:
        """What an interface has that had no address before."""
        known = with_loopback(before.want.get("addresses") or ())
        of_links = ("addresses", "inner", "neighbours", "proxies")
        return aspect in of_links and line.split()[2] not in known

    def ours(self, run: HostSeal, aspect: str, line: str) -> bool:
        """The classes of a gateway's links."""
        return aspect == "queues" and KEEPER in run.governed() and any(own in f"{line} " for own in CLASSES)

    def key_of(self, aspect: str, line: str) -> str:
        """A route by where it leads to, an address by itself, a chain by its name."""
        return known_by(aspect, line)

    def undo(self, found: Obstacles, aspect: str, line: str, manifest: Manifest) -> None:
        """The command that takes one away. A table that was there stays: it may be the site's firewall."""
        argv = taking_away(aspect, line)
        sealed = manifest.entry(self.name, "all")
        known = (str(old) for old in (sealed.want.get(aspect) or () if sealed else ()))
        if aspect == "chains" and any(old.split()[:2] == line.split()[:2] for old in known):
            chain = known_by(aspect, line)
            argv = ["nft", f"flush chain {chain}; delete chain {chain}"]
        found.undo(f"{self.said[aspect]} {line}", *argv)

    def set_back(self, found: Obstacles, aspect: str, line: str, before: str) -> None:
        """The command that puts the known one in its place. A chain that was made anew is named."""
        said = f"{self.said[aspect]} {line} in place of {before}"
        if aspect == "metrics":
            found.undo(said, *of_routes(line), "replace", *before.replace(OF_ROUTE, " ").split())
        elif aspect == "chains":
            policy = before.split()[-1]
            if line.split()[:-1] == before.split()[:-1]:
                found.undo(said, "nft", f"chain {known_by(aspect, line)} {{ policy {policy}; }}")
        else:
            begin = of_routes(before) if aspect == "routes" else ["ip", OBJECTS[aspect]]
            put = [*begin, "replace", *before.split()]
            # A neighbour has one hardware address: the new one has gone by then.
            argv = put if aspect == "neighbours" else in_its_place(put, taking_away(aspect, line))
            found.undo(said, *argv)


ASPECTS_OF_TRAFFIC: dict[str, Any] = dict.fromkeys(
    (
        *("rules", "routes", "metrics", "chains", "queues", "addresses", "neighbours", "programs"),
        *("policies", "inner", "proxies"),
    ),
    is_list,
)
KINDS = (
    Traffic(
        "traffic",
        look_at_traffic,
        ASPECTS_OF_TRAFFIC,
        always=tuple(ASPECTS_OF_TRAFFIC),
        never_none=tuple(ASPECTS_OF_TRAFFIC),
        said={
            "rules": "rule",
            "routes": "route",
            "metrics": "metrics of route",
            "chains": "nftables chain",
            "queues": "queueing",
            "addresses": "address",
            "neighbours": "neighbour",
            "programs": "taker of packets",
            "policies": "IPsec policy",
            "inner": "address within the node",
            "proxies": "neighbour to answer for",
        },
        stands_alone=True,
    ),
)
