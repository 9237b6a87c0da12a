"""Ansible's linear strategy on Mitogen's connections, without the tasks that a repair need not run.

Ansible starts a Python on the node for every task and compiles its module anew; Mitogen keeps one for a whole
run. `ANSIBLE_STRATEGY=linear` is Ansible's own, in which a repair runs whole roles; where Mitogen is not
installed, tasks run as they do there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.playbook.handler import Handler
from ansible.plugins.strategy.linear import StrategyModule as Linear

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:  # plain `ansible-playbook` knows this file's folder, not the checkout
    sys.path.append(str(ROOT))

from infra.drift.record import SETTLED_TASKS  # noqa: E402 - needs the path set above

try:
    from ansible_mitogen.loaders import strategy_loader
    from ansible_mitogen.strategy import StrategyMixin
except ImportError:
    Bases: tuple[Any, ...] = (Linear,)
else:
    Bases = (StrategyMixin, strategy_loader.get("linear", class_only=True))


class StrategyModule(*Bases):  # type: ignore[misc] # ansible and mitogen have no types
    """Runs tasks in the order of `linear`."""

    def _get_next_task_lockstep(self, hosts: list[Any], iterator: Any) -> list[tuple[Any, Any]]:
        """The next task and the hosts it is due on: the first that is due anywhere."""
        due: list[tuple[Any, Any]]
        while due := super()._get_next_task_lockstep(hosts, iterator):
            if left := [(host, task) for host, task in due if not is_settled(host, task)]:
                return left
        return []


def is_settled(host: Any, task: Any) -> bool:
    """Whether a repair leaves a task out on a host; never one whose result others may ask for."""
    settled = host.vars.get(SETTLED_TASKS)
    if not settled or task._role is None or isinstance(task, Handler):
        return False
    if task.register or task.delegate_to or task.run_once:
        return False
    return task.name in settled.get(task._role.get_name(include_role_fqcn=False), ())
