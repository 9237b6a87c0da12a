"""Action plugin: says which tasks of the roles that are due need not run."""

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

from infra.drift.rollout import plan  # noqa: E402 - needs the path set above
from infra.errors import CausewayError  # noqa: E402 - likewise

DOCUMENTATION = """
module: causeway_rollout_plan
short_description: Find which tasks of the roles that are due would change nothing
description:
  - Scans the hosts of a stack on which roles are due, from the controller, and returns C(hosts), as
    C(infra.drift.rollout.plan) describes it.
  - Changes nothing.
options:
  stack: {description: "The stack.", type: str, required: true}
  due: {description: "Role to hosts.", type: dict, required: true}
"""


class ActionModule(ActionBase):  # type: ignore[misc] # ansible has no types
    """One scan of all nodes at once, whatever the host it is called for."""

    _VALID_ARGS = frozenset(("stack", "due"))
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The plan; the task fails with what is wrong and what to do."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        wanted = self._task.args
        try:
            found = plan(wanted["stack"], wanted["due"])
        except CausewayError as error:
            raise AnsibleActionFail(str(error)) from None
        return result | {"hosts": found, "changed": False}
