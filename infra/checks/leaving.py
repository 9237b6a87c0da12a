"""Consent to what is lost when a role leaves: it names roles that ask for it."""

from collections.abc import Iterator
from typing import ClassVar

from infra.capabilities import roles
from infra.declaration import ClusterSpec, LeaveSpec
from infra.ground.problem import Problem, Severity, nearest, show
from infra.ground.rules.names import LABEL


class LeaveNamesRoles:
    """A role that may leave is one that leaves with consent only, and some host is named."""

    id: ClassVar[str] = "leave"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Roles that there are not, or that ask for nothing, and consent for no host."""
        asking = sorted(name for name, role in roles().items() if role.leaves)
        for index, one in enumerate(spec.leave):
            if one.role not in asking:
                allowed = ", ".join(asking)
                message = f"{show(one.role)} is not a role that leaves with consent only ({allowed})"
                meant = nearest(one.role, asking)
                yield Problem(f"leave[{index}].role", message, show(one.role), allowed, meant)
            yield from _hosts(f"leave[{index}].hosts", one)


def _hosts(path: str, one: LeaveSpec) -> Iterator[Problem]:
    """Hosts that are gone may be named; what can be no host's name is a slip."""
    if not one.hosts:
        yield Problem(path, "an empty list", "an empty list", "names of hosts, or all")
    for number, host in enumerate(one.hosts):
        if not LABEL.fullmatch(host):
            allowed = "a name as `causeway plan` has it, or all"
            yield Problem(f"{path}[{number}]", f"{show(host)} is no host's name", show(host), allowed)
