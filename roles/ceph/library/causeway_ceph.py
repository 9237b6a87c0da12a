#!/usr/bin/python3
"""Ansible module: a step of bringing a Ceph cluster about, by the programs that role `ceph` left there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: causeway_ceph
short_description: Bring this node's daemons, or the cluster, to what /etc/ceph/causeway.json says
description:
  - C(mons), C(daemons), C(restart), C(gateways), C(renew) and C(current) are of the node; C(ground),
    C(objects), C(drain), C(refill), C(forget), C(turns), C(ready) and C(finish) of the cluster, and need the
    administrator's key on the node.
options:
  step:
    description: What is to be brought about.
    type: str
    required: true
    choices: [mons, daemons, restart, gateways, renew, current, ground, objects, drain, refill, forget, turns,
      ready, finish]
  hosts:
    description: With C(forget), the hosts that are gone for good; with C(drain), those that are about to go;
      with C(refill), those that stay after all; with C(ready), the one whose daemons are to be started again.
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
  kind:
    description: With C(ready) and C(renew), the daemons of which kind.
    type: str
    choices: [mon, mgr, osd, mds, rgw]
  outdated:
    description: With C(turns), host → kinds of daemons that run an older program than it has.
    type: dict
    default: {}
  after:
    description: With C(ready) and C(finish), what the C(ready) before it returned.
    type: str
    default: ""
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
outdated:
  description: Kinds of daemons here whose program was replaced while they run.
  type: list
  returned: always
after:
  description: With C(ready), what the next one is to be told.
  type: str
  returned: always
turns:
  description: With C(turns), kind and host in the order in which they are started again.
  type: list
  returned: always
fsid:
  description: With steps of the node, the cluster that it is of.
  type: str
  returned: always
upgrading:
  description: With C(ground), whether an upgrade has set what it has not taken off.
  type: bool
  returned: always
governs:
  description: The units and the state that this call made true.
  type: list
  returned: always
"""
PROGRAMS = "/usr/local/lib/causeway_ceph"
NODE = ("mons", "daemons", "restart", "gateways", "renew", "current")
CLUSTER = ("ground", "objects", "drain", "refill", "forget")
UPGRADE = ("turns", "ready", "finish")
PROGRAM = {
    **dict.fromkeys(NODE, "node"),
    **dict.fromkeys(CLUSTER, "cluster"),
    **dict.fromkeys(UPGRADE, "upgrade"),
}
CHECKED = {
    "ground": "Ceph's identities and options",
    "objects": "Ceph's pools",
    "daemons": "the places of Ceph's OSDs",
}
"""Step → what its check is about, which the same program prints when it is told `check`."""
NOTHING: dict[str, Any] = {
    "stale": [],
    "outdated": [],
    "turns": [],
    "after": "",
    "upgrading": False,
    "fsid": "",
    "governs": [],
}


def words_of(step: str, params: dict[str, Any]) -> list[str]:
    """What a step is told, by the module's parameters."""
    words = [json.dumps(params["outdated"])] if step == "turns" else []
    words += [params["kind"]] if params["kind"] else []
    words += params["hosts"]
    words += [f"--after={params['after']}"] if params["after"] else []
    if step == "drain":
        words += [f"--let-go={host}" for host in params["let_go"]] + [f"--until={params['until']}"]
    return words + (["--lossy"] if params["lossy"] else [])


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "step": {"type": "str", "required": True, "choices": list(PROGRAM)},
            "hosts": {"type": "list", "elements": "str", "default": []},
            "let_go": {"type": "list", "elements": "str", "default": []},
            "until": {"type": "float", "default": 0},
            "kind": {"type": "str", "choices": ["mon", "mgr", "osd", "mds", "rgw"]},
            "outdated": {"type": "dict", "default": {}},
            "after": {"type": "str", "default": ""},
            "lossy": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    step = module.params["step"]
    program = f"{PROGRAMS}/{PROGRAM[step]}.py"
    if module.check_mode and not (Path(program).exists() and Path("/etc/ceph/ceph.conf").exists()):
        module.exit_json(changed=True, changes=["everything is to be made"], **NOTHING)
    words = ["python3", program, step, *words_of(step, module.params)]
    words += ["--dry-run"] if module.check_mode else []
    status, printed, complaint = module.run_command(words)
    if status:
        lines = complaint.strip().splitlines()
        module.fail_json(msg=lines[-1] if lines else f"{program} ended with {status} and said nothing")
    said = json.loads(printed)
    governs = [{"kind": "unit", "key": f"{unit}.service"} for unit in said.get("units", ())]
    if step in CHECKED and (step in CLUSTER or said["state"]):
        argv = ["python3", program, "check", step]
        want = {"want": {"output": said["state"]}} if said.get("state") else {}
        how = {"argv": argv, "watched": True}
        governs.append({"kind": "check", "key": CHECKED[step], "how": how, **want})
        if step == "ground":
            governs.append({"kind": "identities", "key": "beside Ceph's own", "how": how})
    answer = {**NOTHING, **{name: said[name] for name in NOTHING if name in said}, "governs": governs}
    module.exit_json(changed=bool(said["changes"]), changes=said["changes"], **answer)


if __name__ == "__main__":
    main()
