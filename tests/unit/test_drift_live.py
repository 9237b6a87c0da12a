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
from types import SimpleNamespace
from typing import Any

import pytest

from infra.drift.assembly import PROBE_LIMIT_S
from infra.drift.claims import derived
from infra.drift.findings import Difference, HostReport, RoleReport
from infra.drift.kind import Claim
from infra.drift.kinds import live, unit
from infra.drift.kinds.live import dns_answer, in_force
from infra.drift.looks import Look
from infra.drift.manifest import Manifest, RoleManifest
from infra.drift.node import AT_ONCE_BYTES, bytes_of, run
from infra.drift.repair import host_plan
from roles.base.drift import timekeeping
from roles.nfs_server.drift import exports, ganesha
from roles.wan_gateway.drift import frr
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


def test_what_a_program_started_ends_with_it(tmp_path: Path) -> None:
    """Also where the program itself has ended, and one that it left holds what it said open."""
    for end in ("wait", "exit", "exec >/dev/null 2>&1; wait"):
        left = tmp_path / end.split()[0]
        with pytest.raises(TimeoutError):
            run(["sh", "-c", f"sleep 600 & echo $! > {left}; {end}"], 2)
        wait_for(lambda left=left: not is_running(left.read_text().strip()), "it is gone")  # type: ignore[misc] # bound now
    before = len(list(Path("/proc/self/fd").iterdir()))
    for limit_s, error in ((0, FileNotFoundError), (2, ValueError)):
        with pytest.raises(error, match="nowhere"):
            run(["nowhere"], limit_s)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def is_running(number: str) -> bool:
    """A process that ended and that nobody has asked for is not."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("size", [0, 1, AT_ONCE_BYTES - 1, AT_ONCE_BYTES, AT_ONCE_BYTES + 1, 1_000_000])
def test_a_file_and_what_a_program_says_are_read_whole(size: int, tmp_path: Path) -> None:
    content = os.urandom(size)
    (tmp_path / "file").write_bytes(content)
    assert bytes_of(str(tmp_path / "file")) == content
    for limit_s in (0, 60):
        assert run(["sh", "-c", f"head -c {size} /dev/zero | tr '\\0' a"], limit_s) == "a" * size


def test_what_the_kernel_tells_in_pieces_is_read_whole() -> None:
    """A file of /proc gives a page at a time, and has no size."""
    assert bytes_of("/proc/self/maps").count(b"\n") > 100
    for nothing, error in (("/nowhere", FileNotFoundError), ("/proc", IsADirectoryError)):
        with pytest.raises(error):
            bytes_of(nothing)


def hang() -> list[str]:
    raise TimeoutError


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that refuses is not taken for one that starts."""
    monkeypatch.setattr(live, "STARTING_S", 0)


@pytest.mark.usefixtures("no_grace")
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


OURS = "rw,sync,wdelay,hide,nocrossmnt,secure,root_squash,no_all_squash,fsid=1,sec=sys,rw,secure,root_squash"


class Exports:
    """A kernel's NFS server with its files below a folder."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.file, self.more, self.etab = folder / "exports", folder / "exports.d", folder / "etab"
        self.more.mkdir()
        for name, path in ("EXPORTS", self.file), ("MORE_EXPORTS", self.more), ("ETAB", self.etab):
            patch.setattr(exports, name, str(path))
        patch.setattr(live, "STARTING_S", 0)
        (self.more / "causeway.exports").write_text(
            "# ours\n/srv/nfs/x 10.0.0.0/16(rw,fsid=1) 10.9.0.1(rw)\n"
        )
        (self.more / "unread").write_text("/unread *(rw)\n")
        self.serve(f"/srv/nfs/x\t10.0.0.0/16({OURS})", f"/srv/nfs/x\t10.9.0.1({OURS})")

    def serve(self, *lines: str) -> None:
        self.etab.write_text("\n".join([*lines, ""]))

    def look(self, **want: Any) -> list[str]:
        found = exports.look_at_exported(look(**want), "nfs-server.service", {})
        assert found["answers"] is True
        differs: list[str] = found["differs"]
        return differs


def test_what_a_server_is_told_to_export_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Exports(tmp_path, monkeypatch)
    told = server.etab.read_text().splitlines()
    theirs = f"/home\tdesk.example({OURS})"
    server.serve(*told, theirs)
    sealed = server.look()
    counts = "rw,sync,hide,nocrossmnt,secure,root_squash,no_all_squash,fsid=1,sec=sys,rw,secure,root_squash"
    assert f"in force: /srv/nfs/x 10.0.0.0/16({counts})" in sealed
    assert not [line for line in sealed if line.startswith("only in its files")], (
        "exportfs passes over the rest"
    )
    server.serve(*told)
    assert server.look(differs=sealed) == sealed, "what somebody had exported before is gone with a boot"
    evil = OURS.replace("root_squash", "no_root_squash")
    for lines in ([*told, f"/srv/nfs/x\t*({evil})"], [told[0].replace(OURS, evil), told[1]]):
        server.serve(*lines)
        assert any("no_root_squash" in line for line in set(server.look(differs=sealed)) - set(sealed))
    server.serve(told[0])
    assert set(server.look(differs=sealed)) - set(sealed) == {"only in its files: /srv/nfs/x 10.9.0.1"}
    server.serve(*(line.replace("wdelay", "wdelay,pnfs2") for line in told))
    assert server.look(differs=sealed) == sealed, "a newer version prints more"


def test_a_server_that_starts_again_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Exports(tmp_path, monkeypatch)
    sealed, told = server.look(), server.etab.read_text()
    server.serve()
    monkeypatch.setattr(live, "STARTING_S", 20)
    monkeypatch.setattr(time, "sleep", lambda _: server.etab.write_text(told))
    assert server.look(differs=sealed) == sealed


@pytest.mark.parametrize(
    ("line", "pairs"),
    [
        ("", []),
        ("/a", [("/a", "*")]),
        ("/a\t-rw,sync  x(ro) y", [("/a", "x"), ("/a", "y")]),
        ('"/a b" (rw)', [("/a\\040b", "*")]),
        ("/a\\040b @staff(rw)", [("/a\\040b", "@staff")]),
    ],
)
def test_who_may_what_is_read_as_exports_5_has_it(line: str, pairs: list[tuple[str, str]]) -> None:
    assert exports.exports_of(line) == pairs


def test_a_server_is_watched_with_its_files_and_has_them_read_again() -> None:
    started = Claim("unit", "nfs-server.service", {"active": "active"})
    assert Claim("exported", "nfs-server.service") in list(derived(started))
    written = [claim.key for claim in derived(Claim("file", "/etc/exports.d/causeway.exports"))]
    assert written == ["/etc/exports.d/causeway.exports", "exports", "/etc/exports.d"]
    plan = plan_for("exported", "nfs-server.service", {"differs": []}, {"differs": ["in force: / *(rw)"]})
    assert plan.lines == ["base: exported nfs-server.service: added: in force: / *(rw)"]
    assert plan.obstacles.commands[0]["argv"] == ["systemctl", "reload", "nfs-server.service"]


def test_what_ganesha_is_told_to_export_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As busctl prints it: time; number, path, protocols and last use of each."""
    use = "false false false false true true true false (tt) 0 0"
    said = f'(tt)a(usbbbbbbbb(tt)) 9 9 3 0 "/" {use} 7 "/srv/x" {use} 77 "/" {use}'
    settings = "EXPORT {\n  Export_Id = 7;\n  Path = /srv/x;\n  Pseudo = /srv/x;\n}\n"
    assert ganesha.told_to_ganesha(said, settings) == ["only in force: export 77, /"]

    def refuses(*_: Any) -> str:
        raise ValueError("busctl fails: the name is not activatable")

    monkeypatch.setattr(ganesha, "run", refuses)
    nothing = {"answers": True, "differs": []}
    assert ganesha.look_at_ganesha(look(), "nfs-ganesha.service", {}) == nothing


class Daemon:
    """Answers in turn what it is given, the last of it for ever; each answer takes its time by the clock."""

    def __init__(self, patch: pytest.MonkeyPatch, *answers: Exception | list[str]) -> None:
        self.now, self.asked, self.answers = 0.0, 0, list(answers)
        patch.setattr(time, "monotonic", lambda: self.now)
        patch.setattr(time, "sleep", self.pass_by)

    def pass_by(self, seconds: float) -> None:
        self.now += seconds

    def read(self) -> list[str]:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.pass_by(live.LIVE_LIMIT_S if isinstance(answer, TimeoutError) else 0.01)
        if isinstance(answer, Exception):
            raise answer
        return answer


ANSWERS = {"answers": True, "differs": []}
STARTING = [ValueError("starting")] * 5


@pytest.mark.parametrize("first", [STARTING, [TimeoutError()], [*STARTING, TimeoutError()]])
def test_a_daemon_that_starts_or_is_slow_is_asked_again(
    first: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert in_force(look(), Daemon(monkeypatch, *first, []).read) == ANSWERS


def test_a_daemon_that_refuses_for_long_is_no_longer_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = Daemon(monkeypatch, ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        in_force(look(), daemon.read)
    assert live.STARTING_S <= daemon.now < live.STARTING_S + 1


def test_a_daemon_that_hangs_is_asked_twice_and_the_last_of_many_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node, often = look(), []
    for _ in range(6):
        daemon = Daemon(monkeypatch, TimeoutError())
        assert in_force(node, daemon.read)["answers"] is False
        assert daemon.now < live.STARTING_S + live.AGAIN_S + 2 * live.LIVE_LIMIT_S < PROBE_LIMIT_S
        often.append(daemon.asked)
    assert often == [2, 2, 2, 1, 1, 1]
    assert in_force(node, Daemon(monkeypatch, []).read) == ANSWERS


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


@pytest.mark.parametrize(("age_s", "whole"), [(1, True), (60, False)])
def test_frr_s_daemons_that_start_have_not_read_their_file_yet(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, age_s: float, whole: bool
) -> None:
    """Those that have run for a moment are believed at once."""
    pid = tmp_path / "bgpd.pid"
    pid.write_text("7")
    os.utime(pid, (time.time() - age_s,) * 2)
    daemon = Daemon(monkeypatch, [], ["router bgp 65001"])
    monkeypatch.setattr(frr, "FRR_PIDS", str(tmp_path))
    monkeypatch.setattr(frr, "run", lambda *_: "".join(daemon.read()))
    monkeypatch.setattr(frr, "text_of", lambda *_: "router bgp 65001")
    found = frr.look_at_frr(look(), "frr.service", {})
    assert found["differs"] == ([] if whole else ["only in its files: router bgp 65001"])


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
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda s: now.append(now.pop() + s))
    monkeypatch.setattr(unit, "time", clock)  # the looks are as far apart as they ask for, on any machine

    def ask(units: list[str]) -> dict[str, dict[str, Any]]:
        state = states.pop(0) if len(states) > 1 else states[0]
        return {name: {"active": state if name == "a.service" else "active"} for name in units}

    monkeypatch.setattr(unit, "all_units", ask)
    node = Look("5a17", "scan", [["unit", name, {}, {"active": want}] for name in ("a.service", "b.service")])
    assert unit.settled_units(node) == {"a.service": {"active": seen}, "b.service": {"active": "active"}}


SET_UP_LATER = """
import os, time
comm = open("/proc/self/comm", "w")
comm.write("(program)"); comm.flush(); print(flush=True); input(); time.sleep(0.3)
os.nice(3)
comm.write("program"); comm.flush(); time.sleep(60)
"""


def test_a_process_that_systemd_sets_up_still_is_compared_once_it_is_the_units_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unit, "SETTING_UP_S", 60)
    argv = [sys.executable, "-c", SET_UP_LATER]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdin
        assert process.stdout
        process.stdout.readline()
        first = unit.told_of(process.pid)
        assert first
        assert first["name"] == "(program)"
        process.stdin.write(b"\n")
        process.stdin.flush()
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
