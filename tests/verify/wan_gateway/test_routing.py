"""A gateway knows its neighbours, and the way to every region by the link that was planned."""

from collections.abc import Iterable
from functools import partial

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder, route_to, settled
from tests.verify.wan_gateway.links import link_device, neighbours, own_links, some_address, vtysh

SETTLED_WITHIN_S = 30.0
"""The other ends may have been configured a moment ago."""
pytestmark = pytest.mark.deadline(SETTLED_WITHIN_S + 20)


def test_neighbours_at_the_other_ends(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    wanted = neighbours(expect)
    if not wanted:
        verdict.not_declared("no gateway at the other ends")
    missing = settled(lambda: wanted - speaking(host), lambda missing: not missing, SETTLED_WITHIN_S)
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
    announced = settled(lambda: is_announced(host, cidr), bool, SETTLED_WITHIN_S)
    assert announced, f"no route just to {cidr}"


def is_announced(host: Host, cidr: str) -> bool:
    paths = vtysh(host, f"bgp ipv4 unicast {cidr}").get("paths", [])
    return any(path.get("sourced") and path.get("valid") for path in paths)


def test_traffic_takes_the_planned_link(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    own = expect.wan_gateway_address
    planned = {
        some_address(cidr): (link_device(host, link), own)
        for link in own_links(expect)
        for cidr in link.get("primary_for", [])
    }
    if not planned:
        verdict.not_declared("no other region's traffic is planned over a link of this gateway")
    found = settled(lambda: ways(host, planned), lambda found: found == planned, SETTLED_WITHIN_S)
    assert found == planned, "the way, and the source: nobody has a way back to a link's address"


def ways(host: Host, addresses: Iterable[str]) -> dict[str, tuple[str | None, str | None]]:
    """Address → the interface and the source by which the kernel would send to it."""
    found = {to: route_to(host, to) for to in addresses}
    return {address: (route.get("dev"), route.get("prefsrc")) for address, route in found.items()}


def test_a_region_out_of_reach_is_said_to_be(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if not expect.wan_gateway_far_cidrs:
        verdict.not_declared("no other region")
    for cidr in expect.wan_gateway_far_cidrs:
        kinds = settled(partial(kinds_of, host, cidr), lambda kinds: "reject" in kinds, SETTLED_WITHIN_S)
        assert "reject" in kinds, f"without a link, traffic for {cidr} would run in a circle"


def kinds_of(host: Host, cidr: str) -> set[str]:
    return {hop for route in vtysh(host, f"ip route {cidr}").get(cidr, []) for hop in describe(route)}


def describe(route: dict[str, object]) -> set[str]:
    """`reject` where a route of FRR's answers that there is none."""
    hops = route.get("nexthops")
    return {"reject" for hop in hops if hop.get("reject")} if isinstance(hops, list) else set()


def test_the_shared_address_answers(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if not expect.wan_gateway_vip or len(expect.wan_gateway_members) < 2:
        verdict.not_declared("one gateway shares its address with nobody")
    ping = f"ping -c 3 -i 0.2 -W 2 {expect.wan_gateway_vip}"
    answered = settled(lambda: host.run(ping).rc == 0, bool, SETTLED_WITHIN_S)
    assert answered, f"nobody answers for {expect.wan_gateway_vip}"
    assert host.run("systemctl is-active keepalived").stdout.strip() == "active"


def test_keys_are_for_root_alone(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    tunnels = [link["tunnel"] for link in own_links(expect) if "tunnel" in link]
    if not tunnels:
        verdict.not_declared("no tunnel")
    for tunnel in tunnels:
        file = host.file(f"/etc/wireguard/{tunnel['device']}.conf")
        assert (file.user, file.mode) == ("root", 0o600)
