"""Two regions of machines you already have, joined by a carrier's line and by a tunnel over another one;
Consul in both.

The lines are the local provider's emulation, which the stack under test knows nothing of.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Interface
from typing import Any

import pytest

from infra.ground.ssh import jump_name
from infra.providers.local import names, wan
from tests.integration.checkout import Checkout, cut
from tests.integration.machines import Machines, standing
from tests.integration.test_drift_truth import found, repair, scan
from tests.integration.traffic import longest_gap_s, median, pings, replies
from tests.patience import wait_for
from tests.verify.wan_gateway.links import bits

pytestmark = pytest.mark.long
PROVES = ("existing", "wan", "wan_gateway", "drift")
TOOLS = ("consul",)

LINE, INTERNET = "line", "internet"
ENDS = {
    LINE: ("192.0.2.1/30", "192.0.2.2/30"),
    INTERNET: ("198.51.100.1/30", "198.51.100.2/30"),
}
RATE_MBPS = 50
REPLICATION_SHARE = 0.6
"""As by default."""
RTT_MS = {LINE: 40, INTERNET: 60}
SOURCE, TARGET = "tokyo-0", "shanghai-0"
JUMP = "shanghai-1"
RESOLVER = "stat --format '%n %i %Y' /etc/resolv.conf && sha256sum /etc/resolv.conf"
ASK_DNS = """
import socket, struct, sys
name = b"".join(bytes([len(part)]) + part.encode() for part in sys.argv[1].split(".")) + bytes(1)
question = struct.pack("!6H", 1, 256, 1, 0, 0, 0) + name + struct.pack("!2H", 1, 1)
asking = socket.socket(type=socket.SOCK_DGRAM)
asking.settimeout(10)
asking.sendto(question, ("127.0.0.1", 8600))
records = asking.recv(4096)[len(question):]
print(*(socket.inet_ntoa(records[end - 4 : end]) for end in range(16, len(records) + 1, 16)))
"""
"""The addresses of a name, asked of the node's own agent."""


@pytest.fixture(scope="module")
def machines(checkout: Checkout) -> Iterator[Machines]:
    """Tokyo: one for control, two gateways. Shanghai: one for control, one gateway.

    Shanghai's one for control lets nobody in but by the gateway.
    """
    with standing(checkout, {"tokyo": 3, "shanghai": 2}, {TARGET: "bookworm"}) as made:
        made.sshd(TARGET, f"AllowUsers root@{made.states[JUMP].address}")
        for link, gateway in ((LINE, "tokyo-2"), (INTERNET, "tokyo-1")):
            wan.ensure(line(made, link, gateway))
        yield made


def line(machines: Machines, name: str, gateway: str) -> wan.Link:
    a, b = (IPv4Interface(end) for end in ENDS[name])
    return wan.Link(
        stack=machines.stack,
        name=name,
        a="tokyo",
        b="shanghai",
        a_address=a,
        b_address=b,
        a_routes=(),
        b_routes=(),
        a_gateway=gateway,
        b_gateway="shanghai-1",
        rtt_ms=RTT_MS[name],
        bandwidth_mbps=RATE_MBPS,
        loss_pct=0,
        mtu_bytes=1500,
    )


@pytest.fixture(scope="module")
def shared(checkout: Checkout) -> str:
    """The address that tokyo's gateways share: not the one they would have by themselves."""
    return checkout.cidr(0).replace(".0/20", ".77")


@pytest.fixture(scope="module")
def resolver(machines: Machines) -> str:
    """Shanghai's resolv.conf before anything of ours was there."""
    return machines.on(TARGET, "sh", "-ec", RESOLVER)


@pytest.fixture(scope="module")
def declared(checkout: Checkout, machines: Machines, shared: str) -> dict[str, Any]:
    """The declaration."""
    tokyo = machines.pool("control", "tokyo-0"), machines.pool("gateway", "tokyo-1", "tokyo-2")
    shanghai = machines.pool("control", "shanghai-0"), machines.pool("gateway", "shanghai-1")
    jump = machines.states[JUMP]
    regions = [
        machines.region("tokyo", checkout.cidr(0), *tokyo, gateway_address=shared),
        machines.region(
            "shanghai",
            checkout.cidr(1),
            *shanghai,
            ssh_jump=[{"address": str(jump.address), "host_key": jump.host_key}],
            adopt={"resolver": "keep"},
        ),
    ]
    joined = {"a": "tokyo", "b": "shanghai", "bandwidth_mbps": RATE_MBPS}
    ends = {name: {"a_end": {"address": a}, "b_end": {"address": b}} for name, (a, b) in ENDS.items()}
    ends[LINE]["a_end"]["gateway"] = "tokyo-gateway-1"
    ends[INTERNET]["a_end"]["gateway"] = "tokyo-gateway-0"
    tunnel = {"kind": "vpn", "backup_of": "trans-sea"}
    links = [
        {**joined, **ends[LINE], "name": "trans-sea", "rtt_ms": RTT_MS[LINE]},
        {**joined, **ends[INTERNET], "name": "tunnel", "rtt_ms": RTT_MS[INTERNET], **tunnel},
    ]
    cluster = {"name": "mine", "regions": regions, "wan_links": links, "waves": [["tokyo", "shanghai"]]}
    return {**cluster, "discovery": {"kind": "consul"}}


@pytest.fixture(scope="module")
def stands(checkout: Checkout, declared: dict[str, Any], resolver: str) -> str:
    """What `up` printed."""
    assert resolver
    checkout.declare(declared)
    return checkout.run("up", checkout.stack)


def way(checkout: Checkout) -> str:
    """The interface by which shanghai's gateway reaches tokyo."""
    said = checkout.ssh("shanghai-gateway-0", "ip", "-j", "route", "get", checkout.address("tokyo-control-0"))
    return str(json.loads(said)[0].get("dev"))


def goes_by(checkout: Checkout, device: str) -> None:
    wait_for(lambda: way(checkout) == device, f"traffic over {device}")


def test_the_links_carry_what_is_declared_and_all_is_proven(checkout: Checkout, stands: str) -> None:
    assert "0 failed, 0 unreachable" in stands
    assert "WAN links were not measured" in stands, "others work on them"
    assert " 0 left out" not in stands, "likewise"
    found = checkout.measured()
    print(found)
    assert found["rtt_ms"] >= RTT_MS[LINE]
    assert found["held_to_mbps"] == RATE_MBPS * REPLICATION_SHARE
    assert 0 < max(found[rate]["mbps"] for rate in ("configured", "other")) <= found["held_to_mbps"] * 1.05
    goes_by(checkout, names.link_interface(LINE))
    assert checkout.changes() == {}


@pytest.mark.usefixtures("stands")
def test_a_jump_host_that_leads_nobody_on_is_named_where_links_are_measured(
    checkout: Checkout, machines: Machines
) -> None:
    target = "shanghai-control-0"
    checkout.hang_up(target, jump_name("shanghai", 0))
    with machines.no_forwarding(JUMP):
        found = checkout.measured(expect=1)
    named = f"jump host {machines.states[JUMP].address}, on the way to {target}, does not reach {target} "
    assert found["lacking"].startswith(named)
    assert checkout.ssh(target, "hostname") == target, "as soon as it does again"
    assert found["rtt_ms"] >= RTT_MS[LINE], "which the other region's node has told"


@pytest.mark.usefixtures("stands")
def test_the_gateways_share_the_declared_address(checkout: Checkout, shared: str) -> None:
    holders = [
        node
        for node in ("tokyo-gateway-0", "tokyo-gateway-1")
        if checkout.ssh(node, f"ip -4 -br address show to {shared}")
    ]
    assert holders == ["tokyo-gateway-0"]
    route = json.loads(
        checkout.ssh("tokyo-control-0", "ip", "-j", "route", "get", checkout.address("shanghai-control-0"))
    )
    assert route[0]["gateway"] == shared


@pytest.mark.usefixtures("stands")
def test_services_of_the_other_region_are_found(checkout: Checkout) -> None:
    found = checkout.ssh("tokyo-control-0", "getent ahostsv4 ssh.service.shanghai.consul")
    there = {checkout.address(node) for node in ("shanghai-control-0", "shanghai-gateway-0")}
    assert {text.split()[0] for text in found.splitlines()} == there


@pytest.mark.usefixtures("stands")
def test_a_resolver_that_is_kept_is_as_it_was_and_the_agent_answers_itself(
    checkout: Checkout, machines: Machines, resolver: str
) -> None:
    assert machines.on(TARGET, "sh", "-ec", RESOLVER) == resolver
    found = machines.on(TARGET, "python3", "-c", ASK_DNS, "ssh.service.tokyo.consul").split()
    nodes = ("tokyo-control-0", "tokyo-gateway-0", "tokyo-gateway-1")
    there = {checkout.address(node) for node in nodes}
    assert found
    assert there.issuperset(found)
    for node in nodes:
        assert machines.on(TARGET, "getent", "hosts", node).split()[0] == checkout.address(node)


@pytest.mark.usefixtures("stands")
def test_a_dead_line_hands_over_to_the_tunnel_and_takes_back(checkout: Checkout, machines: Machines) -> None:
    """In how many seconds it does is what test_wan.py asks, beside which nothing else runs."""
    goes_by(checkout, names.link_interface(LINE))
    count, asked = 100, (machines.container(SOURCE), str(machines.states[TARGET].address))
    watching = pings(*asked, count)

    def by_tunnel() -> bool:
        found = list(replies(pings(*asked, 10)).values())
        return bool(found) and median(found) >= RTT_MS[INTERNET] - 2

    with cut(replace(checkout, stack=machines.stack), LINE):
        gap_s = longest_gap_s(replies(watching), count)
        print(f"failover to the tunnel: {gap_s:.1f} s without an answer")
        goes_by(checkout, "wg-tunnel")
        wait_for(by_tunnel, "answers with the tunnel's round trip")
    goes_by(checkout, names.link_interface(LINE))


@pytest.mark.usefixtures("stands")
def test_a_change_of_the_classes_reaches_the_gateways_alone(
    checkout: Checkout, declared: dict[str, Any]
) -> None:
    runs = checkout.configured()
    shares = {"management_pct": 10, "scheduler_pct": 10, "replication_pct": 70, "scavenger_pct": 5}
    line, tunnel = declared["wan_links"]
    checkout.declare({**declared, "wan_links": [{**line, "classes": shares}, tunnel]})
    checkout.up()
    said = checkout.ssh("tokyo-gateway-1", "tc", "class", "show", "dev", names.link_interface(LINE))
    rates = dict(re.findall(r"^class htb (\S+) .* rate (\S+) ceil", said, re.MULTILINE))
    assert bits(rates["1:30"]) == pytest.approx(0.7 * bits(rates["1:1"]), rel=0.01)
    assert set.union(*checkout.configured()[len(runs) :]) <= {
        *("tokyo-gateway-0", "tokyo-gateway-1", "shanghai-gateway-0"),
    }


TOLD = (
    ("frr", "frr.service",
     "vtysh -c 'configure terminal' -c 'router bgp {asn}' -c 'neighbor {peer} shutdown'"),
    ("wireguard", "wg-quick@wg-tunnel.service", "wg set wg-tunnel listen-port 4"),
    ("nft", "ip causeway_wan", "nft insert rule ip causeway_wan forward ip daddr 192.0.2.0/24 drop"),
    ("traffic", "all",
     "nft add table inet strange &&"
     " nft 'add chain inet strange f {{ type filter hook forward priority 0; }}'"),
)  # fmt: skip
HUNG = (
    ("frr", "frr.service", "kill -STOP $(pidof bgpd)"),
    ("unit", "keepalived.service", "kill -STOP $(pidof keepalived)"),
)


def measured(checkout: Checkout, node: str) -> dict[str, float]:
    """`bgp_up`, the same with labels …: what the node's own program measures now, with a packet a link."""
    folder, program = "/run/causeway-look", "/usr/local/sbin/causeway-wan-gateway"
    probe = f"python3 -B {program} probe /etc/causeway-wan-gateway.json {folder} 1"
    said = checkout.ssh(node, f"mkdir -p {folder} && {probe} && cat {folder}/causeway_wan.prom")
    values = re.findall(r"^causeway_wan_(\S+) (\S+)$", said, re.MULTILINE)
    return {name: float(value) for name, value in values}


def down(checkout: Checkout, node: str) -> set[str]:
    """The declared neighbours that the node's metrics call down, by BGP or BFD."""
    found = [name for name, value in measured(checkout, node).items() if value == 0]
    return {name.split('"')[-2] for name in found if name.startswith(("bgp_up", "bfd_up"))}


@pytest.mark.usefixtures("stands")
def test_what_gateways_were_told_while_they_run_is_found_and_brought_back(checkout: Checkout) -> None:
    """After links and gateways went and came, of which nothing is drift.

    Nothing is verified behind it: Consul took the other region for failed, and tries again after two minutes.
    """
    told, hung = "shanghai-gateway-0", "tokyo-gateway-1"
    assert {report["state"] for report in scan(checkout).values()} == {"clean"}
    bgp = json.loads(checkout.ssh(told, "vtysh -c 'show bgp ipv4 unicast summary json'"))
    peer = next(iter(bgp["peers"]))
    wait_for(lambda: not down(checkout, told), "all neighbours")
    for _kind, _key, command in TOLD:
        checkout.ssh(told, command.format(asn=bgp["as"], peer=peer))
    assert peer in down(checkout, told)
    for _kind, _key, command in HUNG:
        checkout.ssh(hung, command)
    daemons = {name: value for name, value in measured(checkout, hung).items() if name.startswith("frr_up")}
    assert daemons == {'frr_up{daemon="bgpd"}': 0, 'frr_up{daemon="bfdd"}': 1}
    reports = scan(checkout, 3)
    assert {what[1:] for what in found(reports[told])} == {row[:2] for row in TOLD}
    assert {what[1:] for what in found(reports[hung])} >= {row[:2] for row in HUNG}
    assert "shutdown" in str(reports[told])
    repair(checkout, "-e", "repair_remove_added=true", "-e", "repair_verify=false")
    assert {report["state"] for report in scan(checkout).values()} == {"clean"}
    goes_by(checkout, names.link_interface(LINE))
    wait_for(lambda: not down(checkout, told) | down(checkout, hung), "all neighbours")


FOREIGN = {
    "/etc/wireguard/wg-office.conf": "[Interface]\nPrivateKey = of somebody else",
    "/etc/keepalived/keepalived.conf": "# a web server's",
}
GATEWAY = "shanghai-1"


def put(machines: Machines, files: dict[str, str]) -> None:
    for path, text in files.items():
        write = 'mkdir -p "$(dirname "$1")" && printf "%s\\n" "$2" >"$1"'
        machines.on(GATEWAY, "sh", "-euc", write, "put", path, text)


def read(machines: Machines, *paths: str) -> dict[str, str]:
    return {path: machines.on(GATEWAY, "cat", path) for path in paths}


def play(checkout: Checkout, limit: str, *words: str, expect: int = 0) -> str:
    words = ("-i", f"inventories/{checkout.stack}", "--limit", limit, *words)
    return checkout.run("exec", "ansible-playbook", "playbooks/site.yml", *words, expect=expect)


@pytest.mark.usefixtures("stands")
def test_what_others_have_made_on_a_gateway_stays(checkout: Checkout, machines: Machines) -> None:
    put(machines, FOREIGN)
    play(checkout, "shanghai-gateway-0", "--tags", "wan_gateway")
    assert read(machines, *FOREIGN) == FOREIGN
    machines.on(GATEWAY, "rm", *FOREIGN)


@pytest.mark.usefixtures("stands")
def test_what_is_in_the_way_stops_that_machine_before_anything_is_changed(
    checkout: Checkout, machines: Machines
) -> None:
    # What the first of all roles would put right would show that it ran.
    theirs = {"/etc/frr/frr.conf": "router bgp 65001", "/etc/hosts": "127.0.0.1 localhost"}
    before = read(machines, *theirs, "/etc/causeway-wan-gateway.json")
    machines.on(GATEWAY, "rm", "/etc/causeway-wan-gateway.json")
    put(machines, theirs)
    said = play(checkout, "region_shanghai", expect=2)
    assert "shanghai-gateway-0 was not changed: " in said
    assert "/etc/frr/frr.conf is somebody else's (router bgp 65001" in said
    assert read(machines, *theirs) == theirs
    recap = said.partition("PLAY RECAP")[2]
    assert re.search(r"shanghai-control-0 .* failed=0", recap), "the others go on"
    assert re.search(r"shanghai-gateway-0 .* changed=0 .* failed=1", recap)
    put(machines, before)


@pytest.mark.usefixtures("stands")
def test_down_leaves_machines_and_lines_alone(checkout: Checkout, machines: Machines, resolver: str) -> None:
    checkout.run("down", checkout.stack)
    assert wan.inspect(line(machines, LINE, "tokyo-2")).up
    assert machines.on(SOURCE, "hostname") == "tokyo-control-0"
    assert machines.on(TARGET, "sh", "-ec", RESOLVER) == resolver, "through all that was done"
