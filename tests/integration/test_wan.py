"""Links that end in gateway nodes: who carries traffic, when a link or a gateway dies, and under full load.

Tokyo has two gateways, so the primary link and the tunnel that stands in for it end in different ones.
"""

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from infra.process import run
from infra.providers.local import names
from tests.integration import traffic
from tests.integration.checkout import Checkout, cut, region
from tests.integration.traffic import longest_gap_s, median, replies
from tests.patience import wait_for

PROVES = ("wan", "wan_gateway", "tcp_tuning")

WAITS_MS = 40
"""Longest that a management packet may wait for a full link: three full-size packets take it 0.4 ms, and this
machine has other work."""
CARRIED, BETTER = 0.75, 5
"""What one flow with the planned congestion control has: of the link's rate, and times the other's rate."""
FAILOVER_S = 5.0
SOURCE, TARGET = "tokyo-control-0", "shanghai-control-0"


def declaration(checkout: Checkout) -> dict[str, Any]:
    line = {"a": "tokyo", "b": "shanghai", "loss_pct": 0.2}
    tunnel = {"name": "tunnel", "kind": "vpn", "backup_of": "trans-sea", "rtt_ms": 90, "bandwidth_mbps": 50}
    return {
        "name": "pacific",
        "regions": [
            region("tokyo", checkout.cidr(0), "Asia/Tokyo", {"control": 1, "gateway": 2}),
            region("shanghai", checkout.cidr(1), "Asia/Shanghai", {"control": 1, "gateway": 1}),
        ],
        "waves": [["tokyo", "shanghai"]],
        "wan_links": [
            {**line, "name": "trans-sea", "rtt_ms": 70, "bandwidth_mbps": 100},
            {**line, **tunnel},
        ],
    }


@pytest.fixture(scope="module")
def standing(checkout: Checkout) -> Checkout:
    checkout.declare(declaration(checkout))
    checkout.up()
    return checkout


def way(checkout: Checkout) -> str:
    """The interface by which shanghai's gateway reaches tokyo."""
    said = checkout.on_node("shanghai-gateway-0", "ip", "-j", "route", "get", checkout.address(SOURCE))
    return str(json.loads(said)[0].get("dev"))


def goes_by(checkout: Checkout, device: str) -> None:
    wait_for(lambda: way(checkout) == device, f"traffic over {device}", limit_s=60)


def pings(checkout: Checkout, count: int) -> "subprocess.Popen[str]":
    """From one region to the other."""
    return traffic.pings(names.node(checkout.stack, SOURCE), checkout.address(TARGET), count)


def test_the_primary_carries_the_traffic_and_the_backup_stands_by(standing: Checkout) -> None:
    goes_by(standing, "wan-trans-sea")
    said = json.loads(
        standing.on_node("shanghai-gateway-0", "vtysh", "-c", "show bgp ipv4 unicast summary json")
    )
    assert {peer["state"] for peer in said["peers"].values()} == {"Established"}
    assert len(said["peers"]) == 2
    found = replies(pings(standing, 20))
    assert 68 <= median(list(found.values())) < 90, "the primary's round trip, not the tunnel's"


def test_the_planned_congestion_control_carries_what_the_other_does_not(standing: Checkout) -> None:
    goes_by(standing, "wan-trans-sea")
    found = standing.measured()
    configured, other = found["configured"], found["other"]
    assert (configured["congestion_control"], other["congestion_control"]) == ("bbr", "cubic")
    assert configured["mbps"] >= CARRIED * found["declared"]["bandwidth_mbps"]
    assert configured["mbps"] >= BETTER * other["mbps"]
    assert found["mtu_bytes"] == 1500


def test_a_full_link_lets_management_through(standing: Checkout) -> None:
    goes_by(standing, "wan-trans-sea")
    idle = median(list(replies(pings(standing, 50)).values()))
    server = ["podman", "exec", names.node(standing.stack, TARGET), "iperf3", "-s", "-1"]
    with subprocess.Popen(server, stdout=subprocess.DEVNULL) as serving:
        wait_for(lambda: standing.on_node(TARGET, "ss", "-Hltn", "sport = :5201"), "iperf3 to listen")
        client = ["iperf3", "-c", standing.address(TARGET), "-t", "20", "-P", "4", "-J"]
        command = ["podman", "exec", names.node(standing.stack, SOURCE), *client]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as loading:
            time.sleep(5)
            loaded = median(list(replies(pings(standing, 100)).values()))
            said, _ = loading.communicate(timeout=60)
        serving.wait(timeout=30)
    mbps = json.loads(said)["end"]["sum_received"]["bits_per_second"] / 1e6
    print(
        f"round trip idle {idle:.1f} ms, under {mbps:.0f} Mbit/s {loaded:.1f} ms: {loaded / idle:.2f} times"
    )
    assert mbps > 50, "the link was not full"
    assert loaded <= idle + WAITS_MS


def test_a_dead_link_hands_over_and_takes_back(standing: Checkout) -> None:
    goes_by(standing, "wan-trans-sea")
    count = 150
    watching = pings(standing, count)
    time.sleep(2)
    with cut(standing, "trans-sea"):
        found = replies(watching)
        assert way(standing) == "wg-tunnel"
    gap_s = longest_gap_s(found, count)
    print(f"failover to the tunnel: {gap_s:.1f} s without an answer")
    assert gap_s < FAILOVER_S
    assert median(list(found.values())[-10:]) >= 88, "the tunnel's round trip"
    goes_by(standing, "wan-trans-sea")


def test_a_gateway_that_loses_its_region_hands_over_its_address_and_its_traffic(standing: Checkout) -> None:
    goes_by(standing, "wan-trans-sea")
    port = names.bridge_port(standing.stack, "tokyo-gateway-0")
    cable = ["ip", "-n", names.router_netns(standing.stack, "tokyo"), "link", "set", port]
    count = 200
    watching = pings(standing, count)
    time.sleep(2)
    run([*cable, "down"])
    try:
        found = replies(watching)
    finally:
        run([*cable, "up"])
    gap_s = longest_gap_s(found, count)
    print(f"failover to the other gateway: {gap_s:.1f} s without an answer")
    assert gap_s < FAILOVER_S
    assert median(list(found.values())[-10:]) >= 88, "by way of the other gateway and its tunnel"
    goes_by(standing, "wan-trans-sea")


def test_without_any_link_the_other_region_is_unreachable_and_comes_back(standing: Checkout) -> None:
    goes_by(standing, "wan-trans-sea")
    with cut(standing, "trans-sea"), cut(standing, "tunnel"):
        wait_for(lambda: "unreachable" in told(standing), "the gateway's answer", limit_s=60)
    wait_for(lambda: len(replies(pings(standing, 5))) >= 4, "answers from the other region", limit_s=60)
    goes_by(standing, "wan-trans-sea")


def told(checkout: Checkout) -> str:
    """What a node is told when it asks for the other region."""
    command = ["podman", "exec", names.node(checkout.stack, SOURCE), "ping", "-c", "1", "-W", "2"]
    done = subprocess.run(
        [*command, checkout.address(TARGET)], capture_output=True, text=True, check=False, timeout=30
    )
    return done.stdout.lower()


def test_keys_are_nowhere_but_in_their_files(standing: Checkout) -> None:
    folder = standing.files / "secrets"
    keys = [path.read_text().strip() for path in folder.iterdir() if path.suffix != ".pub"]
    assert len(keys) == 2
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in folder.iterdir())
    said = standing.run("exec", "ansible-inventory", "-i", f"inventories/{standing.stack}", "--list")
    said += standing.run("exec", "pulumi", "stack", "export", "--stack", standing.stack)
    said += run(["ps", "-eo", "args"])
    assert "wireguard-tunnel-tokyo" in said, "they are spoken of"
    assert not any(key in said for key in keys)
    where = [path for path in (standing.folder / ".causeway").rglob("*") if path.is_file()]
    holding = [path for path in where if path.parent != folder and holds(path, keys)]
    assert not holding, "in the state, a log, or a run's artifacts"


def holds(path: Path, keys: list[str]) -> bool:
    try:
        data = path.read_bytes()
    except OSError:  # gone since
        return False
    return any(key.encode() in data for key in keys)
