"""A machine's answer is judged the same every time, whatever it is, and harms nobody who reads it."""

import base64
import io
import json
import socket
from contextlib import nullcontext, suppress
from dataclasses import replace
from ipaddress import IPv4Interface
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from infra import ROOT, capabilities
from infra.checks.load import load_spec
from infra.commands import doctor as command
from infra.declaration import ClusterSpec
from infra.doctor import examine, trip
from infra.doctor.answer import read
from infra.doctor.examine import Declared, Examined
from infra.doctor.judge import MOST_FINDINGS, grade_of, judge
from infra.doctor.look import sites
from infra.doctor.report import as_json, groups, impossible_words, print_reports
from infra.doctor.sites import NO_REGION, Question, openings, questions
from infra.doctor.wanted import ports_of, requests_of
from infra.drift.assembly import packed_files
from infra.drift.manifest import Manifest, RoleManifest
from infra.drift.trip import TripError, Trips
from infra.errors import HARMFUL, CausewayError, ExitCode
from infra.ground.endpoint import EVERYONE, Destination, HostSet
from infra.ground.machine import Finding, Grade, Machine, impossible, in_the_way
from infra.inventory.roles import role_order, roles_of
from infra.inventory.writes import written_by
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan

GATEWAYS = ROOT / "tests" / "golden" / "good" / "existing-gateways.yaml"
ADDRESS = "10.1.0.10"
WELL: dict[str, Any] = {
    "os_id": "debian",
    "os_codename": "trixie",
    "os_name": "Debian GNU/Linux 13 (trixie)",
    "python": "3.13.5",
    "root": True,
    "systemd": True,
    "hostname": "tokyo-control-0",
    "clock_s": 1000.2,
    "memory_mib": 64000,
    "disk_mib": {"/": 90000},
    "interfaces": {"lo": ["127.0.0.1/8"], "eth0": [f"{ADDRESS}/24"]},
    "default_route": "10.1.0.1 dev eth0",
    "zone": "Etc/UTC",
    "unseen": {},
}


def declared(**changes: Any) -> Declared:
    spec = load_spec(GATEWAYS).model_dump(mode="json")
    return Declared(ClusterSpec.model_validate({**spec, "discovery": {"kind": "consul"}, **changes}), "lab")


STACK = declared()


def machine(**changes: Any) -> Machine:
    return read(json.dumps({**WELL, **changes}).encode(), 999.9, 1000.3)


def found(
    host: str = "tokyo-control-0", asked: list[Question] | None = None, **changes: Any
) -> list[Finding]:
    ports = ports_of(STACK.contract, STACK.plan.endpoints)[host]
    return judge(STACK.contract, host, roles_of(STACK.contract)[host], ports, asked or [], machine(**changes))


def told(grade: Grade, *places: Any, **changes: Any) -> list[str]:
    return [f"{one.about}: {one.words}" for one in found(*places, **changes) if one.grade == grade]


def test_a_machine_that_is_well_is_fine() -> None:
    assert grade_of(found()) == Grade.FINE
    assert {"OS", "Python", "sudo", "disk", "memory", "clock", "host name", "address"} <= {
        one.about for one in found()
    }


UNBOUND = {"protocol": "udp", "port": 53, "program": "unbound", "unit": "unbound.service"}
RESOLVED = {"systemd-resolved.service": {"active": True, "enabled": True, "ours": False}}
CASES: list[tuple[Grade, str, dict[str, Any]]] = [
    (Grade.IMPOSSIBLE, "OS: Rocky Linux 9: roles need", {"os_id": "rocky", "os_name": "Rocky Linux 9"}),
    (Grade.IN_THE_WAY, "OS: Debian GNU/Linux 13 (trixie): roles are", {"os_codename": "forky"}),
    (Grade.IN_THE_WAY, "were never tried", {"os_id": "ubuntu", "os_like": "debian", "os_codename": "jammy"}),
    (Grade.IMPOSSIBLE, "Python: there is no", {"python": ""}),
    (Grade.IMPOSSIBLE, "Python: /usr/bin/python3 is 3.6.8", {"python": "3.6.8"}),
    (Grade.IMPOSSIBLE, "sudo: root does not become root", {"root": False}),
    (Grade.IMPOSSIBLE, "systemd: systemd does not run", {"systemd": False}),
    (Grade.IMPOSSIBLE, "disk: less than 512 MiB are free in /var", {"disk_mib": {"/var": 511}}),
    (Grade.IN_THE_WAY, "disk: less than 2 GiB are free in /var", {"disk_mib": {"/var": 2047}}),
    (Grade.IMPOSSIBLE, "disk: /usr is mounted read-only", {"read_only": ["/usr"]}),
    (Grade.IMPOSSIBLE, "disk: there are inodes for less than 1,000", {"disk_files": {"/var": 999}}),
    (Grade.IN_THE_WAY, "memory: it is short: 512 MiB", {"memory_mib": 512}),
    (Grade.IN_THE_WAY, "clock: it is behind the controller's: by 3 hours", {"clock_s": 1000 - 3 * 3600}),
    (Grade.IN_THE_WAY, "clock: it is ahead of the controller's: by 3 days", {"clock_s": 1000 + 3 * 86400}),
    (Grade.IN_THE_WAY, "the one of the stack: db1 → tokyo-control-0", {"hostname": "db1"}),
    (Grade.IN_THE_WAY, "cloud-init sets the host name back", {"hostname": "db1", "keeps_name": True}),
    (Grade.IN_THE_WAY, "hosts file: cloud-init writes /etc/hosts", {"keeps_hosts": True}),
    (Grade.IMPOSSIBLE, "address: no interface has", {"interfaces": {"eth0": ["10.1.0.99/24"]}}),
    (
        Grade.IMPOSSIBLE,
        "address: eth1 has 10.1.0.12, the declared address of tokyo-edge-0",
        {"interfaces": {"eth0": [f"{ADDRESS}/24"], "eth1": ["10.1.0.12/24", "10.1.0.99/24"]}},
    ),
    (
        Grade.IN_THE_WAY,
        "docker0 has 10.2.0.0/16, which overlaps region shanghai",
        {"interfaces": {"eth0": [f"{ADDRESS}/24"], "docker0": ["10.2.0.1/16"]}},
    ),
    (Grade.IN_THE_WAY, "default route: there is no", {"default_route": ""}),
    (Grade.IN_THE_WAY, "gateways: the region's gateways", {"interfaces": {"eth0": [f"{ADDRESS}/28"]}}),
    (Grade.IN_THE_WAY, "SELinux: SELinux is enforcing", {"selinux": "enforcing"}),
    (Grade.IN_THE_WAY, "firewall: ufw is on", {"ufw": True}),
    (
        Grade.IN_THE_WAY,
        "firewall: firewalld runs",
        {"units": {"firewalld.service": {"active": True, "enabled": True, "ours": False}}},
    ),
    (Grade.IN_THE_WAY, "firewall: nftables drops in inet f in", {"firewall": ["inet f in"]}),
    (Grade.ADOPTED, "nftables: tables of others stay: ip nat", {"tables": ["ip nat", "inet causeway"]}),
    (Grade.ADOPTED, "WireGuard: tunnel wg-office stays", {"wireguard": ["wg-office"]}),
    (
        Grade.ADOPTED,
        "services: frr.service runs, and stays",
        {"units": {"frr.service": {"active": True, "enabled": True, "ours": False}}},
    ),
    (
        Grade.IN_THE_WAY,
        "time: ntpsec sets the clock",
        {"units": {"ntpsec.service": {"active": True, "enabled": True, "ours": False}}},
    ),
    (
        Grade.IN_THE_WAY,
        "files: /etc/chrony/chrony.conf is somebody's, and role base",
        {"files": {"/etc/chrony/chrony.conf": "theirs"}},
    ),
    (
        Grade.IN_THE_WAY,
        "files: /etc/chrony/chrony.conf is of a run of Ansible's",
        {"files": {"/etc/chrony/chrony.conf": "ansible"}},
    ),
    (
        Grade.IN_THE_WAY,
        "and role base writes it anew: 192.0.2.7 db",
        {"files": {"/etc/hosts": "theirs"}, "lines": {"/etc/hosts": ["127.0.0.1 localhost", "192.0.2.7 db"]}},
    ),
    (
        Grade.IMPOSSIBLE,
        "consul: consul.service of somebody's runs, and role consul would set it up anew",
        {"units": {"consul.service": {"active": True, "enabled": True, "ours": False}}},
    ),
    (
        Grade.IN_THE_WAY,
        "Consul: the agent would read settings of somebody's too (/etc/consul.d/office.hcl)",
        {"files": {"/etc/consul.d/office.hcl": "theirs"}},
    ),
    (Grade.IN_THE_WAY, "resolver: NetworkManager writes", {"resolver": "NetworkManager"}),
    (Grade.ADOPTED, "resolver: systemd-resolved stays", {"resolver": "systemd-resolved"}),
    (Grade.IN_THE_WAY, "place: the time zone is Asia/Tokyo", {"zone": "Asia/Tokyo"}),
    (
        Grade.IN_THE_WAY,
        "place: LANG=de_DE.UTF-8",
        {"files": {"/etc/default/locale": "theirs"}, "lines": {"/etc/default/locale": ["LANG=de_DE.UTF-8"]}},
    ),
    (
        Grade.IN_THE_WAY,
        "ports: TCP port 8301, for consul-gossip, is taken by python3 (web.service)",
        {"listening": [{"protocol": "tcp", "port": 8301, "program": "python3", "unit": "web.service"}]},
    ),
    (
        Grade.IN_THE_WAY,
        "ports: UDP port 53 on 127.0.0.1, for dns-stub, is taken by unbound (unbound.service)",
        {"listening": [UNBOUND]},
    ),
    (Grade.IMPOSSIBLE, "wan_gateway: frr.conf is", {"obstacles": {"wan_gateway": ["frr.conf is theirs"]}}),
    (Grade.IN_THE_WAY, "not seen: units: it hangs", {"unseen": {"units": "it hangs"}}),
]  # fmt: skip


@pytest.mark.parametrize(("grade", "words", "changes"), CASES, ids=[words for _, words, _ in CASES])
def test_each_thing_is_found_by_its_word(grade: Grade, words: str, changes: dict[str, Any]) -> None:
    said = told(grade, **changes)
    assert any(words in one for one in said), said


NOTHING: list[dict[str, Any]] = [
    {"files": {"/etc/chrony/chrony.conf": "package", "/etc/hosts": "ours", "/usr/local/bin/consul": "ours"}},
    {"files": {"/etc/consul.d/earlier.hcl": "ours", "/etc/unrelated": "theirs"}},
    {"units": {"consul.service": {"active": True, "enabled": True, "ours": True}}},
    {"units": {"consul.service": {"active": False, "enabled": False, "ours": False}}},
    {"units": {"systemd-timesyncd.service": {"active": True, "enabled": True, "ours": False}}},
    {"listening": [{"protocol": "tcp", "port": 8301, "program": "consul", "unit": "c", "ours": True}]},
    {"listening": [{"protocol": "tcp", "port": 22, "program": "sshd", "unit": "ssh.service"}]},
    {"listening": [{"protocol": "udp", "port": 22, "program": "strange"}]},
    {"listening": [UNBOUND | {"loopback": False}]},
    {"listening": [UNBOUND | {"program": "dnsmasq", "unit": "causeway-dns.service", "ours": True}]},
    {"listening": [UNBOUND], "units": RESOLVED},
    {"lines": {"/etc/hosts": ["127.0.1.1 tokyo-control-0.lan tokyo-control-0", f"{ADDRESS} tokyo-control-0",
                              "::1 localhost ip6-localhost", "ff02::1 ip6-allnodes"]}},
    {"interfaces": {"lo": ["127.0.0.1/8"], "eth0": [f"{ADDRESS}/24", "10.1.0.99/24"]}},
    {"disk_files": {"/": 1000}},
    {"clock_s": 1000.9},
    {"zone": "UTC"},
]  # fmt: skip


@pytest.mark.parametrize("changes", NOTHING)
def test_what_is_ours_or_came_with_the_system_is_in_nobodys_way(changes: dict[str, Any]) -> None:
    assert [one for one in found(**changes) if one.grade != Grade.FINE] == []


def keeping(**how: str) -> Declared:
    regions = [dict(region) for region in load_spec(GATEWAYS).model_dump(mode="json")["regions"]]
    for region in regions:
        region["provider"]["adopt"] = how
    return declared(regions=regions)


NTPSEC = {"ntpsec.service": {"active": True, "enabled": True, "ours": False}}
THEIRS = {"files": {"/etc/hosts": "theirs"}, "lines": {"/etc/hosts": ["192.0.2.7 db"]}}
KEPT: list[tuple[dict[str, str], str, dict[str, Any]]] = [
    ({"hostname": "keep"}, "host name: it keeps the one it has: db1",
     {"hostname": "db1", "keeps_name": True}),
    ({"hosts_file": "managed_block"},
     "hosts file: entries of somebody's stay in /etc/hosts: 192.0.2.7 db", THEIRS),
    ({"time_servers": "keep"}, "time: ntpsec stays as it is",
     {"units": NTPSEC, "files": {"/etc/chrony/chrony.conf": "theirs", "/etc/default/chrony": "theirs"}}),
    ({"timezone": "keep"}, "place: the time zone stays Asia/Tokyo", {"zone": "Asia/Tokyo"}),
    ({"locale": "keep"}, "place: /etc/default/locale stays as it is",
     {"files": {"/etc/default/locale": "theirs"}, "lines": {"/etc/default/locale": ["LANG=de_DE.UTF-8"]}}),
    ({"passwords": "keep"}, "logins: by password stay as sshd's other files have them", {}),
    ({"unattended_upgrades": "keep"}, "updates: unattended upgrades stay as they are", {}),
    ({"resolver": "keep"}, "resolver: NetworkManager stays as it is, and asks nobody of ours",
     {"resolver": "NetworkManager"}),
]  # fmt: skip


@pytest.mark.parametrize(("how", "said", "changes"), KEPT, ids=[next(iter(how)) for how, _, _ in KEPT])
def test_what_is_kept_is_adopted_and_in_nobodys_way(
    how: dict[str, str], said: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert said not in told(Grade.ADOPTED, **changes)
    assert not changes or told(Grade.IN_THE_WAY, **changes)
    monkeypatch.setattr("tests.unit.test_doctor.STACK", keeping(**how))
    assert said in told(Grade.ADOPTED, **changes)
    assert told(Grade.IN_THE_WAY, **changes) == []


def test_a_block_of_ours_makes_no_file_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.test_doctor.STACK", keeping(hosts_file="managed_block"))
    block = ["10.1.0.12 tokyo-edge-0", f"{ADDRESS} tokyo-control-0"]
    for lines, grade in ((block, Grade.FINE), ([*block, "192.0.2.7 db"], Grade.ADOPTED)):
        judged = found(files={"/etc/hosts": "ours"}, lines={"/etc/hosts": lines})
        assert [one.grade for one in judged if one.about == "hosts file"] == [grade]
    assert "/etc/hosts: 192.0.2.7 db" in judged[0].words


def test_what_would_not_work_with_what_is_kept_is_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tests.unit.test_doctor.STACK", keeping(hosts_file="managed_block", time_servers="keep")
    )
    wrong = {"/etc/hosts": ["10.1.0.99 tokyo-edge-0"]}
    said = told(Grade.IN_THE_WAY, files={"/etc/hosts": "theirs"}, lines=wrong)
    assert "other addresses of nodes before the block says theirs: 10.1.0.99 tokyo-edge-0" in said[0]
    assert said[1] == "time: nothing is seen to set the clock, and nothing of ours will"


def test_a_gateways_own_look_answers_for_its_files() -> None:
    files = {"files": {"/etc/frr/frr.conf": "theirs", "/etc/keepalived/keepalived.conf": "theirs"}}
    changes = {"hostname": "tokyo-edge-0", "interfaces": {"eth0": ["10.1.0.12/24"]}, **files}
    assert told(Grade.IN_THE_WAY, "tokyo-edge-0", **changes) == []
    requests = requests_of(STACK.contract, ("tokyo-control-0", "tokyo-edge-0"), STACK.plan.endpoints, {})
    assert requests["tokyo-control-0"]["programs"] == {}
    source, argument = requests["tokyo-edge-0"]["programs"]["wan_gateway"]
    assert "obstacles" in source
    wanted = json.loads(argument)
    assert wanted["shares"] is True
    assert [link["name"] for link in wanted["links"]] == ["internet"]


def test_a_machine_without_python_is_told_by_its_shell() -> None:
    text = 'ID=debian\nVERSION_CODENAME=trixie\nPRETTY_NAME="Debian\x1b[2J 13"\n'
    os_release = base64.b64encode(text.encode()).decode()
    bare = read(json.dumps({"root": "yes", "python": "", "host": "m", "os": os_release}).encode())
    assert (bare.root, bare.python, bare.os_codename, bare.os_name) == (
        True, "", "trixie", r"Debian\x1b[2J 13",
    )  # fmt: skip
    roles = roles_of(STACK.contract)["tokyo-control-0"]
    judged = judge(STACK.contract, "tokyo-control-0", roles, [], [], bare)
    assert [(one.grade, one.about) for one in judged] == [
        (Grade.IMPOSSIBLE, "Python"), (Grade.FINE, "OS"), (Grade.FINE, "sudo"),
    ]  # fmt: skip


REFUSED = [
    *(b"", b"[]", b"{", b"7", b'{"root": NaN}', b'{"unknown": 1}', b'{"files": {"/x": "mine"}}', b"\xff{}"),
    *(b'{"closed": [-1]}', b'{"listening": [{"protocol": "tcp", "port": 70000}]}', b'{"memory_mib": 1e400}'),
    json.dumps({"firewall": ["x"] * 2000}).encode(),
    b'{"os_name": "\\ud800"}',
]


@pytest.mark.parametrize("said", REFUSED, ids=range(len(REFUSED)))
def test_an_answer_that_makes_no_sense_is_refused(said: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read(said)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
TEXTS = st.text(max_size=300)
ODD = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("os_id", "os_like", "os_name", "python", "hostname", "zone", "resolver"), TEXTS),
        **{name: st.booleans() for name in ("root", "systemd", "keeps_hosts", "keeps_name", "ufw")},
        **{name: st.lists(TEXTS, max_size=4) for name in ("wireguard", "tables", "firewall")},
        "interfaces": st.dictionaries(TEXTS, st.lists(TEXTS | st.just("10.2.0.9/8"), max_size=3), max_size=3),
        "obstacles": st.dictionaries(TEXTS, st.lists(TEXTS, max_size=3), max_size=3),
        "disk_mib": st.dictionaries(TEXTS, st.integers(0, 1 << 60), max_size=3),
        "lines": st.dictionaries(
            st.sampled_from(["/etc/hosts", "/etc/default/locale"]), st.lists(TEXTS, max_size=5)
        ),
        "files": st.dictionaries(
            st.sampled_from(["/etc/hosts", "/etc/default/locale", "/etc/consul.d/x.hcl"]) | TEXTS,
            st.sampled_from(["ours", "ansible", "package", "theirs"]),
        ),
        "listening": st.lists(
            st.fixed_dictionaries(
                {"protocol": st.just("tcp"), "port": st.integers(8290, 8310)}, optional={"program": TEXTS}
            ),
            max_size=4,
        ),
        "closed": st.lists(st.integers(0, 1 << 70), max_size=4),
        "clock_s": st.floats(-1e11, 1e12),
        "unseen": st.dictionaries(TEXTS, TEXTS, max_size=3),
    },
)


@given(ANYTHING)
def test_whatever_comes_is_a_machine_or_is_refused(answer: Any) -> None:
    with suppress(ValueError):
        assert isinstance(read(json.dumps(answer).encode()), Machine)


@given(ODD)
@settings(max_examples=3 * settings().max_examples)
def test_whatever_a_machine_says_can_be_judged_and_shown(odd: dict[str, Any]) -> None:
    asked = [Question("ssh", "shanghai", "shanghai-control-0", "10.2.0.10", 22)]
    judged = found("tokyo-control-0", asked, **odd)
    assert judged == sorted(judged, key=lambda one: -one.grade)
    assert 0 < len(judged) <= MOST_FINDINGS
    page = io.StringIO()
    reports = [Examined("tokyo-control-0", tuple(judged)), Examined("b", silent=str(odd.get("os_name", "")))]
    print_reports(reports, Console(file=page, width=160, highlight=False, markup=False))
    for text in (page.getvalue(), *impossible_words(reports)):
        assert not HARMFUL.search(text)
    printed = json.dumps(as_json("lab", reports), ensure_ascii=False)
    assert not HARMFUL.search(printed)


def test_machines_with_equal_findings_stand_together_the_worst_first() -> None:
    bad, odd = impossible("OS", "it is odd", "mend it"), in_the_way("ports", "one is taken", "free it")
    reports = [
        *(
            Examined(f"gpu-{number}", (odd, Finding(Grade.FINE, "disk", f"{number} GiB")))
            for number in range(5)
        ),
        Examined("db", (bad,)),
        Examined("off", silent="no answer"),
        Examined("ok", (Finding(Grade.FINE, "disk", "7 GiB"),)),
    ]
    alike = groups(reports)
    named = [[one.host for one in same] for same in alike]
    assert named == [["db"], ["off"], [f"gpu-{number}" for number in range(5)], ["ok"]]
    assert impossible_words(reports) == ["db: OS: it is odd"]
    assert not reports[-2].is_well
    assert reports[-1].is_well


def test_a_site_that_is_silent_is_one_finding_and_a_closed_port_another() -> None:
    asked = [
        Question(name, "shanghai", "shanghai-control-0", "10.2.0.10", port)
        for name, port in (("ssh", 22), ("consul-rpc", 8300))
    ]
    assert told(Grade.IN_THE_WAY, "tokyo-control-0", asked, closed=[0, 1]) == [
        "sites: nothing comes back from region shanghai, at any of its ports"
    ]
    assert told(Grade.IN_THE_WAY, "tokyo-control-0", asked, closed=[1]) == [
        "sites: nothing comes back from TCP port 8300 (consul-rpc) of shanghai-control-0"
    ]
    assert told(Grade.IN_THE_WAY, "tokyo-control-0", asked) == []


def test_what_is_outside_of_the_cluster_is_asked_by_one_machine_of_each_region_that_sends_there() -> None:
    everybody = Destination("logs", EVERYONE, "logs.example.org", 3100)
    edge = Destination("remote-write", HostSet(hosts=("shanghai-edge-0",)), "192.0.2.7", 443)
    asked = questions(STACK.contract, STACK.plan.endpoints, [everybody, edge])
    outside = {
        host: [(one.host, one.port) for one in asks if one.region == NO_REGION]
        for host, asks in asked.items()
    }
    assert outside == {
        "tokyo-control-0": [("logs.example.org", 3100)],
        "shanghai-control-0": [("logs.example.org", 3100)],
        "shanghai-edge-0": [("192.0.2.7", 443)],
    }
    assert told(Grade.IN_THE_WAY, "tokyo-control-0", asked["tokyo-control-0"], closed=[0]) == [
        "sites: nothing comes back from TCP port 3100 of logs.example.org (logs)"
    ]
    rows = {row.name: row for row in openings(STACK.contract, [], [everybody, edge])}
    assert (rows["logs"].on, rows["logs"].sources, rows["logs"].ports) == (
        "logs.example.org",
        "every node",
        "3100",
    )
    assert rows["remote-write"].sources == "shanghai-edge-0"


def test_a_name_that_nobody_knows_is_a_port_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = ["127.0.0.1", server.getsockname()[1]]
        assert sites({"sites": [there, ["nobody.invalid", 443]]}) == {"closed": [1]}


def test_one_machine_of_a_region_asks_others_where_no_gateway_of_ours_makes_the_way() -> None:
    assert all(not asked for asked in questions(STACK.contract, STACK.plan.endpoints).values())
    spec = STACK.spec.model_dump(mode="json")
    for region in spec["regions"]:
        region["pools"] = region["pools"][:1]
    link = {"name": "line", "a": "tokyo", "b": "shanghai", "rtt_ms": 70, "bandwidth_mbps": 100}
    plain = declared(regions=spec["regions"], wan_links=[link])
    asked = questions(plain.contract, plain.plan.endpoints)
    assert {(one.host, one.endpoint) for one in asked["tokyo-control-0"]} >= {
        ("shanghai-control-0", "ssh"), ("shanghai-control-0", "consul-wan"),
    }  # fmt: skip
    assert "ntp" not in {one.endpoint for one in asked["tokyo-control-0"]}, "UDP cannot be asked"


def test_a_name_server_is_in_the_way_only_where_the_resolver_is_set() -> None:
    spec = STACK.spec.model_dump(mode="json")
    for region in spec["regions"]:
        region["provider"]["adopt"] = {"resolver": "keep" if region["name"] == "tokyo" else "set"}
    ports = ports_of((kept := declared(regions=spec["regions"])).contract, kept.plan.endpoints)
    named = {host: {port.name for port in own if port.loopback} for host, own in ports.items()}
    assert named["shanghai-control-0"] == {"dns-stub"}
    assert named["tokyo-control-0"] == set()
    (told,) = (one for one in found(listening=[UNBOUND]) if one.about == "ports")
    assert told.do == "have it listen on other addresses only, or adopt `resolver: keep`"


def test_without_a_discovery_the_servers_of_names_are_looked_for() -> None:
    spec = load_spec(ROOT / "tests" / "golden" / "good" / "existing-names.yaml")
    plan = make_plan(spec)
    contract = build_contract(spec, plan, "s")
    ports = ports_of(contract, plan.endpoints)
    assert {port.name for port in ports["gpu-a17"] if port.loopback} == {"dns-stub", "names"}
    assert "names" in {port.name for port in ports["head"] if not port.loopback}
    look = capabilities.looks()["discovery"]
    (told,) = look.judge(contract, "gpu-a17", Machine(resolver="NetworkManager"))
    assert (told.grade, told.about) == (Grade.IN_THE_WAY, "resolver")
    assert "what role names puts there" in told.says
    (told,) = look.judge(contract, "gpu-a17", Machine(resolver="systemd-resolved"))
    assert told.grade == Grade.ADOPTED


def test_what_listens_on_loopback_is_nothing_that_has_to_be_open() -> None:
    stub = [one for one in STACK.plan.endpoints if one.network == "loopback"]
    assert {one.name for one in stub} == {"dns-stub"}
    assert not openings(STACK.contract, stub)
    assert not any(questions(STACK.contract, stub).values())
    assert not [one for one in stub if one.check or one.scrape or one.probe]


def test_what_has_to_be_open_follows_from_the_endpoints() -> None:
    rows = {(row.name, row.protocol): row for row in openings(STACK.contract, STACK.plan.endpoints)}
    assert rows["wireguard-internet", "udp"].on == "shanghai-edge-0, tokyo-edge-0"
    assert rows["bfd", "udp"].ports == "3784-3785, 4784"
    assert rows["vrrp", "vrrp"].ports == "–"
    assert not rows["vrrp", "vrrp"].between_sites
    assert rows["consul-wan", "udp"].between_sites
    one = next(one for one in STACK.plan.endpoints if one.name == "ssh")
    only = replace(one, on=HostSet(hosts=("tokyo-control-0",)), sources=HostSet(regions=("tokyo",)))
    assert [row.between_sites for row in openings(STACK.contract, [only])] == [False]
    assert one.sources == EVERYONE


UNTOLD = {
    "base": {"{{ __base_own_source_place }}"},  # where there are mirrors
    "wan_gateway": {"/etc/wireguard/{{ item.tunnel.device }}.conf"},  # its own look says it
    "ceph": {"{{ item.path }}", "{{ pki_authority_certificate }}"},  # keys, named by daemons of this cluster
    "ceph_client": {
        "/etc/ceph/{{ item.storage }}.client.export.{{ item.name }}.keyring",
        "/etc/ceph/{{ item.storage }}.export.{{ item.name }}.s3",
        "/etc/ceph/{{ item.storage }}.gateways.pem",
        "/etc/systemd/system/causeway-cephfs-{{ item.storage }}-{{ item.name }}.service",
    },
    "cuda_base": {"/etc/systemd/system/{{ item }}.d/causeway.conf"},
    "container_runtime": {  # named by a mirror or a registry
        "/etc/containers/certs.d/{{ item.1 | split('/') | first }}/ca.crt",
        "/etc/containerd/certs.d/{{ item.name }}/ca.crt",
    },
    "registry": {
        "{{ __registry_folder }}/instances/{{ item.name }}.yml",  # named by what it keeps
        "{{ __registry_folder }}/authorities/{{ item.name }}/ca.pem",
        "{{ pki_authority_certificate }}",  # none there
    },
    "nfs_server": {"{{ item.dest }}", "/etc/systemd/system/{{ item.dest }}"},  # of the engine that serves
    "alertmanager": {"/etc/prometheus/causeway-receivers/{{ item }}"},
    "grafana": {"{{ __grafana_dashboards }}/{{ item.name }}"},  # in a folder of our own
    "log_shipper": {"{{ pki_authority_certificate }}"},  # none there
}
"""Role → files of which only the declaration decides the name."""
WRITES_NONE = {"nfs_client"}
"""Roles that write lines of files alone."""


@pytest.mark.parametrize("role", role_order())
def test_what_a_role_writes_is_told_from_its_tasks(role: str) -> None:
    written = written_by(role)
    assert written.untold == UNTOLD.get(role, set())
    assert bool(written.files) == (role not in WRITES_NONE)


def test_files_of_loops_helpers_and_conditions_are_told() -> None:
    assert {"/etc/hosts", "/etc/chrony/chrony.conf", "/etc/default/locale"} <= written_by("base").files
    consul = written_by("consul").files
    assert {"/etc/consul.d/agent.pem", "/etc/systemd/system/consul-snapshot.timer"} <= consul
    assert "/usr/local/lib/causeway/consul-snapshot" in consul
    assert "/usr/local/bin/consul" in consul, "whichever node it comes from"
    assert "/etc/default/prometheus-node-exporter" in written_by("node_exporter").files


def test_whatever_a_capability_looks_at_is_of_one_of_its_roles() -> None:
    having = set(capabilities.owners().values())
    assert set(capabilities.looks()) <= having
    for look in capabilities.looks().values():
        assert set(look.replaced) <= set().union(*(written_by(role).files for role in role_order()))


def test_what_travels_is_small_and_whole() -> None:
    assert len(packed_files(trip.FILES)) < 8000


def sealed(
    monkeypatch: pytest.MonkeyPatch, roles: tuple[str, ...], identity: str = "", at: str | None = "2026-01-01"
) -> tuple[str, ...]:
    part = RoleManifest(sealed_at=at)
    known = Manifest(host="x", identity=identity, roles=dict.fromkeys(roles, part))
    monkeypatch.setattr(examine, "load_manifest", lambda _stack, host: known if "control" in host else None)
    return STACK.new_to_a_role()


def test_up_looks_only_where_a_role_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = ("shanghai-edge-0", "tokyo-edge-0", "tokyo-edge-1")
    everything = tuple(STACK.contract.hosts)
    assert sealed(monkeypatch, role_order()) == edges
    assert sealed(monkeypatch, role_order()[:1]) == everything
    assert sealed(monkeypatch, role_order(), "host key ssh-ed25519 another") == everything
    assert sealed(monkeypatch, role_order(), at=None) == everything, "it ran in part only"


def looked(monkeypatch: pytest.MonkeyPatch, *reports: Examined) -> None:
    monkeypatch.setattr(Declared, "new_to_a_role", lambda _self: tuple(one.host for one in reports))
    monkeypatch.setattr(Declared, "examine", lambda _self, _hosts: list(reports))
    command.look_before(STACK.spec, "lab")


def test_up_stops_at_what_is_impossible_and_goes_on_otherwise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    way, bad = in_the_way("ports", "one is taken", "free it"), impossible("OS", "it is odd", "mend it")
    looked(monkeypatch)
    assert capsys.readouterr().out == ""
    looked(monkeypatch, Examined("a"))
    assert capsys.readouterr().out == (
        "looked at machines you have: 1 machine: 0 impossible, 0 in the way, 0 adopted, 1 fine\n"
    )
    looked(monkeypatch, Examined("a", (way,)), Examined("b", silent="it is off"))
    said = capsys.readouterr().out
    assert "one is taken" in said
    assert "it is off" in said
    with pytest.raises(
        CausewayError, match="nothing was changed, for it cannot work: a: OS: it is odd"
    ) as stop:
        looked(monkeypatch, Examined("a", (bad, way)), Examined("b", silent="it is off"))
    assert stop.value.exit_code == ExitCode.FAILED


def test_without_the_stacks_key_no_machine_is_asked() -> None:
    (one,) = STACK.examine(("tokyo-control-0",))
    assert "there is no key" in one.silent
    assert not one.is_well


LATE = "let nothing but the command print there (~/.bashrc"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"Welcome to tokyo!\n", f"it begins with “Welcome to tokyo!”: {LATE}"),
        (b"This account is currently not available.\n", f"not available.”: {LATE}"),
        (b"\x1b[2J{}\n", rf"it begins with “\x1b[2J{{}}”: {LATE}"),
        (b'{"unknown": 1}\n', "it begins with “{"),
    ],
)
def test_what_a_login_prints_is_told_by_its_words(
    monkeypatch: pytest.MonkeyPatch, said: bytes, words: str
) -> None:
    async def opened(*_: Any) -> Any:
        return nullcontext()

    async def execute(*_: Any) -> tuple[bytes, bytes, int | None]:
        return said, b"", None

    monkeypatch.setattr(Trips, "open", opened)
    monkeypatch.setattr(trip, "execute", execute)
    error = trip.look_at(STACK.contract, "", {"tokyo-control-0": {}})["tokyo-control-0"]
    assert isinstance(error, TripError)
    assert words in str(error)
    assert (LATE in str(error)) is (LATE in words)


def test_an_address_is_found_with_its_prefix() -> None:
    assert machine().home_of(IPv4Interface(f"{ADDRESS}/32").ip) == ("eth0", IPv4Interface(f"{ADDRESS}/24"))
