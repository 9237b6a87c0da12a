"""The role that answers for a task: what a role includes, imports or depends on is work of its own.

Knows of Ansible's classes only what it asks for here; the callback and the strategy ask it.
"""

from typing import Any

TELLS_OTHERS = ("forget", "leave")
"""Files of tasks by which a role tells others of nodes that go: what they change is on no record."""


def owner_of(task: Any) -> Any:
    """The role in whose name Ansible's TASK runs: the outermost; None for a task of no role."""
    owner = task._role
    while owner is not None and (parents := owner.get_parents()):
        owner = parents[0]  # Ansible loads a role anew wherever it is included: there is one
    return owner


def role_name(role: Any) -> str:
    """A role's plain name."""
    return str(role.get_name(include_role_fqcn=False))


def only_looks(role: Any) -> bool:
    """Whether it is a role's preflight, its good-bye, or others': nothing of either stays on the node."""
    return str(role._from_files.get("tasks")).removesuffix(".yml") in ("preflight", *TELLS_OTHERS)
