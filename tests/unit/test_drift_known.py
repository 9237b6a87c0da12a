"""What somebody added beside what the roles made: ways for packets, and ways to become root."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from infra.drift.kinds import KINDS, slow
from infra.drift.kinds.slow import slow as asked_slowly
from infra.drift.looks import Look
from infra.drift.manifest import Entry, Manifest, RoleManifest
from infra.drift.repair import Obstacles
from roles.base.drift import privilege, traffic
from roles.base.drift.privilege import account_lines, is_installed_so, is_privileged, other_keys, sudo_files
from tests.unit.test_drift_live import look
from tests.unit.test_drift_repair import plan_for
from tests.unit.test_drift_seal import checkout as checkout
from tests.unit.test_drift_seal import claim, record, seal

NET_ADMIN = ["unshare", "--user", "--map-root-user", "--net"]

TRAFFIC = {
    "rules": (
        "ip rule add from 192.0.2.0/24 lookup 77 priority 50",
        "priority 50 from 192.0.2.0/24 lookup 77",
    ),
    "routes": ("ip route add blackhole 203.0.113.0/24 table 77", "blackhole 203.0.113.0/24 table 77"),
    "addresses": ("ip address add 192.0.2.7/32 dev lo", "192.0.2.7/32 dev lo"),
    "neighbours": (
        "ip link add lan0 type bridge; ip link set lan0 up;"
        " ip neighbour add 192.0.2.9 lladdr 02:00:00:00:00:09 nud permanent dev lan0",
        "192.0.2.9 dev lan0 lladdr 02:00:00:00:00:09",
    ),
    "queues": ("tc qdisc add dev lo root handle 7: pfifo", "qdisc dev lo root handle 7: pfifo"),
    "policies": (
        "ip xfrm policy add src 203.0.113.0/24 dst 0.0.0.0/0 proto tcp dport 22 dir out action block",
        "src 203.0.113.0/24 dst 0.0.0.0/0 proto 6 dport 22 dir out: block priority 0",
    ),
    "policies of hosts": (
        "ip xfrm policy add src 203.0.113.5 dst 198.51.100.7 dir in action block",
        "src 203.0.113.5 dst 198.51.100.7 dir in: block priority 0",
    ),
    "policies of IPv6": (
        "ip xfrm policy add src ::/0 dst 2001:db8::/32 dev lo dir fwd mark 1 mask 0xf priority 7"
        " tmpl proto esp mode transport",
        "src ::/0 dst 2001:db8::/32 dev lo dir fwd mark 0x1 mask 0xf: allow priority 7",
    ),
}
LOOKING = (
    "import infra.drift.kinds;from infra.drift.looks import Look;"
    "from roles.base.drift.traffic import look_at_traffic as look;"
    "print(look(Look('', 'seal', []), 'all', {}))"
)


@pytest.mark.parametrize("what", TRAFFIC)
def test_what_decides_where_packets_go_is_read_from_the_kernel_and_taken_away_again(what: str) -> None:
    """In a network of its own, by the programs that an administrator would use."""
    command, shown = TRAFFIC[what]
    aspect = what.split()[0]
    plan = plan_for("traffic", "all", {aspect: []}, {aspect: [shown]})
    (undo,) = plan.obstacles.undone
    python = f'python3 -c "{LOOKING}"'
    script = f"set -e; ip link set lo up; {command}; {python}; {' '.join(undo['argv'])}; {python}"
    said = subprocess.run([*NET_ADMIN, "sh", "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    before, after = said.stdout.splitlines()
    assert f"'{shown}'" in before
    assert shown not in after


def test_the_metrics_of_a_route_are_read_and_set_back_to_those_that_were_sealed() -> None:
    route = "203.0.113.0/24 dev lo metric 7"
    sealed = Entry(kind="traffic", key="all", task="t", want={"metrics": [f"{route}: initcwnd 9"]})
    found = Obstacles()
    manifest = Manifest(host="n", roles={"base": RoleManifest(entries=[sealed])})
    line = f"{route}: mtu 600 initcwnd 4 congctl reno"
    KINDS["traffic"].undo(found, "metrics", line, manifest)  # type: ignore[attr-defined]
    (undo,) = found.undone
    python = f'python3 -c "{LOOKING}"'
    add, change = (f"ip route {x} {route}" for x in ("add", "replace"))
    script = f"""set -e; ip link set lo up; {add} initcwnd 9; {python}
        {change} mtu 600 initcwnd 4 congctl reno; {python}; {" ".join(undo["argv"])}; {python}"""
    said = subprocess.run([*NET_ADMIN, "sh", "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    first, second, third = said.stdout.splitlines()
    assert "lo metric 7: initcwnd 9'" in first
    assert "lo metric 7: mtu 600 initcwnd 4 congctl reno'" in second
    assert third == first


def known(name: str, added: str, **record_changes: Any) -> tuple[list[str], list[str]]:
    """A list that a run found with one more line: what was sealed then, and what the run says of it."""
    empty: dict[str, Any] = {"rules": [], "routes": [], "chains": [], "queues": []}
    made = claim("traffic", "all")
    seal({"base": record(made)}, empty)
    others = [claim(*other) for other in record_changes.pop("others", ())]
    values: list[dict[str, Any]] = [
        {**empty, name: [added]},
        *({"active": "active", "dropins": []} for _ in others),
    ]
    run_again = seal({"base": record(made, *others)}, *values, inputs="i2")
    entry = next(e for e in run_again.manifest.roles["base"].entries if e.kind == "traffic")
    return entry.want[name], run_again.not_repaired


def test_what_somebody_added_is_never_blessed_and_what_a_role_keeps_is() -> None:
    lines, said = known("routes", "203.0.113.0/24 dev lo")
    assert lines == []
    assert "203.0.113.0/24" in said[0]
    shaped = "qdisc dev wan0 root handle 1: htb"
    assert known("queues", shaped)[0] == []
    keeper = [("unit", "causeway-wan-gateway.service")]
    assert known("queues", shaped, others=keeper)[0] == [shaped]
    assert known("queues", "qdisc dev wan0 root handle 1: netem", others=keeper)[0] == [shaped]


def test_slow_questions_are_the_timers_and_a_scan_reads_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow, "ANSWERS", str(tmp_path / "answers"))
    asked: list[int] = []

    def read() -> list[str]:
        asked.append(1)
        return ["a"]

    timer, scan = look(), look()
    timer.patient = True
    assert asked_slowly(scan, "x", read) is None
    assert asked == []
    assert asked_slowly(timer, "x", read) == ["a"]
    assert asked_slowly(scan, "x", read) == asked_slowly(timer, "x", read) == ["a"]
    assert asked == [1]
    assert (tmp_path / "answers").stat().st_mode & 0o777 == 0o700
    os.utime(tmp_path / "answers" / "x", (1, 1))
    assert asked_slowly(timer, "x", read) == ["a"]
    assert asked_slowly(look("thorough"), "x", read) == ["a"]
    assert len(asked) == 3
    assert asked_slowly(timer, "none", list) == []
    assert asked_slowly(timer, "none", read) == asked_slowly(scan, "none", read) == []
    assert len(asked) == 3, "that nothing was found is an answer"


PASSWD = (
    "root:x:0:0::/root:/bin/bash",
    "daemon:x:1:1::/:/usr/sbin/nologin",
    "eve:x:7:7::{}:/bin/sh",
    "t:x:0:8::/:/bin/false",
    "own:x:9:9::/:/bin/sh",
)
TABLES = {
    "passwd": PASSWD,
    "shadow": ("root:*:", "eve:$y$guess:", "daemon:!:", "t::"),
    "group": ("sudo:x:27:eve,own", "users:x:100:eve"),
}


def test_accounts_that_are_root_or_let_somebody_in_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "authorized_keys").write_text("ssh-ed25519 AAAA eve\n")
    rows = {name: [row.format(tmp_path).split(":") for row in table] for name, table in TABLES.items()}
    monkeypatch.setattr(Look, "table", lambda _look, name: rows[name])
    monkeypatch.setattr(privilege, "FILES", {"inputs": []})
    node = Look("5a17", "scan", [], {"user": ["own"]})
    assert account_lines(node) == [
        "root uid 0 shell /bin/bash",
        "eve uid 7 shell /bin/sh",
        "eve has a password",
        "t uid 0 shell /bin/false",
        "t needs no password",
        "eve in group sudo",
    ]
    assert [line.partition(": ")[0] for line in other_keys(node)] == [f"{tmp_path}/.ssh/authorized_keys"]


def test_who_is_of_a_mighty_group_beside_its_list_of_members(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {
        "passwd": ("root:x:0:0", "games:x:5:27", "own:x:9:27", "eve:x:7:100"),
        "group": ("sudo:x:27:", "users:x:100:"),
        "gshadow": ("sudo:$y$guess:eve,ada:", "users:$y$guess:eve:", "adm:!::"),
    }
    tables = {name: [row.split(":") for row in table] for name, table in rows.items()}
    monkeypatch.setattr(Look, "table", lambda _look, name: tables[name])
    lines = privilege.other_members(Look("5a17", "scan", [], {"user": ["own"]}))
    assert lines == [
        *("games of group sudo", "eve lets into group sudo", "ada lets into group sudo"),
        "sudo has a password as a group",
    ]
    undone = plan_for("privilege", "root", {"members": []}, {"members": lines}).obstacles.undone
    assert [command["argv"] for command in undone] == [
        ["usermod", "--gid", "nogroup", "games"],
        ["gpasswd", "--administrators", "", "sudo"],
        ["gpasswd", "--administrators", "", "sudo"],
        ["gpasswd", "--remove-password", "sudo"],
    ]


def test_what_systemd_was_told_of_units_that_no_task_governs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control, transient = tmp_path / "system.control", tmp_path / "transient"
    monkeypatch.setattr(privilege, "TOLD_FOLDERS", (str(control),))
    monkeypatch.setattr(privilege, "TRANSIENT", str(transient))
    files = [control / f"{unit}.service.d" / "50-CPUWeight.conf" for unit in ("dbus", "ours")]
    files += [transient / name for name in ("run-r1.timer", "run-r1.service", "causeway-sshd-undo.timer")]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    node = Look("5a17", "scan", [], {"unit": ["ours.service"]})
    assert privilege.told_of_units(node) == [str(files[0]), str(files[2])]
    told = {"told": [f"{files[0]} 1", f"{files[2]} 1"]}
    plan = plan_for("privilege", "root", {"told": []}, told)
    assert plan.obstacles.added == [str(files[0])]
    assert [command["argv"] for command in plan.obstacles.undone] == [["systemctl", "stop", "run-r1.timer"]]


def test_sudos_files_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "sudoers.d"
    folder.mkdir()
    for name in ("eve", "passed.over"):
        (folder / name).write_text("")
    main, more = tmp_path / "sudoers", tmp_path / "more"
    main.write_text(f"@include {more}\n")
    more.write_text(f"#includedir {folder}\n")
    monkeypatch.setattr(privilege, "SUDOERS", str(main))
    assert sudo_files() == [str(main), str(more), str(folder / "eve")]


def test_a_program_that_gives_root_is_what_the_timer_found_or_nothing(tmp_path: Path) -> None:
    program = tmp_path / "x"
    program.write_text("")
    program.chmod(0o4755)
    assert is_privileged(str(program), "4755")
    program.chmod(0o755)
    assert not is_privileged(str(program), "4755")
    assert not is_privileged(str(tmp_path / "gone"), "4755")


def test_a_packages_program_that_was_given_rights_later_is_no_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, installed = tmp_path / "x", tmp_path / "p.list"
    program.write_text("")
    installed.write_text("")
    monkeypatch.setattr(privilege, "DPKG_INFO", f"{tmp_path}/")
    assert is_installed_so(str(program), "p.md5sums")
    os.utime(installed, (1, program.stat().st_ctime - 900))
    assert not is_installed_so(str(program), "p.md5sums")


@pytest.mark.parametrize(
    ("aspect", "line", "undone"),
    [
        ("accounts", "toor uid 0 shell /bin/sh", ["userdel", "--force", "toor"]),
        (
            "accounts",
            "eve uid 7 shell /bin/sh",
            ["usermod", "--expiredate", "1", "--shell", "/usr/sbin/nologin", "eve"],
        ),
        ("accounts", "root has a password 1f", ["usermod", "--password", "*", "root"]),
        ("accounts", "eve in group sudo", ["gpasswd", "--delete", "eve", "sudo"]),
        ("setuid", "/x y 4755", ["chmod", "u-s,g-s", "/x y"]),
        ("setuid", "/x capabilities", ["setcap", "-r", "/x"]),
    ],
)
def test_who_became_root_is_named_with_the_command_that_takes_it_away(
    aspect: str, line: str, undone: list[str]
) -> None:
    plan = plan_for("privilege", "root", {aspect: []}, {aspect: [line]})
    assert [command["argv"] for command in plan.obstacles.undone] == [undone]
    assert not plan.obstacles.commands


def test_a_strangers_file_is_moved_away_and_a_changed_one_is_named_only() -> None:
    plan = plan_for("privilege", "root", {"sudo": []}, {"sudo": ["/etc/sudoers.d/eve 1f"]})
    assert plan.obstacles.added == ["/etc/sudoers.d/eve"]
    plan = plan_for("privilege", "root", {"keys": []}, {"keys": ["/home/eve/k: ssh-rsa X"]})
    assert plan.obstacles.added_keys == {"/home/eve/k": ["ssh-rsa X"]}


def test_a_member_that_somebody_added_is_named_with_its_command() -> None:
    plan = plan_for("group", "g", {"members": ["a"]}, {"members": ["a", "b"]})
    assert [command["argv"] for command in plan.obstacles.undone] == [["gpasswd", "--delete", "b", "g"]]


def test_before_the_timer_has_asked_no_privileged_program_is_new_and_none_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after each boot, until the first answer."""
    monkeypatch.setattr(slow, "ANSWERS", str(tmp_path))
    node = look("scan")
    node.want = {"setuid": ["/usr/bin/x 4755"]}
    assert privilege.look_at_privilege(node, "root", {})["setuid"] == node.want["setuid"]


def test_a_scan_compares_no_program_with_the_packages_that_brought_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer has: reading what all packages brought takes longer than all other looks."""
    (tmp_path / "privileged").write_text("/usr/bin/eve 4755\n")
    (tmp_path / "setuid").write_text("/usr/bin/su 4755\n")  # of a timer that left this to the scan
    monkeypatch.setattr(slow, "ANSWERS", str(tmp_path))
    monkeypatch.setattr(privilege, "is_privileged", lambda *_: True)
    monkeypatch.setattr(privilege, "owners_of", lambda *_: pytest.fail("all packages are read"))
    assert privilege.look_at_privilege(look("scan"), "root", {})["setuid"] == ["/usr/bin/eve 4755"]


def test_policies_of_ipsec_count_where_no_daemon_had_set_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "dumped", lambda *_: pytest.fail("asked"))
    node = look("scan")
    node.want = {"policies": ["src 10.0.0.0/8 dst 10.0.0.0/8 dir out: allow priority 1"]}
    assert traffic.policy_lines(node, {}) == []
