"""Roles refuse what they cannot work with: each condition of a preflight is broken alone, in real Ansible."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "preflights"
"""A file a role: what it accepts beside its defaults, and what each condition of its preflight refuses; or
where else that is proven."""

PLAY = """
- name: Preflight of a role
  hosts: all
  gather_facts: false
  strategy: linear
  tasks:
    - name: Be a machine of some kind
      ansible.builtin.set_fact:
        os_family: "{{ case_os_family | default('Debian') }}"
        cacheable: true
      delegate_to: localhost
      delegate_facts: false
    - name: Check
      block:
        - name: Preflight
          ansible.builtin.include_role:
            name: "{{ role }}"
            tasks_from: preflight.yml
            rolespec_validate: false
      rescue:
        - name: Keep what refused
          ansible.builtin.set_fact:
            refused: "{{ ansible_failed_result.assertion | default('') | string }}"
    # Once for all: a file for each host takes most of the time.
    - name: Say what refused
      ansible.builtin.copy:
        content: "{{ ansible_play_hosts_all | map('extract', hostvars, 'refused') | list | to_json }}"
        dest: "{{ said }}"
        mode: "0600"
      run_once: true
      delegate_to: localhost
      vars:
        ansible_connection: local
"""


def refusals(role: str, cases: list[dict[str, Any]], folder: Path) -> list[str]:
    """The condition that each case's preflight failed at; "" where it passed."""
    accepted = load(CASES / f"{role}.yml")["accepted"]
    hosts = {f"tokyo-control-{i}": accepted | case for i, case in enumerate(cases)}
    said = folder / "said.json"
    inventory = {"all": {"hosts": hosts, "vars": {"role": role, "said": str(said), "refused": ""}}}
    (folder / "inventory.yml").write_text(json.dumps(inventory))
    (folder / "play.yml").write_text(PLAY)
    environment = os.environ | {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_INVENTORY_ENABLED": "yaml",
    }
    done = subprocess.run(
        ["ansible-playbook", "-i", folder / "inventory.yml", folder / "play.yml"],
        env=environment, cwd=ROOT, text=True, check=False, timeout=300,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    found: list[str] = json.loads(said.read_text())
    return found


def load(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path.read_text())


def conditions(role: str) -> list[str]:
    """What a role's preflight asserts."""
    tasks = load(ROOT / "roles" / role / "tasks" / "preflight.yml")
    found = [task["ansible.builtin.assert"]["that"] for task in tasks if "ansible.builtin.assert" in task]
    return [str(condition) for that in found for condition in that]


BROKEN_HERE = [path.stem for path in sorted(CASES.glob("*.yml")) if "refused" in load(path)]


def test_every_preflight_is_broken_here_or_elsewhere() -> None:
    roles = {path.parents[1].name for path in (ROOT / "roles").glob("*/tasks/preflight.yml")}
    assert roles == {path.stem for path in CASES.glob("*.yml")}
    elsewhere = [load(CASES / f"{role}.yml")["elsewhere"] for role in roles.difference(BROKEN_HERE)]
    assert [path for path in elsewhere if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("role", BROKEN_HERE)
def test_each_condition_of_a_preflight_refuses_alone(role: str, tmp_path: Path) -> None:
    cases = load(CASES / f"{role}.yml")["refused"]
    wanted = ["", *(case["condition"] for case in cases)]
    said = refusals(role, [{}, *(case["by"] for case in cases)], tmp_path)
    assert said[0] == ""
    for words, refused in zip(wanted[1:], said[1:], strict=True):
        assert words in refused
    assert set(conditions(role)) == set(said[1:]), "conditions that no case breaks alone"
