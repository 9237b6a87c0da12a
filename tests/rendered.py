"""What the templates of a role become: Ansible renders them, with the variables an inventory hands on."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PLAY = """
- hosts: all
  gather_facts: false
  connection: local
  strategy: linear
  vars_files: ["{{ role }}/defaults/main.yml", "{{ role }}/vars/main.yml", "{{ inventory_hostname }}.json"]
  tasks:
    - ansible.builtin.template:
        src: "{{ role }}/templates/{{ item }}.j2"
        dest: "{{ playbook_dir }}/{{ inventory_hostname }}-{{ item }}"
        mode: "0600"
      loop: "{{ templates }}"
"""


def render(folder: Path, role: str, hosts: Mapping[str, Mapping[str, Any]], *, only: str = "*") -> None:
    """Write FOLDER/HOST-TEMPLATE for each of `hosts`, by its variables, and each template like `only`."""
    place = ROOT / "roles" / role
    for name, variables in hosts.items():
        (folder / f"{name}.json").write_text(json.dumps(variables))
    (folder / "play.yml").write_text(PLAY)
    told = {"role": str(place), "templates": sorted(path.stem for path in place.glob(f"templates/{only}.j2"))}
    done = subprocess.run(
        ["ansible-playbook", "-i", ",".join([*hosts, ""]), "-e", json.dumps(told), folder / "play.yml"],
        env=os.environ
        | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_INVENTORY_ENABLED": "host_list"},
        cwd=ROOT,
        text=True, check=False, timeout=300, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
