#!/usr/bin/python3
"""Ansible module: restart one server of a Consul datacenter, where the others can do without it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.causeway_consul import Agent, ConsulError, patiently

DOCUMENTATION = r"""
---
module: causeway_consul_restart
short_description: Restart a Consul server without an outage
description:
  - Does nothing where the server runs with its present configuration already, or where it is another's turn.
  - Refuses where the servers that would stay could not go on, and waits until all of them are healthy again.
options:
  token:
    description: A token that may read the operator's view.
    type: str
    required: true
  servers:
    description: Number of servers of the datacenter.
    type: int
    required: true
  turn:
    description: Which servers are meant; the leader comes last. C(nobody) only asks.
    type: str
    choices: [followers, leader, nobody]
    required: true
  inputs:
    description: The files that a running agent does not read again.
    type: list
    elements: path
    required: true
  unhealthy:
    description: Whether to restart also where the others could not go on.
    type: bool
    default: false
  wait_s:
    description: Seconds until all servers have to be healthy again.
    type: int
    default: 120
"""
EXAMPLES = r"""
- name: Restart the followers
  causeway_consul_restart: {token: "…", servers: 3, turn: followers, inputs: [/etc/consul.d/consul.hcl]}
  throttle: 1
"""
RETURN = r"""
why:
  description: What was done, or why nothing was.
  type: str
  returned: always
"""
UNIT = "consul.service"


class NotHealthyError(Exception):
    """The servers are not as they have to be."""


def is_current(module: AnsibleModule) -> bool:
    """Whether the agent was started after the last change of what it reads at its start."""
    _, out, _ = module.run_command(["systemctl", "show", "-P", "ExecMainStartTimestampMonotonic", UNIT])
    up_s = time.clock_gettime(time.CLOCK_MONOTONIC) - int(out.strip() or 0) / 1e6
    changed_s = time.time() - max(Path(name).stat().st_ctime for name in module.params["inputs"])
    return up_s < changed_s


def require_health(agent: Agent, servers: int) -> None:
    """NotHealthyError that says which servers are not healthy, or how many are missing."""
    found = agent.health()
    ill = sorted(server["Name"] for server in found["Servers"] if not server["Healthy"])
    if ill or len(found["Servers"]) < servers:
        seen = f"{len(found['Servers'])} of {servers} servers are there"
        raise NotHealthyError(f"{seen}, not healthy: {', '.join(ill) or 'none'}")


def leads(agent: Agent) -> bool:
    """Whether this server is the leader; ConsulError while there is none."""
    leader = str(agent.get("/v1/status/leader")).rpartition(":")[0]
    if not leader:
        raise ConsulError(0, "the servers have no leader")
    return leader == str(agent.get("/v1/agent/self")["Member"]["Addr"])


def restart(module: AnsibleModule, agent: Agent) -> str:
    """Restart it and wait until it is one of the others again; what was done."""
    module.run_command(["systemctl", "restart", UNIT], check_rc=True)

    def rejoined() -> None:
        leads(agent)
        try:
            require_health(agent, module.params["servers"])
        except NotHealthyError as error:
            raise ConsulError(0, str(error)) from error

    patiently(rejoined, module.params["wait_s"])
    return "restarted, and all servers are healthy"


def decide(module: AnsibleModule, agent: Agent) -> dict[str, Any]:
    """What to do, done: the module's result."""
    if is_current(module):
        return {"changed": False, "why": "runs with its present configuration"}
    if module.params["turn"] == "nobody":
        return {"changed": True, "why": "was started before its files were changed"}
    active, _, _ = module.run_command(["systemctl", "is-active", "--quiet", UNIT])
    if active == 0 and not module.params["unhealthy"] and module.params["servers"] > 1:
        is_leader = patiently(lambda: leads(agent), module.params["wait_s"])
        if is_leader and module.params["turn"] == "followers":
            return {"changed": False, "why": "is the leader, and comes last"}
        require_health(agent, module.params["servers"])
    if module.check_mode:
        return {"changed": True, "why": "would be restarted"}
    return {"changed": True, "why": restart(module, agent)}


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "token": {"type": "str", "required": True, "no_log": True},
            "servers": {"type": "int", "required": True},
            "turn": {"type": "str", "choices": ["followers", "leader", "nobody"], "required": True},
            "inputs": {"type": "list", "elements": "path", "required": True},
            "unhealthy": {"type": "bool", "default": False},
            "wait_s": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    try:
        result = decide(module, Agent(module.params["token"]))
    except (ConsulError, NotHealthyError) as error:
        module.fail_json(
            msg=f"not restarted, or not healthy afterwards: {error}. Mend that first "
            "(docs/operations.md), or set consul_restart_unhealthy"
        )
    governs = [{"kind": "unit", "key": UNIT}]
    module.exit_json(governs=governs, **result)


if __name__ == "__main__":
    main()
