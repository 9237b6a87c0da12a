#!/usr/bin/python3
"""Ansible module: sets GPUs that are set otherwise, and answers for how each of them is set then."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: causeway_gpus
short_description: Have GPUs set as /etc/causeway/gpu.json says
description:
  - Runs C(causeway_gpu.py apply), which changes what is set otherwise, and C(check), whose lines the watch
    over drift compares from then on. So a GPU that came, or went for good, is as this run has found it.
options:
  program:
    description: Where causeway_gpu.py lies.
    type: path
    required: true
"""
EXAMPLES = r"""
- name: Set GPUs that are set otherwise
  causeway_gpus:
    program: /usr/local/lib/causeway_gpu.py
"""
RETURN = r"""
changes:
  description: What was set otherwise.
  type: list
  returned: always
governs:
  description: How each GPU is set, for the record of the converge.
  type: list
  returned: always
"""


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={"program": {"type": "path", "required": True}}, supports_check_mode=True
    )

    def said(verb: str) -> list[str]:
        status, printed, complaint = module.run_command(["python3", "-B", module.params["program"], verb])
        if status:
            module.fail_json(msg=(complaint or printed).strip() or f"{verb} ended with {status}")
        return str(printed).splitlines()

    changes = [] if module.check_mode else said("apply")
    how = {"argv": ["python3", "-B", module.params["program"], "check"], "watched": True}
    check = {"kind": "check", "key": "causeway-gpu check", "how": how, "want": {"output": said("check")}}
    module.exit_json(
        changed=bool(changes),
        changes=changes,
        governs=[check, {"kind": "unit", "key": "causeway-gpu.service"}],
    )


if __name__ == "__main__":
    main()
