"""Ansible's linear strategy on Mitogen's connections, without the tasks that a repair need not run.

A node that cannot be repaired does not end the repair of the others, as infra.drift.waves has it.

Ansible starts a Python on the node for every task and compiles its module anew; Mitogen keeps one for a whole
run. `ANSIBLE_STRATEGY=linear` is Ansible's own, in which a repair runs whole roles and ends with the first
wave of which every node fails; where Mitogen is not installed, tasks run as they do there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.playbook.handler import Handler
from ansible.plugins.strategy.linear import StrategyModule as Linear

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:  # plain `ansible-playbook` knows this file's folder, not the checkout
    sys.path.append(str(ROOT))

from infra.converge.progress import failure_message  # noqa: E402 - likewise
from infra.drift import waves  # noqa: E402 - needs the path set above
from infra.drift.owner import owner_of, role_name  # noqa: E402 - likewise
from infra.drift.record import SETTLED_TASKS  # noqa: E402 - likewise


def tried_again(connect: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Mitogen's way to a node, once more where it took too long: `retries` of ansible.cfg is not for it."""

    @wraps(connect)
    def connect_stack(connection: Any, stack: Any) -> None:
        try:
            connect(connection, stack)
        except AnsibleConnectionFailure as error:
            if "timed out" not in str(error):
                raise
            connect(connection, stack)

    return connect_stack


try:
    from ansible_mitogen.connection import Connection
    from ansible_mitogen.loaders import strategy_loader
    from ansible_mitogen.strategy import StrategyMixin
except ImportError:
    Bases: tuple[Any, ...] = (Linear,)
else:
    Bases = (StrategyMixin, strategy_loader.get("linear", class_only=True))
    if not hasattr(Connection._connect_stack, "__wrapped__"):  # Ansible may load a plugin twice
        Connection._connect_stack = tried_again(Connection._connect_stack)


UNDER_REPAIR = "causeway_repair"
"""A variable of every host that playbooks/repair.yml repairs."""


class StrategyModule(*Bases):  # type: ignore[misc] # ansible and mitogen have no types
    """Runs tasks in the order of `linear`."""

    def __init__(self, tqm: Any) -> None:
        super().__init__(tqm)
        self._stops: dict[str, waves.Stop] = {}

    def run(self, iterator: Any, play_context: Any) -> int:
        """A wave, without the hosts set aside; of a repair, go on where Ansible would end for one host."""
        self._set_hosts_cache(iterator._play)
        hosts = [self._inventory.get_host(name) for name in self._hosts_cache]
        if all(UNDER_REPAIR in host.vars for host in hosts):
            result = self._run_wave(iterator, play_context, hosts)
        else:
            result = super().run(iterator, play_context)
        # The last play's result is the whole run's, and Ansible has forgotten who was set aside.
        return int(result or (self._tqm.RUN_FAILED_HOSTS if waves.current.aside else self._tqm.RUN_OK))

    def _run_wave(self, iterator: Any, play_context: Any, hosts: list[Any]) -> int:
        for host in hosts:
            if host.name in waves.current.aside:
                iterator.mark_host_failed(host)
        ran = [host.name for host in hosts if host.name not in waves.current.aside]
        result = int(super().run(iterator, play_context))
        lost = {*iterator.get_failed_hosts(), *self._tqm._unreachable_hosts}
        failed = [name for name in ran if name in lost]
        if not iterator._play.serial:  # the end of a repair, whose tasks name the hosts that fail in it
            waves.current.aside |= dict.fromkeys(failed)
        elif not waves.current.ended(iterator._play.get_name(), ran, self._stopped(failed)):
            return result  # every host of the wave has failed: Ansible ends here
        for host in hosts:
            iterator.clear_host_errors(host)
            self._tqm._failed_hosts.pop(host.name, None)
            self._tqm._unreachable_hosts.pop(host.name, None)
        return result

    def _stopped(self, failed: list[str]) -> dict[str, waves.Stop]:
        """Where hosts failed. A `run_once` task fails on one of them for all."""
        unsaid = waves.Stop("a task", "what Ansible printed above says why")
        once = next((self._stops[name] for name in failed if name in self._stops), unsaid)
        return {name: self._stops.get(name, once) for name in failed}

    def _process_pending_results(self, *arguments: Any, **keywords: Any) -> list[Any]:
        """Take down what a task says where it fails; a `rescue` may still take care of it."""
        results: list[Any] = super()._process_pending_results(*arguments, **keywords)
        for result in results:
            if result.is_failed() or result.is_unreachable():
                said = failure_message(result.as_callback_task_result().result)  # without what is `no_log`
                stop = waves.Stop(result.task.get_name(), said, result.is_unreachable())
                self._stops[result.host.name] = stop
        return results

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
    if not settled or isinstance(task, Handler):
        return False
    if task.register or task.delegate_to or task.run_once:
        return False
    role = owner_of(task)
    return role is not None and task.name in settled.get(role_name(role), ())
