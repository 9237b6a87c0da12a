"""Action plugin: scans from the controller, and says what a repair has to do."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:  # plain `ansible-playbook` knows this file's folder, not the checkout
    sys.path.append(str(ROOT))

# Here, not where it is used: Ansible loads this before it forks, so what it takes is spent once a repair.
from infra.drift import waves  # noqa: E402 - needs the path set above
from infra.drift.repair import plan  # noqa: E402 - likewise
from infra.errors import CausewayError  # noqa: E402 - likewise

DOCUMENTATION = """
module: causeway_drift_plan
short_description: Find what drifted, and what brings it back
description:
  - Scans the hosts of a stack and returns C(plan), as C(infra.drift.repair.plan) describes it.
  - Changes nothing, runs in check mode, and has connections of its own.
options:
  stack: {description: "The stack.", type: str, required: true}
  hosts: {description: "Only these hosts.", type: list, elements: str}
  roles: {description: "Only what these roles govern.", type: list, elements: str}
  withheld: {description: "Roles that may not run.", type: list, elements: str}
  repaired:
    description: The roles have run, and what they did is not sealed yet.
    type: bool
    default: false
  connect:
    description: Open Mitogen's connection to the task's host meanwhile, for the tasks that follow.
    type: bool
    default: false
"""

CONNECT_LIMIT_S = 10
"""How long to wait for a connection that nothing will use: Mitogen has tracebacks for one left half open."""


class ActionModule(ActionBase):  # type: ignore[misc] # ansible has no types
    """One scan of all nodes at once, whatever the host it is called for."""

    _VALID_ARGS = frozenset(("stack", "hosts", "roles", "withheld", "repaired", "connect"))
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The plan; the task fails with what is wrong and what to do."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        wanted, found = self._task.args, {}
        connecting = threading.Thread(target=self._connect, daemon=True)
        if wanted.get("connect") and hasattr(self._connection, "on_action_run"):
            connecting.start()
        try:
            found = plan(
                wanted["stack"],
                wanted.get("hosts"),
                wanted.get("roles") or (),
                wanted.get("withheld") or (),
                repaired=bool(wanted.get("repaired")),
                spared=waves.current.spared,
            )
        except CausewayError as error:
            raise AnsibleActionFail(str(error)) from None
        finally:
            if connecting.is_alive() and not (found.get("roles") or found.get("unreachable")):
                connecting.join(CONNECT_LIMIT_S)
        return result | {"plan": found, "changed": False}

    def _connect(self) -> None:
        """What this does not get done, the next task does: this process may end before."""
        with suppress(Exception):
            self._connection._action = self  # Mitogen would look for it in the frames of another thread
            self._connection._connect()
