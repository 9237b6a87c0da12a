#!/usr/bin/python3
"""Ansible module: a node hands a file on to others, for minutes."""

from __future__ import annotations

import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: causeway_artefact_server
short_description: Hand a file on to other nodes for a while
description:
  - Runs a transient unit that serves one file by HTTP at the node's address, at a port that is free, and says
    where.
  - No node needs a key for another, and nothing of it lasts. It ends with state absent, by itself when nobody
    asks, after an hour whatever happens, and with a reboot. What it serves is no secret; who takes it has the
    checksum from the controller: nobody in between can change it unnoticed.
  - In check mode nothing runs.
options:
  path:
    description: The file.
    type: path
    required: true
  sha256:
    description: Its checksum, by which it is asked for.
    type: str
    required: true
  address:
    description: The node's address at which others reach it.
    type: str
  program:
    description: What serves, as Python.
    type: str
  state:
    description: Whether it runs.
    type: str
    choices: [present, absent]
    default: present
"""
EXAMPLES = r"""
- name: Hand it on
  causeway_artefact_server:
    path: /usr/local/bin/consul
    sha256: "{{ checksum }}"
    address: "{{ ansible_host }}"
    program: "{{ lookup('ansible.builtin.file', 'causeway_artefact_serve.py') }}"
"""
RETURN = r"""
url:
  description: Where it is handed on.
  type: str
  returned: when it runs
"""
IDLE_S, LONGEST_S = 120, 3600
START_S = 15.0
"""For a Python to start on a node that is busy."""


def unit_of(sha256: str) -> str:
    """One unit for each content."""
    return f"causeway-artefact-{sha256[:16]}"


def properties(unit: str, path: str) -> list[str]:
    """What confines it: it reads what systemd has opened for it, and listens."""
    named = {
        "StandardInput": f"file:{path}",
        "RuntimeMaxSec": str(LONGEST_S),
        "RuntimeDirectory": unit,
        "DynamicUser": "yes",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "PrivateTmp": "yes",
        "NoNewPrivileges": "yes",
        "CapabilityBoundingSet": "",
        "RestrictAddressFamilies": "AF_INET AF_INET6",
    }
    return [f"--property={name}={value}" for name, value in named.items()]


def stop(module: AnsibleModule, unit: str) -> None:
    """Also what an earlier run left."""
    module.run_command(["systemctl", "stop", f"{unit}.service"])


def serve(module: AnsibleModule, unit: str) -> str:
    """Start it; where it is."""
    asked = module.params
    port_file = Path("/run") / unit / "port"
    program = ["/usr/bin/python3", "-c", asked["program"], asked["address"], asked["sha256"]]
    words = ["systemd-run", "--collect", "--quiet", f"--unit={unit}", *properties(unit, asked["path"])]
    module.run_command([*words, *program, str(IDLE_S), str(port_file)], check_rc=True)
    end = time.monotonic() + START_S
    while not port_file.exists():
        if time.monotonic() > end:
            stop(module, unit)
            module.fail_json(msg=f"{unit} did not begin to serve: journalctl --unit={unit}")
        time.sleep(0.05)
    host = f"[{asked['address']}]" if ":" in asked["address"] else asked["address"]
    return f"http://{host}:{port_file.read_text()}/{asked['sha256']}"


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "sha256": {"type": "str", "required": True},
            "address": {"type": "str"},
            "program": {"type": "str"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        required_if=[("state", "present", ["address", "program"])],
        supports_check_mode=True,
    )
    unit = unit_of(module.params["sha256"])
    if module.check_mode:
        module.exit_json(changed=False)
    stop(module, unit)
    if module.params["state"] == "absent":
        module.exit_json(changed=False)
    module.exit_json(changed=False, url=serve(module, unit))


if __name__ == "__main__":
    main()
