#!/usr/bin/python3
"""TCP settings and routes of a node: probe, compare, set; and a watch that puts the routes back.

The one implementation: the role's module imports it, and the node runs it as a service. Standard library
only. Nothing is set that the kernel would not take; what it does not take is named with the reason.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SYSCTL_FILE = Path("/etc/sysctl.d/90-causeway-tcp.conf")
ROUTES_FILE = Path("/etc/causeway-wan-routes.json")
FACT_FILE = Path("/etc/ansible/facts.d/causeway_tcp_tuning.fact")
PROC_SYS = Path("/proc/sys")
PROTOCOL = "96"
"""Marks our routes (rtnetlink's "protocol"), so that no other is removed; iproute2 has no name for it."""

RTMGRP_LINK = 0x1
RTMGRP_IPV4_IFADDR = 0x10
RTMGRP_IPV4_ROUTE = 0x40
SETTLE_S = 0.1
"""A link reset comes as a burst of events: wait for its end before looking."""
PATIENCE_S = 1.0
"""But no longer than that: routes of others that change all the time must not keep ours away."""


class RefusedError(Exception):
    """The kernel does not take this here; the text says why."""


def run(*command: str) -> str:
    """A command's output; RefusedError with what it said when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RefusedError((done.stderr or done.stdout).strip() or f"{command[0]} exits {done.returncode}")
    return done.stdout


def sysctl_value(key: str) -> str:
    """The value in force, single spaces between numbers; RefusedError when it cannot be read."""
    try:
        return " ".join((PROC_SYS / key.replace(".", "/")).read_text().split())
    except OSError as error:
        raise RefusedError(f"not in this kernel or network namespace ({error.strerror})") from error


def probe_sysctl(key: str, wanted: str) -> None:
    """Raise RefusedError when the key cannot be set to this value; writes back the value it has."""
    value = sysctl_value(key)
    if value == wanted:
        return
    try:
        (PROC_SYS / key.replace(".", "/")).write_text(value)
    except OSError as error:
        raise RefusedError(f"cannot be written ({error.strerror})") from error
    if key == "net.ipv4.tcp_congestion_control":
        probe_congestion_control(wanted)
    if key == "net.core.default_qdisc":
        # A network namespace that ends with the command: nothing real gets a new queue.
        run("unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", wanted)


def in_first_namespace() -> bool:
    """Whether this is the kernel's own network namespace: net.core.rmem_max is writable in no other."""
    try:
        return bool((PROC_SYS / "net/core/rmem_max").stat().st_mode & 0o200)
    except OSError:
        return False


def probe_congestion_control(name: str) -> None:
    """Raise RefusedError when the kernel has neither this congestion control nor a module for it.

    A container may only choose among those the host allows to everybody.
    """
    allowed = sysctl_value("net.ipv4.tcp_allowed_congestion_control").split()
    if name not in allowed and not in_first_namespace():
        raise RefusedError(f"a container may only choose one of {', '.join(allowed)}, not {name}")
    if name in sysctl_value("net.ipv4.tcp_available_congestion_control").split():
        return
    try:
        run("modprobe", "--dry-run", f"tcp_{name}")
    except (RefusedError, FileNotFoundError) as error:
        raise RefusedError(f"this kernel has no congestion control {name}") from error


def set_sysctl(key: str, value: str) -> None:
    """Set one value. OSError when the kernel refuses a value it should take: a mistake, not a lack."""
    (PROC_SYS / key.replace(".", "/")).write_text(value)
    if sysctl_value(key) != value:
        raise OSError(f"{key} is {sysctl_value(key)} after setting it to {value}")


def main_table() -> list[dict[str, Any]]:
    """The IPv4 routes of the main table, as iproute2 prints them in JSON."""
    routes: list[dict[str, Any]] = json.loads(run("ip", "-N", "-json", "route", "show") or "[]")
    return routes


def target(route: dict[str, Any]) -> ipaddress.IPv4Network:
    """The network a route leads to."""
    return ipaddress.IPv4Network("0.0.0.0/0" if route["dst"] == "default" else route["dst"])


def is_ours(route: dict[str, Any]) -> bool:
    """Whether this program made the route."""
    return str(route.get("protocol")) == PROTOCOL


def route_to(network: ipaddress.IPv4Network, routes: list[dict[str, Any]]) -> dict[str, Any]:
    """The route traffic into a network takes: the longest prefix that holds it.

    RefusedError when there is none or it has several next hops.
    """
    fitting = [route for route in routes if network.subnet_of(target(route))]
    if not fitting:
        raise RefusedError("no route leads there yet")
    best = max(fitting, key=lambda route: target(route).prefixlen)
    if "dev" not in best:
        raise RefusedError("the route has several next hops")
    return best


def next_hop(wanted: dict[str, Any], routes: list[dict[str, Any]]) -> dict[str, Any]:
    """The route whose next hop a WAN route takes: its declared gateway's, or the one traffic takes anyway.

    RefusedError when the gateway stands on no network of this node.
    """
    if "via" not in wanted:
        return route_to(ipaddress.IPv4Network(wanted["cidr"]), routes)
    there = route_to(ipaddress.IPv4Network(wanted["via"]), routes)
    if "gateway" in there:
        raise RefusedError(f"the gateway {wanted['via']} is not on a network of this node")
    return {"dst": wanted["via"], "gateway": wanted["via"], "dev": there["dev"]}


def route_metrics(route: dict[str, Any]) -> dict[str, Any]:
    """Those of a route's metrics that are set here: congestion (its congestion control) and mtu (bytes)."""
    metrics = {key: value for part in route.get("metrics", []) for key, value in part.items()}
    return {key: metrics[key] for key in ("congestion", "mtu") if key in metrics}


def wanted_metrics(wanted: dict[str, Any], device: str) -> dict[str, Any]:
    """The metrics a WAN route shall carry: the congestion control, and the link's MTU where it is smaller."""
    metrics: dict[str, Any] = {"congestion": wanted["congestion_control"]}
    device_mtu = int(Path(f"/sys/class/net/{device}/mtu").read_text())
    if wanted.get("mtu_bytes") and wanted["mtu_bytes"] < device_mtu:
        metrics["mtu"] = wanted["mtu_bytes"]
    return metrics


def apply_route(wanted: dict[str, Any], dry_run: bool) -> bool:
    """Bring one WAN route about; True when it changed (or would). RefusedError when it cannot be."""
    probe_congestion_control(wanted["congestion_control"])
    network = ipaddress.IPv4Network(wanted["cidr"])
    table = main_table()
    base = next_hop(wanted, [route for route in table if not is_ours(route)])
    metrics = wanted_metrics(wanted, base["dev"])
    hop = {key: base[key] for key in ("gateway", "dev") if key in base}
    for route in table:
        if target(route) == network and route_metrics(route) == metrics and hop.items() <= route.items():
            return False
    if not dry_run:
        replace_route(network, base, metrics)
    return True


def replace_route(network: ipaddress.IPv4Network, base: dict[str, Any], metrics: dict[str, Any]) -> None:
    """Send a network's traffic where `base` leads, with these metrics."""
    via = ["via", base["gateway"]] if base.get("gateway") else []
    # A route that somebody else made for exactly this network stays theirs, and gets our metrics.
    exact = target(base) == network
    owner = ["proto", str(base["protocol"]) if exact else PROTOCOL]
    metric = ["metric", str(base["metric"])] if exact and "metric" in base else []
    words = {"congestion": "congctl", "mtu": "mtu"}
    extra = [word for key, value in metrics.items() for word in (words[key], str(value))]
    run("ip", "route", "replace", str(network), *via, "dev", base["dev"], *owner, *metric, *extra)


def remove_route(cidr: str, dry_run: bool) -> bool:
    """Take back a route of ours that is no longer wanted; True when there was one."""
    network = ipaddress.IPv4Network(cidr)
    if not any(target(route) == network and is_ours(route) for route in main_table()):
        return False
    if not dry_run:
        run("ip", "route", "del", cidr, "proto", PROTOCOL)
    return True


def give_back() -> list[str]:
    """Take our routes away, and our metrics off routes of others; what could not be, in words."""
    problems = []
    for wanted in json.loads(ROUTES_FILE.read_text()):
        network = ipaddress.IPv4Network(wanted["cidr"])
        try:
            remove_route(wanted["cidr"], dry_run=False)
            for route in main_table():
                if target(route) == network and route_metrics(route).get("congestion"):
                    replace_route(network, route, {})
        except RefusedError as refused:
            problems.append(f"route {wanted['cidr']}: {refused}")
    return problems


def watch() -> None:
    """Apply the routes of the routes file now and after every change of links, addresses or routes."""
    monitor = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    monitor.bind((0, RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE))
    while True:
        for wanted in json.loads(ROUTES_FILE.read_text()):
            try:
                if apply_route(wanted, dry_run=False):
                    print(f"set {wanted['cidr']} {wanted['congestion_control']}", flush=True)
            except (RefusedError, OSError) as error:
                print(f"cannot set {wanted['cidr']}: {error}", file=sys.stderr, flush=True)
        drain(monitor)


def drain(monitor: socket.socket) -> None:
    """Block until something changed, then until all is quiet for `SETTLE_S` seconds, or for `PATIENCE_S`."""
    monitor.settimeout(None)
    latest = float("inf")
    while time.monotonic() < latest:
        try:
            monitor.recv(1 << 16)
        except TimeoutError:
            return
        except OSError:  # ENOBUFS: more events than fit; that something changed is all that counts
            time.sleep(SETTLE_S)
        latest = min(latest, time.monotonic() + PATIENCE_S)
        monitor.settimeout(SETTLE_S)


def write(path: Path, text: str, dry_run: bool) -> bool:
    """Write a file atomically, mode 0644, when it differs; True when it differs."""
    try:
        if path.read_text() == text:
            return False
    except FileNotFoundError:
        pass
    if not dry_run:
        part = path.with_name(path.name + ".part")
        part.write_text(text)
        part.chmod(0o644)
        part.replace(path)
    return True


if __name__ == "__main__":
    if sys.argv[1:] == ["restore"]:
        print(*give_back(), sep="\n")
    else:
        watch()
