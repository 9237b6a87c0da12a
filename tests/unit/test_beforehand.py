"""What is answered without a process of its own is what Ansible's own strategy answers, word for word."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOSTS = "[all]\na answer=yes\nb answer=no\nc answer=yes\n[all:vars]\nansible_connection=local\n"
COUNT = """
import os
def note():
    os.write(os.open(os.environ["FORKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT), b".")
os.register_at_fork(after_in_child=note)
"""
"""Python's `sitecustomize`: counts the processes that are copies of Ansible's, as one for a task is."""
INCLUDED = (
    "- ansible.builtin.debug: {msg: 'on {{ inventory_hostname }}: {{ word }} {{ own | default(42) }}'}\n"
)
ROLE = "- ansible.builtin.debug: {msg: 'a role for {{ inventory_hostname }}'}\n  when: answer == 'no'\n"
PLAY = """
- hosts: all
  gather_facts: false
  vars: {word: of the play, flags: [], shown: "{{ answer == 'yes' }}"}
  tasks:
    - name: Left out on one
      ansible.builtin.set_fact: {mark: 1}
      when: shown
      register: said
    - ansible.builtin.debug: {msg: "{{ said.skipped | default(0) }} {{ said.false_condition | default(0) }}"}
    - {name: Left out everywhere, ansible.builtin.fail: {msg: no}, when: [answer != 'no', flags | length > 0]}
    - {name: A condition that hides, ansible.builtin.fail: {msg: never}, when: false, no_log: true}
    - {name: Of a host, ansible.builtin.debug: {msg: hello}, when: mark is defined, delegate_to: a}
    - {name: Once, ansible.builtin.debug: {msg: once}, when: answer == 'no', run_once: true}
    - {name: By the way in, ansible.builtin.debug: {msg: ways}, when: ansible_connection == 'local'}
    - {name: Through each, ansible.builtin.debug: {msg: "{{ item }}"}, loop: [1, 2], when: item == 2}
    - {name: Unknown, ansible.builtin.debug: {msg: hello}, when: nobody_knows, ignore_errors: true}
    - {name: Truncated, ansible.builtin.debug: {msg: hello}, when: answer ==, ignore_errors: true}
    - {name: No truth, ansible.builtin.debug: {msg: hello}, when: word, ignore_errors: true}
    - {name: Tasks, ansible.builtin.include_tasks: included.yml, when: shown, vars: {own: "{{ answer }}"}}
    - {name: Tasks for all, ansible.builtin.include_tasks: "{{ 'in' ~ 'cluded' }}.yml"}
    - {name: For each, ansible.builtin.include_tasks: included.yml, loop: [1, 2], vars: {own: "{{ item }}"}}
    - {name: No tasks, ansible.builtin.include_tasks: missing.yml, when: answer == 'no', ignore_errors: true}
    - {name: A role, ansible.builtin.include_role: {name: small}}
    - {name: It holds, ansible.builtin.assert: {that: ["answer in ['yes', 'no']", "word != ''"], quiet: true}}
    - name: It holds aloud
      ansible.builtin.assert: {that: "shown in [true]", success_msg: "{{ word }} {{ own | default(7) }}"}
      vars: {own: "{{ answer }}"}
      when: answer == 'yes'
    - name: It does not hold everywhere
      ansible.builtin.assert: {that: answer == 'yes', fail_msg: "not {{ answer }}"}
      register: held
      ignore_errors: true
    - ansible.builtin.debug: {msg: "{{ held.msg }} {{ held.assertion | default('all') }} {{ held.failed }}"}
    - {name: It is hidden, ansible.builtin.assert: {that: answer == 'no'}, no_log: true, ignore_errors: true}
    - {name: It is unknown, ansible.builtin.assert: {that: nobody_knows}, ignore_errors: true}
    - {name: For another, ansible.builtin.assert: {that: answer == 'no'}, delegate_to: a, ignore_errors: true}
    - {name: It holds in the end, ansible.builtin.assert: {that: true}, retries: 2, delay: 0, until: true}
    - {name: It holds for each, ansible.builtin.assert: {that: item < 2}, loop: [1, 2], ignore_errors: true}
    - name: It is taken as done
      ansible.builtin.assert: {that: answer == 'no'}
      failed_when: false
      changed_when: answer == 'no'
      notify: Told
    - name: Arguments
      ansible.builtin.validate_argument_spec:
        argument_spec: {word: {type: str}, flags: {type: list, required: true}, answer: {choices: ['yes']}}
        provided_arguments: {word: "{{ word }}", flags: "{{ flags }}", answer: "{{ answer }}"}
      ignore_errors: true
    - block:
        - {name: Nobody's file, ansible.builtin.include_tasks: "{{ nobody_knows }}.yml"}
      rescue:
        - {name: Rescued, ansible.builtin.debug: {msg: "{{ ansible_failed_result.msg }}"}, when: shown}
    - {name: Handled, ansible.builtin.command: "true", changed_when: true, notify: [Told, Told too]}
  handlers:
    - {name: Told, ansible.builtin.debug: {msg: told}, when: answer == 'no'}
    - {name: Told too, ansible.builtin.include_tasks: included.yml}
"""


STRATEGIES = ("linear", "causeway_linear")


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("play")
    tasks = folder / "roles" / "small" / "tasks" / "main.yml"
    tasks.parent.mkdir(parents=True)
    for path, text in {
        folder / "play.yml": PLAY, folder / "hosts": HOSTS, folder / "included.yml": INCLUDED, tasks: ROLE,
        folder / "sitecustomize.py": COUNT,
    }.items():  # fmt: skip
        path.write_text(text)
    return folder


@pytest.fixture(scope="module", name="runs")
def _runs(folder: Path) -> dict[str, tuple[str, int]]:
    """Strategy → what Ansible says of the play, and how many processes it started for that."""
    return {strategy: play(folder, strategy) for strategy in STRATEGIES}


def play(folder: Path, strategy: str) -> tuple[str, int]:
    forks = folder / f"forks-{strategy}"
    said = subprocess.run(
        ["ansible-playbook", "-i", "hosts", "--forks", "1", "play.yml"],
        env=os.environ | {
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_STRATEGY": strategy,
            "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "1", "ANSIBLE_ROLES_PATH": str(folder / "roles"),
            "PYTHONPATH": f"{folder}:{ROOT}", "FORKS": str(forks),
        },
        cwd=folder, text=True, check=False, timeout=120, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ).stdout  # fmt: skip
    return said, forks.stat().st_size


def by_task(said: str) -> list[list[str]]:
    """What was said of each task; an answer that needs no process may come before others."""
    return [
        sorted(task.splitlines()) for task in re.split(r"^(?=TASK|RUNNING|PLAY)", said, flags=re.MULTILINE)
    ]


def test_the_words_are_ansibles(runs: dict[str, tuple[str, int]]) -> None:
    by_process, beforehand = (by_task(runs[strategy][0]) for strategy in STRATEGIES)
    assert len(by_process) > PLAY.count("name: ")
    for one, other in zip(beforehand, by_process, strict=True):
        assert one == other


def test_fewer_processes_are_started(runs: dict[str, tuple[str, int]]) -> None:
    by_process, beforehand = (runs[strategy][1] for strategy in STRATEGIES)
    print(f"{beforehand} processes instead of {by_process}")
    assert 0 < beforehand < by_process * 3 / 4
