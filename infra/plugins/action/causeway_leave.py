"""Action plugin: says from the controller's records what roles made that leave, and takes them out there."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:  # plain `ansible-playbook` knows this file's folder, not the checkout
    sys.path.append(str(ROOT))

from infra.drift.leave import drop_roles, leaving_plan  # noqa: E402 - needs the path set above
from infra.errors import CausewayError  # noqa: E402 - likewise

DOCUMENTATION = """
module: causeway_leave
short_description: Find what roles that leave have made, or take them out of the records
description:
  - Without I(left) returns C(plan), as C(infra.drift.leave.leaving_plan) describes it.
  - With I(left) takes these roles out of the records of their hosts.
options:
  stack: {description: "The stack.", type: str, required: true}
  hosts: {description: "Only these hosts.", type: list, elements: str}
  roles: {description: "These roles, also where they are declared; or host to roles.", type: raw}
  left: {description: "Host to roles that have left it.", type: dict}
  stay: {description: "Host to roles that stay, for nobody knows what was before them.", type: dict}
"""


class ActionModule(ActionBase):  # type: ignore[misc] # ansible has no types
    """For all hosts at once, whatever the host it is called for."""

    _VALID_ARGS = frozenset(("stack", "hosts", "roles", "left", "stay"))
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The plan, or what could not be taken out."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        wanted = self._task.args
        try:
            if "left" in wanted:
                problems = drop_roles(wanted["stack"], wanted["left"], wanted.get("stay") or {})
                return result | {"changed": False, "failed": bool(problems), "msg": "; ".join(problems)}
            plan = leaving_plan(wanted["stack"], wanted.get("hosts"), wanted.get("roles") or ())
        except CausewayError as error:
            raise AnsibleActionFail(str(error)) from None
        return result | {"plan": plan, "changed": False}
