"""What a repair does beyond running roles, planned from what a scan found."""

import subprocess
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from infra.drift.findings import Difference, HostReport, RoleReport
from infra.drift.kinds.unit import unmask
from infra.drift.looks import shown_key
from infra.drift.manifest import Entry, Manifest, RoleManifest, UncoveredTask
from infra.drift.repair import HostPlan, Obstacles, host_plan, in_words, keep_login


def plan_for(kind: str, key: str, expected: dict[str, Any], found: dict[str, Any]) -> HostPlan:
    own = Entry(kind="file", key="/etc/ssh/sshd_config.d/00.conf", task="t", want={})
    sshd = Entry(
        kind="effective",
        key="sshd -T",
        task="t",
        want={},
        how={"inputs": ["/etc/ssh/sshd_config.d"], "sealed": {own.key: "1"}},
    )
    held = Entry(kind="package", key="p", task="t", want={"version": "2", "hold": True})
    manifest = Manifest(host="n", roles={"base": RoleManifest(entries=[own, sshd, held])})
    report = HostReport("n", "r", "drift")
    report.roles["base"] = RoleReport("drift", [Difference("base", "t", kind, key, expected, found)])
    report.roles["tcp_tuning"] = RoleReport("clean")
    return host_plan(report, manifest)


def test_only_the_roles_that_drifted_run() -> None:
    plan = plan_for("file", "/etc/hosts", {"digest": "a"}, {"digest": "b"})
    assert plan.roles == ["base"]
    assert plan.lines == ["base: file /etc/hosts: its content differs"]


def test_what_the_roles_generated_anew_goes_unsaid_and_nothing_else() -> None:
    entries = [
        Entry(kind="file", key="/key", task="t", want={}, how={"generated": True}),
        Entry(kind="file", key="/conf", task="t", want={}),
    ]
    manifest = Manifest(host="n", roles={"base": RoleManifest(entries=entries)})

    sealed = {"type": "file", "digest": "a", "mode": "0600"}

    def said(key: str, changes: set[tuple[str, str, str]], **found: str) -> list[str]:
        report = HostReport("n", "r", "drift")
        report.roles["base"] = RoleReport("drift", [Difference("base", "t", "file", key, sealed, found)])
        return host_plan(report, manifest, changes).lines

    changed = {("base", "file", "/key"), ("base", "file", "/conf")}
    assert said("/key", changed, digest="b") == []
    assert said("/key", set(), digest="b"), "somebody else wrote it"
    assert said("/key", {("other", "file", "/key")}, digest="b"), "so did another role"
    assert said("/key", changed, digest="b", mode="0666"), "more than its content differs"
    assert said("/key", changed, type="absent")
    assert said("/conf", changed, digest="b"), "the same content is written again"


def test_an_immutable_file_is_thawed() -> None:
    assert plan_for("file", "/f", {"immutable": False}, {"immutable": True}).obstacles.thaw == ["/f"]


def test_attributes_that_were_not_there_are_taken_away_and_an_append_only_file_is_thawed() -> None:
    sealed = {"attributes": ["user.ours 1", "system.posix_acl_access 1"]}
    found = {"attributes": ["append-only", "system.posix_acl_access 2", "user.ours 1"]}
    obstacles = plan_for("file", "/f", sealed, found).obstacles
    assert (obstacles.thaw, obstacles.attributes) == (["/f"], {"/f": ["system.posix_acl_access"]})
    assert (
        plan_for("file", "/f", {"attributes": ["user.ours 1"]}, {"attributes": []}).obstacles == Obstacles()
    )


def test_an_edited_file_of_a_package_is_installed_again_and_its_unit_restarted() -> None:
    path = "/usr/lib/systemd/system/x.service"
    entry = Entry(kind="unit", key="x.service", task="t", want={}, how={"sealed": {path: "x:amd64.md5sums"}})
    manifest = Manifest(host="n", roles={"base": RoleManifest(entries=[entry])})
    report = HostReport("n", "r", "drift")
    differs = ({"contents": [f"{path} as its package brought it"]}, {"contents": [f"{path} 1f"]})
    report.roles["base"] = RoleReport("drift", [Difference("base", "t", "unit", "x.service", *differs)])
    obstacles = host_plan(report, manifest, set()).obstacles
    assert obstacles.restart == ["x.service"]
    (command,) = obstacles.commands
    assert command["argv"][-1] == "x:amd64"
    assert "--reinstall" in command["argv"]


def test_a_directory_in_a_files_place_is_moved_away_and_a_missing_file_is_not() -> None:
    there = plan_for("file", "/f", {"type": "file", "mode": "0644"}, {"type": "directory", "mode": "0755"})
    gone = plan_for("file", "/f", {"type": "file", "mode": "0644"}, {"type": "absent", "mode": None})
    assert (there.obstacles.wrong_type, there.obstacles.ownership) == (["/f"], {})
    assert (gone.obstacles.wrong_type, gone.obstacles.parents) == ([], ["/f"])


def test_what_must_be_absent_is_left_to_the_role() -> None:
    assert plan_for("absent", "/f", {"type": "absent"}, {"type": "file"}).obstacles.wrong_type == []


def test_owner_and_mode_come_back_as_sealed() -> None:
    plan = plan_for("file", "/f", {"owner": "root", "mode": "0644"}, {"owner": "daemon", "mode": "0666"})
    assert plan.obstacles.ownership == {"/f": {"owner": "root", "mode": "0644"}}


def test_an_added_file_is_named_and_a_missing_one_is_not() -> None:
    plan = plan_for("listing", "/etc/cron.d", {"names": ["a", "b"]}, {"names": ["a", "c"]})
    assert plan.obstacles.added == ["/etc/cron.d/c"]


def test_a_programs_other_settings_name_where_to_look() -> None:
    plan = plan_for("effective", "sshd -T", {"output": ["a"]}, {"output": ["b"]})
    own = "/etc/ssh/sshd_config.d/00.conf"
    assert plan.obstacles.added_to == [
        {"inputs": ["/etc/ssh/sshd_config.d"], "known": [own], "own": [own]},
    ]


def test_a_mask_is_taken_off_and_no_file_is_blamed_for_it() -> None:
    found = {"load": "masked", "fragment": "/etc/systemd/system/x.service"}
    plan = plan_for("unit", "x.service", {"load": "loaded", "fragment": "/usr/lib/x.service"}, found)
    taken_off = {"what": "unmasked x.service", "argv": [*unmask("x.service")]}
    assert (plan.obstacles.commands, plan.obstacles.added) == ([taken_off], [])


def test_a_foreign_drop_in_is_moved_away_and_the_unit_started_again() -> None:
    dropin = "/etc/systemd/system/x.service.d/y.conf"
    plan = plan_for("unit", "x.service", {"dropins": []}, {"dropins": [dropin]})
    assert (plan.obstacles.added, plan.obstacles.restart) == ([dropin], ["x.service"])


def test_the_sealed_version_and_hold_come_back() -> None:
    plan = plan_for("package", "p", {"version": "2", "hold": True}, {"version": "1", "hold": False})
    hold = {"what": "hold p", "argv": ["apt-mark", "hold", "p"]}
    assert (plan.obstacles.packages, plan.obstacles.commands) == ({"p": "2"}, [hold])


def test_a_file_system_gets_its_options_back_unless_it_is_not_mounted() -> None:
    sealed = {"mounted": "tmpfs tmpfs nosuid,rw"}
    remounted = plan_for("mount", "/m", sealed, {"mounted": "tmpfs tmpfs rw"})
    gone = plan_for("mount", "/m", sealed, {"mounted": None})
    (remount,) = remounted.obstacles.commands
    assert (remount["argv"], gone.obstacles.commands) == (["mount", "-o", "remount,nosuid,rw", "/m"], [])


def test_a_file_system_gets_no_options_of_what_waited_in_its_place() -> None:
    sealed = {"mounted": "systemd-1 autofs direct,fd=63,maxproto=5,minproto=5,pgrp=1,pipe_ino=10237,rw"}
    there = plan_for("mount", "/m", sealed, {"mounted": "10.0.0.1:/x nfs4 rw,vers=4.2"})
    assert there.obstacles == Obstacles()


def test_the_nodes_own_manifest_is_written_by_a_converge_of_all_roles() -> None:
    report = HostReport("n", "r", "drift")
    report.roles |= {"base": RoleReport("clean"), "tcp_tuning": RoleReport("clean")}
    difference = Difference("manifest", "t", "file", "/m", {"digest": "a"}, {"digest": "b"})
    report.roles["manifest"] = RoleReport("drift", [difference])
    assert host_plan(report, Manifest(host="n")).roles == ["base", "tcp_tuning"]


def made_by(kind: str, key: str, *tasks: str, handler: bool = False) -> Entry:
    return Entry(kind=kind, key=key, task="", tasks=list(tasks), want={}, handler=handler)


ENTRIES = (
    made_by("file", "/a", "Write a", "Set the mode of a"),
    made_by("file", "/b", "Write b"),
    made_by("directory", "/d", "Create the directories", "Write b"),
    made_by("unit", "x.service", "Run x"),
    made_by("package", "x", "Install x"),
    made_by("file", "/h", "Reload", handler=True),
)


def settled(kind: str, key: str, *entries: Entry, state: str = "drift", copy: bool = False) -> list[str]:
    """What a repair leaves out of a role of which one thing differs."""
    part = RoleManifest(
        entries=list(entries or ENTRIES), uncovered=[UncoveredTask(task="Run x", module="shell")]
    )
    report = HostReport("n", "r", "drift")
    report.roles["base"] = RoleReport(state, [Difference("base", "t", kind, key, {}, {})])  # type: ignore[arg-type]
    if copy:
        report.roles["manifest"] = RoleReport("drift", [Difference("manifest", "t", "file", "/m", {}, {})])
    return host_plan(report, Manifest(host="n", roles={"base": part})).settled.get("base", [])


def test_tasks_of_what_is_as_sealed_are_left_out_and_those_of_what_differs_are_not() -> None:
    assert settled("file", "/a") == ["Create the directories", "Install x", "Reload", "Write b"]
    assert settled("directory", "/d") == ["Install x", "Reload", "Set the mode of a", "Write a"]


def test_where_a_units_file_is_written_again_the_tasks_run_that_have_systemd_read_it() -> None:
    """The file may be in force as somebody edited it, and a timer's task speaks for the service as well."""
    service, plain = "/etc/systemd/system/x.service", "/etc/x.conf"
    entries = (
        made_by("file", service, "Write its files"),
        made_by("file", plain, "Configure"),
        made_by("unit", "x.timer", "Run it by time"),
    )
    assert settled("file", service, *entries) == ["Configure"]
    assert settled("file", plain, *entries) == ["Run it by time", "Write its files"]


def test_a_task_of_which_nobody_knows_all_that_it_does_is_never_left_out() -> None:
    assert "Run x" not in settled("file", "/b")


def test_a_role_runs_whole_where_one_repair_may_undo_what_was_as_sealed() -> None:
    assert settled("package", "x") == []
    assert settled("file", "/a", state="stale") == []
    assert settled("file", "/a", copy=True) == []
    assert settled("file", "/h") == [], "only the handler would bring it back"


def test_a_manifest_that_does_not_know_all_tasks_has_the_role_run_whole() -> None:
    assert settled("file", "/a", *ENTRIES, made_by("file", "/old")) == []
    assert settled("file", "/a", *ENTRIES, made_by("unit", "old.service", handler=True)) != []


def test_a_repair_says_first_how_it_stands_and_what_differs_on_which_node() -> None:
    hosts = {"b": {"lines": ["base: file /b: gone"]}, "a": {"lines": ["x", "y"]}}
    said = list(in_words(5, {"hosts": hosts, "unreachable": {"c": "no answer"}}))
    assert said == [
        "5 nodes scanned, 2 differ, 1 cannot be scanned",
        "a: x",
        "a: y",
        "b: base: file /b: gone",
    ]
    nothing = list(in_words(5, {"hosts": {}, "unreachable": {}}))
    assert nothing == ["5 nodes scanned, 0 differ, 0 cannot be scanned: nothing to repair"]


def test_an_older_package_is_updated_and_only_a_named_version_is_brought_back_as_it_was() -> None:
    report = HostReport("n", "r", "drift")
    sealed = {"version": "2", "hold": False}
    entries = [
        Entry(kind="package", key="free", task="t", want=sealed),
        Entry(kind="package", key="named", task="t", want=sealed, how={"pinned": True}),
        Entry(kind="package", key="held", task="t", want=sealed | {"hold": True}),
    ]
    differs = [Difference("base", "t", "package", e.key, {"version": "2"}, {"version": "1"}) for e in entries]
    report.roles["base"] = RoleReport("drift", differs)
    found = host_plan(report, Manifest(host="n", roles={"base": RoleManifest(entries=entries)})).obstacles
    assert (found.packages, found.updates) == ({"named": "2", "held": "2"}, {"free": "2"})


def test_a_mask_until_the_next_boot_is_taken_off_as_well() -> None:
    found = {"load": "masked", "enabled": "masked-runtime"}
    plan = plan_for("unit", "x.service", {"load": "loaded", "enabled": "enabled"}, found)
    taken_off = {"what": "unmasked x.service", "argv": [*unmask("--runtime", "x.service")]}
    assert plan.obstacles.commands == [taken_off]


def test_a_file_that_no_program_has_read_is_not_written_again_for_a_stranger() -> None:
    own = Entry(kind="file", key="/etc/sysctl.d/0.conf", task="t", want={})
    how = {"inputs": ["/etc/sysctl.d"], "argv": [], "sealed": {}}
    files = Entry(kind="effective", key="sysctl's files", task="t", want={}, how=how)
    manifest = Manifest(host="n", roles={"base": RoleManifest(entries=[own, files])})
    report = HostReport("n", "r", "drift")
    differs = Difference("base", "t", files.kind, files.key, {"lines": []}, {"lines": ["a = 1"]})
    report.roles["base"] = RoleReport("drift", [differs])
    (added,) = host_plan(report, manifest).obstacles.added_to
    assert added == {"inputs": ["/etc/sysctl.d"], "known": [own.key], "own": []}


def test_an_accounts_added_keys_are_taken_out_of_the_files_in_which_they_are() -> None:
    added = ["/root/.ssh/authorized_keys2: ssh-ed25519 SHA256:x evil", "/etc/keys/root: ssh-rsa SHA256:y"]
    sealed = "/root/.ssh/authorized_keys: ssh-rsa SHA256:z known"
    plan = plan_for("authorized_keys", "root", {"keys": [sealed]}, {"keys": [sealed, *added]})
    assert plan.obstacles.added_keys == {
        "/root/.ssh/authorized_keys2": ["ssh-ed25519 SHA256:x evil"],
        "/etc/keys/root": ["ssh-rsa SHA256:y"],
    }


def test_the_key_of_the_repair_itself_is_never_taken_out(tmp_path: Path) -> None:
    for name in ("ours", "strangers"):
        asyncssh.generate_private_key("ssh-ed25519", name).write_private_key(tmp_path / name)
    keys = {name: asyncssh.read_private_key(tmp_path / name) for name in ("ours", "strangers")}
    ours, strangers = (shown_key(key.export_public_key().decode()) for key in keys.values())
    found = Obstacles(added_keys={"/root/a": [ours, strangers], "/root/b": [f"no-pty {ours}"]})
    keep_login(found, "root", str(keys["ours"].get_fingerprint()))
    assert found.added_keys == {"/root/a": [strangers]}


@pytest.mark.parametrize(("user", "kept"), [("root", False), ("ada", True)])
def test_by_what_the_repairs_user_is_root_is_never_taken_away(user: str, kept: bool) -> None:
    found = Obstacles(added=["/etc/sudoers.d/admins", "/etc/cron.d/evil"])
    found.undo("ada in group sudo", "gpasswd", "--delete", "ada", "sudo")
    found.undo("eve uid 1001", "usermod", "--expiredate", "1", "--shell", "/usr/sbin/nologin", "eve")
    keep_login(found, user, "SHA256:x")
    assert ("/etc/sudoers.d/admins" in found.added) is not kept
    assert "/etc/cron.d/evil" in found.added
    left = [command["argv"][-1] for command in found.undone]
    assert left == (["eve"] if kept else ["sudo", "eve"])


def test_a_file_that_is_gone_from_a_directory_runs_only_the_tasks_that_make_it() -> None:
    """Others write there, too; the directory's own entry is governed by all of them."""
    folder = Entry(
        kind="listing",
        key="/etc/consul.d",
        task="Configure",
        tasks=["Configure", "Install"],
        want={"names": []},
    )
    files = [
        Entry(kind="file", key=f"/etc/consul.d/{name}", task=task, tasks=[task], want={})
        for name, task in (("a.hcl", "Configure"), ("a.pem", "Install"))
    ]
    part = RoleManifest(entries=[folder, *files])
    report = HostReport("n", "r", "drift")
    gone = Difference(
        "consul", "Install", "file", "/etc/consul.d/a.pem", {"type": "file"}, {"type": "absent"}
    )
    lacks = Difference("consul", "Configure", "listing", folder.key, {"names": ["a.pem"]}, {"names": []})
    report.roles["consul"] = RoleReport("drift", [gone, lacks])
    assert host_plan(report, Manifest(host="n", roles={"consul": part})).settled == {"consul": ["Configure"]}


def test_tasks_that_a_program_reads_run_whatever_else_differs() -> None:
    """For what it says, a file of the role is written again that is as it was sealed."""
    entries = [
        Entry(kind="effective", key="apt-config dump", task="Let apt", tasks=["Let apt"], want={"lines": []}),
        Entry(kind="file", key="/etc/locale.conf", task="Set", tasks=["Set"], want={}),
        Entry(kind="file", key="/etc/hosts", task="Write", tasks=["Write"], want={}),
    ]
    report = HostReport("n", "r", "drift")
    says = Difference("base", "Let apt", "effective", "apt-config dump", {"lines": []}, {"lines": ["a"]})
    gone = Difference("base", "Set", "file", "/etc/locale.conf", {"type": "file"}, {"type": "absent"})
    report.roles["base"] = RoleReport("drift", [gone, says])
    plan = host_plan(report, Manifest(host="n", roles={"base": RoleManifest(entries=entries)}))
    assert plan.settled == {"base": ["Write"]}


@pytest.mark.parametrize(
    ("state", "names", "meanwhile"),
    [
        ("active", "x.service x-too.service", False),
        ("active", "x.service", True),
        ("inactive", "x.service", False),
    ],
)
def test_a_daemon_stops_while_its_unit_gets_a_name_back_that_it_lost_by_a_mask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, names: str, meanwhile: bool
) -> None:
    folder, stub = tmp_path / "units", tmp_path / "systemctl"
    folder.mkdir()
    for name, target in {"x-too.service": "x.service", "y-too.service": "y.service"}.items():
        (folder / name).symlink_to(Path("/usr/lib", target))
    said = f"*=Names) echo {names} ;; *=ActiveState) echo {state}"
    stub.write_text(
        f"#!/bin/sh\ncase $* in show*) case $2 in {said} ;; esac; exit ;; esac\n"
        f"echo $* >>{tmp_path}/calls\n[ $1 != unmask ] || exit 3\n"
    )
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    argv = [word.replace("/etc/systemd/system", str(folder)) for word in unmask("--runtime", "x.service")]
    assert subprocess.run(argv, check=False).returncode == 3, "as systemctl ended"
    calls = (tmp_path / "calls").read_text().splitlines()
    unmasked = "unmask --runtime x.service"
    assert calls == (["stop x.service", unmasked, "start x.service"] if meanwhile else [unmasked])
