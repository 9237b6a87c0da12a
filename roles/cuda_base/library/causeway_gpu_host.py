#!/usr/bin/python3
"""Ansible module: the host tuning of a GPU node, as far as this node has it."""

from __future__ import annotations

import json
from typing import Any

from ansible.module_utils import causeway_gpu_host as host
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: causeway_gpu_host
short_description: Set what GPUs need of their host, and say what waits for a boot and what cannot be had
description:
  - Writes /etc/causeway/gpu-host.json, and the files of sysctl and GRUB for the next boot; applies what can
    be applied at once. What is declared no more gets the value that it had before. In a container
    nothing is touched.
options:
  settings:
    description: The content of the file.
    type: dict
    required: true
"""
EXAMPLES = r"""
- name: Apply
  causeway_gpu_host:
    settings: {hugepages_2m: 1024, governor: performance, iommu: passthrough}
"""
RETURN = r"""
states:
  description: Setting, state and reason of every setting.
  type: list
  returned: always
reboot:
  description: What waits for a reboot of the node; empty where nothing does.
  type: str
  returned: always
governs:
  description: The files and settings this call made true.
  type: list
  returned: always
"""
PROGRAM = "/usr/local/sbin/causeway-gpu-host"


def governed() -> list[dict[str, Any]]:
    """What now holds on the node and shall stay so, for the record of the converge."""
    files = (host.CONFIG_FILE, host.SYSCTL_FILE, host.GRUB_FILE)
    found: list[dict[str, Any]] = [
        {"kind": "file", "key": f"/{path}"} for path in files if (host.ROOT / path).exists()
    ]
    # How many huge pages there are is the check's to say: a boot gives those that there was no room for.
    check = {"kind": "check", "key": "causeway-gpu-host settled", "how": {"argv": [PROGRAM, "settled"]}}
    return [*found, check]


def main() -> None:
    """Entry point of the module."""
    arguments = {"settings": {"type": "dict", "required": True}}
    module = AnsibleModule(argument_spec=arguments, supports_check_mode=True)
    settings = {**host.NOTHING, **module.params["settings"]}
    text = json.dumps(settings, indent=2, sort_keys=True) + "\n"
    try:
        changes = [f"/{host.CONFIG_FILE}"] if host.text_of(host.CONFIG_FILE) != text.strip() else []
        states, more = host.bring_all(settings, dry_run=module.check_mode)
        if not module.check_mode:
            host.keep(host.CONFIG_FILE, text)
    except (host.RefusedError, OSError, KeyError, ValueError) as error:
        module.fail_json(msg=f"the host is not tuned: {error}")
    changes += more + [state.setting for state in states if state.changed]
    result = {
        "changed": bool(changes),
        "changes": changes,
        "states": [{"setting": s.setting, "state": s.state, "reason": s.reason} for s in states],
        "reboot": "; ".join(f"{state.setting}: {state.reason}" for state in states if state.reboot),
        "governs": governed(),
    }
    failed = [str(state) for state in states if state.state == "failed"]
    if failed:
        module.fail_json(msg="; ".join(failed) + "; everything else is set", **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
