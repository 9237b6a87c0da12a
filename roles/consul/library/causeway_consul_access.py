#!/usr/bin/python3
"""Ansible module: what Consul keeps for all nodes: policies, tokens, and the query that fails over."""

from __future__ import annotations

import json
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.causeway_consul import Agent, ConsulError, patiently

DOCUMENTATION = r"""
---
module: causeway_consul_access
short_description: Policies, tokens and the prepared query of a Consul datacenter
description:
  - Waits until the token has its rights here, which in a secondary datacenter takes until both were copied.
    There it also waits half a minute for all else that is granted; what has not come by then is a warning.
  - In the primary datacenter makes one policy and one token per kind of node, and removes those of kinds that
    are not named any more. Policies and tokens whose names do not begin as ours are left alone.
  - In every datacenter makes the prepared query `<service>.query.consul`, which asks the nearest other
    datacenters where no instance of the own one is healthy.
options:
  token:
    description: A token with all rights.
    type: str
    required: true
  primary:
    description: Whether this datacenter is the one where rights are granted.
    type: bool
    required: true
  kinds:
    description: Kinds of nodes; name, and services, the names of those they may register.
    type: list
    elements: dict
    required: true
  tokens:
    description: >-
      accessor and secret of each kind's token, by its name, and of `replication`, by which other datacenters
      copy policies and tokens.
    type: dict
    required: true
  shown_by:
    description: The program on the node that prints what was granted, for the record of the converge.
    type: path
    required: true
  wait_s:
    description: Seconds to wait for a leader and for the token.
    type: int
    default: 120
"""
EXAMPLES = r"""
- name: Grant rights
  causeway_consul_access:
    token: "…"
    primary: true
    kinds: [{name: tokyo-gpu, services: [ssh]}]
    tokens:
      tokyo-gpu: {accessor: "…", secret: "…"}
      replication: {accessor: "…", secret: "…"}
    shown_by: /usr/local/lib/causeway/consul-access
"""
RETURN = r"""
changes:
  description: What was made, changed or removed.
  type: list
  returned: always
governs:
  description: What is granted, also where it was copied to, and what somebody granted beside it.
  type: list
  returned: always
"""
OURS = "causeway-"
REPLICATION = "replication"
QUERY = {
    "Name": "",
    "Template": {"Type": "name_prefix_match"},
    "Service": {"Service": "${name.full}", "Failover": {"NearestN": 3}},
    "DNS": {"TTL": "5s"},
}
"""An empty prefix matches every name: `ssh.query.consul` asks for ssh."""
COPY_S = 30
"""A new datacenter had all within 8 s. Not longer: a repair may come here before it comes to the primary."""
MAY_READ = {"policy": "read"}
MAY_WRITE = {"policy": "write"}
MAY_NOTHING = {"policy": "deny"}


def rules_of(kind: dict[str, Any], kinds: list[str]) -> str:
    """The rights of a kind of node: its own nodes and services to write, everybody's to read.

    The prefix of `gpu` is also that of the nodes of `gpu-a`. Consul goes by the longest prefix that has a
    rule, so a rule for each such kind among all `kinds` takes away what is not meant.
    """
    own = kind["name"] + "-"
    others = sorted(name + "-" for name in kinds if name.startswith(own))
    return json.dumps(
        {
            "node_prefix": {"": MAY_READ, own: MAY_WRITE, **dict.fromkeys(others, MAY_READ)},
            "agent_prefix": {own: MAY_WRITE, **dict.fromkeys(others, MAY_NOTHING)},
            "service_prefix": {"": MAY_READ},
            "service": dict.fromkeys(sorted(kind["services"]), MAY_WRITE),
            "query_prefix": {"": MAY_READ},
        },
        sort_keys=True,
    )


def replication_rules() -> str:
    """What copying policies and tokens takes (HashiCorp's list; no Connect, hence no intentions)."""
    return json.dumps({"acl": "write", "operator": "write", "service_prefix": {"": MAY_READ}}, sort_keys=True)


class Access:
    """One datacenter's share of what Consul keeps."""

    def __init__(self, agent: Agent, dry_run: bool) -> None:
        self.agent = agent
        self.dry_run = dry_run
        self.changes: list[str] = []

    def change(self, what: str, method: Any, path: str, *value: Any) -> Any:
        """Do it, unless this is a dry run, and remember that it was done."""
        done = None if self.dry_run else method(path, *value)
        self.changes.append(what)
        return done

    def grant(self, kinds: list[dict[str, Any]], tokens: dict[str, dict[str, str]]) -> None:
        """Policies and tokens: all that are named, and none of ours that is not."""
        names = [kind["name"] for kind in kinds]
        rules = {kind["name"]: rules_of(kind, names) for kind in kinds}
        rules[REPLICATION] = replication_rules()
        policies = {policy["Name"]: policy for policy in self.agent.get("/v1/acl/policies")}
        held = {token["AccessorID"]: token for token in self.agent.get("/v1/acl/tokens")}
        for name, text in rules.items():
            self.policy(OURS + name, text, policies.get(OURS + name))
            self.token(OURS + name, tokens[name], held.get(tokens[name]["accessor"]))
        kept = {tokens[name]["accessor"] for name in rules}
        for accessor, token in held.items():
            if token["Description"].startswith(OURS) and accessor not in kept:
                path = f"/v1/acl/token/{accessor}"
                self.change(f"token {token['Description']} removed", self.agent.delete, path)
        for name, policy in policies.items():
            if name.startswith(OURS) and name[len(OURS) :] not in rules:
                self.change(f"policy {name} removed", self.agent.delete, f"/v1/acl/policy/{policy['ID']}")

    def require_copy(self, kinds: list[dict[str, Any]], tokens: dict[str, dict[str, str]]) -> None:
        """ConsulError where the primary datacenter's policies and tokens are not all here, or differ."""
        wanted = Access(self.agent, dry_run=True)
        wanted.grant(kinds, tokens)
        if wanted.changes:
            raise ConsulError(0, "not copied from the primary datacenter yet: " + ", ".join(wanted.changes))

    def policy(self, name: str, rules: str, found: dict[str, Any] | None) -> None:
        """One policy; `found` is what the list says of it."""
        wanted = {"Name": name, "Rules": rules}
        if found is None:
            self.change(f"policy {name}", self.agent.put, "/v1/acl/policy", wanted)
        elif self.agent.get(f"/v1/acl/policy/{found['ID']}")["Rules"] != rules:
            wanted["ID"] = found["ID"]
            self.change(f"policy {name}", self.agent.put, f"/v1/acl/policy/{found['ID']}", wanted)

    def token(self, name: str, holder: dict[str, str], found: dict[str, Any] | None) -> None:
        """One token, with the one policy of the same name."""
        wanted = {
            "AccessorID": holder["accessor"],
            "SecretID": holder["secret"],
            "Description": name,
            "Policies": [{"Name": name}],
        }
        if found is None:
            self.change(f"token {name}", self.agent.put, "/v1/acl/token", wanted)
        elif [policy["Name"] for policy in found.get("Policies") or ()] != [name]:
            self.change(f"token {name}", self.agent.put, f"/v1/acl/token/{holder['accessor']}", wanted)

    def query(self) -> None:
        """The prepared query; queries are each datacenter's own."""
        found = [query for query in self.agent.get("/v1/query") if query["Name"] == QUERY["Name"]]
        if not found:
            self.change("query", self.agent.post, "/v1/query", QUERY)
        elif not includes(found[0], QUERY):
            self.change("query", self.agent.put, f"/v1/query/{found[0]['ID']}", QUERY)


def includes(found: Any, wanted: Any) -> bool:
    """Whether `found` says all that `wanted` does."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(includes(found.get(k), v) for k, v in wanted.items())
    return bool(found == wanted)


def await_copy(module: AnsibleModule, access: Access) -> None:
    """Wait for what the primary datacenter grants. A region is converged also while that one is away."""
    granted = module.params["kinds"], module.params["tokens"]
    try:
        patiently(lambda: access.require_copy(*granted), COPY_S)
    except ConsulError as error:
        module.warn(str(error))


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "token": {"type": "str", "required": True, "no_log": True},
            "primary": {"type": "bool", "required": True},
            "kinds": {"type": "list", "elements": "dict", "required": True},
            "tokens": {"type": "dict", "required": True, "no_log": True},
            "shown_by": {"type": "path", "required": True},
            "wait_s": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    access = Access(Agent(module.params["token"]), module.check_mode)
    try:
        # Not the token alone: what it may is copied by itself, and at times later. That it may read them says
        # nothing of what else it may: a secondary's server was seen to refuse the query a moment after.
        patiently(lambda: access.agent.get("/v1/acl/policies"), module.params["wait_s"])
        if module.params["primary"]:
            access.grant(module.params["kinds"], module.params["tokens"])
        patiently(access.query, COPY_S)
        # What is recorded next would be other things than what comes a moment later.
        if not module.params["primary"] and not module.check_mode:
            await_copy(module, access)
    except ConsulError as error:
        module.fail_json(msg=f"Consul did not take it: {error}")
    # Shared: Consul copies what was granted in one datacenter to the others, where no task changes it.
    how = {"argv": [module.params["shown_by"]], "watched": True}
    shown = {"kind": "check", "key": "consul-access", "how": {**how, "shared": True}}
    beside = {"kind": "granted", "key": "consul-access", "how": how}
    module.exit_json(changed=bool(access.changes), changes=access.changes, governs=[shown, beside])


if __name__ == "__main__":
    main()
