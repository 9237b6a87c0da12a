"""The engine of the provider `local` on this machine: real namespaces, containers and links.

Runs beside a standing stack: its stack name and its ranges are its own. What an earlier run left when it died
is swept first.
"""

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Interface, IPv4Network, ip_address
from pathlib import Path

import pytest

from infra.errors import CausewayError
from infra.process import run
from infra.providers.local import containers, daemons, names, netns, network, nodes, wan
from tests.integration.ground import Ground, Pools, new_key, pool_of, reconcile
from tests.patience import wait_for

PROVES = ("local",)

GROUND = Ground("engine", IPv4Network("10.201.0.0/16"))
STACK, TOKYO, SHANGHAI, LINK = GROUND.stack, GROUND.tokyo, GROUND.shanghai, GROUND.link
CLOCK_MS = 2
"""The emulator's timer may let a packet go a little early."""


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_key(tmp_path_factory.mktemp("ssh"))


@pytest.fixture(scope="module")
def base(key: Path) -> Iterator[nodes.Node]:
    """A node to copy others from; the stack is swept before and after the file."""
    GROUND.sweep()
    yield GROUND.node(key.with_suffix(".pub").read_text())
    GROUND.sweep()


@pytest.fixture(scope="module")
def standing(base: nodes.Node) -> Pools:
    GROUND.networks()
    wan.ensure(LINK)
    pools = pool_of(base, TOKYO, 2), pool_of(base, SHANGHAI, 1)
    for desired in pools:
        reconcile(desired)
    return pools


@pytest.fixture
def pools(standing: Pools) -> Pools:
    """Both pools, and the link as declared, whatever the test before has done to them."""
    wan.ensure(LINK)
    for desired in standing:
        reconcile(desired)
    return standing


def in_node(node: nodes.Node, *argv: str, timeout_s: float = 60) -> str:
    return run(["podman", "exec", node.container, *argv], timeout_s=timeout_s)


def round_trip_ms(source: nodes.Node, target: nodes.Node) -> float:
    said = in_node(source, "ping", "-q", "-c", "5", "-i", "0.2", str(target.address))
    return float(said.rsplit("= ", 1)[1].split("/")[0])


def ids(region: str) -> dict[str, str]:
    return {name: state.instance_id for name, state in nodes.inspect(STACK, region, "gpu").items()}


def network_picture() -> str:
    """All that `network.ensure` governs, in words that stay the same while nothing changes."""
    parts = [run(["nft", "list", "table", "inet", "causeway"]).split("counter")[0]]
    for where in (TOKYO.router, SHANGHAI.router):
        parts += [run(["ip", "-n", where, *words.split()]) for words in ("link", "-4 addr", "route")]
        parts.append(run(netns.inside(where, ["nft", "list", "ruleset"])))
    devices = [names.host_uplink(STACK, region) for region in ("tokyo", "shanghai")]
    parts += [run(["ip", "-4", "addr", "show", device]) for device in devices]
    return "\n".join(parts)


def test_a_node_is_reached_by_ssh_with_the_host_key_we_were_told(
    pools: Pools, key: Path, tmp_path: Path
) -> None:
    node = pools[0][0]
    state = nodes.inspect(STACK, "tokyo", "gpu")[node.name]
    known = tmp_path / "known_hosts"

    def ssh(host_key: str) -> "subprocess.CompletedProcess[str]":
        known.write_text(f"{node.address} {host_key}\n")
        strict = [
            "-o",
            f"UserKnownHostsFile={known}",
            "-o",
            "StrictHostKeyChecking=yes",
            "-o",
            "BatchMode=yes",
        ]
        argv = ["ssh", "-i", str(key), *strict, f"root@{node.address}", "hostname; df -k /dev/shm | tail -1"]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)

    done = ssh(state.host_key)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == node.name
    assert done.stdout.split()[2] == str(512 * 1024)
    other = nodes.inspect(STACK, "tokyo", "gpu")[pools[0][1].name].host_key
    assert other != state.host_key
    assert "Host key verification failed" in ssh(other).stderr


def test_doing_it_again_changes_nothing(pools: Pools) -> None:
    before, picture = ids("tokyo"), network_picture()
    processes = daemons.processes(names.link_dir(STACK, LINK.name))
    GROUND.networks()
    wan.ensure(LINK)
    reconcile(pools[0])
    assert ids("tokyo") == before
    assert network_picture() == picture
    assert daemons.processes(names.link_dir(STACK, LINK.name)) == processes
    assert network.inspect(TOKYO, [SHANGHAI.cidr]) == network.NetworkState(True)
    assert wan.inspect(LINK).problem is None


def test_a_half_made_network_is_completed(pools: Pools) -> None:
    picture = network_picture()
    device = names.host_uplink(STACK, "tokyo")
    run(["ip", "-n", TOKYO.router, "addr", "del", str(TOKYO.gateway), "dev", names.BRIDGE])
    assert "does not carry" in str(network.inspect(TOKYO, [SHANGHAI.cidr]).problem)
    run(["ip", "route", "del", str(TOKYO.cidr), "dev", device])
    run(["ip", "-4", "addr", "flush", "dev", device])
    run(netns.inside(TOKYO.router, ["nft", "flush", "ruleset"]))
    network.ensure(TOKYO, [SHANGHAI.cidr])
    assert network.inspect(TOKYO, [SHANGHAI.cidr]).up
    assert network_picture() == picture
    run(["ip", "link", "del", device])
    assert "uplink" in str(network.inspect(TOKYO, [SHANGHAI.cidr]).problem)
    network.ensure(TOKYO, [SHANGHAI.cidr])
    reconcile(pools[0])
    assert network.inspect(TOKYO, [SHANGHAI.cidr]).up


def test_nodes_reach_the_world_behind_the_host(pools: Pools) -> None:
    """A server on the host sees the router's uplink, not the node: the region's range stays inside."""
    seen: list[str] = []
    with socket.create_server(("0.0.0.0", 0)) as server:  # noqa: S104 - the node has to reach it
        server.settimeout(20)
        accept = threading.Thread(target=lambda: seen.append(server.accept()[1][0]))
        accept.start()
        route = netns.read(None, "-4", "route", "get", "192.0.2.1")[0]
        script = f"echo > /dev/tcp/{route['prefsrc']}/{server.getsockname()[1]}"
        in_node(pools[0][0], "bash", "-c", script)
        accept.join()
    assert ip_address(seen[0]) in names.UPLINK_NETWORK


def test_the_link_is_the_only_road(pools: Pools) -> None:
    source, target = pools[0][0], pools[1][0]
    assert LINK.rtt_ms - CLOCK_MS <= round_trip_ms(source, target) < LINK.rtt_ms + 15
    wan.remove(STACK, LINK.name)
    assert not wan.inspect(LINK).up
    with pytest.raises(CausewayError, match=r"Unreachable.*100% packet loss"):
        in_node(source, "ping", "-c", "2", "-i", "0.2", "-W", "1", str(target.address))
    # Even a router that lost its "unreachable" route finds no way past the host.
    network.ensure(TOKYO, [])
    try:
        with pytest.raises(CausewayError, match="100% packet loss"):
            in_node(source, "ping", "-c", "2", "-i", "0.2", "-W", "1", str(target.address))
    finally:
        network.ensure(TOKYO, [SHANGHAI.cidr])
    wan.ensure(LINK)
    assert round_trip_ms(source, target) >= LINK.rtt_ms - CLOCK_MS


def test_changed_parameters_change_the_traffic_and_no_node(
    pools: Pools,
) -> None:
    source, target = pools[0][0], pools[1][0]
    before = ids("tokyo") | ids("shanghai")
    changed = replace(LINK, rtt_ms=90, loss_pct=20)
    assert not wan.inspect(changed).up
    wan.ensure(changed)
    assert wan.inspect(changed).up
    said = in_node(source, "ping", "-q", "-c", "200", "-i", "0.02", str(target.address))
    lost_pct = float(said.split("% packet loss")[0].split()[-1])
    # 1 - 0.8² = 36 % of the round trips; five standard deviations of 200 trials are 17.
    assert 19 < lost_pct < 53
    assert 90 - CLOCK_MS <= float(said.rsplit("= ", 1)[1].split("/")[0]) < 110
    assert ids("tokyo") | ids("shanghai") == before


def test_the_rate_is_what_was_declared(pools: Pools) -> None:
    source, target = pools[0][0], pools[1][0]
    server = subprocess.Popen(
        ["podman", "exec", target.container, "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: in_node(target, "ss", "-Hltn", "sport = :5201"), "iperf3 to listen")
        said = in_node(source, "iperf3", "-c", str(target.address), "-t", "5", "-f", "m")
    finally:
        server.terminate()
        server.wait()
    received = next(line for line in said.splitlines() if "receiver" in line)
    mbps = float(received.split(" Mbits/sec")[0].split()[-1])
    assert LINK.bandwidth_mbps * 0.5 < mbps <= LINK.bandwidth_mbps * 1.02


def test_a_killed_emulator_is_seen_and_healed(pools: Pools) -> None:
    folder = names.link_dir(STACK, LINK.name)
    netem = wan.supported_engine() == "netem"
    carrier = names.carrier_netns(STACK, LINK.name)
    for role in ["qdisc"] if netem else ["a", "b", "wire"]:
        if netem:
            run(["tc", "-n", carrier, "qdisc", "del", "dev", "to-b", "root"])
        else:
            run(["kill", "-9", (folder / f"{role}.pid").read_text().strip()])
        time.sleep(0.2)
        assert not wan.inspect(LINK).up
        wan.ensure(LINK)
        assert wan.inspect(LINK).up
    wan.ensure(LINK)
    assert round_trip_ms(pools[0][0], pools[1][0]) >= LINK.rtt_ms - CLOCK_MS
    assert len(daemons.processes(folder)) in (0, 3)


@pytest.mark.usefixtures("pools")
def test_a_reused_process_id_is_not_taken_for_the_emulator() -> None:
    if wan.supported_engine() == "netem":
        pytest.skip("netem has no processes")
    pid_file = names.link_dir(STACK, LINK.name) / "wire.pid"
    run(["kill", "-9", pid_file.read_text().strip()])
    with subprocess.Popen(["sleep", "60"]) as stranger:
        pid_file.write_text(f"{stranger.pid}\n")
        assert "does not run" in str(wan.inspect(LINK).problem)
        wan.ensure(LINK)
        assert stranger.poll() is None
        assert wan.inspect(LINK).up
        stranger.kill()


def test_a_region_beyond_is_reached_through_the_router_between(pools: Pools) -> None:
    osaka = replace(SHANGHAI, region="osaka", cidr=GROUND.cidr(2))
    land = replace(
        LINK,
        name="land",
        a="shanghai",
        b="osaka",
        a_address=IPv4Interface("100.100.255.5/30"),
        b_address=IPv4Interface("100.100.255.6/30"),
        a_routes=((osaka.cidr, 1000),),
        b_routes=((SHANGHAI.cidr, 1000), (TOKYO.cidr, 1000)),
    )
    beyond = replace(LINK, a_routes=((SHANGHAI.cidr, 1000), (osaka.cidr, 1000)))
    far = ["ping", "-q", "-c", "5", "-i", "0.2", str(osaka.gateway.ip)]
    regions = (TOKYO, SHANGHAI, osaka)
    try:
        for net in regions:
            network.ensure(net, [other.cidr for other in regions if other != net])
        assert "does not route just" in str(wan.inspect(beyond).problem)
        for link in (beyond, land):
            wan.ensure(link)
            assert wan.inspect(link).up
        found_ms = float(in_node(pools[0][0], *far).rsplit("= ", 1)[1].split("/")[0])
        assert LINK.rtt_ms + land.rtt_ms - 2 * CLOCK_MS <= found_ms < LINK.rtt_ms + land.rtt_ms + 30
        wan.ensure(LINK)
        with pytest.raises(CausewayError, match="100% packet loss"):
            in_node(pools[0][0], *far)
    finally:
        wan.remove(STACK, land.name)
        network.remove(STACK, "osaka")
        GROUND.networks()


def test_a_link_ends_in_a_gateway_node_at_one_end_and_in_the_router_at_the_other(pools: Pools) -> None:
    gateway, device = pools[0][1], names.link_interface(LINK.name)
    wan.remove(STACK, LINK.name)
    link = replace(LINK, a_gateway=gateway.name)
    wan.ensure(link)
    try:
        assert device in netns.links(gateway.container)
        assert device not in netns.links(TOKYO.router)
        far = ["ping", "-q", "-c", "5", "-i", "0.2", str(link.b_address.ip)]
        said = in_node(gateway, *far)
        assert LINK.rtt_ms - CLOCK_MS <= float(said.rsplit("= ", 1)[1].split("/")[0]) < LINK.rtt_ms + 15
        routes = netns.read(gateway.container, "-4", "route", "show", str(SHANGHAI.cidr))
        assert not routes, "a gateway finds its own"
        reconcile(pools[0][:1])
        assert "gone" in str(wan.inspect(link).problem)
        reconcile(pools[0])
        wan.ensure(link)
        assert " 0% packet loss" in in_node(gateway, *far)
    finally:
        wan.remove(STACK, LINK.name)
    assert device not in netns.links(gateway.container)


def test_other_regions_are_reached_through_the_gateway_node_that_is_named(pools: Pools) -> None:
    gateway = pools[0][1]
    network.ensure(replace(TOKYO, wan_gateway=gateway.address), [SHANGHAI.cidr])
    try:
        route = netns.read(TOKYO.router, "-4", "route", "get", str(SHANGHAI.cidr[256]))[0]
        assert (route["gateway"], route["dev"]) == (str(gateway.address), names.BRIDGE)
    finally:
        network.ensure(TOKYO, [SHANGHAI.cidr])
    route = netns.read(TOKYO.router, "-4", "route", "get", str(SHANGHAI.cidr[256]))[0]
    assert route["dev"] == names.link_interface(LINK.name)


@pytest.mark.usefixtures("pools")
def test_gateways_and_a_fabric_that_are_declared_no_longer_are_seen_and_go() -> None:
    """`inspect` sees what an `up` that was killed, or knew no better, has left; `ensure` takes it away."""
    picture, peers = network_picture(), [SHANGHAI.cidr]
    leaf = network.Leaf("leaf-0", (IPv4Interface("10.201.240.1/24"),))
    fuller = {
        "to nobody, and does not": (replace(TOKYO, wan_gateway=TOKYO.cidr[300]), peers),
        "not declared": (replace(TOKYO, leafs=(leaf,)), peers),
        "does not refuse just": (TOKYO, [*peers, GROUND.cidr(2)]),
    }
    for problem, (before, more_peers) in fuller.items():
        network.ensure(before, more_peers)
        assert network.inspect(before, more_peers).up
        assert problem in str(network.inspect(TOKYO, peers).problem)
        network.ensure(TOKYO, peers)
        assert network.inspect(TOKYO, peers).up
        assert network_picture() == picture
    run(netns.inside(TOKYO.router, ["nft", "add", "chain", "ip", names.NFT_TABLE, "stranger"]))
    assert "says something else" in str(network.inspect(TOKYO, peers).problem)
    network.ensure(TOKYO, peers)
    assert network.inspect(TOKYO, peers).up
    assert network_picture() == picture


def test_a_node_loses_the_ports_of_a_fabric_that_is_declared_no_longer(pools: Pools) -> None:
    leaf = network.Leaf("leaf-0", (IPv4Interface("10.201.240.1/24"),))
    railed = replace(pools[0][0], fabric=(nodes.FabricPort("rail0", leaf.bridge),))
    before = ids("tokyo")
    network.ensure(replace(TOKYO, leafs=(leaf,)), [SHANGHAI.cidr])
    assert nodes.misplugged([railed]) == {railed.name}
    reconcile([railed, pools[0][1]])
    assert nodes.misplugged([railed, pools[0][1]]) == set()
    network.ensure(TOKYO, [SHANGHAI.cidr])
    assert nodes.misplugged(pools[0]) == {railed.name}
    reconcile(pools[0])
    assert nodes.misplugged(pools[0]) == set()
    assert "rail0" not in netns.links(railed.container)
    assert ids("tokyo") == before


def test_only_what_differs_is_made_anew(pools: Pools) -> None:
    first, second = pools[0]
    before = ids("tokyo")
    containers.discard(first.container)
    reconcile(pools[0])
    after = ids("tokyo")
    assert after[second.name] == before[second.name]
    assert after[first.name] != before[first.name]
    run(["podman", "stop", "--time=0", first.container])
    assert not nodes.inspect(STACK, "tokyo", "gpu")[first.name].running
    reconcile(pools[0])
    assert ids("tokyo") == after
    run(["ip", "-n", second.container, "link", "del", names.NODE_INTERFACE])
    assert not nodes.inspect(STACK, "tokyo", "gpu")[second.name].running
    reconcile(pools[0])
    assert ids("tokyo") == after
    moved = replace(second, address=TOKYO.cidr[300])
    states = reconcile([first, moved])
    assert states[0].instance_id == after[first.name]
    assert states[1].instance_id != after[second.name]
    assert states[1].address == moved.address


def test_another_key_is_given_to_the_standing_node(
    pools: Pools,
) -> None:
    before, file = ids("shanghai"), "/root/.ssh/authorized_keys"
    _, _, comment = pools[1][0].public_key.split(maxsplit=2)
    in_node(pools[1][0], "sh", "-c", f"echo ssh-ed25519 AAAAUSER user@desk >> {file}")
    node = replace(pools[1][0], public_key=f"ssh-ed25519 AAAANEW {comment}")
    reconcile([node])
    assert ids("shanghai") == before
    keys = [line.split()[1] for line in in_node(node, "cat", file).splitlines()]
    assert keys == ["AAAANEW", "AAAAUSER"], "in place of the stack's old one; a user's stays"


def test_a_surplus_node_goes(pools: Pools) -> None:
    reconcile(pools[0][:1])
    assert set(ids("tokyo")) == {pools[0][0].name}
    assert not netns.exists(pools[0][1].container)


def test_one_bad_node_does_not_stop_the_others(pools: Pools) -> None:
    bad = replace(pools[0][0], name="tokyo-gpu-9", address=TOKYO.cidr[299], image="localhost/no/such:image")
    with pytest.raises(CausewayError, match=r"1 of 3 nodes.*tokyo-gpu-9") as failed:
        reconcile([bad, *pools[0]])
    assert pools[0][0].name not in failed.value.message
    states = nodes.inspect(STACK, "tokyo", "gpu")
    assert all(states[node.name].running for node in pools[0])
