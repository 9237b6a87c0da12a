"""Action plugin: proves from the controller what a repair did, by the checks of the roles that ran."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:  # plain `ansible-playbook` knows this file's folder, not the checkout
    sys.path.append(str(ROOT))

# Here, not where it is used: Ansible loads this before it forks, so what it takes is spent once a repair.
from infra.drift import proof, waves  # noqa: E402 - needs the path set above
from infra.inventory.roles import role_order  # noqa: E402 - likewise
from infra.verify.expectations import of_hosts  # noqa: E402 - likewise
from infra.verify.verdicts import Check, VerificationResult  # noqa: E402 - likewise

DOCUMENTATION = """
module: causeway_proof
short_description: Prove what a repair did
description:
  - With C(prepare) the verification is made ready, by the callback C(causeway_proof).
  - With C(hosts) it looks at them, and returns C(failed_checks) and C(report).
  - The connection of the task's host is not used.
options:
  prepare: {description: "Host to the list of roles to prove.", type: dict}
  whole_nodes: {description: "With prepare, prove all roles of those hosts.", type: bool, default: false}
  hosts: {description: "Hosts to look at, of those that were prepared.", type: list, elements: str}
"""


class ActionModule(ActionBase):  # type: ignore[misc] # ansible has no types
    """One verification of all nodes at once, whatever the host it is called for."""

    _VALID_ARGS = frozenset(("prepare", "whole_nodes", "hosts"))
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What is to be prepared, or what was found; the task fails when nothing could be looked at."""
        result: dict[str, Any] = super().run(tmp, task_vars) | {"changed": False}
        wanted = self._task.args
        if not proof.is_awaited:
            raise AnsibleActionFail("the callback causeway_proof is not enabled: ansible.cfg says how")
        if "prepare" in wanted:
            roles = wanted["prepare"]
            whole = dict.fromkeys(roles, role_order()) if wanted.get("whole_nodes") else roles
            # By a file, for a result is printed by -v, with all the variables of the roles.
            descriptor, file = tempfile.mkstemp(prefix="causeway-proof-")
            with os.fdopen(descriptor, "w") as written:
                written.write(self._expectations(whole, task_vars or {}))
            return result | {"expectations_file": file}
        if proof.ready is None:
            raise AnsibleActionFail("no proof was prepared")
        said = proof.ready.look(wanted["hosts"])
        try:
            checks = json.loads(said)["checks"]
        except ValueError:
            cause = said.strip() or "its process ended"
            raise AnsibleActionFail(f"no proof ({cause}): playbooks/verify.yml looks again") from None
        found = VerificationResult(tuple(check for check in map(Check.of, checks) if was_repaired(check)))
        failed = found.failed and (bool(found.checks) or not checks)  # or else no role ran: a halt names it
        return result | {"failed_checks": failed, "report": found.report().splitlines()}

    def _expectations(self, roles: Mapping[str, Collection[str]], task_vars: Mapping[str, Any]) -> str:
        """By the inventory that Ansible has read already, and the variables that the roles get."""
        managers = task_vars["hostvars"]
        inventory, variables = managers._inventory, managers._variable_manager
        hosts = [inventory.get_host(name) for name in roles]
        return of_hosts(hosts, inventory, variables, self._loader).only(roles).dump()


def was_repaired(check: Check) -> bool:
    """Whether a check is of a role that ran: one that was left out of this repair is named by that."""
    return check.role not in waves.current.spared.get(check.host, ())
