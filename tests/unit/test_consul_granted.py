"""What Consul allows that no role granted: known at the seal, named later, and closed where it was closed."""

import http.client
import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.machinery import SourceFileLoader
from threading import Thread
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from infra import ROOT
from infra.drift.kinds import slow
from infra.drift.probe import work
from infra.drift.repair import Obstacles
from roles.consul.drift import granted
from tests.loaded import load
from tests.unit.test_drift_repair import plan_for
from tests.unit.test_drift_seal import checkout as checkout
from tests.unit.test_drift_seal import claim, record, seal

PROGRAM = ROOT / "roles" / "consul" / "files" / "consul-access"
ALL = {"ID": "00000000-0000-0000-0000-000000000001", "Name": "global-management"}
ANONYMOUS = {"AccessorID": "00000000-0000-0000-0000-000000000002", "Description": "Anonymous Token"}
OWN = {"AccessorID": "self", "Description": "Initial Management Token", "Policies": [ALL], "Hash": "h"}
OURS = {"AccessorID": "a1", "Description": "causeway-tokyo-gpu", "Hash": "h1"}
SECRET = "5ec3e7"  # noqa: S105 - an invented one


@pytest.fixture(scope="module")
def access() -> ModuleType:
    """The program, which has no ending."""
    module = ModuleType("consul_access")
    exec(SourceFileLoader("consul_access", str(PROGRAM)).get_code("consul_access"), module.__dict__)  # type: ignore[arg-type]  # noqa: S102 - ours
    return module


class Asked:
    """An agent of a datacenter."""

    def __init__(self, primary: bool = True) -> None:
        about = {"Datacenter": "tokyo", "PrimaryDatacenter": "tokyo" if primary else "osaka"}
        self.answers: dict[str, Any] = {
            "/v1/acl/tokens": [{**ANONYMOUS, "Hash": "x"}, OWN, OURS],
            "/v1/acl/policies": [
                {"ID": "1", "Name": "causeway-tokyo-gpu", "Hash": "p1"},
                {**ALL, "Hash": "b"},
            ],
            "/v1/query": [{"ID": "q", "Name": "", "Template": {}, "Service": {}, "DNS": {}}],
            "/v1/agent/self": {"Config": about},
            "/v1/acl/token/self": OWN,
            **{f"/v1/acl/{part}": [] for part in ("roles", "auth-methods", "binding-rules")},
        }
        self.told: list[Any] = []

    def ask(self, path: str, method: str = "GET", value: Any = None) -> Any:
        if method != "GET":
            return self.told.append((method, path, value))
        return self.answers[path]

    def add(self, path: str, **found: Any) -> None:
        self.answers[path] = [*self.answers[path], {"SecretID": SECRET, "Hash": "h", **found}]


def beside(access: ModuleType, agent: Asked) -> list[str]:
    found: Iterator[str] = access.lines(agent)
    return [line.removeprefix("beside ") for line in found if line.startswith("beside ")]


def test_what_is_there_beside_ours_is_told_without_a_secret(access: ModuleType) -> None:
    agent = Asked()
    ours = [line for line in access.lines(agent) if not line.startswith("beside ")]
    assert ours == ["policy causeway-tokyo-gpu p1", "token causeway-tokyo-gpu h1", "query [{}, {}, {}]"]
    assert beside(access, agent) == ["anonymous nothing"]
    agent.answers["/v1/acl/tokens"][0] = {**ANONYMOUS, "Policies": [ALL], "Roles": [{"Name": "r"}]}
    agent.add("/v1/acl/tokens", AccessorID="e1", Description="", Policies=[ALL])
    agent.add("/v1/acl/tokens", AccessorID="e2", Description="", ServiceIdentities=[{"ServiceName": "web"}])
    agent.add("/v1/acl/policies", ID="7", Name="evil")
    agent.add("/v1/acl/roles", Name="r", Policies=[ALL])
    agent.add("/v1/acl/auth-methods", Name="jwt", Type="jwt")
    agent.answers["/v1/acl/auth-method/jwt"] = {"Name": "jwt", "Config": {"S": SECRET}, "ModifyIndex": 7}
    agent.add("/v1/acl/binding-rules", ID="b", AuthMethod="jwt", BindType="policy", BindName="evil")
    agent.add("/v1/query", ID="q2", Name="ssh", Service={"Service": "evil"}, Token=SECRET)
    found = beside(access, agent)
    method = next(line for line in found if line.startswith("auth-method"))
    assert sorted(found) == sorted([
        "anonymous policies=global-management roles=r",
        "token e1 policies=global-management",
        "token e2 services=web",
        "policy evil h",
        "role r policies=global-management",
        method,
        'binding-rule b ["jwt", "policy", "evil", null]',
        'query q2 ["ssh", null, {"Service": "evil"}, null]',
    ])  # fmt: skip
    assert SECRET not in str(found)
    agent.answers["/v1/acl/auth-method/jwt"]["ModifyIndex"] = 8
    assert method in beside(access, agent), "nothing but its index is another"
    agent.answers["/v1/acl/auth-method/jwt"]["Config"] = {}
    assert method not in beside(access, agent)


def test_what_others_grant_is_told_where_it_is_granted(access: ModuleType) -> None:
    """Copies come later, and tokens of a login come and go: neither is anybody's attack."""
    agent = Asked(primary=False)
    agent.add("/v1/acl/tokens", AccessorID="copied", Description="", Policies=[ALL], Local=False)
    agent.add("/v1/acl/policies", ID="7", Name="copied")
    agent.add("/v1/acl/roles", Name="copied")
    agent.add("/v1/acl/tokens", AccessorID="login", Description="", Local=True, AuthMethod="jwt")
    assert beside(access, agent) == []
    agent.add("/v1/acl/tokens", AccessorID="here", Description="", Policies=[ALL], Local=True)
    assert beside(access, agent) == ["token here policies=global-management"]


def test_the_program_closes_and_removes(
    access: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    agent = Asked()
    agent.answers[f"/v1/acl/token/{ANONYMOUS['AccessorID']}"] = {**ANONYMOUS, "Policies": [ALL]}
    (tmp_path / "consul").write_text("# x\nA=b\n")
    monkeypatch.setattr(access, "Path", lambda _: tmp_path / "consul")
    monkeypatch.setattr(access, "Agent", lambda _: agent)
    access.main("close-anonymous")
    access.main("delete-query", "q2")
    path = f"/v1/acl/token/{ANONYMOUS['AccessorID']}"
    assert agent.told == [("PUT", path, ANONYMOUS), ("DELETE", "/v1/query/q2", None)]


class Answering(BaseHTTPRequestHandler):
    """An agent that keeps a connection open, knows one token, and at `/moment` first has no server to ask."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[Any]] = []
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(self.client_address)
        self.asked.append(f"{self.command} {self.path}")
        allowed = self.headers["X-Consul-Token"] == SECRET and self.path != "/missing"
        status, body = (200, b'[{"Name": "a"}]') if allowed else (403, b"ACL not found")
        if self.path == "/never" or (self.path == "/moment" and self.asked.count(self.asked[-1]) == 1):
            status, body = 500, b"rpc error making call: stream closed"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_DELETE = do_POST = do_GET  # noqa: N815 - the names that http.server looks for

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(name="port")
def _port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Where `Answering` listens, to whoever asks by HTTPS."""
    monkeypatch.setattr(ssl, "create_default_context", lambda cafile: cafile)

    def plain(host: str, port: int | None = None, **_: Any) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(host, port, timeout=20)

    monkeypatch.setattr(http.client, "HTTPSConnection", plain)
    for part in (Answering.seen, Answering.asked):
        part.clear()
    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(name="agent")
def _agent(access: ModuleType, port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Any]:
    """The program's own agent."""
    (tmp_path / "token").write_text(f"{SECRET}\n")
    monkeypatch.setattr(access, "PAUSES_S", (0, 0))
    settings = {"CONSUL_CACERT": "x", "CONSUL_HTTP_TOKEN_FILE": str(tmp_path / "token")}
    agent = access.Agent({**settings, "CONSUL_HTTP_ADDR": f"https://127.0.0.1:{port}"})
    yield agent
    agent.link.close()


def test_one_connection_asks_all_questions_and_a_refusal_ends_the_program(agent: Any) -> None:
    for _ in range(2):
        assert agent.ask("/v1/acl/tokens") == [{"Name": "a"}]
    with pytest.raises(SystemExit, match="/missing: 403 ACL not found"):
        agent.ask("/missing")
    assert len(set(Answering.seen)) == 1
    assert Answering.asked.count("GET /missing") == 1


def test_an_agent_without_a_server_is_asked_again_and_not_for_ever(agent: Any) -> None:
    assert agent.ask("/moment") == [{"Name": "a"}]
    with pytest.raises(SystemExit, match="/never: 500 rpc error"):
        agent.ask("/never")
    assert Answering.asked.count("GET /never") == 3


def test_the_roles_modules_ask_again_what_may_be_asked_twice(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load(ROOT / "roles/consul/module_utils/causeway_consul.py")
    for name, value in {"PORT": port, "PAUSE_S": 0, "ELECTION_S": 0.2}.items():
        monkeypatch.setattr(module, name, value)
    agent = module.Agent(SECRET)
    for ask in (agent.get, agent.put, agent.delete):
        assert ask("/moment") == [{"Name": "a"}]
    with pytest.raises(module.ConsulError, match="stream closed"):
        agent.post("/moment", {})  # made twice, it would be there twice
    with pytest.raises(module.ConsulError, match="stream closed"):
        agent.get("/never")
    with pytest.raises(module.ConsulError, match="ACL not found"):
        agent.get("/missing")
    assert Answering.asked.count("GET /missing") == 1


def test_the_grant_says_that_it_governs_what_is_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load(ROOT / "roles/consul/library/causeway_consul_access.py")
    said = dict[str, Any]()
    given = {"kinds": [], "tokens": {}, "primary": True, "token": "t", "shown_by": "/x", "wait_s": 1}
    fake = SimpleNamespace(params=given, check_mode=True, exit_json=lambda **told: said.update(told))
    monkeypatch.setattr(module, "AnsibleModule", lambda **_: fake)
    monkeypatch.setattr(module, "Agent", lambda _: SimpleNamespace(get=lambda _: []))
    for step in ("grant", "query"):
        monkeypatch.setattr(module.Access, step, lambda *_: None)
    module.main()
    how = {"argv": ["/x"], "watched": True}
    assert said["governs"] == [
        {"kind": "check", "key": "consul-access", "how": {**how, "shared": True}},
        {"kind": "granted", "key": "consul-access", "how": how},
    ]


NEW = [
    "anonymous policies=global-management",
    "token e1 policies=global-management",
    "policy evil h",
    'query q2 ["ssh"]',
    "token known policies=global-management",
]


def obstacles(sealed: list[str]) -> Obstacles:
    return plan_for("granted", "consul-access", {"beside": sealed}, {"beside": [*sealed, *NEW]}).obstacles


def test_a_repair_closes_what_was_closed_and_names_the_rest() -> None:
    found = obstacles(["anonymous nothing", "token known policies=a"])
    assert [command["argv"] for command in found.commands] == [[granted.PROGRAM, "close-anonymous"]]
    assert [command["argv"][4:] or command["argv"] for command in found.undone] == [
        ["acl", "token", "delete", "-accessor-id", "e1"],
        ["acl", "policy", "delete", "-name", "evil"],
        [granted.PROGRAM, "delete-query", "q2"],
    ], "what was there and allows something else is changed back by hand"
    assert obstacles(["anonymous policies=a"]).commands == [], "nobody knows how much of it was meant"


def test_a_converge_blesses_none_of_it_and_what_goes_is_no_difference() -> None:
    made = claim("granted", "consul-access")
    seal({"consul": record(made)}, {"beside": ["anonymous nothing", "token old nothing"]})
    again = seal({"consul": record(made)}, {"beside": ["anonymous nothing", *NEW[1:2]]}, inputs="i2")
    want = again.manifest.roles["consul"].entries[0].want["beside"]
    assert want == ["anonymous nothing", "token old nothing"]
    assert "token e1 policies=global-management" in again.not_repaired[0]


def test_the_timers_answer_is_believed_also_where_something_known_is_gone(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow, "ANSWERS", str(tmp_path / "answers"))
    asked, says = tmp_path / "asked", tmp_path / "says"
    how = {"argv": ["sh", "-c", f"echo >> {asked}; cat {says}"], "watched": True}
    entries = [["granted", "x", how, {"beside": ["a", "b"]}]]

    def differing(**more: Any) -> Any:
        return work({"mode": "scan", "salt": "s", "entries": entries, **more}, lambda _: None)["values"]

    says.write_text("beside b\n")
    assert differing(patient=True) == differing() == []
    assert asked.read_text() == "\n", "the scan has asked nobody"
    says.write_text("beside c\n")
    assert differing(anew=True) != []


def test_a_check_and_what_is_beside_it_ask_once(tmp_path: Any) -> None:
    asked, says = tmp_path / "asked", tmp_path / "says"
    argv = ["sh", "-c", f"echo >> {asked}; cat {says}"]
    says.write_text("ours\nbeside b\n")
    entries = [
        ["check", "x", {"argv": argv}, {"output": ["ours"]}],
        ["granted", "x", {"argv": argv}, {"beside": ["a", "b"]}],
    ]

    def differing() -> Any:
        return work({"mode": "scan", "salt": "s", "entries": entries}, lambda _: None)["values"]

    assert differing() == [], "what was known is gone"
    assert asked.read_text() == "\n"
    says.write_text("ours\nbeside c\n")
    ((number, found),) = differing()
    assert (number, found["found"]["beside"]) == (1, ["a", "b", "c"])
