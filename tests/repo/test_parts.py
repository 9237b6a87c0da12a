"""What goes once a role makes it no more: tasks with `causeway_declared`, ruled by the declaration alone."""

from collections.abc import Iterator

import pytest

from infra.inventory.roles import role_order
from infra.inventory.steps import Step, steps, words_in

MARK = "causeway_declared"
WHATEVER = {
    ("ceph_client", "Have them replaced under the mounts"): "another task governs the same units",
    ("pki", "Install the certificate"): "without a request it is check mode, of which nothing is recorded",
}
"""Tasks with the mark that a node's state leaves out, and why nothing goes for that."""


def marked(every: tuple[Step, ...]) -> Iterator[Step]:
    """Tasks with the mark that make something."""
    for step in every:
        only_looks = step.task.get("changed_when") is False or step.module.endswith((".meta", ".stat"))
        if step.values.get(MARK) and not only_looks:
            yield step


@pytest.mark.parametrize("role", role_order())
def test_a_task_whose_work_goes_with_the_declaration_runs_by_the_declaration(role: str) -> None:
    """What a task did not do for once, for the node has it already, would be taken away."""
    every = steps(role)
    found = {step.task["register"] for step in every if "register" in step.task}
    found |= {name for step in every for name in step.task.get("ansible.builtin.set_fact", {})}
    for step in marked(every):
        asked = words_in([*step.conditions, step.task.get("loop", ""), *step.around])
        if asked & found:
            assert (step.role, step.task["name"]) in WHATEVER, sorted(asked & found)


def test_many_tasks_are_marked_and_none_is_let_off_for_nothing() -> None:
    names = {(step.role, str(step.task.get("name"))) for role in role_order() for step in marked(steps(role))}
    assert len(names) > 40
    assert names > WHATEVER.keys()
