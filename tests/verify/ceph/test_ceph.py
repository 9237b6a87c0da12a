"""A region's Ceph: everybody declared is at work, copies lie where they should, strangers learn nothing."""

import json
import time
from typing import Any

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder, ask, knock, run_anew, settled

PATIENCE_S = 90
"""A daemon that was just started again has to be seen by the others."""
pytestmark = pytest.mark.deadline(PATIENCE_S + 40)

COMMAND = """
import json, sys, time
sys.path.insert(0, "/usr/local/lib/causeway_ceph")
from asked import cluster
entity, keyring, *words = sys.argv[1:]
with cluster(entity, keyring) as asked:
    print(json.dumps([asked(**json.loads(word)) for word in words]))
"""
KNOCK = """
import json, rados, sys
settings = json.loads(sys.argv[1])
name = settings.pop("name")
try:
    with rados.Rados(name=name, conffile="/etc/ceph/ceph.conf", conf=settings):
        print(json.dumps("let in"))
except rados.Error as error:
    print(json.dumps(type(error).__name__))
"""
DISKS = """
import glob, json, os, sys
sys.path.insert(0, "/usr/local/lib/causeway_ceph")
from asked import RefusedError, cluster, run
paths, held, readable, others = sys.argv[1:], [], {}, []
folders = sorted(glob.glob("/var/lib/ceph/osd/ceph-*"))
real = {os.path.realpath(path): path for path in paths}
for folder in folders:
    block = os.path.basename(os.path.realpath(folder + "/block"))
    if open("/sys/class/block/%s/dm/uuid" % block).read().startswith("CRYPT-LUKS2-"):
        held += [real.get("/dev/" + name, name) for name in os.listdir("/sys/class/block/%s/slaves" % block)]
for path in paths:
    try:
        readable[path] = run("ceph-bluestore-tool", "show-label", "--dev", path)
    except RefusedError:
        pass
known = [open(folder + "/fsid").read().strip() for folder in folders]
for folder, own in zip(folders, known):
    with cluster("client.osd-lockbox." + own, folder + "/lockbox.keyring") as ask:
        for key in ["causeway"] + ["dm-crypt/osd/%s/luks" % other for other in known if other != own]:
            try:
                others.append(ask("config-key get", key=key))
            except RefusedError:
                others.append("refused")
print(json.dumps({"held": held, "readable": readable, "others": others}))
"""
LET_IN_S, KEPT_OUT_S = 60, 2
"""Who is to be let in waits for a busy monitor; who is not would wait in vain."""
ADMIN = ("client.admin", "/etc/ceph/ceph.client.admin.keyring")


@pytest.fixture(name="is_mon")
def _is_mon(expect: Expect) -> bool:
    return expect.host_name in [mon["name"] for mon in expect.ceph_mons]


def told(host: Host, *commands: str) -> list[Any]:
    """What the monitors say to the administrator."""
    found: list[Any] = ask(host, COMMAND, *ADMIN, *commands)
    return found


def knocked(host: Host, within_s: int, **settings: str) -> str:
    """What the monitors say to who comes as the administrator with these settings of Ceph's."""
    words = {"name": ADMIN[0], "client_mount_timeout": str(within_s), **settings}
    return str(ask(host, KNOCK, json.dumps(words)))


@pytest.fixture(name="monitor")
def _monitor(is_mon: bool, verdict: VerdictRecorder) -> None:
    if not is_mon:
        verdict.not_declared("the cluster is asked on the monitors' nodes")


@pytest.mark.usefixtures("monitor")
def test_every_monitor_has_a_voice(host: Host, expect: Expect) -> None:
    wanted = sorted(mon["name"] for mon in expect.ceph_mons)

    def quorum() -> list[str]:
        (found,) = told(host, '{"prefix": "quorum_status"}')
        return sorted(found["quorum_names"])

    assert settled(quorum, lambda names: names == wanted, PATIENCE_S) == wanted


@pytest.mark.usefixtures("monitor")
def test_every_group_of_objects_is_whole(host: Host) -> None:
    script = """
import json, subprocess, time
deadline = time.monotonic() + %d
while True:
    argv = ["ceph", "--connect-timeout", "20", "status", "--format", "json"]
    printed = subprocess.run(argv, stdout=-1).stdout
    groups = {one["state_name"]: one["count"] for one in json.loads(printed)["pgmap"]["pgs_by_state"]}
    if set(groups) <= {"active+clean", "active+clean+scrubbing", "active+clean+scrubbing+deep"}:
        break
    if time.monotonic() > deadline:
        break
    time.sleep(1)
print(json.dumps(groups))
"""
    groups = ask(host, script % PATIENCE_S)
    assert groups
    assert all(name.startswith("active+clean") for name in groups), groups


@pytest.mark.usefixtures("monitor")
def test_pools_are_as_declared(host: Host, expect: Expect) -> None:
    pools, rules = told(
        host, '{"prefix": "osd pool ls", "detail": "detail"}', '{"prefix": "osd crush rule dump"}'
    )
    there = {pool["pool_name"]: pool for pool in pools}
    domains = {
        rule["rule_id"]: [step["type"] for step in rule["steps"] if step["op"].startswith("choose")]
        for rule in rules
    }
    for wanted in expect.ceph_pools:
        found = there[wanted["name"]]
        size = wanted["replicas"] if "replicas" in wanted else wanted["k"] + wanted["m"]
        # The target: Ceph comes to another number step by step, over minutes.
        assert (found["size"], found["pg_num_target"]) == (size, wanted["pg_num"])
        assert expect.ceph_failure_domain in domains[found["crush_rule"]]
        assert found["quota_max_bytes"] == wanted.get("quota_bytes", 0)


def kept_out_s(host: Host) -> int:
    """So long somebody is kept out who is not let in: twice what it takes who is, or more."""
    began = time.monotonic()
    assert knocked(host, LET_IN_S) == "let in"
    return max(KEPT_OUT_S, int(2 * (time.monotonic() - began)) + 1)


@pytest.mark.usefixtures("monitor")
def test_nobody_is_let_in_without_a_key(host: Host) -> None:
    wrong = "AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA=="
    within_s = kept_out_s(host)
    for stranger in (ADMIN[0], "client.x"):
        assert knocked(host, within_s, name=stranger, key=wrong) != "let in"


@pytest.mark.usefixtures("monitor")
def test_nothing_goes_over_the_wire_in_the_clear(
    host: Host, expect: Expect, verdict: VerdictRecorder
) -> None:
    within_s = kept_out_s(host) if expect.ceph_encrypt_wire else LET_IN_S
    plain = knocked(host, within_s, ms_client_mode="crc", ms_mon_client_mode="crc")
    if not expect.ceph_encrypt_wire:
        assert plain == "let in"
        verdict.not_declared("the wire is not encrypted")
    assert plain != "let in"


def test_its_osds_are_at_work(host: Host, expect: Expect) -> None:
    script = """
import glob, json, sys
sys.path.insert(0, "/usr/local/lib/causeway_ceph")
from asked import cluster, wait
numbers = [int(folder.rsplit("-", 1)[1]) for folder in glob.glob("/var/lib/ceph/osd/ceph-*")]
def states():
    name = "osd.%d" % numbers[0]
    with cluster(name, "/var/lib/ceph/osd/ceph-%d/keyring" % numbers[0]) as ask:
        return [(osd["up"], osd["in"]) for osd in ask("osd dump")["osds"] if osd["osd"] in numbers]
if numbers:
    wait("not all are up and in", lambda: set(states()) == {(1, 1)})
print(json.dumps(len(numbers)))
"""
    assert ask(host, script) == len(expect.ceph_osds)


def test_a_disk_that_is_taken_away_tells_nobody_what_it_held(
    host: Host, expect: Expect, verdict: VerdictRecorder
) -> None:
    """It is encrypted, what is decrypted of it is its OSD's, and who reads its key reads no other."""
    encrypted = [osd["path"] for osd in expect.ceph_osds if osd.get("encrypted")]
    if not encrypted:
        verdict.not_declared("no disk is encrypted")
    found: dict[str, Any] = ask(host, DISKS, *encrypted)
    assert set(found["held"]) == set(encrypted)
    assert found["readable"] == {}
    assert set(found["others"]) <= {"refused"}


def test_it_listens_where_it_should(host: Host, expect: Expect) -> None:
    shown = host.run("ss --no-header --listening --tcp --numeric --processes").stdout.splitlines()
    ours = {line.split()[3].rpartition(":")[0] for line in shown if '"ceph-' in line or '"radosgw"' in line}
    assert ours <= {expect.ceph_address, "127.0.0.1"}


def test_it_comes_back(host: Host, expect: Expect, is_mon: bool) -> None:
    name = expect.host_name
    units = [f"ceph-mon@{name}"] * is_mon + [f"ceph-mgr@{name}"] * (name in expect.ceph_mgrs)
    units += [f"ceph-mds@{name}"] * (name in expect.ceph_mdss)
    units += [f"ceph-radosgw@rgw.{name}"] * (name in expect.ceph_rgws)
    units += [f"ceph-osd@{n}" for n in host.run("ls /var/lib/ceph/osd | sed s/ceph-//").stdout.split()]
    for unit in units:
        shown = host.run(f"systemctl show -P Restart -P UnitFileState -P ActiveState {unit}").stdout.split()
        assert sorted(shown) == ["active", "always", "enabled"], unit


def test_a_manager_answers_for_metrics_to_who_shows_a_certificate(
    host: Host, expect: Expect, verdict: VerdictRecorder
) -> None:
    """Without one, and with the gate's own, which is a server's, nobody is let in."""
    if not expect.ceph_metrics or expect.host_name not in expect.ceph_mgrs:
        verdict.not_declared("no manager of this node's has metrics")
    folder, port = "/etc/ceph/metrics", expect.ceph_metrics_port
    url = f"https://{expect.ceph_address}:{port}/metrics"
    own = (f"{folder}/certificate.pem", f"{folder}/certificate.pem.key")
    assert "refused" in knock(host, f"{folder}/authority.pem", url)
    assert "refused" in knock(host, f"{folder}/authority.pem", url, *own)
    listening = host.run(f"ss --no-header --listening --tcp --numeric 'sport = :{port}'").stdout.splitlines()
    places = {line.split()[3] for line in listening}
    # A manager that stands by does not listen.
    assert places - {f"127.0.0.1:{port}"} == {f"{expect.ceph_address}:{port}"}
    unit = host.run("systemctl show -P Restart -P UnitFileState -P ActiveState causeway-ceph-metrics").stdout
    assert sorted(unit.split()) == ["active", "always", "enabled"]


def test_one_manager_has_the_clusters_metrics(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    """The active one knows all OSDs; one that stands by says nothing."""
    if not expect.ceph_metrics or expect.host_name not in expect.ceph_mgrs:
        verdict.not_declared("no manager of this node's has metrics")
    script = """
import json, sys, time, urllib.request
sys.path.insert(0, "/usr/local/lib/causeway_ceph")
from asked import cluster
name, keyring, url = sys.argv[1:4]
deadline = time.monotonic() + %d
while True:
    with cluster(name, keyring) as ask:
        active = ask("mgr stat")["active_name"]
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        lines = []
    osds = [line for line in lines if line.startswith("ceph_osd_up{") and line.endswith(" 1.0")]
    if (osds if name == "mgr." + active else not lines) or time.monotonic() > deadline:
        print(json.dumps({"active": name == "mgr." + active, "lines": len(lines), "osds": len(osds)}))
        break
    time.sleep(2)
"""
    entity, keyring = (
        f"mgr.{expect.host_name}",
        f"/var/lib/ceph/mgr/ceph-{expect.host_name}/keyring",
    )
    url = f"http://127.0.0.1:{expect.ceph_metrics_port}/metrics"
    found = ask(host, script % PATIENCE_S, entity, keyring, url)
    assert found["osds"] > 0 if found["active"] else found["lines"] == 0, found


@pytest.mark.usefixtures("monitor")
def test_a_monitor_says_whether_it_has_a_voice(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if not expect.ceph_metrics:
        verdict.not_declared("metrics are not asked for")
    unit, file = "causeway-ceph-quorum", f"{expect.ceph_textfile_dir}/causeway_ceph_quorum.prom"
    look, voice = f"{run_anew(f'{unit}.service')} && cat {file}", "causeway_ceph_monitor_in_quorum"
    wanted = f'{voice}{{storage="{expect.ceph_name}"}} 1'
    shown = settled(lambda: host.run(look).stdout.splitlines(), lambda shown: wanted in shown, PATIENCE_S)
    assert wanted in shown
    timer = host.run(f"systemctl show -P UnitFileState -P ActiveState {unit}.timer").stdout.split()
    assert sorted(timer) == ["active", "enabled"]


@pytest.mark.usefixtures("monitor")
def test_keys_of_users_are_the_administrators_alone(
    host: Host, expect: Expect, verdict: VerdictRecorder
) -> None:
    if not expect.ceph_rgws:
        verdict.not_declared("no objects are stored")
    file = host.file("/etc/ceph/causeway.users.json")
    assert (file.user, file.mode) == ("root", 0o600)
