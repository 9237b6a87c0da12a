"""What becomes of a task on a host, as far as that is known without reaching the host.

Ansible forks a process for each task and host, also to find that the task's `when` does not hold there, which
tasks an include stands for, or that an assertion holds. Two fifths of a converge's tasks end so, and the
fork costs more than that.
"""

from typing import Any

from ansible import constants
from ansible._internal._task import TaskContext
from ansible.executor.task_executor import TaskExecutor
from ansible.plugins import loader

INCLUDES = constants._ACTION_INCLUDE_TASKS + constants._ACTION_INCLUDE_ROLE
HERE = ("ansible.builtin.assert", "ansible.builtin.validate_argument_spec")
"""What asks variables alone, and answers with words. No action that gives variables on: those that a process
sends are without templates, and these would not be."""
LOCAL = "ansible.builtin.local"


class Due(BaseException):
    """The task has to run. No `Exception`: Ansible would take that for the task's failure."""


class Beforehand(TaskExecutor):  # type: ignore[misc] # Ansible has no types
    """Ansible's own way through a task, up to where it would reach the host."""

    def _get_connection(self, variables: Any, templar: Any, _wanted: Any) -> Any:
        if not is_answered_here(self._task):
            raise Due
        return super()._get_connection(variables, templar, LOCAL)


def answered(strategy: Any, host: Any, task: Any, variables: Any, play_context: Any) -> Any:
    """What a process would answer for `task` on `host`, with the task's fields; None where one is due."""
    whole = task.action in INCLUDES or is_answered_here(task)
    if task.loop is not None or not (task.when or whole):
        return None
    copy = task.copy(exclude_parent=True, exclude_tasks=True)
    copy._parent = task._parent
    if not whole:
        copy.post_validate = _due  # comes after `when`, and costs as much
    try:
        with TaskContext(copy):
            result = Beforehand(
                host,
                copy,
                variables.copy(),
                play_context,
                strategy._loader,
                loader.get_plugin_loader_namespace(),
                strategy._final_q,
                strategy._variable_manager,
            ).run()
    except Due:
        return None
    return result, copy.dump_attrs()


def is_answered_here(task: Any) -> bool:
    """Whether nothing of a task needs the host, or a process that waits."""
    waits = task.until or task.retries or task.async_val or task.timeout
    return task.action in HERE and not (task.delegate_to or waits)


def _due(**_: Any) -> None:
    raise Due
