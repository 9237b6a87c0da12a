"""What a finished task is recorded as having made true."""

# ruff: noqa: S108 - /dev/shm is what is mounted, not a place for temporary files

from pathlib import Path
from typing import Any

import pytest

from infra.drift.coverage import role_coverage
from infra.drift.kind import Task
from infra.drift.kinds.path import look_at_path
from infra.drift.looks import Look
from infra.drift.record import Recorder, RoleRecord, plain_arguments
from infra.inventory.roles import helper_roles, role_order

COVERED_PERCENT = 95


def task(module: str, result: dict[str, Any] | None = None, **args: Any) -> Task:
    name = module if "." in module else f"ansible.builtin.{module}"
    return Task(name="do it", module=name, args=args, result=result or {})


def recorded(*tasks: Task, is_read: bool = False, declared: tuple[dict[str, Any], ...] = ()) -> RoleRecord:
    recorder = Recorder()
    for done in tasks:
        recorder.take("node", "role", done, is_read=is_read, declared=declared)
    return recorder.hosts["node"]["role"]


def reported(record: RoleRecord) -> dict[tuple[str, str], dict[str, Any]]:
    return {at: claim["reported"] for at, claim in record.claims.items()}


@pytest.mark.parametrize("mode", [0, 0o7, 0o644, 0o1777, 0o2775, 0o4755, 0o7777])
def test_a_mode_is_recorded_as_a_look_at_the_node_writes_it(mode: int, tmp_path: Path) -> None:
    """Ansible puts a zero before whatever it is, so that a sticky directory's has five digits."""
    there = tmp_path / "there"
    there.touch()
    there.chmod(mode)
    found = look_at_path(Look("", "seal", []), str(there), {"content": False})
    said = {"path": str(there), "state": "file", "mode": f"0{mode:03o}"}
    assert reported(recorded(task("file", said)))["file", str(there)]["mode"] == found["mode"]


FILE = {"mode": "0644", "owner": "root", "group": "root", "state": "file"}
RECORDED = [
    (
        task("template", {**FILE, "dest": "/etc/hosts", "checksum": "a1"}, dest="/etc/hosts"),
        {("file", "/etc/hosts"): {"mode": "0644", "owner": "root", "group": "root", "sha1": "a1"}},
    ),
    (
        task("copy", {"path": "/etc/locale.conf", "checksum": "a1"}, dest="/etc/default/locale"),
        {("file", "/etc/locale.conf"): {"sha1": "a1"}, ("link", "/etc/default/locale"): {}},
    ),
    (
        task("copy", {"path": "/opt/tool.py", "checksum": "a1"}, dest="/opt/"),
        {("file", "/opt/tool.py"): {"sha1": "a1"}},
    ),
    (task("lineinfile", {"changed": False}, path="/etc/x"), {("file", "/etc/x"): {}}),
    (task("file", {"state": "absent", "path": "/etc/old"}), {("absent", "/etc/old"): {}}),
    (
        task("file", {"state": "directory", "path": "/srv", "mode": "0755"}),
        {("directory", "/srv"): {"mode": "0755"}},
    ),
    (
        task("file", {"state": "link", "dest": "/etc/localtime", "src": "/usr/share/zoneinfo/UTC"}),
        {("link", "/etc/localtime"): {"target": "/usr/share/zoneinfo/UTC"}},
    ),
    (
        task("file", {"state": "file", "path": "/etc/shadow", "mode": "0640"}),
        {("file", "/etc/shadow"): {"mode": "0640"}},
    ),
    (
        task("apt", name=["chrony", "tzdata=2026f"], state="present"),
        {("package", "chrony"): {"installed": True}, ("package", "tzdata"): {"installed": True}},
    ),
    (task("apt", name="telnet", state="absent"), {("package", "telnet"): {"installed": False}}),
    (task("dpkg_selections", name="nvidia", selection="hold"), {("package", "nvidia"): {"hold": True}}),
    (
        task("systemd_service", name="chrony", state="started", enabled=True),
        {
            ("unit", "chrony.service"): {"active": "active", "enabled": True},
            ("timekeeping", "chrony.service"): {},
        },
    ),
    (task("systemd", name="x.timer", masked=True), {("unit", "x.timer"): {"masked": True}}),
    (task("systemd_service", daemon_reexec=True), {}),
    (
        task("ansible.posix.sysctl", name="vm.swappiness", sysctl_file="/etc/sysctl.conf"),
        {
            ("sysctl", "vm.swappiness"): {},
            ("file", "/etc/sysctl.conf"): {},
            ("effective", "sysctl's files"): {},
        },
    ),
    (
        task("community.general.modprobe", name="tcp_bbr", state="present", persistent="present"),
        {
            ("module", "tcp_bbr"): {"loaded": True},
            ("file", "/etc/modules-load.d/tcp_bbr.conf"): {},
            ("listing", "/etc/modules-load.d"): {},
        },
    ),
    (task("ansible.posix.mount", path="/dev/shm/", state="present"), {("mount", "/dev/shm"): {}}),
    (task("user", name="ops", state="present"), {("user", "ops"): {"exists": True}}),
    (task("group", name="gpu"), {("group", "gpu"): {"exists": True}}),
    (
        task("ansible.posix.authorized_key", {"keyfile": "/root/.ssh/authorized_keys"}, user="root"),
        {
            ("authorized_keys", "/root/.ssh/authorized_keys"): {},
            ("file", "/root/.ssh/authorized_keys"): {},
            ("authorized_keys", "root"): {},
            ("privilege", "root"): {},
            ("rights", "all"): {},
            ("folders", "all"): {},
            ("programs", "all"): {},
            ("surroundings", "all"): {},
            ("underpinnings", "all"): {},
        },
    ),
    (
        task("hostname", name="tokyo-gpu-0"),
        {
            ("hostname", "hostname"): {"live": "tokyo-gpu-0"},
            ("interfaces", "all"): {},
            ("traffic", "all"): {},
        },
    ),
    (
        task("community.general.locale_gen", name=["ja_JP.UTF-8"]),
        {("locale", "ja_JP.UTF-8"): {"available": True}, ("file", "/etc/locale.gen"): {}},
    ),
    (
        task("causeway_own", {"governs": [{"kind": "route", "key": "10.82.0.0/16"}]}),
        {("route", "10.82.0.0/16"): {}},
    ),
]


@pytest.mark.parametrize(("done", "expected"), RECORDED, ids=lambda value: getattr(value, "module", ""))
def test_a_task_is_recorded_by_what_it_made_true(done: Task, expected: dict[Any, Any]) -> None:
    record = recorded(done)
    assert reported(record) == expected
    assert not record.uncovered


def test_a_loop_over_keys_means_all_of_them_and_says_which_are_taken_out() -> None:
    file = {"keyfile": "/root/.ssh/authorized_keys"}
    record = recorded(
        task("ansible.posix.authorized_key", file, key="ssh-ed25519 x a@a\n"),
        task("ansible.posix.authorized_key", file, key="ssh-ed25519 y b@b\nssh-ed25519 z c@c"),
        task("ansible.posix.authorized_key", file, key="ssh-ed25519 w d@d", state="absent"),
    )
    how = record.claims["authorized_keys", "/root/.ssh/authorized_keys"]["how"]
    assert how["own"] == ["ssh-ed25519 x a@a", "ssh-ed25519 y b@b", "ssh-ed25519 z c@c"]
    assert how["taken"] == ["ssh-ed25519 w d@d"]


UNCOVERED = [
    task("command", {"changed": True}),
    task("shell"),
    task("community.general.npm"),
    task("apt", upgrade="dist"),
    task("apt", deb="/srv/x.deb"),
    task("apt", name="linux-*"),
    task("copy", {"dest": "/opt/tree", "src": "x"}, src="tree/", dest="/opt/tree"),
    task("file", {"state": "directory", "path": "/srv"}, recurse=True),
    task("systemd_service", name="x", scope="user"),
]


@pytest.mark.parametrize("done", UNCOVERED, ids=lambda done: done.module)
def test_what_a_result_cannot_say_is_uncovered(done: Task) -> None:
    record = recorded(done)
    assert record.uncovered == {"do it": done.module}
    assert not record.claims


@pytest.mark.parametrize("module", ["assert", "set_fact", "stat", "setup", "include_tasks"])
def test_tasks_that_change_nothing_govern_nothing(module: str) -> None:
    record = recorded(task(module))
    assert (record.claims, record.uncovered) == ({}, {})


def test_a_command_that_says_it_only_reads_is_no_gap() -> None:
    assert recorded(task("command"), is_read=True).uncovered == {}


def test_a_task_may_say_itself_what_it_governs() -> None:
    declared = ({"kind": "mount", "key": "/dev/shm"},)
    record = recorded(task("command", {"changed": True}), declared=declared)
    assert reported(record) == {("mount", "/dev/shm"): {}}
    assert not record.uncovered


@pytest.mark.parametrize(
    ("state", "aspects"),
    [("present", ("fstab",)), ("absent_from_fstab", ("fstab",)), ("mounted", None), ("absent", None)],
)
def test_of_a_mount_that_a_task_only_writes_down_the_line_counts(
    state: str, aspects: tuple[str, ...] | None
) -> None:
    record = recorded(task("ansible.posix.mount", path="/mnt/files", state=state))
    assert record.claims["mount", "/mnt/files"]["aspects"] == aspects


def test_what_a_task_says_of_a_mount_counts_beside_the_line_that_another_writes() -> None:
    both = ("ansible.posix.mount", "command")
    for modules in (both, both[::-1]):
        recorder = Recorder()
        for module in modules:
            done = task(module, path="/dev/shm", state="present")
            declared = ({"kind": "mount", "key": "/dev/shm"},) if module == "command" else ()
            recorder.take("node", "role", done, is_read=bool(declared), declared=declared)
        assert recorder.hosts["node"]["role"].claims["mount", "/dev/shm"]["aspects"] is None


def test_a_declaration_nobody_understands_is_an_error_and_uncovered() -> None:
    record = recorded(task("command"), declared=({"kind": "mounts", "key": "/dev/shm"},))
    assert "mounts" in record.errors[0]
    assert record.uncovered


def test_a_file_where_all_files_count_governs_the_directory_and_what_the_program_makes_of_it() -> None:
    done = task(
        "template", {"dest": "/etc/ssh/sshd_config.d/00-x.conf"}, dest="/etc/ssh/sshd_config.d/00-x.conf"
    )
    assert {("listing", "/etc/ssh/sshd_config.d"), ("effective", "sshd -T")} <= set(recorded(done).claims)


def test_the_last_task_decides_what_a_path_is() -> None:
    write = task("copy", {"dest": "/etc/x", "checksum": "a1"}, dest="/etc/x")
    remove = task("file", {"state": "absent", "path": "/etc/x"})
    assert set(recorded(write, remove).claims) == {("absent", "/etc/x")}
    assert set(recorded(remove, write).claims) == {("file", "/etc/x")}


def test_setting_the_mode_afterwards_keeps_the_content_governed() -> None:
    write = task("copy", {"dest": "/etc/x", "checksum": "a1"}, dest="/etc/x")
    mode = task("file", {"state": "file", "path": "/etc/x", "mode": "0600"})
    for order in ((write, mode), (mode, write)):
        claim = recorded(*order).claims["file", "/etc/x"]
        assert claim["aspects"] is None
        assert "content" not in claim["how"]
        assert claim["reported"] == {"sha1": "a1", "mode": "0600"}


def test_arguments_are_those_given_completed_by_those_the_module_saw() -> None:
    fields = {"args": {"dest": "/etc/x", "_ansible_check_mode": False}}
    result = {"invocation": {"module_args": {"dest": "/root/x", "mode": "0644"}}}
    assert plain_arguments(fields, result) == {"dest": "/etc/x", "mode": "0644"}


def test_in_a_loop_the_module_knows_the_arguments() -> None:
    fields = {"args": {"name": "wg-quick@{{ item }}.service", "state": "started"}}
    result = {"invocation": {"module_args": {"name": "wg-quick@wg-sea.service", "state": "started"}}}
    assert plain_arguments(fields, result)["name"] == "wg-quick@wg-sea.service"


@pytest.mark.parametrize("role", [*role_order(), *helper_roles()])
def test_nearly_every_task_of_our_roles_is_covered(role: str) -> None:
    found = role_coverage(role)
    print(f"{role}: {found.percent:.0f} % of {found.total} tasks; uncovered: {found.uncovered}")
    assert found.total > 0
    assert found.percent >= COVERED_PERCENT


ROLE_TASKS = """
- name: covered by its module
  ansible.builtin.copy: {dest: /etc/x, content: x}
- name: covered by its own word
  ansible.builtin.command: make
  vars: {causeway_governs: [{kind: file, key: /etc/x}]}
- name: covered by what it hands back
  causeway_honest: {}
- name: uncovered command
  ansible.builtin.command: make
- name: uncovered module that nobody knows
  community.general.mystery: {}
- name: uncovered module of ours
  causeway_silent: {}
- name: changes nothing
  ansible.builtin.command: look
  changed_when: false
- name: changes nothing either
  ansible.builtin.debug: {msg: x}
- name: runs elsewhere
  ansible.builtin.copy: {dest: /etc/x, content: x}
  delegate_to: localhost
- block:
    - name: uncovered in a block
      ansible.builtin.shell: make
  rescue:
    - name: uncovered in a rescue
      ansible.builtin.raw: make
"""
SILENT = 'DOCUMENTATION = "says governs= in its text"\nmodule.exit_json(changed=True)\n'


def test_the_meter_of_coverage_tells_what_a_record_cannot_express(tmp_path: Path) -> None:
    role = tmp_path / "roles" / "made"
    for folder in ("tasks", "handlers", "library"):
        (role / folder).mkdir(parents=True)
    (role / "tasks" / "main.yml").write_text(ROLE_TASKS)
    (role / "handlers" / "main.yml").write_text("- name: uncovered handler\n  ansible.builtin.script: x\n")
    (role / "library" / "causeway_honest.py").write_text("module.exit_json(changed=True, governs=[])\n")
    (role / "library" / "causeway_silent.py").write_text(SILENT)
    found = role_coverage("made", tmp_path)
    assert len(found.covered) == 3
    assert all(name.startswith("covered") for name in found.covered)
    assert len(found.uncovered) == 6
    assert all(name.startswith("uncovered") for name in found.uncovered)
    assert found.percent == pytest.approx(100 / 3)


def test_all_tasks_that_govern_a_thing_are_known() -> None:
    args = {"path": "/etc/x", "state": "file", "mode": "0644"}
    made = [
        Task(name=name, module="ansible.builtin.file", args=args, result=args) for name in ("a", "b", "a")
    ]
    claim = recorded(*made).claims["file", "/etc/x"]
    assert (claim["tasks"], claim["task"]) == (["a", "b"], "a")


@pytest.mark.parametrize(
    ("name", "key", "how"),
    [
        ("chrony", "chrony", {}),
        ("frr=8.4.4-1.1~deb12u1", "frr", {"pinned": True}),
        ("frr=8.4*", "frr", {"pinned": True}),
        ("frr>=8.4", "frr", {}),
        ("frr/bookworm-backports", "frr", {}),
    ],
)
def test_a_task_that_names_a_version_means_it(name: str, key: str, how: dict[str, Any]) -> None:
    assert recorded(task("apt", name=name)).claims["package", key]["how"] == how
