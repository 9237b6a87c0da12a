"""Drift on real nodes: recorded by a converge, found by a scan, shown by Pulumi, repaired where it is."""

import json
import os
import re
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.integration.checkout import Checkout, commit, said, two_regions
from tests.patience import wait_for

PROVES = ("drift", "drift_watch")
AS_DECLARED = True
"""Nodes watch themselves for drift as often as a user's do."""

NODE, OTHER, THIRD = "tokyo-gpu-0", "shanghai-control-0", "tokyo-control-0"
DRIFTED, ANSIBLE_FAILED = 3, 2
HANGS = "mv /usr/bin/python3 /usr/bin/python3.away && printf '#!/bin/sh\\nsleep 999\\n' > /usr/bin/python3"
LIMITS = "/etc/security/limits.d/90-causeway.conf"
CHANGES = (
    ("echo '# changed' >> /etc/hosts", "base", "file", "/etc/hosts"),
    ("chmod 0600 /etc/chrony/chrony.conf", "base", "file", "/etc/chrony/chrony.conf"),
    (f"rm {LIMITS}", "base", "file", LIMITS),
    ("systemctl stop chrony", "base", "unit", "chrony.service"),
    ("ln -sf /usr/share/zoneinfo/UTC /etc/localtime", "base", "link", "/etc/localtime"),
    ("sysctl -qw net.ipv4.tcp_mtu_probing=2", "tcp_tuning", "sysctl", "net.ipv4.tcp_mtu_probing"),
    ("systemctl disable -q causeway-wan-routes", "tcp_tuning", "unit", "causeway-wan-routes.service"),
)
BESIDE = "/run/zz-stranger"
CHECK = f"""
from testinfra.host import Host


def test_nothing_strange_lies_there(host: Host) -> None:
    assert not host.file("{BESIDE}").exists
"""
PROVEN = ("-e", "repair_verify=true")
STRANGER = "/etc/ssh/sshd_config.d/99-stranger.conf"


@pytest.fixture(scope="module")
def standing(checkout: Checkout) -> Checkout:
    """A stack that was just stood up."""
    checkout.declare(two_regions(checkout))
    commit(checkout.folder)
    checkout.up()
    return checkout


def scan(checkout: Checkout, *words: str, expect: int = 0) -> dict[str, Any]:
    """Node → report, as a program reads it."""
    said = checkout.run("exec", "causeway", "drift", checkout.stack, "--json", *words, expect=expect)
    reports = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return {report["host"]: report for report in reports}


def found(report: dict[str, Any]) -> set[tuple[str, str, str]]:
    """(role, kind, key) of every difference."""
    return {
        (role, difference["kind"], difference["key"])
        for role, part in report["roles"].items()
        for difference in part["differences"]
    }


def repair(checkout: Checkout, *words: str) -> list[str]:
    """`./run`'s words for a repair without the proof, which the table's test has."""
    inventory = f"inventories/{checkout.stack}"
    playbook = ["ansible-playbook", "playbooks/repair.yml", "-i", inventory, "-e", "repair_verify=false"]
    return ["exec", *playbook, *words]


def proofs(checkout: Checkout) -> list[Path]:
    """Processes of this checkout that wait to prove a repair, or do."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # some end meanwhile
            words = (process / "cmdline").read_bytes()
            if b"--stand-by" in words or b"pytest\0--quiet" in words:
                found += [process] * ((process / "cwd").resolve() == checkout.folder.resolve())
    return found


def test_an_untouched_stack_is_clean_again_and_again(standing: Checkout) -> None:
    for _ in range(3):
        reports = scan(standing)
        assert set(reports) == set(standing.instances())
        assert {report["state"] for report in reports.values()} == {"clean"}
        assert all(
            set(report["roles"]) == {"base", "tcp_tuning", "names", "drift_watch"}
            for report in reports.values()
        )


def test_every_change_is_found_attributed_and_shown_by_pulumi(standing: Checkout) -> None:
    for command, *_ in CHANGES:
        standing.on_node(NODE, "sh", "-c", command)
    reports = scan(standing, expect=DRIFTED)
    assert [name for name, report in reports.items() if report["state"] != "clean"] == [NODE]
    assert {(role, kind, key) for _, role, kind, key in CHANGES} <= found(reports[NODE])
    hosts = next(d for d in reports[NODE]["roles"]["base"]["differences"] if d["key"] == "/etc/hosts")
    assert "+# changed" in hosts["diff"]
    assert hosts["since"]
    assert NODE in reports[NODE]["repair"]
    refresh = ["exec", "pulumi", "refresh", "--preview-only", "--diff", "--stack", standing.stack]
    assert f"{NODE}: base: file /etc/hosts: its content differs" in standing.run(*refresh)


def test_up_repairs_the_node_that_drifted_and_no_other(standing: Checkout) -> None:
    runs = len(standing.configured())
    standing.up()
    assert standing.configured()[runs:] == [{NODE}]
    assert {report["state"] for report in scan(standing).values()} == {"clean"}


def test_a_converge_does_not_bless_what_a_stranger_added(standing: Checkout) -> None:
    standing.on_node(NODE, "sh", "-c", f"echo 'MaxSessions 3' > {STRANGER}")
    strange = {("base", "listing", "/etc/ssh/sshd_config.d"), ("base", "effective", "sshd -T")}
    assert found(scan(standing, "--host", NODE, expect=DRIFTED)[NODE]) == strange
    standing.up()
    assert found(scan(standing, "--host", NODE, expect=DRIFTED)[NODE]) == strange
    standing.on_node(NODE, "rm", STRANGER)
    assert scan(standing)[NODE]["state"] == "clean"


def test_a_manifest_that_was_tampered_with_on_the_node_is_found(standing: Checkout) -> None:
    path = "/var/lib/causeway/manifest.json"
    before = standing.on_node(NODE, "cat", path)
    assert standing.on_node(NODE, "stat", "-c", "%a %U", path) == "600 root"
    assert "127.0.0.1" not in before, "no content leaves the controller's copy"
    standing.on_node(NODE, "sh", "-c", f"cp -p {path} /root/kept && sed -i 's/chrony/chronY/' {path}")
    report = scan(standing, expect=DRIFTED)[NODE]
    assert found(report) == {("manifest", "file", path)}
    standing.on_node(NODE, "mv", "/root/kept", path)
    assert scan(standing)[NODE]["state"] == "clean"


def test_a_changed_machine_id_is_a_difference_and_makes_no_new_node(standing: Checkout) -> None:
    path = "/etc/machine-id"
    change = f"cp -p {path} /root/kept && tr 0-9a-f 1-9a-f0 < /root/kept > {path}"
    standing.on_node(NODE, "sh", "-c", change)
    report = scan(standing, expect=DRIFTED)[NODE]
    assert found(report) == {("manifest", "machine", path)}
    inventory = f"inventories/{standing.stack}"
    playbook = ["ansible-playbook", "playbooks/roles.yml", "--tags=base", "-i", inventory]
    text = standing.run("exec", *playbook, "--limit", NODE).replace("\n", " ")
    assert f"{path} is " in text
    assert found(scan(standing, expect=DRIFTED)[NODE]) == {("manifest", "machine", path)}
    standing.on_node(NODE, "cp", "-p", "/root/kept", path)
    assert scan(standing)[NODE]["state"] == "clean"


def test_nodes_that_cannot_be_scanned_are_named_and_the_others_are_scanned(standing: Checkout) -> None:
    prefix = f"cw-{standing.stack}"
    standing.on_node(NODE, "mv", "/usr/bin/python3", "/usr/bin/python3.away")
    said("podman", "pause", f"{prefix}-shanghai-control-0")
    try:
        reports = scan(standing, expect=1)
    finally:
        said("podman", "unpause", f"{prefix}-shanghai-control-0")
        standing.on_node(NODE, "mv", "/usr/bin/python3.away", "/usr/bin/python3")
    assert reports["tokyo-control-0"]["state"] == "clean"
    assert (reports[NODE]["state"], reports[NODE]["message"]) == (
        "failed",
        "it has no python3: install it there",
    )
    assert reports["shanghai-control-0"]["state"] == "unreachable"
    assert "no answer" in reports["shanghai-control-0"]["message"]


def test_a_reboot_is_no_drift(standing: Checkout) -> None:
    said("podman", "restart", f"cw-{standing.stack}-{NODE}")
    standing.up()
    assert scan(standing)[NODE]["state"] == "clean"


def test_nothing_to_repair_is_said_and_nothing_is_done(standing: Checkout) -> None:
    text = standing.run(*repair(standing))
    assert "nothing to repair" in text
    assert "changed=0" in text
    assert "base :" not in text
    for words in ((), ("--tags", "base"), ("--check",)):
        text = standing.run(*repair(standing, "--limit", NODE, *words))
        assert "nothing to repair" in text
        assert "Traceback" not in text, "the connection that nothing used was left half open"


def test_a_repair_names_a_stale_role_and_does_not_roll_it_out(standing: Checkout) -> None:
    tasks = standing.folder / "roles" / "tcp_tuning" / "tasks" / "main.yml"
    sealed = tasks.read_text()
    tasks.write_text(f"{sealed}# another version\n")
    try:
        text = standing.run(*repair(standing))
    finally:
        tasks.write_text(sealed)
    assert text.replace("\n", " ").count("tcp_tuning is stale") == len(standing.instances())
    assert "tcp_tuning :" not in text


def test_check_shows_what_would_be_done_and_does_nothing(standing: Checkout) -> None:
    standing.on_node(NODE, "sh", "-c", "echo '# changed' >> /etc/hosts")
    text = standing.run(*repair(standing, "--check"))
    assert "base: file /etc/hosts: its content differs" in text
    assert "# changed" in standing.on_node(NODE, "cat", "/etc/hosts")


def test_only_the_drifted_role_runs_on_only_the_drifted_node(standing: Checkout) -> None:
    text = standing.run(*repair(standing))
    assert "tcp_tuning :" not in text
    assert f"changed: [{OTHER}]" not in text
    assert scan(standing)[NODE]["state"] == "clean"


def test_a_repair_proves_the_roles_that_ran_and_all_of_the_node_if_asked(standing: Checkout) -> None:
    """The proof fails where no record differs: a check of base's looks at what no role governs."""
    kept = standing.folder / ".causeway" / "stacks" / standing.stack / "verification.json"
    before = {(check["host"], check["role"]) for check in json.loads(kept.read_text())["checks"]}
    check = standing.folder / "tests" / "verify" / "base" / "test_strange.py"
    check.write_text(CHECK)
    standing.on_node(NODE, "touch", BESIDE)
    change = "sysctl -qw net.ipv4.tcp_mtu_probing=2"
    failure = "nothing strange lies there"
    try:
        standing.on_node(NODE, "sh", "-c", change)
        standing.run(*repair(standing, *PROVEN))
        standing.on_node(NODE, "sh", "-c", change)
        everything = repair(standing, *PROVEN, "-e", "repair_verify_all=true")
        assert failure in standing.run(*everything, expect=ANSIBLE_FAILED).replace("\n", " ")
        standing.on_node(NODE, "sh", "-c", f"rm {LIMITS}")
        text = standing.run(*repair(standing, *PROVEN), expect=ANSIBLE_FAILED)
        assert failure in text.replace("\n", " ")
    finally:
        standing.on_node(NODE, "rm", BESIDE)
        check.unlink()
    checks = json.loads(kept.read_text())["checks"]
    assert {(check["host"], check["role"]) for check in checks} == before, "of the rest what was known"
    failed = [check for check in checks if check["verdict"] == "failed"]
    assert {(check["host"], check["role"]) for check in failed} == {(NODE, "base")}
    assert scan(standing)[NODE]["state"] == "clean"


@pytest.mark.long
def test_every_node_is_proven_by_the_roles_that_ran_there(standing: Checkout) -> None:
    kept = standing.folder / ".causeway" / "stacks" / standing.stack / "verification.json"
    kept.unlink()
    standing.on_node(NODE, "sysctl", "-qw", "net.ipv4.tcp_mtu_probing=2")
    standing.on_node(OTHER, "sh", "-c", "echo '# changed' >> /etc/hosts")
    standing.run(*repair(standing, *PROVEN))
    checks = json.loads(kept.read_text())["checks"]
    assert {(check["host"], check["role"]) for check in checks} == {(NODE, "tcp_tuning"), (OTHER, "base")}


def test_what_somebody_added_goes_with_consent_only(standing: Checkout) -> None:
    standing.on_node(NODE, "sh", "-c", f"echo 'MaxSessions 3' > {STRANGER} && systemctl reload ssh")
    text = standing.run(*repair(standing), expect=ANSIBLE_FAILED)
    assert "repair_remove_added=true" in text
    assert standing.on_node(NODE, "cat", STRANGER) == "MaxSessions 3"
    text = standing.run(*repair(standing, "-e", "repair_remove_added=true"))
    assert "Reload sshd" in text, "the running sshd has to learn of it"
    assert scan(standing)[NODE]["state"] == "clean"


def test_a_disruptive_role_waits_for_consent(standing: Checkout) -> None:
    standing.on_node(NODE, "systemctl", "stop", "causeway-wan-routes")
    named = ["-e", '{"repair_disruptive_roles": ["tcp_tuning"]}']
    assert "tcp_tuning :" not in standing.run(*repair(standing, *named), expect=ANSIBLE_FAILED)
    assert "tcp_tuning :" in standing.run(*repair(standing, *named, "-e", "repair_disruptive=true"))


def test_a_node_that_hangs_is_named_and_the_others_are_repaired(standing: Checkout) -> None:
    standing.on_node(NODE, "sh", "-c", "echo '# changed' >> /etc/hosts")
    standing.on_node(OTHER, "sh", "-c", f"{HANGS} && chmod 0755 /usr/bin/python3")
    try:
        text = standing.run(*repair(standing), expect=ANSIBLE_FAILED)
    finally:
        standing.on_node(OTHER, "mv", "/usr/bin/python3.away", "/usr/bin/python3")
    assert f"{OTHER} was not scanned and not repaired" in text.replace("\n", " ")
    assert {report["state"] for report in scan(standing).values()} == {"clean"}


def test_nodes_that_cannot_be_repaired_are_named_and_stop_no_other(standing: Checkout) -> None:
    """The role cannot write on one, the way of another cannot be cleared; each is a wave of its own."""
    blocked = f"cp {LIMITS} /root/l && echo '# changed' >> /root/l && mount --bind /root/l {LIMITS}"
    standing.on_node(NODE, "sh", "-c", blocked)
    standing.on_node(THIRD, "sh", "-c", f"rm {LIMITS} && mkdir {LIMITS} && mount -t tmpfs none {LIMITS}")
    standing.on_node(OTHER, "sh", "-c", "echo '# changed' >> /etc/hosts")
    standing.on_node(OTHER, "sysctl", "-qw", "net.ipv4.tcp_mtu_probing=2")
    one_by_one = ("-e", "repair_serial=1")
    try:
        text = standing.run(*repair(standing, *PROVEN, *one_by_one), expect=ANSIBLE_FAILED)
    finally:
        standing.on_node(NODE, "umount", LIMITS)
        standing.on_node(THIRD, "umount", LIMITS)
    end = text.partition("PLAY RECAP")[2]
    named = re.findall(r"(\S+) was not repaired: (.*)\n.*`umount` takes it off", end)
    assert sorted(host for host, _ in named) == sorted([NODE, THIRD])
    assert all(LIMITS in why and "Device or resource busy" in why for _, why in named)
    reports = scan(standing, expect=DRIFTED)
    assert reports[OTHER]["state"] == "clean", "in both roles, also in the one that came after"
    assert reports[THIRD]["state"] == "drift"
    standing.run(*repair(standing, *PROVEN, *one_by_one))
    assert {report["state"] for report in scan(standing).values()} == {"clean"}


@pytest.mark.long
def test_a_task_that_fails_twice_alike_is_not_tried_again(standing: Checkout) -> None:
    """All nodes have the same in their way, and come one by one: the third is spared that role alone."""
    nodes = (NODE, OTHER, THIRD)
    for node in nodes:
        blocked = f"cp {LIMITS} /root/l && echo '# changed' >> /root/l && mount --bind /root/l {LIMITS}"
        standing.on_node(node, "sh", "-c", blocked)
        standing.on_node(node, "systemctl", "stop", "causeway-wan-routes")
    one_by_one = ("-e", "repair_serial=1")
    try:
        text = standing.run(*repair(standing, *PROVEN, *one_by_one), expect=ANSIBLE_FAILED)
        reports = scan(standing, expect=DRIFTED)
    finally:
        for node in nodes:
            standing.on_node(node, "umount", LIMITS)
    end = text.partition("PLAY RECAP")[2]
    failed = set(re.findall(r"(\S+) was not repaired: base : ", end))
    (spared,) = set(nodes) - failed
    assert len(failed) == 2
    assert re.search(r"the task base : .* failed on .* in the same way: .*Device or resource busy", end)
    assert f"not tried on {spared}: the role base was left out there" in end
    assert "still differs" not in text, "of what was left out nothing is said twice"
    assert {role for role, *_ in found(reports[spared])} == {"base"}, "the other role came after it"
    assert all({role for role, *_ in found(reports[node])} == {"base", "tcp_tuning"} for node in failed)
    standing.run(*repair(standing, *PROVEN))
    assert {report["state"] for report in scan(standing).values()} == {"clean"}


def test_a_repair_that_was_killed_is_completed_by_the_next(standing: Checkout) -> None:
    for change in ("echo '# changed' >> /etc/hosts", f"rm {LIMITS}"):
        standing.on_node(NODE, "sh", "-c", change)
    process = standing.start(*repair(standing, *PROVEN))
    wait_for(
        lambda: "# changed" not in standing.on_node(NODE, "cat", "/etc/hosts"), "the first file repaired"
    )
    assert proofs(standing), "ready, while the roles run"
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    standing.running.remove(process)
    wait_for(lambda: not proofs(standing), "the proof to end with the repair")
    standing.run(*repair(standing))
    assert scan(standing)[NODE]["state"] == "clean"


@pytest.mark.long
def test_on_a_full_disk_drift_is_found_and_what_cannot_be_kept_is_not_sealed(standing: Checkout) -> None:
    folder = "/var/lib/causeway"
    fill = f"mount -t tmpfs -o size=64k,mode=0755 full {folder} && head -c 1M /dev/zero > {folder}/fill"
    standing.on_node(NODE, "sh", "-c", f"{fill}; echo '# changed' >> /etc/hosts")
    try:
        assert ("base", "file", "/etc/hosts") in found(scan(standing, expect=DRIFTED)[NODE])
        text = standing.run(*repair(standing))
        assert re.search(rf"{NODE}: not sealed: cannot write {folder}/manifest.json: .*No space left", text)
        base = scan(standing, expect=DRIFTED)[NODE]["roles"]["base"]
        assert (base["state"], base["differences"]) == ("not sealed", [])
        assert "No space left on device" in base["notes"][0]
    finally:
        standing.on_node(NODE, "umount", folder)
    standing.run(*repair(standing))
    assert {report["state"] for report in scan(standing).values()} == {"clean"}


def test_a_role_that_was_not_sealed_is_converged_by_a_repair_and_by_up(standing: Checkout) -> None:
    """Somebody writes while the role runs: nothing is sealed, and the node's copy of the manifest says so."""
    nodes = {NODE, OTHER}
    loop = f"while sleep 0.05; do grep -qs stranger {LIMITS} || echo '# stranger' >> {LIMITS}; done"
    for node in nodes:
        standing.on_node(node, "systemd-run", "-q", "--unit=stranger", "sh", "-c", loop)
    inventory = f"inventories/{standing.stack}"
    playbook = ["ansible-playbook", "playbooks/roles.yml", "--tags=base", "-i", inventory]
    text = standing.run("exec", *playbook, "--limit", ",".join(nodes))
    assert "something else changed it during the run" in text
    for node in nodes:
        standing.on_node(node, "systemctl", "stop", "stranger")
    reports = scan(standing, expect=DRIFTED)
    assert all(reports[node]["roles"]["base"]["state"] == "not sealed" for node in nodes)
    assert all(found(reports[node]) == {("base", "file", LIMITS)} for node in nodes), "as sealed before"
    text = standing.run(*repair(standing, "--limit", NODE))
    assert "base is not sealed" in text
    assert "tcp_tuning :" not in text
    runs = len(standing.configured())
    standing.up()
    assert standing.configured()[runs:] == [{OTHER}]
    assert {report["state"] for report in scan(standing).values()} == {"clean"}
    assert all("stranger" not in standing.on_node(node, "cat", LIMITS) for node in nodes)


def test_a_changed_variable_makes_the_manifest_stale(standing: Checkout) -> None:
    standing.override("more", base_sshd_max_auth_tries=5)
    reports = scan(standing, expect=DRIFTED)
    assert {report["state"] for report in reports.values()} == {"stale"}


def test_a_name_that_is_none_is_said_at_once(standing: Checkout) -> None:
    text = standing.run("exec", "causeway", "drift", standing.stack, "--region", "tokio", expect=2)
    assert "no region tokio" in text
