"""Ansible's linear strategy on Mitogen's connections, without tasks that a repair or a roll-out need not run.

A node that cannot be repaired does not end the repair of the others, and a task that fails twice alike is
left out where it is still ahead, as infra.drift.waves has it.

Ansible starts a Python on the node for every task and compiles its module anew; Mitogen keeps one for a whole
run. `ANSIBLE_STRATEGY=linear` is Ansible's own, in which a repair runs whole roles and ends with the first
wave of which every node fails; where Mitogen is not installed, tasks run as they do there.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

from ansible import constants as C  # noqa: N812 - as all of Ansible calls it
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.executor.task_result import _WireTaskResult
from ansible.playbook.handler import Handler
from ansible.plugins.loader import filter_loader, lookup_loader, test_loader
from ansible.plugins.strategy.linear import StrategyModule as Linear

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:  # plain `ansible-playbook` knows this file's folder, not the checkout
    sys.path.append(str(ROOT))

from infra.converge import compiled, reloads, templates  # noqa: E402 - needs the path set above
from infra.converge.beforehand import answered  # noqa: E402 - likewise
from infra.converge.notified import Notified  # noqa: E402 - likewise
from infra.converge.progress import failure_message  # noqa: E402 - likewise
from infra.drift import waves  # noqa: E402 - likewise
from infra.drift.owner import owner_of, role_name  # noqa: E402 - likewise
from infra.drift.record import SETTLED_TASKS, UNCHANGED_TASKS  # noqa: E402 - likewise


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
    import mitogen.master
    import mitogen.minify
    from ansible_mitogen import affinity, module_finder
    from ansible_mitogen.connection import Connection
    from ansible_mitogen.loaders import strategy_loader
    from ansible_mitogen.strategy import StrategyMixin
except ImportError:
    Bases: tuple[Any, ...] = (Linear,)
else:
    Bases = (StrategyMixin, strategy_loader.get("linear", class_only=True))
    # Mitogen would pin every process to one CPU; where there are two, all of Ansible's to the second one, and
    # with them for good what a task starts, such as the containers of a molecule scenario.
    affinity.policy = affinity.Policy()
    if not hasattr(Connection._connect_stack, "__wrapped__"):  # Ansible may load a plugin twice
        Connection._connect_stack = tried_again(Connection._connect_stack)
        compiled.use(mitogen, module_finder)


templates.use()

UNDER_REPAIR = "causeway_repair"
"""A variable of every host that playbooks/repair.yml repairs."""
REHEARSAL = "CAUSEWAY_REHEARSAL"
"""Set where nothing is changed (infra/converge/runner.py): a failure there ends nothing."""
PREPARES = ("causeway_drift_prepare",)
ALLOCATIONS = 100_000
"""After so many new objects Python looks for rubbish; by default after 700."""
LOOK_S = 0.1
"""How often Ansible looks whether a process that does a task has died: of a result it is told."""
LOOKUPS = ("ansible.builtin.env", "ansible.builtin.file", "ansible.builtin.template")


class Told(threading.Condition):
    """A lock that wakes who waits for it whenever somebody has had it."""

    def __exit__(self, *arguments: Any) -> None:
        self.notify_all()
        super().__exit__(*arguments)


class StrategyModule(*Bases):  # type: ignore[misc] # ansible and mitogen have no types
    """Runs tasks in the order of `linear`."""

    def __init__(self, tqm: Any) -> None:
        super().__init__(tqm)
        load_plugins()
        # What is loaded stays to the end, and a process is forked for each task and host: looking through all
        # of it, and copying it in each fork to note that it was looked at, took a tenth of the CPU.
        gc.freeze()
        gc.set_threshold(ALLOCATIONS, 50, 100)
        self._results_lock = Told()
        self._stops: dict[str, waves.Stop] = {}

    def run(self, iterator: Any, play_context: Any) -> int:
        """A wave, without the hosts set aside; of a repair, go on where Ansible would end for one host."""
        self._notified = Notified(self, iterator)
        self._set_hosts_cache(iterator._play)
        hosts = [self._inventory.get_host(name) for name in self._hosts_cache]
        if all(UNDER_REPAIR in host.vars for host in hosts):
            result = self._run_wave(iterator, play_context, hosts)
        else:
            result = super().run(iterator, play_context)
            self._notified.settle()
        # The last play's result is the whole run's, and Ansible has forgotten who was set aside.
        return int(result or (self._tqm.RUN_FAILED_HOSTS if waves.current.aside else self._tqm.RUN_OK))

    def _run_wave(self, iterator: Any, play_context: Any, hosts: list[Any]) -> int:
        play = iterator._play
        self._spare(iterator, hosts)
        left_out = {host.name for host in hosts} & {*iterator.get_failed_hosts()}
        result = int(super().run(iterator, play_context))
        self._notified.settle()
        lost = {*iterator.get_failed_hosts(), *self._tqm._unreachable_hosts} - left_out
        failed = [host.name for host in hosts if host.name in lost]
        if play.serial:
            waves.current.ended(play.get_name(), role_of(play), self._stopped(failed))
        else:  # the end of a repair, whose tasks name the hosts that fail in it
            waves.current.aside |= dict.fromkeys(failed)
        for host in hosts:
            iterator.clear_host_errors(host)
            self._tqm._failed_hosts.pop(host.name, None)
            self._tqm._unreachable_hosts.pop(host.name, None)
        return result

    def _spare(self, iterator: Any, hosts: list[Any]) -> None:
        """Leave out of a wave who was set aside, and who would come to a task that is stopped."""
        for host in hosts:
            halts = waves.current.halts(iterator._play.get_name())
            if host.name not in waves.current.aside:
                halt = next((halt for halt in halts if has_ahead(host, halt.stop, iterator)), None)
                if halt is None:
                    continue
                waves.current.spare(host.name, halt)
            iterator.mark_host_failed(host)

    def _stopped(self, failed: list[str]) -> dict[str, waves.Stop]:
        """Where hosts failed. A `run_once` task fails on one of them for all."""
        unsaid = waves.Stop("a task", "what Ansible printed above says why")
        once = next((self._stops[name] for name in failed if name in self._stops), unsaid)
        return {name: self._stops.get(name, once) for name in failed}

    def _queue_task(self, host: Any, task: Any, task_vars: Any, play_context: Any) -> None:
        """Have a process run a task on a host, unless the answer is known without one."""
        self._notified.meet(host, task)
        answer = answered(self, host, task, task_vars, play_context)
        if answer is None:
            self._notified.begin(host, task, task_vars)
            with reloads.current.only_due(host.name, task):
                super()._queue_task(host, task, task_vars, play_context)
            return
        asked = {"host": host, "task": task, "task_vars": task_vars, "play_context": play_context}
        self._queued_task_cache[(host.name, task._uuid)] = asked
        self._tqm.send_callback("v2_runner_on_start", host, task)
        said, fields = answer
        wire = _WireTaskResult(
            host_name=host.name, task_uuid=task._uuid, return_data=said, task_fields=fields
        )
        with self._results_lock:
            self._results.append(self._convert_wire_task_result_to_raw(wire))
        self._pending_results += 1

    def _process_pending_results(self, *arguments: Any, **keywords: Any) -> list[Any]:
        """Take down whether a task changed something, and what it says where it fails; it may be rescued."""
        results: list[Any] = super()._process_pending_results(*arguments, **keywords)
        for result in results:
            self._notified.end(result)
            reloads.current.note(
                result.host.name,
                result.task,
                changed=result.is_changed(),
                failed=result.is_failed() or result.is_unreachable(),
                skipped=result.is_skipped(),
            )
            if result.is_failed() or result.is_unreachable():
                said = failure_message(result.as_callback_task_result().result)  # without what is `no_log`
                stop = waves.Stop(result.task.get_name(), said, result.is_unreachable(), result.task)
                self._stops[result.host.name] = stop
        return results

    def _wait_on_pending_results(self, iterator: Any) -> list[Any]:
        """As Ansible's, which looks a thousand times a second: a tenth of a core while a task lasts."""
        results: list[Any] = []
        while self._pending_results > 0 and not self._tqm._terminated:
            if self._tqm.has_dead_workers():
                raise AnsibleError("A worker was found in a dead state")
            results += self._process_pending_results(iterator)
            with self._results_lock:
                if self._pending_results > 0 and not self._results:
                    self._results_lock.wait(timeout=LOOK_S)
        return results

    def _get_next_task_lockstep(self, hosts: list[Any], iterator: Any) -> list[tuple[Any, Any]]:
        """The next task and the hosts it is due on: the first that is due anywhere."""
        due: list[tuple[Any, Any]]
        while due := super()._get_next_task_lockstep(hosts, iterator):
            for _, task in due if REHEARSAL in os.environ else ():
                task.ignore_errors = True
            if left := [(host, task) for host, task in due if not is_settled(host, task)]:
                return left
        return []


def load_plugins() -> None:
    """Load what most tasks need once, and not in the process of each task and host."""
    filter_loader.get("default")  # any name has all of them loaded
    test_loader.get("defined")
    for name in LOOKUPS:
        lookup_loader.get(name, class_only=True)


def is_settled(host: Any, task: Any) -> bool:
    """Whether a repair or a roll-out leaves a task out on a host; never one whose result others ask for."""
    settled = host.vars.get(SETTLED_TASKS) or host.vars.get(UNCHANGED_TASKS)
    if not settled or isinstance(task, Handler):
        return False
    if task.register or task.delegate_to or task.run_once:
        return False
    role = owner_of(task)
    return role is not None and task.name in settled.get(role_name(role), ())


def role_of(play: Any) -> str:
    """The role that a play of playbooks/roles.yml is there for; empty for any other play."""
    return str(play.vars.get("causeway_role", ""))


def has_ahead(host: Any, stop: waves.Stop, iterator: Any) -> bool:
    """Whether a host that begins a play would come to the task in which others failed."""
    task = stop.ansibles
    if isinstance(task, Handler):
        return any(may_notify(each, task) and not is_settled(host, each) for each in iterator.all_tasks)
    if task.action in PREPARES:  # one task, that does on every host what is in the way there
        obstacles = host.vars[UNDER_REPAIR].get("obstacles", {})
        return any(f"{path}'" in stop.message for path in paths_of(obstacles))  # as an OSError names it
    return not is_settled(host, task)


def may_notify(task: Any, handler: Handler) -> bool:
    """Whether a task may have a handler run; what includes others when it runs may always."""
    notified = task.notify or ()
    if isinstance(notified, str):  # as it was written: Ansible makes a list of it when it runs the task
        notified = [name.strip() for name in notified.split(",")]
    listens = [handler.listen] if isinstance(handler.listen, str) else handler.listen or ()
    names = {handler.name, handler.get_name(), *listens}
    return task.action in C._ACTION_ALL_INCLUDES or any("{{" in name or name in names for name in notified)


def paths_of(value: Any) -> Iterator[str]:
    """Every path in what is in the way of a host."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for each in value:
            yield from paths_of(each)
    elif isinstance(value, str) and value.startswith("/"):
        yield value
