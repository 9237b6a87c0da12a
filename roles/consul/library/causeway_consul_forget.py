#!/usr/bin/python3
"""Ansible module: takes nodes that are gone for good out of a Consul datacenter, by one of its servers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.causeway_consul import PAUSE_S, Agent, ConsulError

DOCUMENTATION = r"""
---
module: causeway_consul_forget
short_description: Take nodes that are gone for good out of a Consul datacenter
description:
  - Without it a node that fails is kept for 72 hours, and a server has its vote until another one comes.
  - A node that is alive is waited for, and is an error then; it would come back.
  - Members of this datacenter, servers of others as this one knows them, votes, and the catalog.
options:
  token:
    description: A token with all rights.
    type: str
    required: true
  nodes:
    description: The names of the nodes.
    type: list
    elements: str
    required: true
  wait_s:
    description: Seconds until the others have noticed that a node does not answer any more.
    type: int
    default: 90
"""
EXAMPLES = r"""
- name: Forget a node that is gone
  causeway_consul_forget:
    token: "…"
    nodes: [tokyo-gpu-3]
"""
RETURN = r"""
changes:
  description: What was forgotten.
  type: list
  returned: always
"""
ALIVE = 1
"""A member's status, as github.com/hashicorp/serf has it in serf/serf.go."""


def members(agent: Agent, wan: bool) -> dict[str, int]:
    """Name → status; beyond the datacenter a name is `node.datacenter`."""
    return {one["Name"]: one["Status"] for one in agent.get("/v1/agent/members" + "?wan=1" * wan)}


def those_of(nodes: list[str], names: Any) -> list[str]:
    """Of members' names those of these nodes."""
    return [name for name in names if name in nodes or name.rpartition(".")[0] in nodes]


class Memory:
    """What a datacenter knows of nodes."""

    def __init__(self, agent: Agent, nodes: list[str], dry_run: bool) -> None:
        self.agent = agent
        self.nodes = nodes
        self.dry_run = dry_run

    def forget(self, wait_s: int) -> Iterator[str]:
        """Each thing that was forgotten."""
        for wan in (False, True):
            yield from self.members(wan, wait_s)
        yield from self.votes()
        yield from self.catalog()

    def members(self, wan: bool, wait_s: int) -> Iterator[str]:
        """Those who gossip here, or between datacenters."""
        deadline = time.monotonic() + wait_s
        for name in those_of(self.nodes, members(self.agent, wan)):
            while members(self.agent, wan).get(name) == ALIVE and not self.dry_run:
                if time.monotonic() > deadline:
                    raise ConsulError(0, f"{name} is alive: stop it first, or it will come back")
                time.sleep(PAUSE_S)
            yield f"member {name}"
            if not self.dry_run:
                self.agent.put(f"/v1/agent/force-leave/{name}?prune=1" + "&wan=1" * wan)

    def votes(self) -> Iterator[str]:
        """Servers among the peers."""
        for server in self.agent.get("/v1/operator/raft/configuration")["Servers"]:
            if server["Node"] in self.nodes:
                yield f"vote of {server['Node']}"
                if not self.dry_run:
                    self.agent.delete(f"/v1/operator/raft/peer?id={server['ID']}")

    def catalog(self) -> Iterator[str]:
        """What they offered."""
        for name in self.nodes:
            if self.agent.get(f"/v1/catalog/node/{name}"):
                yield f"{name} in the catalog"
                if not self.dry_run:
                    self.agent.put("/v1/catalog/deregister", {"Node": name})


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "token": {"type": "str", "required": True, "no_log": True},
            "nodes": {"type": "list", "elements": "str", "required": True},
            "wait_s": {"type": "int", "default": 90},
        },
        supports_check_mode=True,
    )
    memory = Memory(Agent(module.params["token"]), module.params["nodes"], module.check_mode)
    try:
        changes = list(memory.forget(module.params["wait_s"]))
    except ConsulError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(changes), changes=changes)


if __name__ == "__main__":
    main()
