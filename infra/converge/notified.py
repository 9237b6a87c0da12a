"""Whom tasks of a run notify, kept for the next run where this one ends before handlers had their turn."""

from collections.abc import Iterator
from typing import Any

from ansible import context
from ansible.errors import AnsibleError
from ansible.template import Templar

from infra.drift.owed import Owed
from infra.drift.owner import only_looks, owner_of, role_name


class Notified:
    """Of one play on the hosts of a stack; of others nobody keeps anything."""

    def __init__(self, strategy: Any, iterator: Any) -> None:
        stack = strategy._inventory.groups["all"].get_vars().get("causeway_stack")
        kept = stack is not None and not context.CLIARGS.get("check")
        self._owed = Owed(str(stack)) if kept else None
        self._strategy, self._iterator = strategy, iterator
        self._met: set[tuple[str, str]] = set()
        """Hosts and roles of the play so far."""

    def meet(self, host: Any, task: Any) -> None:
        """A task has its turn on a host; with a role's first one, what earlier runs owe there is notified."""
        role = self._role(task)
        if self._owed and role and (host.name, role) not in self._met:
            self._met.add((host.name, role))
            for name in self._owed.of(host.name, role):
                self._iterator.add_notification(host.name, name)

    def begin(self, host: Any, task: Any, variables: Any) -> None:
        """A task begins there."""
        if self._owed and task.notify and (role := self._role(task)):
            self._owed.begin(host.name, role, task._uuid, names_in(task.notify, variables))

    def end(self, result: Any) -> None:
        """It has ended there."""
        if self._owed and result.task.notify and (role := self._role(result.task)):
            unclear = result.is_failed() or result.is_unreachable()
            names = notified_by(result)
            self._owed.end(result.host.name, role, result.task._uuid, names, unclear=unclear)

    def settle(self) -> None:
        """The play has ended: hosts that came through owe nothing more."""
        if self._owed is None or self._strategy._tqm._terminated:
            return
        lost = {*self._iterator.get_failed_hosts(), *self._strategy._tqm._unreachable_hosts}
        for host, role in self._met:
            if host not in lost and not self._iterator.get_state_for_host(host).handler_notifications:
                self._owed.settle(host, role)

    def _role(self, task: Any) -> str:
        """The role that a task works for; empty for one that leaves nothing on the node."""
        role = owner_of(task)
        return "" if role is None or only_looks(role) else role_name(role)


def names_in(notify: Any, variables: Any) -> list[str]:
    """Whom a task may notify; nobody where only a turn of its loop tells."""
    # As it is written: of a part of it Ansible would not know any more that it is to be a template.
    try:
        found = Templar(loader=None, variables=variables).template(notify)
    except AnsibleError:
        return []
    names = (name for one in ([found] if isinstance(found, str) else found) for name in str(one).split(","))
    return [name.strip() for name in names if name.strip()]


def notified_by(result: Any) -> Iterator[str]:
    """Whom a task has notified, in any turn of its loop."""
    if result.is_changed():
        for turn in result._loop_results if result.task.loop else [result._return_data]:
            yield from map(str, turn.get("_ansible_notify", ()))
