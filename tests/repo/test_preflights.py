"""Roles refuse what they cannot work with: each condition of a preflight is broken alone, in real Ansible."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "preflights"
"""A file a role: what it accepts beside its defaults, and what each condition of its preflight refuses; or
where else that is proven."""

PLAY = """
- name: Preflights of roles
  hosts: all
  gather_facts: false
  strategy: causeway_linear
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


def refusals(cases: Mapping[str, list[dict[str, Any]]], folder: Path) -> dict[str, list[str]]:
    """Role → the condition that each of its cases failed at; "" where the preflight passed.

    All in one Ansible, for its start costs as much as a role's cases.
    """
    rows = [
        load(CASES / f"{role}.yml")["accepted"] | case | {"role": role}
        for role, given in cases.items()
        for case in given
    ]
    hosts = {f"tokyo-control-{number}": row for number, row in enumerate(rows)}
    said = folder / "said.json"
    inventory = {"all": {"hosts": hosts, "vars": {"said": str(said), "refused": ""}}}
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
    found = iter(json.loads(said.read_text()))
    return {role: [next(found) for _ in given] for role, given in cases.items()}


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


def cases_of(role: str) -> list[dict[str, Any]]:
    """What is accepted, and then each thing that is refused."""
    return [{}, *(case["by"] for case in load(CASES / f"{role}.yml")["refused"])]


@pytest.fixture(scope="module", name="said")
def _said(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What the preflights said of those roles whose tests are to run."""
    mine = (test for test in request.session.items if "said" in getattr(test, "fixturenames", ()))
    wanted = {test.callspec.params["role"] for test in mine if isinstance(test, pytest.Function)}
    folder = tmp_path_factory.mktemp("preflights")
    return refusals({role: cases_of(role) for role in BROKEN_HERE if role in wanted}, folder)


@pytest.mark.parametrize("role", BROKEN_HERE)
def test_each_condition_of_a_preflight_refuses_alone(role: str, said: dict[str, list[str]]) -> None:
    wanted = [case["condition"] for case in load(CASES / f"{role}.yml")["refused"]]
    accepted, *refused = said[role]
    assert accepted == ""
    for words, condition in zip(wanted, refused, strict=True):
        assert words in condition
    assert set(conditions(role)) == set(refused), "conditions that no case breaks alone"
