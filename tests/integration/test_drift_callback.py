"""The callback plugin in a real `ansible-playbook`, on this machine's own file system."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.drift.journal import noted_changes, record_of
from infra.stack import stack_dir

PROVES = ("drift",)

ROOT = Path(__file__).resolve().parents[2]
Records = dict[str, Any]

TASKS = """
- name: Write
  ansible.builtin.copy: {{content: hello, dest: "{there}/plain", mode: "0640"}}
  notify: Touch
- name: Write a secret
  ansible.builtin.copy: {{content: hunter2, dest: "{there}/secret", mode: "0600"}}
  no_log: true
- name: Write secrets
  ansible.builtin.copy:
    {{content: "{{{{ one.text }}}}", dest: "{there}/{{{{ one.name }}}}.key", mode: "0600"}}
  loop: [{{name: one, text: hunter3}}, {{name: two, text: hunter4}}]
  loop_control: {{loop_var: one, label: "{{{{ one.name }}}}"}}
  no_log: true
- name: Make folders
  ansible.builtin.file: {{path: "{there}/{{{{ item }}}}", state: directory, mode: "0755"}}
  loop: [a, b]
- name: Never
  ansible.builtin.copy: {{content: x, dest: "{there}/never", mode: "0644"}}
  when: false
- name: Look
  ansible.builtin.command: "true"
  changed_when: false
- name: Do something
  ansible.builtin.command: "true"
  changed_when: true
- name: Say what it does
  ansible.builtin.command: "true"
  changed_when: true
  vars:
    causeway_governs: [{{kind: sysfs, key: "/sys/{{{{ which }}}}"}}]
- name: Here
  ansible.builtin.file: {{path: "{there}/here", state: absent}}
  delegate_to: localhost
"""
HANDLERS = """
- name: Touch
  ansible.builtin.file: {{path: "{there}/touched", state: directory, mode: "0755"}}
"""
PLAY = """
- hosts: all
  gather_facts: false
  vars: {which: thing}
  tasks:
    - name: Not of a role
      ansible.builtin.copy: {content: x, dest: "{{ there }}/outside", mode: "0644"}
    - ansible.builtin.include_role: {name: one}
      when: not listed
  roles:
    - role: one
      tags: [one]
      when: listed
"""


@pytest.fixture
def converge(tmp_path: Path) -> Callable[..., Records]:
    """Runs the role `one` and returns what was recorded of it."""
    there = tmp_path / "node"
    there.mkdir()
    for name, text in (("tasks", TASKS), ("handlers", HANDLERS)):
        file = tmp_path / "roles" / "one" / name / "main.yml"
        file.parent.mkdir(parents=True)
        file.write_text(text.format(there=there))
    (tmp_path / "roles" / "one" / "tasks" / "part.yml").write_text("- ansible.builtin.command: 'true'\n")
    (tmp_path / "play.yml").write_text(PLAY)

    def run(*words: str, play: str = PLAY, expect: int = 0, listed: bool = True) -> Records:
        (tmp_path / "play.yml").write_text(play)
        record = tmp_path / "record.json"
        record.unlink(missing_ok=True)
        environment = {
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_ROLES_PATH": str(tmp_path / "roles"),
            "ANSIBLE_INVENTORY_ENABLED": "ansible.builtin.host_list,ansible.builtin.ini",
            "CAUSEWAY_RECORD": str(record),
            "LC_ALL": "C.UTF-8",
        }
        variables = json.dumps({"there": str(there), "listed": listed, "ansible_connection": "local"})
        done = subprocess.run(
            ["ansible-playbook", "-i", "node,", "-e", variables, *words, str(tmp_path / "play.yml")],
            env={**os.environ, **environment},
            text=True,
            capture_output=True,
            check=False,
        )
        assert done.returncode == expect, done.stdout + done.stderr
        assert "causeway_manifest" not in done.stdout + done.stderr, "a callback that fails is only a warning"
        return json.loads(record.read_text())["node"]["one"] if record.exists() else {}

    return run


def claims(records: Records) -> dict[str, Any]:
    return {f"{claim['kind']} {Path(claim['key']).name}": claim for claim in records["claims"]}


def test_a_task_that_changes_nothing_answers_for_what_it_compared(converge: Callable[..., Records]) -> None:
    assert claims(converge())["file plain"]["changed"]
    found = claims(converge())
    assert {what: claim["changed"] for what, claim in found.items()} == {
        **dict.fromkeys(("file plain", "file secret", "directory a", "directory b"), False),
        **dict.fromkeys(("file one.key", "file two.key"), False),
        "sysfs thing": True,
    }
    assert found["file plain"]["compared"] == {
        "sha1": "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d",
        "mode": "0640",
    }
    assert found["directory a"]["compared"] == {"type": "directory", "mode": "0755"}
    assert found["file secret"]["compared"] == {}


def test_a_role_is_recorded_task_by_task(converge: Callable[..., Records]) -> None:
    records = converge()
    found = claims(records)
    assert set(found) == {
        *("file plain", "file secret", "directory a", "directory b", "sysfs thing", "directory touched"),
        *("file one.key", "file two.key"),
    }
    assert found["file plain"]["reported"]["sha1"] == "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d"
    assert found["file plain"]["reported"]["mode"] == "0640"
    assert found["file plain"]["task"] == "Write"
    assert found["file plain"]["changed"]
    assert found["directory touched"]["handler"]
    assert found["sysfs thing"]["key"] == "/sys/thing", "with the variables of the host in it"
    assert records["uncovered"] == {"Do something": "ansible.builtin.command"}
    assert records["whole"]
    assert records["handlers"] == ["Touch"]
    assert found["file secret"]["reported"] == {}, "of a no_log task only the place"
    assert "hunter" not in json.dumps(records)

    assert converge("--check") == {}, "check mode makes nothing true"

    again = converge("--tags", "one")
    assert again["whole"], "every task of the role carries the tag"
    assert set(found) - set(claims(again)) == {"directory touched"}, "nothing changed, nothing to handle"
    assert not claims(again)["file plain"]["changed"]


def test_a_part_of_an_included_role_is_a_run_in_part(converge: Callable[..., Records]) -> None:
    assert converge(listed=False)["whole"]
    part = PLAY.replace("{name: one}", "{name: one, tasks_from: part.yml}")
    assert not converge(listed=False, play=part)["whole"]


@pytest.mark.parametrize("how", ["import_role", "include_role"])
def test_a_preflight_that_runs_before_all_roles_is_no_run_of_the_role(
    converge: Callable[..., Records], tmp_path: Path, how: str
) -> None:
    look = "- ansible.builtin.command: 'true'\n- ansible.builtin.command: 'true'\n  when: false\n"
    (tmp_path / "roles" / "one" / "tasks" / "preflight.yml").write_text(look)
    before = f"""
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.{how}: {{name: one, tasks_from: preflight}}
"""
    assert converge(play=before) == {}, "there is nothing to seal"
    records = converge(play=before + PLAY)
    assert records["whole"]
    assert records["handlers"] == ["Touch"]


def test_a_run_that_leaves_tasks_out_is_a_run_in_part(
    converge: Callable[..., Records], tmp_path: Path
) -> None:
    tasks = tmp_path / "roles" / "one" / "tasks" / "main.yml"
    text = tasks.read_text()
    assert not converge("--start-at-task", "Make folders")["whole"]
    tasks.write_text(text.replace("- name: Write\n", "- name: Write\n  tags: [some]\n"))
    records = converge("--tags", "some")
    assert not records["whole"]
    assert "file plain" in claims(records)
    tasks.write_text(text + "- ansible.builtin.command: 'false'\n")
    assert not converge(expect=2)["whole"], "the host failed"


REPAIR = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.add_host:
        name: node
        causeway_settled_tasks:
          one: [Write, Write secrets, Make folders, Touch, Look, "Here"]
          other: [Write a secret]
- hosts: all
  gather_facts: false
  vars: {which: thing}
  roles: [one]
  tasks:
    - name: Write
      ansible.builtin.copy: {content: x, dest: "{{ there }}/outside", mode: "0644"}
"""


def test_a_repair_leaves_settled_tasks_out_and_is_a_run_in_part(
    converge: Callable[..., Records], tmp_path: Path
) -> None:
    tasks = tmp_path / "roles" / "one" / "tasks" / "main.yml"
    text = tasks.read_text().replace("- name: Look\n", "- name: Look\n  register: seen\n")
    text = text.replace("  no_log: true\n", "  no_log: true\n  notify: Touch\n")
    tasks.write_text(f"{text}- name: Ask\n  ansible.builtin.assert: {{that: seen.rc == 0, quiet: true}}\n")
    (tmp_path / "node" / "here").touch()
    records = converge(play=REPAIR)
    assert set(claims(records)) == {"file secret", "directory touched", "sysfs thing"}, (
        "a task that another role's is called like runs, and so does a handler"
    )
    assert not records["whole"]
    assert (tmp_path / "node" / "outside").exists(), "a task of no role is nobody's to leave out"
    assert not (tmp_path / "node" / "here").exists(), "what is delegated governs another host"
    again = converge()
    assert again["whole"]
    assert claims(again)["file plain"]["changed"]


USER = """
- name: Write
  ansible.builtin.copy: {{content: hello, dest: "{there}/plain", mode: "0640"}}
- name: Have it done
  ansible.builtin.{how}: {{name: helper, tasks_from: certificate.yml}}
  vars: {{helper_file: "{there}/given", helper_notify: [Touch]}}
"""
HELPER = """
- name: Give
  ansible.builtin.copy: {content: given, dest: "{{ helper_file }}", mode: "0640"}
  notify: "{{ helper_notify }}"
- name: Go deeper
  ansible.builtin.import_tasks: deeper.yml
"""
DEEPER = """
- name: Give more
  ansible.builtin.copy: {content: more, dest: "{{ helper_file }}.more", mode: "0640"}
- name: Never
  ansible.builtin.copy: {content: x, dest: "{{ helper_file }}.never", mode: "0640"}
  when: false
"""
DEPENDENCY = """
- name: Lay the ground
  ansible.builtin.copy: {{content: ground, dest: "{there}/ground", mode: "0640"}}
"""


@pytest.mark.parametrize("how", ["import_role", "include_role"])
@pytest.mark.parametrize("listed", [True, False])
def test_what_a_role_includes_is_recorded_and_repaired_as_its_own(
    converge: Callable[..., Records], tmp_path: Path, how: str, listed: bool
) -> None:
    there, roles = tmp_path / "node", tmp_path / "roles"
    files = {
        "one/tasks/main.yml": USER.format(there=there, how=how),
        "one/meta/main.yml": "dependencies: [ground]\n",
        "helper/tasks/certificate.yml": HELPER,
        "helper/tasks/deeper.yml": DEEPER,
        "ground/tasks/main.yml": DEPENDENCY.format(there=there),
    }
    for name, text in files.items():
        (roles / name).parent.mkdir(parents=True, exist_ok=True)
        (roles / name).write_text(text)
    made = {"file plain", "file given", "file given.more", "file ground", "directory touched"}
    records = converge(listed=listed)
    assert set(claims(records)) == made
    assert records["whole"]
    assert records["handlers"] == ["Touch"]
    assert set(json.loads((tmp_path / "record.json").read_text())["node"]) == {"one"}
    if listed:
        again = converge("--tags", "one")
        assert set(claims(again)) == made - {"directory touched"}, "the tag of its play reaches all of them"
        assert again["whole"]

    (there / "given").unlink()
    settled = "causeway_settled_tasks: {one: [Write, Give more, Lay the ground]}"
    start = REPAIR.partition("- ansible.builtin.add_host")[0]
    known = f"{start}- ansible.builtin.add_host: {{name: node, {settled}}}\n"
    repaired = converge(play=known + PLAY, listed=listed)
    assert set(claims(repaired)) == {"file given", "directory touched"}
    assert not repaired["whole"]
    assert (there / "given").read_text() == "given"


FAILING = """
- name: Make folders
  ansible.builtin.file: {{path: "{there}/{{{{ item }}}}", state: directory, mode: "0755"}}
  loop: [a, plain/b, c]
- name: Never
  ansible.builtin.file: {{path: "{there}/never", state: directory, mode: "0755"}}
"""
CENSORED = FAILING.replace("  loop:", "  no_log: true\n  loop:")


@pytest.mark.parametrize("tasks", [FAILING, CENSORED])
def test_what_a_task_failed_at_is_noted_and_what_its_loop_did_before(
    converge: Callable[..., Records], tmp_path: Path, stack: str, tasks: str
) -> None:
    there = tmp_path / "node"
    (there / "plain").touch()
    (tmp_path / "roles" / "one" / "tasks" / "main.yml").write_text(tasks.format(there=there))
    (tmp_path / "stack.ini").write_text(f"[all:vars]\ncauseway_stack={stack}\n")
    converge("-i", str(tmp_path / "stack.ini"), expect=2)
    kept = record_of(stack, "node")
    assert kept
    tried = {f"{there}/{name}" for name in ("a", "plain/b", "c")}
    assert {entry.key for entry in kept.roles["one"].entries} == tried
    done = {f"{there}/{name}" for name in ("a", "c")} if tasks == FAILING else set()
    assert {key for _role, _kind, key in noted_changes(stack, "node")} == done


@pytest.fixture
def stack() -> Iterator[str]:
    """One of which nothing stays."""
    yield "callback-test"
    shutil.rmtree(ROOT / stack_dir("callback-test"), ignore_errors=True)
