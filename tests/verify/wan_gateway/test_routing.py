"""A gateway knows its neighbours, and the way to every region by the link that was planned."""

import json
import time

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder
from tests.verify.wan_gateway.links import inner, link_device, own_links, some_address, vtysh

SETTLED_WITHIN_S = 30.0
"""The other ends may have been configured a moment ago."""
pytestmark = pytest.mark.deadline(SETTLED_WITHIN_S + 20)


def test_neighbours_at_the_other_ends(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    own = {inner(link, "peer") for link in own_links(expect) if "peer_asn" in link}
    wanted = own | (set(expect.wan_gateway_members) - {expect.wan_gateway_address})
    if not wanted:
        verdict.not_declared("no gateway at the other ends")
    deadline = time.monotonic() + SETTLED_WITHIN_S
    while (missing := wanted - speaking(host)) and time.monotonic() < deadline:
        time.sleep(1)
    assert not missing, f"no BGP session with a living BFD to {', '.join(sorted(missing))}"


def speaking(host: Host) -> set[str]:
    """The neighbours with an established session, of which BFD says that they live."""
    peers = vtysh(host, "bgp ipv4 unicast summary").get("peers", {})
    alive = {peer["peer"] for peer in vtysh(host, "bfd peers") if peer["status"] == "up"}
    return {address for address, peer in peers.items() if peer["state"] == "Established"} & alive


def test_the_region_is_announced(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    cidr = expect.wan_gateway_region_cidr
    if not cidr:
        verdict.not_declared("no region to announce")
    paths = vtysh(host, f"bgp ipv4 unicast {cidr}").get("paths", [])
    assert any(path.get("sourced") and path.get("valid") for path in paths), f"no route just to {cidr}"


def test_traffic_takes_the_planned_link(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    planned = {
        some_address(cidr): link_device(host, link)
        for link in own_links(expect)
        for cidr in link.get("primary_for", [])
    }
    if not planned:
        verdict.not_declared("no other region's traffic is planned over a link of this gateway")
    routes = {address: json.loads(host.run(f"ip -json route get {address}").stdout)[0] for address in planned}
    assert {address: route["dev"] for address, route in routes.items()} == planned
    sources = {address: route["prefsrc"] for address, route in routes.items()}
    assert set(sources.values()) == {expect.wan_gateway_address}, "nobody has a way back to a link's address"


def test_a_region_out_of_reach_is_said_to_be(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if not expect.wan_gateway_far_cidrs:
        verdict.not_declared("no other region")
    for cidr in expect.wan_gateway_far_cidrs:
        kinds = {hop for route in vtysh(host, f"ip route {cidr}")[cidr] for hop in describe(route)}
        assert "reject" in kinds, f"without a link, traffic for {cidr} would run in a circle"


def describe(route: dict[str, object]) -> set[str]:
    """`reject` where a route of FRR's answers that there is none."""
    hops = route.get("nexthops")
    return {"reject" for hop in hops if hop.get("reject")} if isinstance(hops, list) else set()


def test_the_shared_address_answers(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if not expect.wan_gateway_vip or len(expect.wan_gateway_members) < 2:
        verdict.not_declared("one gateway shares its address with nobody")
    assert host.run(f"ping -c 3 -i 0.2 -W 2 {expect.wan_gateway_vip}").rc == 0
    assert host.run("systemctl is-active keepalived").stdout.strip() == "active"


def test_keys_are_for_root_alone(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    tunnels = [link["tunnel"] for link in own_links(expect) if "tunnel" in link]
    if not tunnels:
        verdict.not_declared("no tunnel")
    for tunnel in tunnels:
        file = host.file(f"/etc/wireguard/{tunnel['device']}.conf")
        assert (file.user, file.mode) == ("root", 0o600)
