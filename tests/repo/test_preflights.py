"""Roles refuse what they cannot work with: each condition of a preflight is broken alone, in real Ansible."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = {"roce": "tests/integration/test_roce_keeper.py", "wan_gateway": "tests/unit/test_wan_ground.py"}
"""Roles whose preflight asks a program of ours, and where that is proven."""
BY_SSH = {"ansible_connection": "ssh"}

GOOD: dict[str, dict[str, Any]] = {
    "base": BY_SSH | {"ansible_user": "admin", "base_authorized_keys": ["ssh-ed25519 AAAAC3Nz me@here"]},
    "consul": {
        "consul_server_addresses": ["10.0.0.1", "10.0.0.2", "10.0.0.3"],
        "consul_address": "10.0.0.1",
        "consul_node_kind": "tokyo-control",
    },
    "pki": {
        "pki_authority": "secrets/ca",
        "pki_key": "/etc/unit/key.pem",
        "pki_certificate": "/etc/unit/certificate.pem",
        "pki_names": ["unit.example"],
    },
}
"""What a role accepts, beside its defaults."""

BROKEN: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "base": [
        ("os_family", {"case_os_family": "RedHat"}),
        ("ansible_password", {"ansible_password": "secret"}),
        ("ansible_password", {"ansible_ssh_pass": "secret"}),
        ("permit_root_login", {"base_sshd_permit_root_login": "no", "ansible_user": "root"}),
        ("base_authorized_keys", {"base_authorized_keys": ["ssh-ed25519 AAAAC3Nz me", "no key"]}),
    ],
    "consul": [
        ("server_addresses", {"consul_server_addresses": ["10.0.0.1", "10.0.0.2"]}),
        ("consul_address", {"consul_address": "fd00::1"}),
        ("inventory_hostname", {"consul_node_kind": "shanghai-control"}),
        ("'management'", {"consul_node_kinds": [{"name": "management", "services": []}]}),
        ("renew_days", {"consul_certificate_renew_days": 30, "consul_certificate_days": 30}),
        ("checksum", {"consul_archive_url": "https://example.org/consul.zip", "consul_archive_checksum": ""}),
    ],
    "pki": [
        ("pki_names", {"pki_names": []}),
        ("pki_usages", {"pki_usages": []}),
        ("pki_renew_days", {"pki_renew_days": 30, "pki_days": 30}),
        ("pki_mode", {"pki_mode": "0644"}),
    ],
}
"""Role → a part of the condition that has to refuse, and what breaks it."""

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
          ansible.builtin.copy:
            content: "{{ ansible_failed_result.assertion | default('') }}"
            dest: "{{ folder }}/{{ inventory_hostname }}"
            mode: "0600"
          delegate_to: localhost
          vars:
            ansible_connection: local
"""


def refusals(role: str, cases: list[dict[str, Any]], folder: Path) -> list[str]:
    """The condition that each case's preflight failed at; "" where it passed."""
    hosts = {f"tokyo-control-{i}": GOOD[role] | case for i, case in enumerate(cases)}
    inventory = {"all": {"hosts": hosts, "vars": {"role": role, "folder": str(folder)}}}
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
    files = [folder / name for name in hosts]
    return [file.read_text() if file.exists() else "" for file in files]


def conditions(role: str) -> list[str]:
    """What a role's preflight asserts."""
    tasks = YAML(typ="safe").load(ROOT / "roles" / role / "tasks" / "preflight.yml")
    found = [task["ansible.builtin.assert"]["that"] for task in tasks if "ansible.builtin.assert" in task]
    return [str(condition) for that in found for condition in that]


def test_every_preflight_is_broken_here_or_elsewhere() -> None:
    roles = {path.parents[1].name for path in (ROOT / "roles").glob("*/tasks/preflight.yml")}
    assert roles == BROKEN.keys() | ELSEWHERE.keys()
    assert [path for path in ELSEWHERE.values() if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("role", sorted(BROKEN))
def test_each_condition_of_a_preflight_refuses_alone(role: str, tmp_path: Path) -> None:
    wanted = ["", *(words for words, _ in BROKEN[role])]
    said = refusals(role, [{}, *(case for _, case in BROKEN[role])], tmp_path)
    assert said[0] == ""
    for words, refused in zip(wanted[1:], said[1:], strict=True):
        assert words in refused
    assert set(conditions(role)) == set(said[1:]), "conditions that no case breaks alone"
