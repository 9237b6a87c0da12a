"""The node finds services of its own datacenter and of the others; nobody gets in without key and token."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder, ask, resolved, sample, settled

ROOT_TOKEN = "/etc/consul.d/root.token"  # noqa: S105 - a path
SETTLING_S = 30
"""How long a node may take to be seen by all others."""
pytestmark = pytest.mark.deadline(4 * SETTLING_S)

# What the agent answers to METHOD PATH, with the token of a file or with none; asked until it is what a
# Python expression over status and body wants, or time is up. An agent that starts again refuses meanwhile;
# one whose connection to a server has just ended, or whose servers elect a leader, has no answer yet (500).
ASK_AGENT = """
import http.client, json, ssl, sys, time
method, path, token_file, body, wanted, limit_s = sys.argv[1:]
token = {"X-Consul-Token": open(token_file).read()} if token_file else {}
context = ssl.create_default_context(cafile="/etc/consul.d/ca.pem")
end = time.monotonic() + float(limit_s)
while True:
    link = http.client.HTTPSConnection("127.0.0.1", 8501, timeout=10, context=context)
    try:
        link.request(method, path, body or None, token)
        answer = link.getresponse()
        status, text = answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException):
        if time.monotonic() > end:
            raise
        time.sleep(0.5)
        continue
    found = json.loads(text) if text[:1] in ("{", "[", '"') else text
    if time.monotonic() > end or eval(wanted, {"status": status, "body": found}):
        break
    time.sleep(0.5)
print(json.dumps([status, found]))
"""

# What a server says to a caller that speaks no TLS: "" where it hangs up. To `rpc`, which asks who leads
# (msgpack: {"ServiceMethod": "Status.Leader", "Seq": 1}, {}), it would tell.
SPEAK_PLAINLY = """
import json, socket, sys
def says(port, words):
    try:
        with socket.create_connection((sys.argv[1], port), timeout=5) as link:
            link.sendall(words)
            return link.recv(200).decode("latin-1")
    except OSError as error:
        return type(error).__name__
print(json.dumps({
    "rpc": says(8300, b"\\0\\x82\\xadServiceMethod\\xadStatus.Leader\\xa3Seq\\x01\\x80"),
    "api": says(8501, b"GET /v1/status/leader HTTP/1.0\\r\\n\\r\\n"),
    "http": says(8500, b"GET /v1/status/leader HTTP/1.0\\r\\n\\r\\n"),
}))
"""

Call = Callable[..., Any]
ANSWERED = "status < 500"
"""Yes or no, and not that there is nobody to ask at this moment."""


@pytest.fixture
def call(host: Host) -> Call:
    """`call("GET", "/v1/…", wanted="status == 200")` → (status, body), with root's token."""

    def answer(
        method: str,
        path: str,
        token: str = ROOT_TOKEN,
        body: Any = None,
        wanted: str = ANSWERED,
        limit_s: int = SETTLING_S,
    ) -> tuple[int, Any]:
        text = "" if body is None else json.dumps(body)
        status, found = ask(host, ASK_AGENT, method, path, token, text, wanted, str(limit_s))
        return status, found

    return answer


def is_server(expect: Expect) -> bool:
    return expect.consul_address in expect.consul_server_addresses


def datacenters(expect: Expect) -> list[str]:
    return [expect.consul_datacenter, *expect.consul_wan_servers]


def test_it_is_a_member_beside_the_servers(call: Call, expect: Expect) -> None:
    wanted = {expect.consul_address, *expect.consul_server_addresses}
    alive = "{member['Addr'] for member in body if member['Status'] == 1}"
    status, body = call("GET", "/v1/agent/members", wanted=f"status == 200 and {wanted!r} <= {alive}")
    assert status == 200, body
    assert wanted <= {member["Addr"] for member in body if member["Status"] == 1}, body


def test_the_servers_are_healthy_and_agree(call: Call, expect: Expect) -> None:
    status, leader = call("GET", "/v1/status/leader", wanted="status == 200 and body")
    assert status == 200
    assert leader.rpartition(":")[0] in expect.consul_server_addresses
    if is_server(expect):
        count = len(expect.consul_server_addresses)
        healthy = f"status == 200 and body['Healthy'] and len(body['Servers']) == {count}"
        status, health = call("GET", "/v1/operator/autopilot/health", wanted=healthy)
        assert status == 200, health
        assert health["Healthy"], health


def test_the_datacenters_are_joined(call: Call, expect: Expect, verdict: VerdictRecorder) -> None:
    if not is_server(expect) or not expect.consul_wan_servers:
        verdict.not_declared("only servers are joined with those of other datacenters")
    wanted = {address for servers in expect.consul_wan_servers.values() for address in servers}
    alive = "{member['Addr'] for member in body if member['Status'] == 1}"
    joined = f"status == 200 and {wanted!r} <= {alive}"
    status, body = call("GET", "/v1/agent/members?wan=1", wanted=joined)
    assert status == 200, body
    assert wanted <= {member["Addr"] for member in body if member["Status"] == 1}, body


def test_names_of_every_datacenter_resolve(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if expect.consul_dns == "none":
        verdict.not_declared("nothing sends questions for .consul to the agent")
    servers = {expect.consul_datacenter: expect.consul_server_addresses} | expect.consul_wan_servers
    names = {f"consul.service.{name}.consul": sorted(addresses) for name, addresses in servers.items()}
    # There is an answer with the first server; one that has just begun is among them once its check passes.
    found = settled(lambda: resolved(host, names, SETTLING_S), lambda found: found == names, SETTLING_S)
    assert found == names


def test_nodes_are_found_by_their_bare_names(
    host: Host, call: Call, expect: Expect, verdict: VerdictRecorder
) -> None:
    if expect.consul_dns == "none":
        verdict.not_declared("nothing asks the agent for a bare name")
    joined: set[str] = set()
    for name in datacenters(expect):  # a node that has not joined is its own verification's matter
        _, nodes = call("GET", f"/v1/catalog/nodes?dc={name}", wanted="status == 200")
        joined |= {node["Node"] for node in nodes}
    known = {name: [address] for name, address in expect.cluster_addresses.items() if name in joined}
    assert expect.host_name in known
    names = sample(known)
    assert resolved(host, names, SETTLING_S) == {name: known[name] for name in names}


def test_every_service_is_registered_and_passes(call: Call, expect: Expect) -> None:
    names = {f"service-{service['name']}" for service in expect.consul_services}
    passing = "all(check['Status'] != 'critical' for check in body.values())"
    once_s = expect.consul_check_interval_s + 10  # a check counts as critical until it has run
    wanted = f"status == 200 and {names!r} <= set(body) and {passing}"
    status, checks = call("GET", "/v1/agent/checks", wanted=wanted, limit_s=once_s)
    assert status == 200
    assert names | {"node"} <= set(checks)
    assert {name: check["Output"] for name, check in checks.items() if check["Status"] == "critical"} == {}


def test_a_query_finds_each_service(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if expect.consul_dns == "none":
        verdict.not_declared("nothing sends questions for .consul to the agent")
    names = [f"{service['name']}.query.consul" for service in expect.consul_services]
    found = resolved(host, names, SETTLING_S)
    assert [name for name in names if not found[name]] == []


def test_without_a_token_it_says_nothing(call: Call) -> None:
    assert call("GET", "/v1/agent/self", token="")[0] == 403
    status, _ = call("PUT", "/v1/kv/intruder", token="", body=1)
    if status == 200:
        call("DELETE", "/v1/kv/intruder", token="")
    assert status == 403
    assert call("GET", "/v1/catalog/nodes", token="")[1] == []


def test_a_node_registers_only_what_its_kind_may(
    call: Call, expect: Expect, verdict: VerdictRecorder
) -> None:
    if is_server(expect):
        verdict.not_declared("root on a server has all rights")
    status, said = call("PUT", "/v1/agent/service/register", body={"Name": "not-declared", "Port": 1})
    if status == 200:
        call("PUT", "/v1/agent/service/deregister/not-declared")
    assert status == 403, said


def test_a_node_writes_no_node_of_another_kind(call: Call, expect: Expect, verdict: VerdictRecorder) -> None:
    if is_server(expect):
        verdict.not_declared("root on a server has all rights")
    others = [kind["name"] for kind in expect.consul_node_kinds if kind["name"] != expect.consul_node_kind]
    for kind in others:  # of a number that no node has: nothing of anybody's is at stake
        stranger = {"Node": f"{kind}-999999", "Address": "192.0.2.1"}
        status, said = call("PUT", "/v1/catalog/register", body=stranger)
        assert status == 403, f"{stranger['Node']}: {said}"


def test_nobody_is_heard_without_tls(host: Host, expect: Expect) -> None:
    said = ask(host, SPEAK_PLAINLY, expect.consul_server_addresses[0])
    assert said["rpc"] in ("", "ConnectionResetError"), "a server answers a caller without TLS"
    assert said["http"] == "ConnectionRefusedError"
    own = ask(host, SPEAK_PLAINLY, "127.0.0.1")
    assert "400 Bad Request" in own["api"]
    assert own["http"] == "ConnectionRefusedError"


def test_gossip_is_encrypted(call: Call) -> None:
    status, body = call("GET", "/v1/agent/self")
    assert status == 200, body
    assert body["Stats"]["serf_lan"]["encrypted"] == "true"


def test_the_certificate_in_use_holds_and_is_ours(host: Host, expect: Expect) -> None:
    days = max(expect.consul_certificate_renew_days // 2, 1)
    shown = "openssl s_client -connect 127.0.0.1:8501 -CAfile /etc/consul.d/ca.pem </dev/null"
    done = host.run(f"{shown} 2>/dev/null | openssl x509 -noout -checkend {days * 86400}")
    assert done.rc == 0, done.stdout + done.stderr
    assert host.run(f"{shown} 2>&1 | grep -q 'Verify return code: 0'").rc == 0


def test_a_snapshot_of_every_datacenter_can_be_read(
    host: Host, expect: Expect, verdict: VerdictRecorder
) -> None:
    if not is_server(expect):
        verdict.not_declared("servers take the snapshots")
    done = host.run("systemctl start consul-snapshot.service")
    assert done.rc == 0, host.run("journalctl --unit=consul-snapshot.service --lines=5 --output=cat").stdout
    for name in datacenters(expect):
        newest = f"$(ls -t {expect.consul_snapshot_dir}/{name}-????????T??????Z.snap | head -n 1)"
        assert host.run(f"consul snapshot inspect {newest}").rc == 0
    assert (
        host.run("systemctl is-enabled consul-snapshot.timer && systemctl is-active consul-snapshot.timer").rc
        == 0
    )
