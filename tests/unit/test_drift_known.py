"""What somebody added beside what the roles made: ways for packets, and ways to become root."""

import os
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from infra.drift.kinds import KINDS, slow
from infra.drift.kinds.slow import slow as asked_slowly
from infra.drift.kinds.slow import watched as asked_lately
from infra.drift.looks import Look
from infra.drift.manifest import Entry, Manifest, RoleManifest
from infra.drift.probe import work
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
    "proxies": (
        "ip link add lan0 type bridge; ip link set lan0 up; ip neighbour add proxy 192.0.2.9 dev lan0",
        "192.0.2.9 dev lan0",
    ),
    "inner": (
        "ip link add lan0 type bridge; ip address add 192.0.2.7/32 dev lan0 scope host",
        "192.0.2.7/32 dev lan0",
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


BRIDGE = "ip link add lan0 type bridge; ip link set lan0 up; ip address add 10.9.0.1/24 dev lan0"
MAC = "lladdr 02:00:00:00:00:0{}"
CHANGED = {
    "routes": (
        f"{BRIDGE}; ip route add default via 10.9.0.2",
        "ip route replace default via 10.9.0.3",
        "0.0.0.0/0 via 10.9.0.2 dev lan0",
        "0.0.0.0/0 via 10.9.0.3 dev lan0",
    ),
    "routes beside": (
        f"{BRIDGE}; ip route add 203.0.113.0/24 via 10.9.0.2",
        "ip route append 203.0.113.0/24 via 10.9.0.3",
        "203.0.113.0/24 via 10.9.0.2 dev lan0",
        "203.0.113.0/24 via 10.9.0.3 dev lan0",
    ),
    "routes of another type": (
        "ip route add unreachable 203.0.113.0/24 table 77",
        "ip route replace blackhole 203.0.113.0/24 table 77",
        "unreachable 203.0.113.0/24 table 77",
        "blackhole 203.0.113.0/24 table 77",
    ),
    "routes of IPv6": (
        f"{BRIDGE}; ip -6 route add 2001:db8::/32 dev lan0 metric 9",
        "ip -6 route replace 2001:db8::/32 dev lo metric 9",
        "2001:db8::/32 dev lan0 metric 9",
        "2001:db8::/32 dev lo metric 9",
    ),
    "addresses": (
        BRIDGE,
        "ip address del 10.9.0.1/24 dev lan0; ip address add 10.9.0.1/16 dev lan0",
        "10.9.0.1/24 dev lan0",
        "10.9.0.1/16 dev lan0",
    ),
    "neighbours": (
        f"{BRIDGE}; ip neighbour add 10.9.0.9 {MAC.format(1)} nud permanent dev lan0",
        f"ip neighbour replace 10.9.0.9 {MAC.format(2)} nud permanent dev lan0",
        f"10.9.0.9 dev lan0 {MAC.format(1)}",
        f"10.9.0.9 dev lan0 {MAC.format(2)}",
    ),
    "metrics": (
        "ip route add 203.0.113.0/24 dev lo metric 7 initcwnd 9",
        "ip route replace 203.0.113.0/24 dev lo metric 7 mtu 600 initcwnd 4 congctl reno",
        "203.0.113.0/24 dev lo metric 7: initcwnd 9",
        "203.0.113.0/24 dev lo metric 7: mtu 600 initcwnd 4 congctl reno",
    ),
    "chains": (
        "nft add table ip site; nft add chain ip site input '{ type filter hook input priority 0; }'",
        "nft chain ip site input '{ policy drop; }'",
        "ip site input: filter hook 1 priority 0 policy accept",
        "ip site input: filter hook 1 priority 0 policy drop",
    ),
}


@pytest.mark.parametrize("what", CHANGED)
def test_what_was_known_and_was_changed_is_set_back_and_not_taken_away(what: str) -> None:
    """In a network of its own: where a default route was replaced, the one before is back."""
    made, changed, sealed, shown = CHANGED[what]
    aspect = what.split()[0]
    plan = plan_for("traffic", "all", {aspect: [sealed]}, {aspect: [sealed, shown]})
    (undo,) = plan.obstacles.undone
    python = f'python3 -c "{LOOKING}"'
    script = f"""set -e; ip link set lo up; {made}; {python}; {changed}; {python}
        {shlex.join(undo["argv"])}; {python}"""
    said = subprocess.run([*NET_ADMIN, "sh", "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    first, second, third = said.stdout.splitlines()
    assert f"'{sealed}'" in first
    assert f"'{shown}'" in second
    assert third == first


def test_a_chain_in_a_table_that_was_there_goes_without_the_table() -> None:
    site, new = (
        "ip site {}: filter hook 1 priority {} policy accept".format(*x) for x in (("a", 0), ("b", 5))
    )
    entry = Entry(kind="traffic", key="all", task="t", want={"chains": [site]})
    found = Obstacles()
    manifest = Manifest(host="n", roles={"base": RoleManifest(entries=[entry])})
    KINDS["traffic"].undo(found, "chains", new, manifest)  # type: ignore[attr-defined]
    KINDS["traffic"].undo(found, "chains", new.replace("site", "other"), manifest)  # type: ignore[attr-defined]
    own, other = (shlex.join(undo["argv"]) for undo in found.undone)
    chain = "nft add chain ip {} {} '{{ type filter hook input priority {}; }}'".format
    script = "; ".join(
        (
            "set -e; nft add table ip site; nft add table ip other",
            *(chain("site", "a", 0), chain("site", "b", 5), chain("other", "b", 5)),
            *("nft add rule ip site b drop", own, other, "nft list ruleset"),
        )
    )
    said = subprocess.run([*NET_ADMIN, "sh", "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    assert "chain a" in said.stdout
    assert "chain b" not in said.stdout
    assert "other" not in said.stdout


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


class Watched:
    """A question of a node whose timer asks it as well."""

    def __init__(self, says: list[str]) -> None:
        self.says, self.asked = says, 0

    def read(self) -> list[str]:
        self.asked += 1
        if self.says == ["hangs"]:
            raise ValueError("no answer")
        return self.says

    def seen(self, node: Look, sealed: list[str] | None = None) -> list[str]:
        return asked_lately(node, "x", self.read, sealed)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.setattr(slow, "ANSWERS", str(tmp_path / "answers"))
    return Watched(["a"])


def timer() -> Look:
    node = look()
    node.patient = True
    return node


@pytest.mark.parametrize("lines", [["a"], [], ["ä", ""]])
def test_a_scan_believes_the_timer_that_something_is_as_sealed(watched: Watched, lines: list[str]) -> None:
    watched.says = lines
    assert watched.seen(look(), lines) == lines
    assert watched.asked == 1, "nobody has asked before"
    assert watched.seen(timer(), lines) == watched.seen(look(), lines) == lines
    assert watched.asked == 2
    assert watched.seen(timer(), lines) == lines
    assert watched.asked == 3, "the timer asks each time"


@pytest.mark.parametrize("asker", [look("seal"), timer()])
def test_a_difference_is_never_an_old_one(watched: Watched, asker: Look) -> None:
    """Nor is one hidden for longer than the timer takes to look again."""
    watched.seen(asker)
    watched.says = ["b"]
    assert watched.seen(look(), ["b"]) == ["b"], "repaired a moment ago"
    assert watched.seen(look(), ["a"]) == ["a"], "not seen yet"
    watched.seen(asker)
    assert watched.seen(look(), ["a"]) == ["b"]


def test_no_old_answer_counts_where_the_new_one_matters(watched: Watched) -> None:
    watched.seen(timer())
    watched.says = ["b"]
    anew = look()
    anew.asks_anew = True
    for node in (anew, look("thorough"), look("seal")):
        assert watched.seen(node, ["a"]) == ["b"]
    assert watched.seen(look(), ["b"]) == ["b"], "what the seal was told"
    assert watched.asked == 4


@pytest.mark.parametrize("age_s", [slow.LATELY_S + 1, -60])
def test_where_the_timer_does_not_look_a_scan_asks(watched: Watched, age_s: float, tmp_path: Path) -> None:
    """Also where the clock went back."""
    watched.seen(timer())
    watched.says = ["b"]
    then = time.time() - age_s
    os.utime(tmp_path / "answers" / "x", (then, then))
    assert watched.seen(look(), ["a"]) == ["b"]


def test_once_there_is_no_answer_the_last_one_counts_no_more(watched: Watched) -> None:
    watched.seen(timer())
    watched.says = ["hangs"]
    for node in (timer(), look()):
        with pytest.raises(ValueError, match="no answer"):
            watched.seen(node, ["a"])


def test_a_scan_leaves_no_answer(watched: Watched, tmp_path: Path) -> None:
    for node in (look(), look("thorough")):
        watched.seen(node, ["a"])
    assert list(tmp_path.iterdir()) == []


def test_a_check_that_is_watched_is_asked_by_the_timer(watched: Watched, tmp_path: Path) -> None:
    """By the probe, for each program and thing its own."""
    del watched
    asked, says = tmp_path / "asked", tmp_path / "says"
    says.write_text("as sealed\n")
    argv = ["sh", "-c", f"echo >> {asked}; cat {says}"]
    wanted = {"output": ["as sealed"]}
    entries = [["check", key, {"argv": argv, "watched": True}, wanted] for key in ("one", "two")]

    def differing(mode: str = "scan", **more: Any) -> list[int]:
        request = {"mode": mode, "salt": "s", "entries": entries, **more}
        return [number for number, _ in work(request, lambda _: None)["values"]]

    assert differing(patient=True) == []
    says.write_text("changed\n")
    before = asked.read_text()
    assert differing() == []
    assert asked.read_text() == before, "nobody asked"
    entries[1][2] = {"argv": [*argv, "another"], "watched": True}
    assert differing() == [1], "this one nobody asked before"
    assert differing(anew=True) == differing("thorough") == differing(patient=True) == differing() == [0, 1]
    says.write_text("as sealed\n")
    assert differing() == []
    entries[0][2] = {"argv": argv}
    says.write_text("changed\n")
    assert 0 in differing(), "it is asked at every scan"


def test_without_room_for_answers_all_ask(watched: Watched, tmp_path: Path) -> None:
    (tmp_path / "answers").touch()
    assert [watched.seen(node, ["a"]) for node in (timer(), look("seal"), look())] == [["a"]] * 3


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


def test_who_is_in_the_group_of_a_roles_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in a person's whom a role made, nor in one that has another account's name."""
    rows = {
        "passwd": ("consul:x:990:990", "ada:x:1000:1000", "odd:x:980:100", "games:x:5:990", "bob:x:7:1000"),
        "group": ("consul:x:990:mallory,own", "ada:x:1000:mallory", "users:x:100:mallory"),
        "gshadow": ("consul:!:eve:mallory",),
    }
    tables = {name: [row.split(":") for row in table] for name, table in rows.items()}
    monkeypatch.setattr(Look, "table", lambda _look, name: tables[name])
    monkeypatch.setattr(os.path, "exists", lambda path: path == "/etc/gshadow")
    node = Look("5a17", "scan", [], {"user": ["consul", "ada", "odd", "own"]})
    groups = privilege.of_services(node)
    assert groups == ("consul",)
    lines = [*privilege.in_groups(node, groups), *privilege.other_members(node, groups)]
    assert lines == ["mallory in group consul", "games of group consul", "eve lets into group consul"]
    undone = plan_for("privilege", "root", {"services": []}, {"services": lines}).obstacles.undone
    assert [command["argv"] for command in undone] == [
        ["gpasswd", "--delete", "mallory", "consul"],
        ["usermod", "--gid", "nogroup", "games"],
        ["gpasswd", "--administrators", "", "consul"],
    ]


def test_members_of_a_service_that_was_there_before_its_role_are_no_strangers() -> None:
    empty: dict[str, Any] = {aspect: [] for aspect in KINDS["privilege"].aspects}
    ours, account = claim("privilege", "root"), claim("user", "consul")
    seal({"base": record(ours)}, empty)
    lines = {**empty, "services": ["ada in group consul"]}
    both = {"base": record(ours, account)}
    first = seal(both, lines, {"exists": True}, inputs="i2")
    assert first.not_repaired == []
    second = seal(both, {**lines, "services": ["eve in group consul"]}, {"exists": True}, inputs="i3")
    assert "eve in group consul" in second.not_repaired[0]


def test_numbers_that_an_account_may_take_beside_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = {
        "passwd": (
            "root:x:0:0:::/bin/bash",
            "ada:x:1000:1000:::/bin/bash",
            "made:x:1001:1001:::/bin/sh",
            "pods:x:99:99:::/usr/sbin/nologin",
        ),
        "subuid": ("ada:100000:65536", "made:165536:65536", "pods:231072:65536", "made:0:1", "pods:1000:1"),
        "subgid": ("1005:300000:9", "broken"),
    }
    tables = {name: [row.split(":") for row in table] for name, table in rows.items()}
    monkeypatch.setattr(Look, "table", lambda _look, name: tables[name])
    monkeypatch.setattr(os.path, "exists", lambda _: True)
    lines = privilege.subordinate_lines(Look("5a17", "scan", [], {"user": ["made"]}))
    assert lines == [
        *("ada subuid 100000:65536", "made subuid 0:1", "pods subuid 1000:1", "1005 subgid 300000:9"),
    ]
    plan = plan_for(
        "privilege", "root", {"subordinates": []}, {"subordinates": ["a.b subuid 0:65536", lines[3]]}
    )
    (first, second) = (command["argv"] for command in plan.obstacles.undone)
    assert (first[-1], second[-1]) == ("/etc/subuid", "/etc/subgid")
    file = tmp_path / "subuid"
    file.write_text("a.b:0:65536\naxb:0:65536\na.b:0:655360\n")
    subprocess.run([*first[:-1], file], check=True)
    assert file.read_text() == "axb:0:65536\na.b:0:655360\n"


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


@pytest.mark.parametrize("line", ["deploy uid 0 shell /bin/a&b", "deploy uid 1000 shell /usr/bin/zsh"])
def test_an_account_that_was_there_gets_its_number_and_shell_back(tmp_path: Path, line: str) -> None:
    before = "deploy uid 1000 shell /bin/a&b"
    plan = plan_for("privilege", "root", {"accounts": [before]}, {"accounts": [before, line]})
    (undo,) = plan.obstacles.undone
    file, (_, _, number, _, shell) = tmp_path / "passwd", line.split()
    row = "deploy:x:{}:1000:Eve:/home/deploy:{}\n"
    others = "xdeploy:x:7:7::/:/bin/sh\ndeploy2:x:7:7::/:/bin/sh\n"
    file.write_text(others + row.format(number, shell))
    subprocess.run([*undo["argv"][:-1], file], check=True)
    assert file.read_text() == others + row.format(1000, "/bin/a&b")


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
