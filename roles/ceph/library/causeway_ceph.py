#!/usr/bin/python3
"""Ansible module: a step of bringing a Ceph cluster about, by the programs that role `ceph` left there."""

from __future__ import annotations

import json
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: causeway_ceph
short_description: Bring this node's daemons, or the cluster, to what /etc/ceph/causeway.json says
description:
  - C(mons), C(daemons), C(restart) and C(gateways) are of the node; C(ground), C(objects), C(drain),
    C(refill) and C(forget) of the cluster, and need the administrator's key on the node.
options:
  step:
    description: What is to be brought about.
    type: str
    required: true
    choices: [mons, ground, daemons, restart, objects, gateways, drain, refill, forget]
  hosts:
    description: With C(forget), the hosts that are gone for good; with C(drain), those that are about to go;
      with C(refill), those that stay after all.
    type: list
    elements: str
    default: []
  let_go:
    description: With C(drain), hosts that go as well, and what they hold may be lost.
    type: list
    elements: str
    default: []
  until:
    description: With C(drain), when data that is not moved yet is a failure, in seconds since 1970.
    type: float
    default: 0
  lossy:
    description: With C(forget), also where what they held may be the only copy.
    type: bool
    default: false
"""
EXAMPLES = r"""
- name: Make and start the monitors
  causeway_ceph:
    step: mons
"""
RETURN = r"""
changes:
  description: What was changed, a line each.
  type: list
  returned: always
stale:
  description: Units that run with older files than there are.
  type: list
  returned: always
governs:
  description: The units and the state that this call made true.
  type: list
  returned: always
"""
PROGRAMS = "/usr/local/lib/causeway_ceph"
NODE = ("mons", "daemons", "restart", "gateways")
CHECKED = {"ground": "Ceph's identities and options", "objects": "Ceph's pools"}


def main() -> None:
    """Entry point of the module."""
    choices = [*NODE, "ground", "objects", "drain", "refill", "forget"]
    module = AnsibleModule(
        argument_spec={
            "step": {"type": "str", "required": True, "choices": choices},
            "hosts": {"type": "list", "elements": "str", "default": []},
            "let_go": {"type": "list", "elements": "str", "default": []},
            "until": {"type": "float", "default": 0},
            "lossy": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    step = module.params["step"]
    program = f"{PROGRAMS}/{'node' if step in NODE else 'cluster'}.py"
    if module.check_mode and not (Path(program).exists() and Path("/etc/ceph/ceph.conf").exists()):
        module.exit_json(changed=True, changes=["everything is to be made"], stale=[], governs=[])
    flags = {"--dry-run": module.check_mode, "--lossy": module.params["lossy"]}
    words = ["python3", program, step, *module.params["hosts"], *(flag for flag, on in flags.items() if on)]
    if step == "drain":
        words += [f"--let-go={host}" for host in module.params["let_go"]]
        words.append(f"--until={module.params['until']}")
    status, printed, complaint = module.run_command(words)
    if status:
        lines = complaint.strip().splitlines()
        module.fail_json(msg=lines[-1] if lines else f"{program} ended with {status} and said nothing")
    said = json.loads(printed)
    governs = [{"kind": "unit", "key": f"{unit}.service"} for unit in said.get("units", ())]
    if step in CHECKED:
        argv = ["python3", program, "check", step]
        want = {"want": {"output": said["state"]}} if said.get("state") else {}
        governs = [{"kind": "check", "key": CHECKED[step], "how": {"argv": argv}, **want}]
    module.exit_json(
        changed=bool(said["changes"]), changes=said["changes"], stale=said.get("stale", []), governs=governs
    )


if __name__ == "__main__":
    main()
