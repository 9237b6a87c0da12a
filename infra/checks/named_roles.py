"""Roles that a declaration names: those that may leave a node, and those that a pool does not take."""

from collections.abc import Iterator
from typing import ClassVar

from infra.capabilities import roles
from infra.declaration import ClusterSpec, LeaveSpec
from infra.ground.problem import Problem, Severity, nearest, show
from infra.ground.rule import pools
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


class ExcludedRolesAreSpared:
    """A pool leaves out a role that there is, and that nothing else asks for."""

    id: ClassVar[str] = "roles-exclude"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Roles that there are not, and those that others need, with what needs them."""
        known = roles()
        spared = sorted(name for name, role in known.items() if not role.needed(spec))
        for place, _region, _index, pool in pools(spec):
            for number, name in enumerate(pool.roles.exclude):
                path, allowed = f"{place}.roles.exclude[{number}]", ", ".join(spared)
                if name not in known:
                    message = f"{show(name)} is not a role that may be left out ({allowed})"
                    yield Problem(path, message, show(name), allowed, nearest(name, spared))
                elif why := known[name].needed(spec):
                    yield Problem(path, f"{name} cannot be left out: {why}", show(name), allowed)


def _hosts(path: str, one: LeaveSpec) -> Iterator[Problem]:
    """Hosts that are gone may be named; what can be no host's name is a slip."""
    if not one.hosts:
        yield Problem(path, "an empty list", "an empty list", "names of hosts, or all")
    for number, host in enumerate(one.hosts):
        if not LABEL.fullmatch(host):
            allowed = "a name as `causeway plan` has it, or all"
            yield Problem(f"{path}[{number}]", f"{show(host)} is no host's name", show(host), allowed)
