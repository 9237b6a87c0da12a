"""What becomes of half-made, unwanted and impossible things: the engine after a kill, and its sweep."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from infra.errors import CausewayError
from infra.process import run
from infra.providers.local import daemons, host, names, netns, network, nodes, sweep, wan
from tests.integration.ground import Ground, new_key, pool_of, reconcile

PROVES = ("local",)

GROUND = Ground("recovery", IPv4Network("10.202.0.0/16"))
STACK, NEIGHBOUR = GROUND.stack, GROUND.neighbour
TOKYO, SHANGHAI, LINK = GROUND.tokyo, GROUND.shanghai, GROUND.link


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[nodes.Node]:
    """A node to copy others from; the stacks are swept before and after the file."""
    GROUND.sweep()
    key = new_key(tmp_path_factory.mktemp("ssh"))
    yield GROUND.node(key.with_suffix(".pub").read_text())
    GROUND.sweep()


KILLED = """
    import pickle, sys
    from infra.providers.local import network, nodes, wan
    networks, link, pool = pickle.load(sys.stdin.buffer)
    for net in networks:
        network.ensure(net, [other.cidr for other in networks if other != net])
    print("begun", flush=True)
    wan.ensure(link)
    nodes.reconcile(pool[0].stack, pool[0].region, pool[0].pool, pool, print)
"""


@pytest.mark.parametrize("delay_s", [0.0, 0.1, 0.4, 0.8])
def test_what_a_killed_run_has_begun_is_completed(base: nodes.Node, delay_s: float) -> None:
    GROUND.sweep()
    pool = pool_of(base, TOKYO, 3)
    argv = [sys.executable, "-c", textwrap.dedent(KILLED)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=names.CHECKOUT) as victim:
        assert victim.stdin is not None
        assert victim.stdout is not None
        pickle.dump(([TOKYO, SHANGHAI], LINK, pool), victim.stdin)
        victim.stdin.close()
        if delay_s:
            assert victim.stdout.readline() == b"begun\n"
        time.sleep(delay_s or 0.35)
        victim.send_signal(signal.SIGKILL)
    GROUND.networks()
    wan.ensure(LINK)
    states = reconcile(pool)
    assert [state.name for state in states] == [node.name for node in pool]
    assert all(state.running and state.host_key for state in states)
    assert wan.inspect(LINK).up
    assert len(daemons.processes(names.link_dir(STACK, LINK.name))) in (0, 3)
    sweep.sweep(STACK)
    assert sweep.leftovers(STACK) == []


def test_nodes_of_which_every_process_was_killed_are_swept(base: nodes.Node) -> None:
    """conmon first: nobody is left who could note that a node has ended."""
    GROUND.networks()
    pool = pool_of(base, TOKYO, 2)
    reconcile(pool)
    of_each = ("podman", "inspect", "--format", "{{.State.ConmonPid}} {{.State.Pid}}")
    for pid in run([*of_each, *(node.container for node in pool)]).split():
        os.kill(int(pid), signal.SIGKILL)
    sweep.sweep(STACK)
    assert sweep.leftovers(STACK) == []


def test_sweeping_leaves_other_stacks_alone(base: nodes.Node) -> None:
    neighbour = replace(TOKYO, stack=NEIGHBOUR, cidr=GROUND.cidr(2))
    network.ensure(neighbour, [])
    GROUND.networks()
    wan.ensure(LINK)
    reconcile(pool_of(base, TOKYO, 1))
    swept = sweep.sweep(STACK)
    assert any(line.startswith("container") for line in swept)
    assert sweep.leftovers(STACK) == []
    assert network.inspect(neighbour, []).up
    network.remove(NEIGHBOUR, "tokyo")
    assert sweep.leftovers(NEIGHBOUR) == []
    with netns.locked():  # no other stack comes or goes between the two looks
        others = any(name.startswith(names.UPLINK_PREFIX) for name in netns.links(None))
        tables = run(["nft", "list", "tables"])
    assert ("table inet causeway" in tables) == others


@pytest.mark.usefixtures("base")
def test_two_stacks_whose_names_run_together_are_told() -> None:
    network.ensure(replace(TOKYO, stack=NEIGHBOUR), [])
    with pytest.raises(CausewayError, match=f"taken by the stack {NEIGHBOUR}"):
        network.ensure(replace(TOKYO, region="b-tokyo"), [])
    assert sweep.leftovers(STACK) == []
    sweep.sweep(NEIGHBOUR)


@pytest.mark.usefixtures("base")
def test_what_the_machine_cannot_hold_is_said_before(monkeypatch: pytest.MonkeyPatch) -> None:
    network.ensure(TOKYO, [])
    mine = host.Requirements(STACK, {"tokyo": TOKYO.cidr}, nodes=2)
    assert host.problems(mine) == []
    theirs = host.Requirements("other", {"kyoto": GROUND.range}, nodes=100_000)
    said = " | ".join(problem.message for problem in host.problems(theirs))
    assert f"stack={STACK} region=tokyo" in said
    assert "100000 nodes are declared" in said
    monkeypatch.setattr(names, "CHECKOUT", Path("/somewhere/else"))
    monkeypatch.setattr(host, "MIN_DISK_GIB", 10**6)
    said = " | ".join(problem.message for problem in host.problems(mine))
    assert "stands from the checkout" in said
    assert "GiB free" in said
    monkeypatch.setenv("PATH", "/nowhere")
    assert "podman" in " ".join(problem.message for problem in host.problems(mine))


BEHIND_A_FIREWALL = """
    set -e
    ip link set lo up
    ip netns add OUTSIDE 2>/dev/null || true
    ip link add out0 type veth peer name eth0 netns OUTSIDE
    ip addr add 198.51.100.1/24 dev out0; ip link set out0 up
    ip -n OUTSIDE addr add 198.51.100.2/24 dev eth0; ip -n OUTSIDE link set eth0 up
    iptables -P FORWARD DROP
    python3 -c 'import pickle,sys; from infra.providers.local import network as n
    net = pickle.load(sys.stdin.buffer); n.ensure(net, []); n.ensure(net, [])'
    iptables -S FORWARD
    nsenter --net=/run/netns/ROUTER ping -c 1 -W 2 -I GATEWAY 198.51.100.2
    python3 -c 'from infra.providers.local import network as n; n.remove("STACK", "tokyo")'
    echo left; iptables -S FORWARD; nft list tables inet
"""


@pytest.mark.usefixtures("base")
def test_a_firewall_that_forwards_nothing_is_no_obstacle() -> None:
    """On a host of its own (a namespace) whose FORWARD policy is DROP, as docker and ufw leave it."""
    GROUND.sweep()
    outside = f"cw-{STACK}-outside"
    words = {"OUTSIDE": outside, "ROUTER": TOKYO.router, "GATEWAY": str(TOKYO.gateway.ip), "STACK": STACK}
    script = textwrap.dedent(BEHIND_A_FIREWALL).replace("\n    net", "\nnet")
    for word, value in words.items():
        script = script.replace(word, value)
    try:
        done = subprocess.run(
            ["unshare", "--net", "bash", "-c", script],
            input=pickle.dumps(TOKYO),
            capture_output=True,
            cwd=names.CHECKOUT,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()
        before, after = done.stdout.decode().split("left\n")
        assert before.count("-j ACCEPT") == 2
        assert after.strip() == "-P FORWARD DROP"
    finally:
        sweep.sweep(STACK)
        subprocess.run(["ip", "netns", "del", outside], capture_output=True, check=False)
