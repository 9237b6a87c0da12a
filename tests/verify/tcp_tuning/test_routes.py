"""Connections to other regions use the declared congestion control, and all others the default."""

import ipaddress
import json
from collections.abc import Iterable
from typing import Any

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder, ask, route_to, settled

BACK_WITHIN_S = 30.0
"""The keeper is told of a lost route at once; the rest is a busy node."""
pytestmark = pytest.mark.deadline(60)
KEEPER = "causeway-wan-routes"
PROFILE = "/etc/nccl-wan.conf"

# A TCP socket takes its congestion control from the route with its first packet: no answer is needed.
CONNECT = """
import json, socket, sys
def control(address):
    with socket.socket() as link:
        link.setblocking(False)
        link.connect_ex((address, 22))
        return link.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(bytes(1)).decode()
print(json.dumps({address: control(address) for address in sys.argv[1:]}))
"""


def far_addresses(expect: Expect) -> dict[str, dict[str, Any]]:
    """One address in every other region → how the role was told to reach it."""
    return {str(ipaddress.ip_network(route["cidr"])[-2]): route for route in expect.tcp_tuning_wan_routes}


def refused_route(host: Host, cidr: str) -> str | None:
    """Why the role could not make a route, as it reported; None when it could."""
    fact = json.loads(host.file("/etc/ansible/facts.d/causeway_tcp_tuning.fact").content_string)
    reasons = {entry["name"]: str(entry["reason"]) for entry in fact["unsupported"]}
    return next((why for name, why in reasons.items() if name.startswith(f"route {cidr} ")), None)


def test_connections_to_other_regions(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    far = far_addresses(expect)
    if not far:
        verdict.not_declared("no other region")
    wanted = {address: route["congestion_control"] for address, route in far.items()}
    available = host.file("/proc/sys/net/ipv4/tcp_available_congestion_control").content_string.split()
    lacking = set(wanted.values()) - set(available)
    # A route that came back a moment ago has yet to be seen by the keeper.
    found = settled(lambda: ask(host, CONNECT, *far), lambda now: now == wanted or lacking, BACK_WITHIN_S)
    if found != wanted and lacking:
        verdict.unsupported(f"the kernel has no {', '.join(sorted(lacking))}, only {', '.join(available)}")
    assert found == wanted


def test_connections_inside_the_region(host: Host, expect: Expect) -> None:
    near = json.loads(host.run("ip -json route show default").stdout)[0]["gateway"]
    assert ask(host, CONNECT, near) == {near: expect.tcp_tuning_default_congestion_control}


def test_traffic_leaves_by_the_declared_gateway(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    far = {address: route for address, route in far_addresses(expect).items() if route.get("via")}
    if not far:
        verdict.not_declared("no gateway is declared")
    refusals = [why for route in far.values() if (why := refused_route(host, route["cidr"]))]
    if refusals:
        verdict.unsupported(refusals[0])
    wanted = {address: route["via"] for address, route in far.items()}
    found = settled(lambda: gateways(host, far), lambda found: found == wanted, BACK_WITHIN_S)
    assert found == wanted


def gateways(host: Host, addresses: Iterable[str]) -> dict[str, str | None]:
    """Address → by whom the kernel would send to it."""
    found = {to: route_to(host, to) for to in addresses}
    return {address: route.get("gateway") for address, route in found.items()}


def test_packets_fit_the_link(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    limits = {
        address: route["mtu_bytes"]
        for address, route in far_addresses(expect).items()
        if route.get("mtu_bytes")
    }
    if not limits:
        verdict.not_declared("no link has an MTU of its own")
    for address, mtu_bytes in limits.items():
        route = route_to(host, address)
        device_mtu = int(host.file(f"/sys/class/net/{route['dev']}/mtu").content_string)
        metrics = {key: value for part in route.get("metrics", []) for key, value in part.items()}
        assert metrics.get("mtu", device_mtu) <= mtu_bytes


@pytest.mark.experiment
def test_a_lost_route_comes_back(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    far = far_addresses(expect)
    if not far:
        verdict.not_declared("no other region")
    address, route = next(iter(far.items()))
    refusal = refused_route(host, route["cidr"])
    if refusal:
        verdict.unsupported(refusal)
    # The route itself: where the kernel has no other congestion control, connections look alike without it.
    show = f"ip route show exact {route['cidr']}"
    before = host.run(show).stdout
    assert before, "there is no such route to lose"
    # The keeper is held, or it would be back before anyone could see that the route was lost. Traffic to that
    # region takes the default route meanwhile, wherever that leads.
    lose = f"systemctl kill -s STOP {KEEPER} && ip route del {route['cidr']} && {show}"
    try:
        lost = host.run(lose)
        assert (lost.rc, lost.stdout) == (0, ""), "the route was not lost"
    finally:
        host.run(f"systemctl kill -s CONT {KEEPER}")
    after = settled(lambda: host.run(show).stdout, lambda after: after == before, BACK_WITHIN_S)
    assert after == before, f"not back within {BACK_WITHIN_S:g} s"
    assert ask(host, CONNECT, address) == {address: route["congestion_control"]}


def test_the_keeper_of_the_routes_starts_at_boot(host: Host) -> None:
    done = host.run(f"systemctl is-enabled {KEEPER}; systemctl is-active {KEEPER}")
    assert done.stdout.split() == ["enabled", "active"]


def test_nccl_has_a_profile_for_other_regions(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    assert host.file(PROFILE).exists == bool(expect.tcp_tuning_nccl_sockets)
    if not expect.tcp_tuning_nccl_sockets:
        verdict.not_declared("no GPUs, or no other region")
    lines = host.file(PROFILE).content_string.splitlines()
    told = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    assert (told["NCCL_NET"], told["NCCL_IB_DISABLE"]) == ("Socket", "1")
    threads, each = int(told["NCCL_SOCKET_NTHREADS"]), int(told["NCCL_NSOCKS_PERTHREAD"])
    assert expect.tcp_tuning_nccl_sockets <= threads * each <= 64
    ways = [route_to(host, address) for address in far_addresses(expect)]
    devices = sorted({way["dev"] for way in ways if way})
    assert told.get("NCCL_SOCKET_IFNAME", "=").removeprefix("=") == ",".join(devices)
    verdict.rendered("NCCL alone reads it, where a job names it by NCCL_CONF_FILE")
