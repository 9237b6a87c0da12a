"""interfaces: what somebody made or set live beside what the roles govern: links, and settings of the kernel.

A link that was there at the first seal is known, and so is each setting, with its value. What a role governs
by a task counts there, and not here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from infra.drift.kind import Claim, Found, How, is_list
from infra.drift.kinds.known import Known, with_known
from infra.drift.looks import Look
from infra.drift.node import text_of
from infra.errors import CausewayError
from infra.stack import contract_file
from roles.base.drift.traffic import (
    EPHEMERAL,
    FLAGS,
    OVERLAYS,
    RAILS_FILE,
    TUNNELS_FILE,
    address_lines,
    addresses_in,
    attributes_of,
    ending,
    is_tunnel,
    links_there,
    value,
)

if TYPE_CHECKING:
    from infra.drift.manifest import Entry, Manifest
    from infra.drift.merge import HostSeal
    from infra.drift.repair import Obstacles

NAME, MTU, MASTER, QUEUE_LENGTH, INFO = 3, 4, 10, 13, 18
"""Attributes of a link (linux/if_link.h); of the last one the first is its kind."""
LINKS_FILE = "/etc/causeway-wan-gateway.json"
"""The WAN links of a gateway, whose MTU the declaration says, as it does that of the rails."""
OF_ENGINES = ("podman", "virbr", "lxd", "lo")
"""How more links begin of containers and virtual machines, and the one that every node has."""
OF_MODULES = frozenset(
    ("sit0", "tunl0", "gre0", "gretap0", "erspan0", "ip6tnl0", "ip6gre0", "ip_vti0", "ip6_vti0", "teql0")
)
"""Links that a module of the kernel makes as it is loaded (net.core.fb_tunnels_only_for_init_net)."""
IS_UP, NO_ARP = 1, 0x80
OF_A_LINK = {"arp": NO_ARP, "promisc": 0x100, "allmulticast": 0x200, "multicast": 0x1000}
"""What a link was told, as `ip link set` has it → its flag (linux/if.h); not what a program asks for itself.
The first one is set where the link does not ask for neighbours."""
TOP = "/proc/sys"
OF_AN_INTERFACE = (
    *(f"ipv4/conf/{{}}/{x}" for x in ("rp_filter", "secure_redirects", "send_redirects", "accept_local")),
    *(f"ipv4/conf/{{}}/{x}" for x in ("accept_source_route", "proxy_arp", "arp_ignore", "arp_announce")),
    *(f"ipv4/conf/{{}}/{x}" for x in ("route_localnet", "src_valid_mark", "disable_policy")),
    "ipv4/conf/{}/arp_filter",
    *(f"ipv6/conf/{{}}/{x}" for x in ("accept_redirects", "accept_source_route", "proxy_ndp")),
    "ipv6/conf/{}/disable_ipv6",
)
"""Settings by which packets take other ways. Not `forwarding`, which an engine of containers sets, but where
a role has a node forward."""
FORWARDS, FORWARDING = "net.ipv4.ip_forward", "ipv4/conf/{}/forwarding"
OF_TCP = "net/ipv4/"
NOT_OF_TCP = (
    *("tcp_available_congestion_control", "tcp_allowed_congestion_control", "tcp_mem"),
    "tcp_fastopen_key",
)
"""What a module adds to as it is loaded, what each boot makes of the memory that it finds, and a secret."""
OF_THE_KERNEL = (
    *(f"net/ipv4/{x}" for x in ("ip_no_pmtu_disc", "fib_multipath_hash_policy", "icmp_ratelimit")),
    *(f"net/ipv4/neigh/default/gc_thresh{x}" for x in (1, 2, 3)),
    *(f"net/ipv4/{x}" for x in ("ip_local_port_range", "ip_default_ttl", "icmp_echo_ignore_all")),
    *(f"net/ipv4/{x}" for x in ("ip_nonlocal_bind", "ip_unprivileged_port_start", "ping_group_range")),
    *(f"net/core/{x}" for x in ("somaxconn", "netdev_max_backlog", "netdev_budget", "busy_poll")),
    *(f"net/core/{x}" for x in ("rmem_max", "wmem_max", "rmem_default", "wmem_default", "default_qdisc")),
    *(f"net/netfilter/nf_conntrack_{x}" for x in ("max", "tcp_loose", "tcp_timeout_established")),
    *(f"kernel/{x}" for x in ("core_pattern", "modprobe", "randomize_va_space", "panic", "panic_on_oops")),
    *(f"kernel/{x}" for x in ("sysrq", "kptr_restrict", "dmesg_restrict", "unprivileged_bpf_disabled")),
    *(f"kernel/{x}" for x in ("yama/ptrace_scope", "perf_event_paranoid", "numa_balancing")),
    *(f"vm/{x}" for x in ("swappiness", "overcommit_memory", "overcommit_ratio", "max_map_count")),
    *(f"vm/{x}" for x in ("zone_reclaim_mode", "dirty_ratio", "dirty_background_ratio", "panic_on_oom")),
    *(f"fs/{x}" for x in ("suid_dumpable", "protected_symlinks", "protected_hardlinks")),
)
"""Settings that decide over speed and safety and that nothing but somebody changes."""
ASK_DEVICE = 0x8946
"""SIOCETHTOOL of linux/sockios.h; the commands below are linux/ethtool.h's."""
OF_A_DEVICE = {
    **{name: (code, 1, ("-K", name)) for name, code in (("rx", 0x14), ("tx", 0x16), ("sg", 0x18))},
    **{name: (code, 1, ("-K", name)) for name, code in (("tso", 0x1E), ("gso", 0x23), ("gro", 0x2B))},
    "rx-ring": (0x10, 5, ("-G", "rx")),
    "tx-ring": (0x10, 8, ("-G", "tx")),
    "rx-channels": (0x3C, 5, ("-L", "rx")),
    "tx-channels": (0x3C, 6, ("-L", "tx")),
    "channels": (0x3C, 8, ("-L", "combined")),
}
"""What a device does by itself, and its buffers: name → command, which number of the answer, ethtool's words.
Not large-receive offload: the kernel ends it where a node forwards."""
ANSWER_WORDS = 9
"""So many numbers has the longest answer, the command first."""


def look_at_interfaces(node: Look, key: str, how: How) -> Found:
    """Links that somebody made, and settings of links and of the kernel, each with its value."""
    links = {ending(has[NAME]): has for has in links_there(node) if NAME in has}
    others = (*OF_ENGINES, *EPHEMERAL, *OVERLAYS)
    lasting = {name: has for name, has in links.items() if not name.startswith(others)}
    made = [f"{name} {kind}" for name, has in lasting.items() if (kind := kind_of(node, name, has))]
    named = {line for line in made if os.path.exists(TUNNELS_FILE.format(line.partition(" ")[0]))}
    found = {
        "links": [line for line in made if line not in named],
        # Of their own: before, what had a file there was taken for a role's.
        "tunnels": sorted(named),
        "settings": of_known(node, setting_lines(node, lasting, links)),
    }
    return with_known(node, found)


def kind_of(node: Look, name: str, has: dict[int, bytes]) -> str:
    """What a link is that somebody made; empty for hardware, one end of a pair, and a tunnel of a role's."""
    kind = called(has)
    return "" if kind == "veth" or name in OF_MODULES or is_tunnel(node, name) else kind


def called(has: dict[int, bytes]) -> str:
    """A link's kind as the kernel calls it; empty for hardware."""
    return ending(attributes_of(has.get(INFO, b"")).get(1, b""))


def setting_lines(
    node: Look, lasting: dict[str, dict[int, bytes]], links: dict[str, dict[int, bytes]]
) -> list[str]:
    """A line for each setting that is this node's to have, and that no role governs."""
    names = {value(has[0]): name for name, has in links.items()}
    found = [f"{name} mtu {value(has[MTU])}" for name, has in nobodys_mtu(node, lasting, names).items()]
    for name, has in lasting.items():
        found.append(f"{name} txqueuelen {value(has[QUEUE_LENGTH]) if QUEUE_LENGTH in has else 0}")
        flags = value(has[FLAGS]) ^ NO_ARP
        found += [f"{name} {what} {('off', 'on')[flags & flag > 0]}" for what, flag in OF_A_LINK.items()]
        # One that is down at the seal waits for its cable, and comes up by itself.
        found += [f"{name} state {('down', 'up')[flags & IS_UP]}"] * (flags & IS_UP or node.mode != "seal")
        found.append(f"{name} master {names.get(value(has[MASTER]), '-') if MASTER in has else '-'}")
    # What a bridge or a bond does follows from the links in it, which come and go.
    found += device_lines(name for name, has in lasting.items() if called(has) in ("", "veth"))
    return found + sysctl_lines(node, ("all", "default", *lasting))


def nobodys_mtu(
    node: Look, lasting: dict[str, dict[int, bytes]], names: dict[int, str]
) -> dict[str, dict[int, bytes]]:
    """The links whose MTU follows from no declaration, nor as a bridge's from other links, and is compared by
    no other kind."""
    declared = addresses_in(RAILS_FILE) | addresses_in(LINKS_FILE)
    given = (line.partition(" dev ") for line in address_lines(node, names)) if declared else ()
    governed = {name for address, _, name in given if address.partition("/")[0] in declared}
    governed.update(node.keys_of("interface"))
    return {
        name: has
        for name, has in lasting.items()
        if MTU in has and name not in governed and not is_tunnel(node, name) and called(has) != "bridge"
    }


def device_lines(names: Iterable[str]) -> list[str]:
    """A line for each thing that these links' devices tell of themselves."""
    from _socket import AF_INET, SOCK_DGRAM, socket

    asked, found = socket(AF_INET, SOCK_DGRAM), []
    try:
        for name in names:
            answers = {code: answer_of(asked, name, code) for code, *_ in OF_A_DEVICE.values()}
            for what, (code, at, (option, _)) in OF_A_DEVICE.items():
                if answers[code]:
                    number = answers[code][at]
                    found.append(f"{name} {what} {('off', 'on')[number > 0] if option == '-K' else number}")
    finally:
        asked.close()
    return found


def answer_of(asked: Any, name: str, code: int) -> list[int]:
    """What a link's device answers to a command of ethtool's; nothing where it knows none."""
    from array import array
    from fcntl import ioctl

    numbers = array("I", [code, *[0] * (ANSWER_WORDS - 1)])
    request = name.encode().ljust(16, b"\0") + numbers.buffer_info()[0].to_bytes(8, sys.byteorder) + bytes(16)
    try:
        ioctl(asked, ASK_DEVICE, request)
    except OSError:
        return []
    return list(numbers)


def sysctl_lines(node: Look, names: tuple[str, ...]) -> list[str]:
    """A line for each of these links' settings, and the kernel's; what a node cannot write is its host's."""
    own = {str(key).replace(".", "/") for key in node.keys_of("sysctl")}
    of_each = (*OF_AN_INTERFACE, FORWARDING) if FORWARDS.replace(".", "/") in own else OF_AN_INTERFACE
    paths = [*(f"net/{path.format(name)}" for path in of_each for name in names), *OF_THE_KERNEL]
    paths += [OF_TCP + x for x in os.listdir(f"{TOP}/{OF_TCP}") if x[:4] == "tcp_" and x not in NOT_OF_TCP]
    return [
        f"{path} {' '.join(text_of(f'{TOP}/{path}', '').split())}"
        for path in paths
        if path.replace(".", "/") not in own and os.access(f"{TOP}/{path}", os.W_OK)
    ]


def of_known(node: Look, lines: list[str]) -> list[str]:
    """Those of settings that were sealed: with a new link, or a module, come its own."""
    sealed = keys_of(node.want.get("settings") or ())
    return [line for line in lines if key_of(line) in sealed or node.mode == "seal"]


def key_of(line: str) -> str:
    """What has a value: a path below /proc/sys, or a link and what it has."""
    head = line.partition(" ")[0]
    return head if "/" in head else " ".join(line.split()[:2])


def keys_of(lines: Iterable[str]) -> set[str]:
    """The keys of these lines."""
    return {key_of(line) for line in lines}


# On the controller


def declared_mtu(stack: str, host: str) -> str:
    """The MTU of a host's region; empty where nothing is declared any more."""
    from infra.ground.contract import load_contract  # the models: half a second for plugins of every run

    try:
        contract = load_contract(contract_file(stack))
        return str(contract.regions[contract.region_of(host)].mtu_bytes)
    except (CausewayError, KeyError):
        return ""


class Interfaces(Known):
    """Links that nobody but the roles may add, settings that nobody but they may change."""

    def following(self, claim: Claim) -> Iterator[Claim]:
        """Every node has a name, and settings."""
        if claim.kind == "hostname":
            yield Claim("interfaces", "all")

    def comes_along(self, before: Entry, aspect: str, line: str) -> bool:
        """A setting of what was not there before."""
        return aspect == "settings" and key_of(line) not in keys_of(before.want.get("settings") or ())

    def ours(self, run: HostSeal, aspect: str, line: str) -> bool:
        """The MTU that the declaration says by now."""
        words = line.split()
        return words[1] == "mtu" and words[2] == declared_mtu(run.stack, run.host)

    def key_of(self, aspect: str, line: str) -> str:
        """A link by its name, a setting by what it is of."""
        return key_of(line) if aspect == "settings" else line.partition(" ")[0]

    def undo(self, found: Obstacles, aspect: str, line: str, manifest: Manifest) -> None:
        """A link, with the command that takes it away."""
        name = line.split()[0]
        found.undo(f"link {name}", "ip", "link", "delete", "dev", name)

    def set_back(self, found: Obstacles, aspect: str, line: str, before: str) -> None:
        """A setting, with the command that makes it what it was. A link of another kind is named."""
        if aspect != "settings":
            return
        words, key = line.split(), key_of(line)
        old = before[len(key) + 1 :]
        said = f"setting {line} in place of {old}"
        if "/" in key:
            found.undo(said, "sysctl", "--quiet", "--write", f"{key}={old}")
        elif words[1] in OF_A_DEVICE:
            option, what = OF_A_DEVICE[words[1]][2]
            found.undo(said, "ethtool", option, words[0], what, old)
        elif words[1] == "state":
            found.undo(said, *LINK_SET, words[0], old)
        elif words[1] == "master":
            found.undo(said, *LINK_SET, words[0], *(("nomaster",) if old == "-" else ("master", old)))
        else:
            found.undo(said, *LINK_SET, words[0], words[1], old)


OF_LINKS = ("links", "settings", "tunnels")
LINK_SET = ("ip", "link", "set", "dev")
KINDS = (
    Interfaces(
        "interfaces",
        look_at_interfaces,
        dict.fromkeys(OF_LINKS, is_list),
        always=OF_LINKS,
        never_none=OF_LINKS,
        said={"links": "link", "settings": "setting", "tunnels": "tunnel"},
        stands_alone=True,
    ),
)
