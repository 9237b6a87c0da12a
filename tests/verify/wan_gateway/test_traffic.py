"""A full link is shared as declared, and what leaves a region is marked for the world outside."""

import json
import re
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder, ask, settled
from tests.verify.wan_gateway.links import Link, bits, link_device, own_links, some_address

pytestmark = pytest.mark.deadline(90)

HANDLES = {"management": "1:10", "scheduler": "1:20", "replication": "1:30", "scavenger": "1:40"}
MARKED = {"management": 16, "scheduler": 18, "replication": 10, "scavenger": 8}
"""Class → a DSCP that belongs to it."""
PACKETS = 50
DISCARD = 9
"""A port that is in no class."""
BACK_WITHIN_S = 20.0
COUNTED_WITHIN_S = 5.0
WAY_BACK_WITHIN_S = 15.0
"""A link whose BFD was held up for a second, as on a busy machine, carries nothing until BGP agreed again."""
AF11 = 10

# Sends small packets with a DSCP; none goes further than the other end of the link.
SEND = """
import json, socket, sys
address, count, marks, port = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]), int(sys.argv[4])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 1)
    for dscp in marks:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
        for _ in range(count):
            sender.sendto(b"causeway", (address, port))
print("null")
"""

# A machine of the region, played by a namespace: what it sends to another region is forwarded, and is looked
# at as it leaves. A TCP connection shows the MSS, a packet per DSCP the mark. What comes in does not count:
# the gateway at the other end may be doing the same. The network is one for tests (RFC 2544): no link has it.
FORWARD = """
import json, socket, subprocess, sys, time
device, address, marks = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
SENDER = '''
import socket, sys
address, marks = sys.argv[1], [int(mark) for mark in sys.argv[2:]]
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 2)
for dscp in marks:
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
    sender.sendto(dscp.to_bytes(1, "big"), (address, 9))
caller = socket.socket()
caller.setblocking(False)
caller.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 2)
caller.connect_ex((address, 9))
'''
def ip(*words):
    subprocess.run(["ip", *words], check=True, stdout=subprocess.DEVNULL)
name = "causeway-check"
subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)
ip("netns", "add", name)
try:
    jumbo = ("mtu", "9000")
    ip("link", "add", "cw-check", *jumbo, "type", "veth", "peer", "name", "eth0", *jumbo, "netns", name)
    ip("address", "add", "198.19.255.253/30", "dev", "cw-check")
    ip("link", "set", "cw-check", "up")
    ip("-n", name, "address", "add", "198.19.255.254/30", "dev", "eth0")
    ip("-n", name, "link", "set", "eth0", "up")
    ip("-n", name, "route", "add", "default", "via", "198.19.255.253")
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
    tap.bind((device, 0))
    tap.settimeout(0.5)
    sender = ["python3", "-c", SENDER, address, *map(str, marks)]
    subprocess.run(["ip", "netns", "exec", name, *sender], check=True)
    seen, mss, deadline = {}, None, time.monotonic() + 5
    while (len(seen) < len(marks) or mss is None) and time.monotonic() < deadline:
        try:
            packet, (_, _, kind, *_) = tap.recvfrom(65535)
        except TimeoutError:
            continue
        if kind != socket.PACKET_OUTGOING:
            continue
        head = (packet[0] & 15) * 4
        if socket.inet_ntoa(packet[12:16]) != "198.19.255.254":
            continue
        if packet[9] == 17:
            seen[packet[head + 8]] = packet[1] >> 2
        elif packet[9] == 6:
            options = packet[head + 20 :]
            while options and mss is None:
                if options[0] == 2:
                    mss = int.from_bytes(options[2:4], "big")
                options = options[1:] if options[0] == 1 else options[options[1]:]
finally:
    subprocess.run(["ip", "link", "del", "cw-check"], stderr=subprocess.DEVNULL)
    subprocess.run(["ip", "netns", "del", name])
print(json.dumps({"marks": seen, "mss": mss}))
"""


@pytest.fixture
def links(host: Host, expect: Expect, verdict: VerdictRecorder) -> list[Link]:
    """The gateway's links, on a kernel that can share them out."""
    found = own_links(expect)
    if not found:
        verdict.not_declared("no link ends here")
    attempt = host.run("unshare --net tc qdisc add dev lo root htb")
    if attempt.rc:
        verdict.unsupported(f"the kernel has no HTB ({attempt.stderr.strip()})")
    return found


def planned(expect: Expect) -> tuple[Link, str]:
    """A link and an address that is reached over it; none where this gateway's links only stand in."""
    ways = [(link, cidr) for link in own_links(expect) for cidr in link.get("primary_for", [])]
    return (ways[0][0], some_address(ways[0][1])) if ways else ({}, "")


def classes(host: Host, device: str) -> dict[str, dict[str, Any]]:
    """HTB handle → rate and ceiling in bytes per second, priority, and packets that it took.

    As people read it: before iproute2 6.2, as in Debian 12, there is no JSON of classes.
    """
    text = host.run(f"tc -statistics class show dev {device}").stdout
    found = {}
    for one in re.finditer(r"^class htb (\S+) (.*)\n Sent \d+ bytes (\d+) pkt", text, re.MULTILINE):
        words = one[2].split()
        said = dict(pairwise(words))
        rates = {key: bits(said[key]) / 8 for key in ("rate", "ceil")}
        found[one[1]] = {**rates, "prio": int(said.get("prio", 0)), "packets": int(one[3])}
    return found


def has_all(found: dict[str, Any]) -> bool:
    """Whether all classes are there."""
    return {"1:1", *HANDLES.values()} <= found.keys()


def test_classes_have_their_shares(host: Host, expect: Expect, links: list[Link]) -> None:
    for link in links:
        # The keeper looks every few seconds, and makes them for an interface that is new.
        found = settled(partial(classes, host, link_device(host, link)), has_all, BACK_WITHIN_S)
        assert has_all(found), f"{link['name']}: classes {sorted(found)}, and {HANDLES} are planned"
        whole = link["bandwidth_mbps"] * 1e6 / 8 * expect.wan_gateway_rate_pct / 100
        whole *= link["mtu_bytes"] / link["handover_mtu_bytes"]
        assert found["1:1"]["rate"] == pytest.approx(whole, rel=0.01)
        for name, handle in HANDLES.items():
            share = link["classes"][f"{name}_pct"] / 100
            assert found[handle]["rate"] == pytest.approx(whole * share, rel=0.01), f"{link['name']}: {name}"
            assert found[handle]["ceil"] == found["1:1"]["rate"], (
                f"{link['name']}: {name} may take what is left"
            )
        served = [found[handle]["prio"] for handle in HANDLES.values()]
        assert served == sorted(set(served)), f"{link['name']}: management is served first"


@pytest.mark.usefixtures("links")
def test_traffic_goes_into_its_class(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    link, address = planned(expect)
    if not link:
        verdict.not_declared("this gateway's links only stand in for others")
    device = link_device(host, link)
    for name, dscp in MARKED.items():
        _expect_class(host, device, address, name, dscp, DISCARD)
    for name in HANDLES.keys() - {"replication"}:
        for ports in getattr(expect, f"wan_gateway_{name}_ports"):
            _expect_class(host, device, address, name, 0, int(str(ports).rpartition("-")[2]))


def _expect_class(host: Host, device: str, address: str, name: str, dscp: int, port: int) -> None:
    """Send packets with a DSCP to a port, and see them counted in a class."""

    def counted() -> int:
        return int(classes(host, device)[HANDLES[name]]["packets"])

    def sent() -> int:
        before = counted()
        ask(host, SEND, address, str(PACKETS), json.dumps([dscp]), str(port))
        return settled(lambda: counted() - before, lambda new: new >= PACKETS, COUNTED_WITHIN_S)

    new = settled(sent, lambda new: new >= PACKETS, WAY_BACK_WITHIN_S)
    assert new >= PACKETS, f"{new} of {PACKETS} packets with DSCP {dscp} to port {port} were {name}'s"


@pytest.mark.experiment
@pytest.mark.usefixtures("links")
def test_what_leaves_the_region_is_marked_for_the_world(
    host: Host, expect: Expect, verdict: VerdictRecorder
) -> None:
    link, address = planned(expect)
    if not link:
        verdict.not_declared("this gateway's links only stand in for others")
    device, kept = link_device(host, link), MARKED["scheduler"]
    marks = [*expect.wan_gateway_remarked_dscps, kept]
    wanted = {
        "marks": {str(mark): kept if mark == kept else AF11 for mark in marks},
        "mss": link["mtu_bytes"] - 40,
    }
    look = partial(ask, host, FORWARD, device, address, json.dumps(marks))
    assert settled(look, lambda found: found == wanted, WAY_BACK_WITHIN_S) == wanted


@pytest.mark.experiment
def test_lost_classes_come_back(host: Host, links: list[Link]) -> None:
    device = link_device(host, links[0])
    before = rates(host, device)
    assert host.run(f"tc qdisc del dev {device} root").rc == 0
    found = settled(lambda: rates(host, device), lambda found: found == before, BACK_WITHIN_S)
    assert found == before, f"after {BACK_WITHIN_S:g} s"


def rates(host: Host, device: str) -> dict[str, int]:
    return {handle: entry["rate"] for handle, entry in classes(host, device).items()}
