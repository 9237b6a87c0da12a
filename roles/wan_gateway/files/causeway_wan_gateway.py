#!/usr/bin/python3
"""The links of a WAN gateway: keep their traffic classes in force, measure them for node_exporter.

    causeway-wan-gateway keep CONFIG                      never ends
    causeway-wan-gateway probe CONFIG METRICS_DIR PACKETS  one measurement

CONFIG is JSON: {"rate_pct": 95, "gateways": [addresses of the region's other gateways], "links": [{"name",
"address", "peer", "peer_asn"?, "rtt_ms", "bandwidth_mbps", "loss_pct", "mtu_bytes", "handover_mtu_bytes",
"classes": {"management_pct", …}, "tunnel": {"address", "peer"}?}]}.
A link's interface is found by its address, inside the tunnel where it has one. Standard library only.

Neighbours are the other ends that have an AS number, and the other gateways. What FRR says of them is read as
FRR 10.3 writes it (commit 85cf1ed: bgp_show_summary in bgpd/bgp_vty.c, peer_uptime in bgpd/bgpd.c,
__display_peer_json in bfdd/bfdd_vty.c).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

RULES = "/etc/causeway-wan-gateway.nft"
TABLE = ("ip", "causeway_wan")
LOOK_EVERY_S = 5
CLASSES = {"management": "1:10", "scheduler": "1:20", "replication": "1:30", "scavenger": "1:40"}
"""Class → its HTB handle, in the order in which they are served; the nft rules name the same handles."""
DEFAULT = "0x30"
BITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
HTB = re.compile(
    r"^class htb (?P<handle>\S+) .*?(?:prio (?P<prio>\d+) .*?)?"
    r"rate (?P<rate>\d+)(?P<rate_unit>[KMGT]?)bit ceil (?P<ceil>\d+)(?P<ceil_unit>[KMGT]?)bit",
    re.MULTILINE,
)
"""As people read it: before iproute2 6.2, as in Debian 12, classes have no JSON. Three digits are left at
least, cut off behind (print_rate in lib/utils_math.c there)."""
QUEUE_S = 0.05
"""What a class may hold back at the link's rate: enough for a burst, where the kernel has no fq_codel."""
MIN_QUEUE_BYTES = 65536
BURST_BYTES = 15000
ICMP_OVERHEAD_BYTES = 28
MIN_MTU_BYTES = 576
WINDOW_PROBES = 600
"""Over how many packets loss is reported: a round of 30 could not show 0.2 %."""
GATEWAY_PACKETS = 5
"""What another gateway of the region is asked: one that is there answers the first."""
FRR_LIMIT_S = 10
"""Longest that a daemon of FRR's may take to answer out of its memory; it is waited for as long only."""
MOST = 2**53
"""No number that FRR counts is larger; up to here a float is exact."""
WINDOW_FILE = Path("/var/lib/causeway-wan/loss.json")

Link = dict[str, Any]
Metrics = list[tuple[str, str, float]]
"""Name behind `causeway_wan_`, labels as they are written, value."""


def run(*argv: str) -> tuple[int, str]:
    """A command's status and what it said on both outputs."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def inner(link: Link, key: str) -> str:
    """A link's address or peer, as traffic sees it: inside the tunnel where there is one."""
    return str(link.get("tunnel", link)[key])


def device_of(address: str) -> str | None:
    """The interface that carries an address (`100.100.0.1/30`); None when there is none."""
    found = json.loads(run("ip", "-json", "-4", "address", "show", "to", address.split("/")[0])[1] or "[]")
    return next((str(entry["ifname"]) for entry in found if entry.get("ifname")), None)


# Traffic classes


def root_bytes_s(link: Link, rate_pct: float) -> int:
    """The rate that is given out, in bytes per second; what a tunnel adds goes off it."""
    tunnelled: float = link["mtu_bytes"] / link["handover_mtu_bytes"]
    return int(link["bandwidth_mbps"] * 1e6 / 8 * rate_pct / 100 * tunnelled)


def wanted_classes(link: Link, rate_pct: float) -> dict[str, dict[str, int]]:
    """HTB handle → rate and ceiling in bytes per second, and priority."""
    root = root_bytes_s(link, rate_pct)
    classes = {"1:1": {"rate": root, "ceil": root, "prio": 0}}
    for prio, (name, handle) in enumerate(CLASSES.items()):
        rate = max(round(root * link["classes"][f"{name}_pct"] / 100), 1)
        classes[handle] = {"rate": rate, "ceil": root, "prio": prio}
    return classes


def queue_bytes(root: int) -> int:
    """What a class may hold back, where the kernel has no fq_codel."""
    return max(round(root * QUEUE_S), MIN_QUEUE_BYTES)


def in_force(device: str) -> dict[str, dict[str, int]]:
    """The HTB classes an interface has, in the form of `wanted_classes`."""
    status, text = run("tc", "class", "show", "dev", device)
    return {found["handle"]: figures(found) for found in HTB.finditer(text if status == 0 else "")}


def figures(found: re.Match[str]) -> dict[str, int]:
    """Rate and ceiling in bytes per second, and priority, of a class as `tc` shows it."""
    rates = {key: int(found[key]) * BITS[found[f"{key}_unit"]] // 8 for key in ("rate", "ceil")}
    return {**rates, "prio": int(found["prio"] or 0)}


def has_default(device: str) -> bool:
    """Whether unmarked traffic goes where we send it."""
    status, text = run("tc", "-json", "qdisc", "show", "dev", device)
    roots = [entry for entry in (json.loads(text or "[]") if status == 0 else []) if entry.get("root")]
    return any(entry.get("options", {}).get("default") == DEFAULT for entry in roots)


def shape(device: str, link: Link, rate_pct: float) -> str | None:
    """Bring a link's classes about where they differ; what the kernel said when it refuses."""
    wanted = wanted_classes(link, rate_pct)
    if same(in_force(device), wanted) and has_default(device):
        return None
    run("tc", "qdisc", "del", "dev", device, "root")
    lines = [f"qdisc add dev {device} root handle 1: htb default 30"]
    for handle, values in wanted.items():
        parent = "1:" if handle == "1:1" else "1:1"
        rate = f"rate {values['rate'] * 8}bit ceil {values['ceil'] * 8}bit prio {values['prio']}"
        size = f"burst {BURST_BYTES}b cburst {BURST_BYTES}b quantum {BURST_BYTES}"
        lines.append(f"class add dev {device} parent {parent} classid {handle} htb {rate} {size}")
    for line in lines:
        status, said = run("tc", *line.split())
        if status:
            return f"tc {line}: {said.strip()}"
    for handle in CLASSES.values():
        leaf = ("qdisc", "add", "dev", device, "parent", handle, "handle", f"{handle[2:]}:")
        if run("tc", *leaf, "fq_codel")[0]:
            run("tc", *leaf, "bfifo", "limit", str(queue_bytes(wanted["1:1"]["rate"])))
    return None


def same(found: dict[str, dict[str, int]], wanted: dict[str, dict[str, int]]) -> bool:
    """Whether the classes are those wanted: the kernel rounds rates, and an inner class has no priority."""
    return found.keys() == wanted.keys() and all(
        abs(found[handle][key] - values[key]) <= max(values[key] // 1000, 1)
        for handle, values in wanted.items()
        for key in ("rate", "ceil", *(["prio"] if handle != "1:1" else []))
    )


def keep(config: dict[str, Any]) -> None:
    """Look every few seconds, and say when something had to be done; never ends."""
    said: dict[str, str] = {}
    while True:
        if run("nft", "list", "table", *TABLE)[0]:
            run("nft", "-f", RULES)
        for link in config["links"]:
            device = device_of(inner(link, "address"))
            problem = "no interface carries its address" if device is None else None
            if device is not None:
                problem = shape(device, link, config["rate_pct"])
            state = problem or f"classes are in force on {device}"
            if said.get(link["name"]) != state:
                said[link["name"]] = state
                print(f"{link['name']}: {state}", flush=True)
        time.sleep(LOOK_EVERY_S)


# Measurement


def ping(peer: str, count: int, *options: str) -> tuple[int, list[float]]:
    """How many packets went out to an address, and the round trips, in ms, of those that came back."""
    text = run("ping", "-n", "-c", str(count), "-i", "0.2", "-W", "2", *options, peer)[1]
    sent = re.search(r"(\d+) packets transmitted", text)
    return int(sent[1]) if sent else count, [float(ms) for ms in re.findall(r"time=([\d.]+) ms", text)]


def ping_over(link: Link, count: int, *options: str) -> tuple[int, list[float]]:
    """`ping` to the other end of a link."""
    return ping(inner(link, "peer"), count, "-I", inner(link, "address").split("/")[0], *options)


def path_mtu(link: Link) -> int:
    """The largest packet, in bytes, that gets through unfragmented, up to the declared; 0 when none does."""

    def passes(size: int) -> bool:
        return bool(ping_over(link, 3, "-M", "do", "-s", str(size - ICMP_OVERHEAD_BYTES))[1])

    low, high = MIN_MTU_BYTES, int(link["mtu_bytes"])
    if passes(high):
        return high
    if not passes(low):
        return 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if passes(middle) else (low, middle)
    return low


def measure(link: Link, packets: int, window: list[list[int]]) -> Metrics:
    """One link's metrics. `window` holds [sent, lost] of the last rounds, and gets this one."""
    sent, trips = ping_over(link, packets)
    window.append([sent, sent - len(trips)])
    while sum(count for count, _ in window[1:]) >= WINDOW_PROBES:
        window.pop(0)
    of, total = f'link="{link["name"]}"', sum(count for count, _ in window) or 1
    found = [
        ("link_up", of, float(bool(trips))),
        ("link_loss_ratio", of, sum(lost for _, lost in window) / total),
        ("link_mtu_bytes", of, path_mtu(link) if trips else 0),
        ("link_declared_rtt_seconds", of, link["rtt_ms"] / 1000),
        # Both directions of a round trip may lose the packet.
        ("link_declared_loss_ratio", of, 1 - (1 - link["loss_pct"] / 100) ** 2),
        ("link_declared_mtu_bytes", of, link["mtu_bytes"]),
    ]
    if trips:
        found.append(("link_rtt_seconds", of, sorted(trips)[len(trips) // 2] / 1000))
    return found


# Neighbours


def neighbours(config: dict[str, Any]) -> dict[str, str]:
    """Address of each declared neighbour → its labels."""
    links = {inner(link, "peer"): link["name"] for link in config["links"] if "peer_asn" in link}
    return {
        **{peer: f'link="{name}",peer="{peer}"' for peer, name in links.items()},
        **{peer: f'peer="{peer}"' for peer in config["gateways"]},
    }


def ask_frr(daemon: str, question: str) -> Any:
    """What one daemon answers, without the others; None where it says nothing in time or nothing readable."""
    command = ["vtysh", "-d", daemon, "-c", f"show {question} json"]
    try:
        said = subprocess.run(command, capture_output=True, timeout=FRR_LIMIT_S, check=False).stdout
        return json.loads(said)
    except (OSError, subprocess.TimeoutExpired, ValueError, RecursionError):
        return None


def counted(value: object) -> float | None:
    """A number that FRR counted; None for what is none."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < MOST else None


def told(wanted: dict[str, str], bgp: Any, bfd: Any) -> Metrics:
    """What FRR's two answers say of the declared neighbours; one that it does not speak of is down."""
    peers = bgp.get("peers") if isinstance(bgp, dict) else None
    known = peers if isinstance(peers, dict) else {}
    entries = [entry for entry in bfd if isinstance(entry, dict)] if isinstance(bfd, list) else []
    alive = [entry.get("peer") for entry in entries if entry.get("status") == "up"]
    found = [
        ("frr_up", 'daemon="bgpd"', float(isinstance(bgp, dict))),
        ("frr_up", 'daemon="bfdd"', float(isinstance(bfd, list))),
    ]
    for peer, of in wanted.items():
        session = known.get(peer)
        session = session if isinstance(session, dict) else {}
        found.append(("bgp_up", of, float(session.get("state") == "Established")))
        found.append(("bfd_up", of, float(peer in alive)))
        prefixes, since = counted(session.get("pfxRcd")), counted(session.get("peerUptimeEstablishedEpoch"))
        drops = counted(session.get("connectionsDropped"))
        found += [("bgp_drops_total", of, drops)] if drops is not None else []
        found += [("bgp_prefixes", of, prefixes)] if prefixes is not None else []
        found += [("bgp_changed_timestamp_seconds", of, since)] if since is not None else []
    return found


def reached(peer: str) -> Metrics:
    """Whether another gateway of the region answers at all."""
    return [("gateway_up", f'peer="{peer}"', float(bool(ping(peer, GATEWAY_PACKETS)[1])))]


HELP = {
    "link_up": "1: packets came back over the link in the last measurement",
    "link_rtt_seconds": "median round trip of the last measurement",
    "link_loss_ratio": f"round trips lost, over about the last {WINDOW_PROBES} packets",
    "link_mtu_bytes": "largest packet that gets through unfragmented; 0 when none does",
    "link_declared_rtt_seconds": "declared round trip",
    "link_declared_loss_ratio": "share of round trips that the declared loss lets fail",
    "link_declared_mtu_bytes": "largest packet as declared",
    "gateway_up": "1: packets came back from another gateway of the region in the last measurement",
    "frr_up": f"1: the daemon answered within {FRR_LIMIT_S} s",
    "bgp_up": "1: the session with a declared neighbour is established",
    "bfd_up": "1: BFD hears a declared neighbour",
    "bgp_drops_total": "established sessions with a neighbour that were lost since bgpd began",
    "bgp_prefixes": "prefixes that are held from a neighbour",
    "bgp_changed_timestamp_seconds": "when the session was last established or lost; none where it never was",
}


def exposition(metrics: Metrics, now: float) -> Iterator[str]:
    """The lines node_exporter reads."""
    for metric, text in HELP.items():
        yield f"# HELP causeway_wan_{metric} {text}"
        yield f"# TYPE causeway_wan_{metric} {'counter' if metric.endswith('_total') else 'gauge'}"
        for name, labels, value in metrics:
            if name == metric:
                yield f"causeway_wan_{metric}{{{labels}}} {value:.10g}"
    yield "# HELP causeway_wan_probe_timestamp_seconds when the links were last measured"
    yield "# TYPE causeway_wan_probe_timestamp_seconds gauge"
    yield f"causeway_wan_probe_timestamp_seconds {int(now)}"


def write(path: Path, text: str) -> None:
    """Whole or not at all: node_exporter may read at any moment.

    The folder may be another user's, or become it meanwhile: nothing that lies there is written through.
    """
    part, place = f".{path.name}.part", os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part, dir_fd=place)
        new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(part, new, 0o600, dir_fd=place), "w") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)
        os.replace(part, path.name, src_dir_fd=place, dst_dir_fd=place)
    finally:
        os.close(place)


def probe(config: dict[str, Any], folder: Path, packets: int) -> None:
    """Measure all links at the same time, ask FRR, and write what was found."""
    try:
        windows = json.loads(WINDOW_FILE.read_text())
    except (OSError, ValueError):
        windows = {}
    windows = {link["name"]: windows.get(link["name"], []) for link in config["links"]}
    links, gateways = config["links"], config["gateways"]
    with ThreadPoolExecutor(max(len(links) + len(gateways), 1)) as pool:
        over = pool.map(lambda link: measure(link, packets, windows[link["name"]]), links)
        within = pool.map(reached, gateways)
        metrics = [metric for found in (*over, *within) for metric in found]
    # Afterwards: of a link that came back meanwhile BGP has heard as well.
    answers = ask_frr("bgpd", "bgp ipv4 unicast summary"), ask_frr("bfdd", "bfd peers")
    metrics += told(neighbours(config), *answers)
    write(folder / "causeway_wan.prom", "\n".join(exposition(metrics, time.time())) + "\n")
    write(WINDOW_FILE, json.dumps(windows))


def main(words: list[str]) -> None:
    """See the module's docstring."""
    config = json.loads(Path(words[1]).read_text())
    if words[0] == "keep":
        keep(config)
    else:
        probe(config, Path(words[2]), int(words[3]))


if __name__ == "__main__":
    main(sys.argv[1:])
