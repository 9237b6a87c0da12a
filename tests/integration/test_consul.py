"""Consul in two regions on a stack of its own: what it is for, and the faults it has to stand. One story."""

import json
import re
import shlex
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from infra.process import run
from infra.providers.local import names
from tests.integration.checkout import Checkout, commit, cut, region, said, two_regions
from tests.patience import wait_for

PROVES = ("consul", "discovery")
TOOLS = ("consul",)

SERVERS = [f"tokyo-control-{number}" for number in range(3)]
FAR = "shanghai-control-0"
CLIENT = "tokyo-gpu-0"
CERTIFICATE, KEY = "/etc/consul.d/agent.pem", "/etc/consul.d/agent-key.pem"
CUT_S = 60
"""Long enough that each region has given the other up."""
ANSWER_S = 20
"""For Consul's answer: it may have asked a server that hangs, and would wait for minutes."""
DETECTED_S = 60
"""For the agents to give up a server that hangs."""
WRITE = f"""
set -a; . /etc/default/consul
number=0 last=$(date +%s%3N)
while sleep 0.5; do
    number=$((number + 1))
    timeout {ANSWER_S} consul kv put story/written $number || continue
    now=$(date +%s%3N)
    echo $((now - last)) >> /run/gaps
    last=$now
done
"""
"""Writes a number every half a second, and the ms between two that were taken."""
SETTINGS = {"consul_check_interval_s": 5, "consul_raft_multiplier": 3}
"""Checks come quicker than by default, and a busy machine is no reason to look for another leader."""


def declared(checkout: Checkout) -> dict[str, Any]:
    regions = [
        region("tokyo", checkout.cidr(0), "Asia/Tokyo", {"control": 3, "gpu": 1}),
        region("shanghai", checkout.cidr(1), "Asia/Shanghai", {"control": 1}),
    ]
    return two_regions(checkout, regions=regions, discovery={"kind": "consul"})


@pytest.fixture(scope="module")
def stack(checkout: Checkout) -> Checkout:
    """The stack, standing: its verification has passed."""
    checkout.declare(declared(checkout))
    checkout.override("consul", **SETTINGS)
    commit(checkout.folder)
    started = time.monotonic()
    checkout.up()
    print(f"up with Consul on 5 nodes: {time.monotonic() - started:.0f} s")
    return checkout


def consul(stack: Checkout, node: str, words: str) -> str:
    """What `consul WORDS` prints on a node, for root."""
    environment = "set -a; . /etc/default/consul"
    return stack.on_node(node, "sh", "-c", f"{environment}; timeout {ANSWER_S} consul {words}")


def tried(stack: Checkout, node: str, words: str) -> str:
    """The same, or what it says while it fails."""
    return consul(stack, node, f"{words} 2>&1 || true")


def leader(stack: Checkout, node: str) -> str:
    """The name of the server that leads, as any server knows it; empty while there is none."""
    peers = tried(stack, node, "operator raft list-peers -stale").splitlines()
    return next((line.split()[0] for line in peers if " leader " in line), "")


def elected(stack: Checkout) -> str:
    """The server that leads tokyo, once there is one: a server that was just started knows of none."""
    found = ""

    def known() -> str:
        nonlocal found
        found = leader(stack, SERVERS[0])
        return found

    wait_for(known, "a leader")
    return found


def resolves(stack: Checkout, node: str, name: str) -> set[str]:
    """The addresses a program on the node gets for a name; none where it does not resolve."""
    found = stack.on_node(node, "sh", "-c", f"getent ahostsv4 {name} || true")
    return {line.split()[0] for line in found.splitlines()}


def comes_to(stack: Checkout, node: str, name: str, wanted: set[str]) -> None:
    """Come back once the node gets these addresses for a name: its agent may try a server that is gone."""
    wait_for(lambda: resolves(stack, node, name) == wanted, f"{name} to be found on {node}")


def writes(stack: Checkout, node: str, key: str, value: str) -> None:
    """Write a value once it is taken: who leads since a moment may take nothing yet."""
    wait_for(lambda: "Success!" in tried(stack, node, f"kv put {key} {value}"), f"{key} to be written")


def alive(stack: Checkout, node: str, *words: str) -> set[str]:
    lines = tried(stack, node, " ".join(["members", *words])).splitlines()
    return {line.split()[0] for line in lines if " alive " in line}


def healthy(stack: Checkout) -> bool:
    """Whether tokyo's three servers vote and are well."""
    state = tried(stack, SERVERS[0], "operator autopilot state -format=json")
    return state.startswith("{") and json.loads(state)["Healthy"] and len(json.loads(state)["Voters"]) == 3


def play(stack: Checkout, *words: str) -> str:
    consul = ("playbooks/roles.yml", "--tags=consul", "-i", f"inventories/{stack.stack}")
    return stack.run("exec", "ansible-playbook", *consul, *words)


def addresses(stack: Checkout, *nodes: str) -> set[str]:
    return {stack.address(node) for node in nodes}


def test_two_datacenters_see_each_other(stack: Checkout) -> None:
    joined = {f"{name}.tokyo" for name in SERVERS} | {f"{FAR}.shanghai"}
    assert alive(stack, FAR, "-wan") == alive(stack, SERVERS[0], "-wan") == joined
    comes_to(stack, CLIENT, "ssh.service.shanghai.consul", addresses(stack, FAR))
    comes_to(stack, FAR, "ssh.service.tokyo.consul", addresses(stack, CLIENT, *SERVERS))


def test_a_query_goes_to_the_other_region_and_comes_back(stack: Checkout) -> None:
    name, own, other = "ntp.query.consul", addresses(stack, FAR), addresses(stack, *SERVERS)
    assert resolves(stack, FAR, name) == own
    stack.on_node(FAR, "systemctl", "stop", "chrony")
    wait_for(lambda: resolves(stack, FAR, name) == other, "the query to ask the other region")
    stack.on_node(FAR, "systemctl", "start", "chrony")
    wait_for(lambda: resolves(stack, FAR, name) == own, "the query to ask the own region again")


def test_without_the_agent_the_control_nodes_are_still_found_by_name(stack: Checkout) -> None:
    assert resolves(stack, CLIENT, FAR) == addresses(stack, FAR)
    stack.on_node(CLIENT, "systemctl", "stop", "consul")
    try:
        assert resolves(stack, CLIENT, FAR) == set(), "the agent answers for it"
        for name in (*SERVERS, CLIENT):
            assert resolves(stack, CLIENT, name) == addresses(stack, name)
    finally:
        stack.on_node(CLIENT, "systemctl", "start", "consul")
    wait_for(lambda: resolves(stack, CLIENT, FAR) == addresses(stack, FAR), "the agent to answer again")


def test_a_server_that_is_killed_comes_back_by_itself(stack: Checkout) -> None:
    led = elected(stack)
    name = next(name for name in SERVERS if name != led)
    before = started_at(stack, name)
    stack.on_node(name, "systemctl", "kill", "--signal=KILL", "consul")
    wait_for(lambda: resolves(stack, CLIENT, "ssh.service.consul"), "the others to answer")
    wait_for(lambda: started_at(stack, name) > before, "systemd to start it again")
    wait_for(lambda: healthy(stack), "it to be one of three again")


@pytest.mark.long
def test_a_leader_that_hangs_is_replaced(stack: Checkout) -> None:
    first = elected(stack)
    others = [name for name in SERVERS if name != first]
    started = time.monotonic()
    podman(stack, "pause", first)
    try:
        wait_for(lambda: leader(stack, others[0]) in others, "another server to lead")
        print(f"another leader after {time.monotonic() - started:.1f} s")
        writes(stack, others[0], "story/leader", "moved")
        wait_for(lambda: resolves(stack, CLIENT, "ssh.service.consul"), "names to resolve", DETECTED_S)
    finally:
        podman(stack, "unpause", first)
    wait_for(lambda: healthy(stack), "the server that hung to be one of three again")


@pytest.mark.long
def test_a_datacenter_without_a_majority_goes_on_by_the_steps_in_the_docs(stack: Checkout) -> None:
    survivor, *lost = SERVERS
    for name in lost:
        stack.on_node(name, "systemctl", "stop", "consul")
    wait_for(lambda: "No cluster leader" in tried(stack, survivor, "kv put story/majority x"), "no leader")
    # The client's agent may ask one of the lost servers first, and give up before it tries the next.
    wait_for(lambda: resolves(stack, CLIENT, "ssh.service.consul"), "what was known to be answered on")
    page = (stack.folder / "docs" / "operations.md").read_text()
    alone, back = re.findall(
        r"<!-- run by tests/integration/test_consul.py -->\n```sh\n(.*?)```", page, re.DOTALL
    )
    stack.on_node(survivor, "sh", "-euc", alone)
    wait_for(lambda: leader(stack, survivor) == survivor, "the survivor to lead alone")
    writes(stack, survivor, "story/majority", "lost")
    for name in lost:
        stack.on_node(name, "sh", "-euc", back)
    wait_for(lambda: healthy(stack), "three servers again")
    assert tried(stack, survivor, "kv get story/majority") == "lost", "what was written meanwhile"


def test_a_cut_wan_leaves_each_region_its_own(stack: Checkout) -> None:
    with cut(stack, "trans-sea"):
        began = time.monotonic()
        wait_for(lambda: alive(stack, FAR, "-wan") == {f"{FAR}.shanghai"}, "the cut to be seen")
        for node, own in ((FAR, {FAR}), (CLIENT, {CLIENT, *SERVERS})):
            comes_to(stack, node, "ssh.service.consul", addresses(stack, *own))
        for node in (FAR, SERVERS[0]):
            consul(stack, node, "kv put story/wan cut")
        play(stack, "--limit", FAR)
        wait_for(lambda: time.monotonic() - began > CUT_S, "the cut to have lasted")
    started = time.monotonic()
    print(f"cut for {started - began:.0f} s")
    wait_for(lambda: resolves(stack, CLIENT, "ssh.service.shanghai.consul"), "the other region's names")
    print(f"the other region's names {time.monotonic() - started:.1f} s after the end of the cut")
    wait_for(lambda: len(alive(stack, FAR, "-wan")) == 4, "both to be joined again")
    print(f"joined again {time.monotonic() - started:.1f} s after the end of the cut")


def test_a_node_that_was_started_again_finds_names(stack: Checkout) -> None:
    podman(stack, "restart", CLIENT)
    wait_for(
        lambda: resolves(stack, CLIENT, "ssh.service.shanghai.consul"), "names to resolve after the start"
    )


def test_an_expired_certificate_is_refused_and_renewed(stack: Checkout) -> None:
    put(stack, CLIENT, CERTIFICATE, ending(stack, datetime.now(UTC) - timedelta(days=1)))
    began = stack.on_node(SERVERS[0], "date", "+%F %T")
    stack.on_node(CLIENT, "systemctl", "restart", "--no-block", "consul")
    # Asked of the servers: the client's own command would refuse the certificate before they see it.
    wait_for(lambda: CLIENT in refused_by(stack, began), "a server to refuse it")
    play(stack, "--limit", CLIENT)
    wait_for(lambda: CLIENT in tried(stack, CLIENT, "catalog nodes"), "the renewed certificate to be taken")


def refused_by(stack: Checkout, since: str) -> set[str]:
    """The nodes whose connections tokyo's servers have refused since then, for their certificate's end."""
    words = [
        "journalctl",
        "--unit=consul",
        f"--since={since}",
        "--no-pager",
        "--grep=certificate has expired",
    ]
    lines = "\n".join(stack.on_node(name, "sh", "-c", f"{shlex.join(words)} || true") for name in SERVERS)
    return {node for node in (CLIENT, FAR) if f"{stack.address(node)}:" in lines}


@pytest.mark.long
def test_a_certificate_that_is_lost_or_ends_soon_is_named_and_repaired(stack: Checkout) -> None:
    near = ending(stack, datetime.now(UTC) + timedelta(days=30))
    stack.on_node(CLIENT, "rm", CERTIFICATE, KEY)
    assert re.search(rf"{CERTIFICATE}.*is absent, expected a file", drift_of_consul(stack))
    assert "consul : Configure the agent" not in repair(stack), "only what brings it back"
    assert stack.on_node(CLIENT, "openssl", "verify", "-CAfile", "/etc/consul.d/ca.pem", CERTIFICATE)
    drift_of_consul(stack, expect=0)  # what was made anew is sealed
    put(stack, CLIENT, CERTIFICATE, near)
    assert re.search(rf"certificate {CERTIFICATE}.*ends soon, and is to be renewed", drift_of_consul(stack))
    repair(stack)
    lasts = ("openssl", "x509", "-in", CERTIFICATE, "-noout", "-checkend", str(120 * 86400))
    assert "will not expire" in stack.on_node(CLIENT, *lasts)
    wait_for(lambda: CLIENT in tried(stack, CLIENT, "catalog nodes"), "the agent to work with it")


def drift_of_consul(stack: Checkout, expect: int = 3) -> str:
    """What a scan says of the role on the client, and how it ends: it finds differences."""
    words = ("causeway", "drift", stack.stack, "--host", CLIENT, "--role", "consul")
    return stack.run("exec", *words, expect=expect)


def repair(stack: Checkout) -> str:
    """What the repair prints that a scan of the client names."""
    words = ("-i", f"inventories/{stack.stack}", "--limit", CLIENT, "--tags", "consul")
    return stack.run("exec", "ansible-playbook", "playbooks/repair.yml", *words)


def ending(stack: Checkout, end: datetime) -> str:
    """The client's certificate as it would be with another end."""
    certificate = x509.load_pem_x509_certificate(stack.on_node(CLIENT, "cat", CERTIFICATE).encode())
    authority = stack.files / "secrets" / "consul-ca"
    key = serialization.load_pem_private_key(authority.read_bytes(), password=None)
    builder = x509.CertificateBuilder(
        certificate.issuer, certificate.subject, certificate.public_key(), certificate.serial_number,
        end - timedelta(days=1), end, list(certificate.extensions),
    )  # fmt: skip
    signed = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type] # the authority's is an EC key
    return signed.public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.long
def test_what_somebody_grants_beside_the_role_is_named_and_the_anonymous_token_closed(
    stack: Checkout,
) -> None:
    consul(stack, SERVERS[0], "acl token update -id anonymous -policy-name global-management")
    made = consul(stack, SERVERS[0], "acl token create -policy-name global-management -format=json")
    accessor = json.loads(made)["AccessorID"]
    where = ("-i", f"inventories/{stack.stack}", "--limit", SERVERS[0], "--tags", "consul")
    words = ("causeway", "drift", stack.stack, "--role", "consul", "--thorough")
    said_of_it = stack.run("exec", *words, expect=3)
    assert "anonymous policies=global-management" in said_of_it
    assert f"token {accessor} policies=global-management" in said_of_it
    assert f"{FAR} (shanghai): clean" in said_of_it, "what was granted for all is told where it was granted"
    named = stack.run("exec", "ansible-playbook", "playbooks/repair.yml", *where, expect=2)
    assert f"acl token delete -accessor-id {accessor}" in " ".join(named.split())
    assert "global-management" not in consul(stack, SERVERS[0], "acl token read -id anonymous")
    consent = ("-e", "repair_remove_added=true")
    stack.run("exec", "ansible-playbook", "playbooks/repair.yml", *where, *consent)
    assert accessor not in consul(stack, SERVERS[0], "acl token list")
    stack.run("exec", *words)


@pytest.mark.long
def test_an_agent_with_another_gossip_key_stays_outside(stack: Checkout) -> None:
    file = "/etc/consul.d/secrets.hcl"
    text = stack.on_node(CLIENT, "cat", file)
    put(stack, CLIENT, file, re.sub(r'(?m)^encrypt = ".*"$', f'encrypt = "{"A" * 43}="', text))
    stack.on_node(CLIENT, "systemctl", "restart", "--no-block", "consul")
    wait_for(lambda: CLIENT not in alive(stack, SERVERS[0]), "it to be gone for the others")
    play(stack, "--limit", CLIENT)
    wait_for(lambda: CLIENT in alive(stack, SERVERS[0]), "it to be back")


@pytest.mark.long
def test_a_server_with_old_data_catches_up(stack: Checkout) -> None:
    led, data = elected(stack), "/var/lib/consul"
    name = next(name for name in SERVERS if name != led)
    stack.on_node(
        name, "sh", "-euc", f"systemctl stop consul; cp -a {data} {data}.old; systemctl start consul"
    )
    wait_for(lambda: healthy(stack), "it to be back")
    consul(stack, SERVERS[0], "kv put story/data new")
    swap = f"systemctl stop consul; rm -r {data}; mv {data}.old {data}; systemctl start consul"
    stack.on_node(name, "sh", "-euc", swap)
    wait_for(lambda: tried(stack, name, "kv get -stale story/data") == "new", "the write it had missed")
    wait_for(lambda: healthy(stack), "it to be one of three again")


@pytest.mark.long
def test_a_lost_datacenter_comes_back_from_the_other_regions_snapshot(stack: Checkout) -> None:
    consul(stack, SERVERS[0], "kv put story/snapshot before")
    stack.on_node(FAR, "systemctl", "start", "consul-snapshot.service")
    newest = stack.on_node(FAR, "sh", "-c", "ls -t /var/lib/consul-snapshots/tokyo-*.snap | head -n 1")
    consul(stack, SERVERS[0], "kv put story/snapshot after")
    copy = stack.folder.parent / "tokyo.snap"
    said("podman", "cp", f"{names.node(stack.stack, FAR)}:{newest}", str(copy))
    said("podman", "cp", str(copy), f"{names.node(stack.stack, SERVERS[0])}:/root/tokyo.snap")
    consul(stack, SERVERS[0], "snapshot restore /root/tokyo.snap")
    assert tried(stack, SERVERS[0], "kv get story/snapshot") == "before"
    wait_for(lambda: healthy(stack), "the servers to agree again")


def test_servers_are_restarted_one_at_a_time_the_leader_last(stack: Checkout) -> None:
    led = elected(stack)
    before = {name: started_at(stack, name) for name in (*SERVERS, CLIENT)}
    once = "getent hosts ssh.service.consul >/dev/null || echo lost; sleep 0.2"
    asks = f"while [ ! -e /run/enough ]; do {once}; done"
    asking = f"rm -f /run/enough /run/lost; nohup sh -c '{asks}' >/run/lost 2>&1 &"
    stack.on_node(CLIENT, "sh", "-c", asking)
    stack.override("consul", **SETTINGS | {"consul_raft_multiplier": 4})
    play(stack)
    stack.on_node(CLIENT, "touch", "/run/enough")
    after = {name: started_at(stack, name) for name in (*SERVERS, CLIENT)}
    away = sorted((stopped_at(stack, name), ready_at(stack, name)) for name in SERVERS)
    assert all(ready < stopped for (_, ready), (stopped, _) in pairwise(away)), (
        f"two were away at once: {away}"
    )
    assert {name for name in after if after[name] > before[name]} == set(SERVERS), "what servers alone have"
    assert max(SERVERS, key=lambda name: after[name]) == led_at(stack, away[0][0], led)
    assert stack.on_node(CLIENT, "cat", "/run/lost") == "", "names resolved all the time"


def led_at(stack: Checkout, moment: int, before: str) -> str:
    """The server that led at a moment (µs of the clock that all containers share), by what servers have said.

    `before`: who led some time before, where the journals go back no further.
    """
    ask = "journalctl --quiet --unit=consul --output=json --grep='cluster leadership acquired' || true"
    said = [
        (int(json.loads(line)["__MONOTONIC_TIMESTAMP"]), name)
        for name in SERVERS
        for line in stack.on_node(name, "sh", "-c", ask).splitlines()
    ]
    return max((one for one in said if one[0] < moment), default=(0, before))[1]


@pytest.mark.long
def test_a_restart_is_refused_while_another_server_is_ill(stack: Checkout) -> None:
    led = elected(stack)
    asked, ill = (name for name in SERVERS if name != led)
    before = started_at(stack, asked)
    stack.on_node(ill, "systemctl", "stop", "consul")
    try:
        wait_for(lambda: not healthy(stack), "the stopped server to be missed")
        stack.override("consul", **SETTINGS | {"consul_check_interval_s": 6})
        words = ("playbooks/roles.yml", "--tags=consul", "-i", f"inventories/{stack.stack}", "--limit", asked)
        refusal = stack.run("exec", "ansible-playbook", *words, expect=2)
        # It counts as ill at first, and is no server of theirs any more a little later.
        assert re.search(f"servers are there, not healthy: {ill}|2 of 3 servers are there", refusal)
        assert started_at(stack, asked) == before
    finally:
        stack.on_node(ill, "systemctl", "start", "consul")
    wait_for(lambda: healthy(stack), "three servers again")
    play(stack)
    assert started_at(stack, asked) > before


def started_at(stack: Checkout, node: str) -> int:
    """When a node's Consul was started, in µs of the clock that all containers share."""
    return _at(stack, node, "ExecMainStartTimestampMonotonic")


def stopped_at(stack: Checkout, node: str) -> int:
    """When its last restart began."""
    return _at(stack, node, "ActiveExitTimestampMonotonic")


def ready_at(stack: Checkout, node: str) -> int:
    """When it had said that it was ready."""
    return _at(stack, node, "ActiveEnterTimestampMonotonic")


def _at(stack: Checkout, node: str, which: str) -> int:
    return int(stack.on_node(node, "systemctl", "show", "-P", which, "consul"))


def test_no_secret_is_anywhere_but_where_it_belongs(stack: Checkout) -> None:
    secrets = {path.name: path.read_text().strip() for path in (stack.files / "secrets").glob("consul-*")}
    hidden = {secrets["consul-gossip"], secrets["consul-acl"], secrets["consul-ca"].splitlines()[1]}
    hidden |= {stack.on_node(node, "cat", "/etc/consul.d/root.token") for node in (SERVERS[0], FAR, CLIENT)}
    files = [path for path in (stack.folder / ".causeway").rglob("*") if path.is_file()]
    texts = {path: path.read_text(errors="replace") for path in files if path.parent.name != "secrets"}
    texts[Path("ps")] = "\n".join(stack.on_node(node, "ps", "-eo", "args") for node in (FAR, CLIENT))
    assert [path for path, text in texts.items() if any(secret in text for secret in hidden)] == []


def test_after_all_that_it_is_as_declared(stack: Checkout) -> None:
    stack.override("consul", **SETTINGS)
    play(stack)
    stack.run("exec", "ansible-playbook", "playbooks/verify.yml", "-i", f"inventories/{stack.stack}")
    stack.run("exec", "causeway", "drift", stack.stack)
    assert stack.changes() == {}


@pytest.mark.long
def test_nodes_servers_and_a_region_that_are_declared_no_more_are_forgotten(stack: Checkout) -> None:
    """Two of three servers go in one `up`: the one that stays takes writes, and knows of no other."""
    stays, *_ = SERVERS
    put(stack, stays, "/run/write.sh", WRITE)
    stack.on_node(stays, "systemd-run", "--quiet", "--unit=writer", "sh", "/run/write.sh")
    tokyo = region("tokyo", stack.cidr(0), "Asia/Tokyo", {"control": 1})
    stack.declare(declared(stack) | {"regions": [tokyo], "wan_links": []})
    stack.up()
    written = int(tried(stack, stays, "kv get story/written"))
    wait_for(lambda: int(tried(stack, stays, "kv get story/written")) > written, "writes to go on")
    stack.on_node(stays, "systemctl", "stop", "writer")
    gaps = [int(gap) / 1000 for gap in stack.on_node(stays, "cat", "/run/gaps").split()]
    print(f"{len(gaps)} writes were taken, each at most {max(gaps):.1f} s after the one before")
    for words in ("operator raft list-peers", "members", "members -wan", "catalog nodes"):
        known = [line.split()[0] for line in tried(stack, stays, words).splitlines()[1:]]
        assert known == [f"{stays}.tokyo" if "-wan" in words else stays], words
    records = {path.stem for path in (stack.files / "drift").glob("*.json")}
    assert records == {stays}


def podman(stack: Checkout, verb: str, node: str) -> None:
    said("podman", verb, names.node(stack.stack, node))


def put(stack: Checkout, node: str, path: str, text: str) -> None:
    """Write a file in a node in place: mode and owner stay."""
    run(["podman", "exec", "--interactive", names.node(stack.stack, node), "tee", path], stdin=text)
