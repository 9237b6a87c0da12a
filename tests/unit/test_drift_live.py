"""What is in force beside what files say: daemons that were told something, and those that hang."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from socket import AF_INET, SOCK_DGRAM, socket
from threading import Thread
from typing import Any

import pytest

from infra.drift.findings import Difference, HostReport, RoleReport
from infra.drift.kinds import live, unit
from infra.drift.kinds.live import dns_answer, in_force
from infra.drift.looks import Look
from infra.drift.manifest import Manifest, RoleManifest
from infra.drift.node import run
from infra.drift.repair import host_plan
from roles.base.drift import timekeeping
from roles.wan_gateway.drift.frr import frr_lines
from tests.patience import wait_for
from tests.unit.test_drift_repair import plan_for


def look(mode: str = "scan", **want: Any) -> Look:
    made = Look("5a17", mode, [])
    made.want = want
    return made


def test_a_program_that_hangs_is_ended_at_its_deadline() -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"sleep 600 gives no answer within 0\.2 s"):
        run(["sleep", "600"], 0.2)
    assert time.monotonic() - began < 60
    assert run(["echo", "there"], 60) == "there\n"
    with pytest.raises(ValueError, match="false fails"):
        run(["false"], 60)


def hang() -> list[str]:
    raise TimeoutError


def test_a_daemon_that_hangs_is_a_difference_and_is_not_sealed() -> None:
    assert in_force(look(answers=True, differs=["a"]), hang) == {"answers": False, "differs": ["a"]}
    with pytest.raises(TimeoutError):
        in_force(look("seal"), hang)
    plan = plan_for("frr", "frr.service", {"answers": True}, {"answers": False})
    assert plan.obstacles.commands == [
        {"what": "had frr.service restarted", "argv": ["systemctl", "restart", "frr.service"]}
    ]


def test_only_what_differs_more_than_at_the_seal_is_a_difference() -> None:
    known = ["only in its files: a default", "only in force: another"]
    assert in_force(look(differs=known), lambda: known[:1])["differs"] == known
    assert in_force(look(differs=known), lambda: [*known, "new"])["differs"] == sorted([*known, "new"])
    plan = plan_for("frr", "frr.service", {"differs": known}, {"differs": [*known, "new"]})
    assert plan.lines == ["base: frr frr.service: added: new"]
    assert plan.obstacles.commands[0]["argv"] == ["systemctl", "reload", "frr.service"]


def test_a_daemon_that_refuses_is_asked_again() -> None:
    refusals = [ValueError("starting")]

    def read() -> list[str]:
        if refusals:
            raise refusals.pop()
        return []

    assert in_force(look(), read) == {"answers": True, "differs": []}


def test_a_name_server_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LIVE_LIMIT_S", 0.5)
    with socket(AF_INET, SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        with pytest.raises(TimeoutError):
            dns_answer(port, "version.bind", 16, 3)

        def answer() -> None:
            data, asker = server.recvfrom(512)
            server.sendto(data, asker)
            data, asker = server.recvfrom(512)
            server.sendto(data, asker)

        Thread(target=answer, daemon=True).start()
        dns_answer(port, "version.bind", 16, 3)


CHRONY = b"server 10.1.0.1 iburst\npool pool.ntp.org\n"
SOURCE = "^,*,10.1.0.1,10,5,337,27,0.1,0.1,0.1\n1,0,0,0,0\n"
CLOCK = "0AD21100,10.1.0.1,11,1.9,0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1,16.1,Normal\n"
ITSELF = CLOCK.replace("0AD21100,10.1.0.1", "7F7F0101,")
ALLOW = b"allow 10.1.0.0/16\n"
ASKED = {
    "nothing": (CHRONY, CLOCK, "", []),
    "somebody may ask": (CHRONY, CLOCK, "192.0.2.1", ["only in force: allow 192.0.2.1"]),
    "its region may ask": (CHRONY, CLOCK, "10.1.0.1", ["only in force: allow 10.1.0.1"]),
    "its region may, as its files say": (CHRONY + ALLOW, CLOCK, "10.1.0.0", []),
    "its region may no more": (CHRONY + ALLOW, CLOCK, "", ["only in its files: allow 10.1.0.0"]),
    "it may be any": (CHRONY + b"allow\n", CLOCK, "", []),
    "itself": (CHRONY, ITSELF, "", ["only in force: local"]),
    "itself, as its files say": (CHRONY + b"local stratum 10 orphan\n", ITSELF, "", []),
}


@pytest.mark.parametrize("what", ASKED)
def test_whom_chrony_was_told_to_answer(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files, clock, allowed, found = ASKED[what]

    def chronyc(argv: list[str], _limit_s: float) -> str:
        asked = [word.partition(" ")[2] for word in argv if word.startswith("accheck ")]
        said = ("208 Access allowed\n" if address == allowed else "209 Access denied\n" for address in asked)
        return SOURCE + clock + "".join(said)

    monkeypatch.setattr(timekeeping, "run", chronyc)
    monkeypatch.setattr(timekeeping, "program_files", lambda _node, _how: {"/etc/chrony/chrony.conf": files})
    assert timekeeping.told_of_time(look()) == found


def test_what_frr_says_of_a_neighbour_is_said_of_that_one() -> None:
    text = """Building configuration...

Current configuration:
!
frr version 10.3
hostname x
ip prefix-list far seq 5 permit 10.0.0.0/16
router bgp 65001
 neighbor 10.0.0.1 remote-as 65002
 neighbor 10.0.0.1 password guess
 !
 address-family ipv4 unicast
  network 10.1.0.0/16
 exit-address-family
exit
!
bfd
 profile wan
 exit
exit
end
"""
    found = frr_lines(look(), text)
    assert found[:3] == [
        "ip prefix-list far permit 10.0.0.0/16",
        "router bgp 65001",
        "router bgp 65001 / neighbor 10.0.0.1 remote-as 65002",
    ]
    assert found[4:] == [
        "router bgp 65001 / address-family ipv4 unicast",
        "router bgp 65001 / address-family ipv4 unicast / network 10.1.0.0/16",
        "bfd",
        "bfd / profile wan",
    ]
    assert "guess" not in found[3]


@pytest.mark.parametrize(
    ("want", "states", "seen"),
    [
        ("active", ["deactivating", "inactive", "activating", "active"], "active"),
        ("active", ["deactivating", "inactive"], "inactive"),
        ("active", ["activating"], "activating"),
        ("inactive", ["deactivating", "inactive"], "deactivating"),
    ],
    ids=["started again", "stopped", "on its way for long", "not to run"],
)
def test_a_unit_on_its_way_is_looked_at_once_more(
    monkeypatch: pytest.MonkeyPatch, want: str, states: list[str], seen: str
) -> None:
    monkeypatch.setattr(unit, "MOVING", dict.fromkeys(unit.MOVING, 0.3))

    def ask(units: list[str]) -> dict[str, dict[str, Any]]:
        state = states.pop(0) if len(states) > 1 else states[0]
        return {name: {"active": state if name == "a.service" else "active"} for name in units}

    monkeypatch.setattr(unit, "all_units", ask)
    node = Look("5a17", "scan", [["unit", name, {}, {"active": want}] for name in ("a.service", "b.service")])
    assert unit.settled_units(node) == {"a.service": {"active": seen}, "b.service": {"active": "active"}}


SET_UP_LATER = """
import os, time
comm = open("/proc/self/comm", "w")
comm.write("(program)"); comm.flush(); print(flush=True); time.sleep(0.3)
os.nice(3)
comm.write("program"); comm.flush(); time.sleep(60)
"""


def test_a_process_that_systemd_sets_up_still_is_compared_once_it_is_the_units_program() -> None:
    process = subprocess.Popen([sys.executable, "-c", SET_UP_LATER], stdout=subprocess.PIPE)
    try:
        assert process.stdout
        process.stdout.readline()
        first = unit.told_of(process.pid)
        assert first
        assert first["name"] == "(program)"
        now = unit.begun(first)
        assert now["name"] == "program"
        assert int(now["nice"]) == int(first["nice"]) + 3
    finally:
        process.kill()
        process.communicate()
    assert unit.begun(first) == first, "it has ended"


def halted(group: str) -> list[str]:
    return [process["name"] for process in unit.processes(group) if process["stopped"]]


def test_a_process_that_a_signal_stopped_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = tmp_path / "system.slice"
    group.mkdir()
    process = subprocess.Popen(["sleep", "60"])
    try:
        (group / "cgroup.procs").write_text(f"{process.pid}\n")
        walk = os.walk
        monkeypatch.setattr(os, "walk", lambda _top: walk(group))
        assert halted("/system.slice") == []
        process.send_signal(19)
        wait_for(lambda: halted("/system.slice") == ["sleep"], "its stop")
        process.send_signal(18)
        wait_for(lambda: not halted("/system.slice"), "its going on")
        (group / "cgroup.events").write_text("populated 1\nfrozen 1\n")
        assert halted("/system.slice") == ["sleep"]
        assert halted("") == []
    finally:
        process.kill()
        process.wait()
    plan = plan_for("unit", "x.service", {"halted": []}, {"halted": ["x"]})
    assert plan.lines == ["base: unit x.service: is active, and stopped: x"]
    assert ["systemctl", "restart", "x.service"] in [done["argv"] for done in plan.obstacles.commands]


OWN_NICE = os.getpriority(os.PRIO_PROCESS, 0)
SET = {"Nice": OWN_NICE, "CPUSchedulingPolicy": os.sched_getscheduler(0)}


@pytest.fixture
def sleeper(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for a unit's first one; systemd would start it as it is now."""
    process = subprocess.Popen(["sleep", "60"])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    told = {**SET, "LimitNOFILE": hard, "LimitNOFILESoft": 64}
    monkeypatch.setattr(unit, "LIMITS", {"Max open files": "LimitNOFILE"})
    monkeypatch.setattr(unit, "ask_systemd", lambda asked: [told[name] for _, _, name in asked])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def first_process(process: subprocess.Popen[bytes]) -> list[dict[str, Any]]:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return [{"number": process.pid, "name": "x", "nice": fields[16], "policy": fields[38]}]


def run_by(process: subprocess.Popen[bytes], mode: str, sealed: list[str]) -> list[str]:
    node = Look("5a17", mode, [])
    node.want = {"running": sealed} if mode == "scan" else {}
    return unit.running(node, "x.service", first_process(process))


def test_a_process_that_runs_as_it_is_set_to_is_sealed_so_and_found_when_it_was_told_otherwise(
    sleeper: subprocess.Popen[bytes],
) -> None:
    sealed = run_by(sleeper, "seal", [])
    assert sealed[-1] == unit.AS_SET, "its soft limit is higher than set: a program may raise its own"
    assert run_by(sleeper, "scan", sealed) == sealed
    os.setpriority(os.PRIO_PROCESS, sleeper.pid, OWN_NICE + 7)
    assert f"nice {OWN_NICE + 7}" in run_by(sleeper, "scan", sealed)
    os.setpriority(os.PRIO_PROCESS, sleeper.pid, OWN_NICE)
    resource.prlimit(sleeper.pid, resource.RLIMIT_NOFILE, (63, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    assert run_by(sleeper, "scan", sealed) != sealed
    assert unit.AS_SET not in run_by(sleeper, "seal", [])


def test_a_process_that_was_given_fewer_cpus_than_systemd_has_is_found(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed = run_by(sleeper, "seal", [])
    monkeypatch.setattr(os, "sched_getaffinity", lambda number: {0, 1} if number == 1 else {1})
    assert "cpus 1" in run_by(sleeper, "scan", sealed)


def test_a_process_that_an_update_started_with_other_settings_is_no_difference(
    sleeper: subprocess.Popen[bytes],
) -> None:
    older = ["nice -5", "policy 0", "cpus all", "LimitNOFILE 1 1", unit.AS_SET]
    assert run_by(sleeper, "scan", older) == older


def test_where_systemd_can_raise_no_limit_what_it_gives_counts(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_to = {**SET, "LimitNOFILE": unit.UNLIMITED, "LimitNOFILESoft": unit.UNLIMITED}
    monkeypatch.setattr(unit, "ask_systemd", lambda asked: [set_to[name] for _, _, name in asked])
    whole = ["LimitNOFILE 20000 20000"]
    monkeypatch.setattr(unit, "limit_lines", lambda _: whole)
    assert unit.AS_SET in run_by(sleeper, "seal", [])
    monkeypatch.setattr(unit, "limit_lines", lambda number: whole if number == 1 else ["LimitNOFILE 9 9"])
    assert unit.AS_SET not in run_by(sleeper, "seal", [])


def test_a_unit_without_a_process_tells_of_none(sleeper: subprocess.Popen[bytes]) -> None:
    node = Look("5a17", "scan", [])
    for node.want in ({}, {"running": []}, {"running": ["nice 0"]}):
        assert unit.running(node, "x.service", []) == (node.want.get("running") or [])
    sleeper.kill()
    sleeper.wait()
    node.want = {"running": ["nice 0"]}
    gone = [{"number": sleeper.pid, "name": "sleep", "nice": "0", "policy": "0"}]
    assert unit.running(node, "x.service", gone) == ["nice 0"]


def test_a_stopped_process_runs_on_before_anybody_waits_for_its_end() -> None:
    report = HostReport("n", "r", "drift")
    hangs = Difference("r", "t", "frr", "frr.service", {"answers": True}, {"answers": False})
    stopped = Difference("r", "t", "unit", "frr.service", {"halted": []}, {"halted": ["bgpd"]})
    report.roles["r"] = RoleReport("drift", [hangs, stopped])
    done = host_plan(report, Manifest(host="n", roles={"r": RoleManifest(entries=[])})).obstacles.commands
    assert [command["what"] for command in done] == [
        "let frr.service run on", "had frr.service restarted",
    ]  # fmt: skip
    assert "SIGCONT" in " ".join(done[0]["argv"])
