#!/usr/bin/python3
"""The links of a WAN gateway: keep their traffic classes in force, measure them for node_exporter.

    causeway-wan-gateway keep CONFIG                      never ends
    causeway-wan-gateway probe CONFIG METRICS_DIR PACKETS  one measurement

CONFIG is JSON: {"rate_pct": 95, "links": [{"name", "address", "peer", "rtt_ms", "bandwidth_mbps", "loss_pct",
"mtu_bytes", "handover_mtu_bytes", "classes": {"management_pct", …}, "tunnel": {"address", "peer"}?}]}.
A link's interface is found by its address, inside the tunnel where it has one. Standard library only.
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
QUEUE_S = 0.05
"""What a class may hold back at the link's rate: enough for a burst, where the kernel has no fq_codel."""
MIN_QUEUE_BYTES = 65536
BURST_BYTES = 15000
ICMP_OVERHEAD_BYTES = 28
MIN_MTU_BYTES = 576
WINDOW_PROBES = 600
"""Over how many packets loss is reported: a round of 30 could not show 0.2 %."""
WINDOW_FILE = Path("/var/lib/causeway-wan/loss.json")

Link = dict[str, Any]
Metrics = list[tuple[str, str, float]]


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
    status, text = run("tc", "-json", "class", "show", "dev", device)
    found = json.loads(text or "[]") if status == 0 else []
    return {
        entry["handle"]: {
            "rate": entry.get("rate", 0),
            "ceil": entry.get("ceil", 0),
            "prio": entry.get("prio", 0),
        }
        for entry in found
        if entry.get("class") == "htb"
    }


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


def ping(link: Link, count: int, *options: str) -> tuple[int, list[float]]:
    """How many packets went out to the other end, and the round trips, in ms, of those that came back."""
    address = inner(link, "address").split("/")[0]
    often = ("-n", "-c", str(count), "-i", "0.2", "-W", "2")
    text = run("ping", *often, "-I", address, *options, inner(link, "peer"))[1]
    sent = re.search(r"(\d+) packets transmitted", text)
    return int(sent[1]) if sent else count, [float(ms) for ms in re.findall(r"time=([\d.]+) ms", text)]


def path_mtu(link: Link) -> int:
    """The largest packet, in bytes, that gets through unfragmented, up to the declared; 0 when none does."""

    def passes(size: int) -> bool:
        return bool(ping(link, 3, "-M", "do", "-s", str(size - ICMP_OVERHEAD_BYTES))[1])

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
    sent, trips = ping(link, packets)
    window.append([sent, sent - len(trips)])
    while sum(count for count, _ in window[1:]) >= WINDOW_PROBES:
        window.pop(0)
    name, total = link["name"], sum(count for count, _ in window) or 1
    found = [
        ("up", name, float(bool(trips))),
        ("loss_ratio", name, sum(lost for _, lost in window) / total),
        ("mtu_bytes", name, path_mtu(link) if trips else 0),
        ("declared_rtt_seconds", name, link["rtt_ms"] / 1000),
        # Both directions of a round trip may lose the packet.
        ("declared_loss_ratio", name, 1 - (1 - link["loss_pct"] / 100) ** 2),
        ("declared_mtu_bytes", name, link["mtu_bytes"]),
    ]
    if trips:
        found.append(("rtt_seconds", name, sorted(trips)[len(trips) // 2] / 1000))
    return found


HELP = {
    "up": "1: packets came back over the link in the last measurement",
    "rtt_seconds": "median round trip of the last measurement",
    "loss_ratio": f"round trips lost, over about the last {WINDOW_PROBES} packets",
    "mtu_bytes": "largest packet that gets through unfragmented; 0 when none does",
    "declared_rtt_seconds": "declared round trip",
    "declared_loss_ratio": "share of round trips that the declared loss lets fail",
    "declared_mtu_bytes": "largest packet as declared",
}


def exposition(metrics: Metrics, now: float) -> Iterator[str]:
    """The lines node_exporter reads."""
    for metric, text in HELP.items():
        yield f"# HELP causeway_wan_link_{metric} {text}"
        yield f"# TYPE causeway_wan_link_{metric} gauge"
        for name, link, value in metrics:
            if name == metric:
                yield f'causeway_wan_link_{metric}{{link="{link}"}} {value:.9g}'
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
    """Measure all links at the same time, and write what was found."""
    try:
        windows = json.loads(WINDOW_FILE.read_text())
    except (OSError, ValueError):
        windows = {}
    windows = {link["name"]: windows.get(link["name"], []) for link in config["links"]}
    with ThreadPoolExecutor(max(len(windows), 1)) as pool:
        found = pool.map(lambda link: measure(link, packets, windows[link["name"]]), config["links"])
        metrics = [metric for metrics in found for metric in metrics]
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
