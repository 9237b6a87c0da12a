#!/usr/bin/python3
"""Ansible module: the file systems of NFS exports, by the program that role `nfs_server` left there."""

from __future__ import annotations

import json
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: causeway_nfs_volumes
short_description: Make, grow and mount what /etc/causeway-nfs.json says
options: {}
"""
EXAMPLES = r"""
- name: Make, grow and mount the file systems
  causeway_nfs_volumes:
"""
RETURN = r"""
changes:
  description: What was changed, a line each.
  type: list
  returned: always
governs:
  description: What this call made true.
  type: list
  returned: always
"""
PROGRAM = "/usr/local/sbin/causeway-nfs-volumes"
SETTINGS = "/etc/causeway-nfs.json"


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    if module.check_mode and not Path(PROGRAM).exists():
        module.exit_json(changed=True, changes=["everything is to be made"], governs=[])
    words = [PROGRAM, "up", *(["--dry-run"] if module.check_mode else [])]
    status, printed, complaint = module.run_command(words)
    if status:
        lines = complaint.strip().splitlines()
        module.fail_json(msg=lines[-1] if lines else f"{PROGRAM} ended with {status} and said nothing")
    changes = json.loads(printed)["changes"]
    paths = [volume["path"] for volume in json.loads(Path(SETTINGS).read_text())["volumes"]]
    governs = [
        {"kind": "check", "key": "the file systems of NFS exports", "how": {"argv": [PROGRAM, "check"]}},
        *({"kind": "directory", "key": path} for path in paths),
    ]
    module.exit_json(changed=bool(changes), changes=changes, governs=governs)


if __name__ == "__main__":
    main()
