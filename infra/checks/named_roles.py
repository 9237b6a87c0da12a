"""Roles that a declaration names: those that may leave, or take over, and those that a pool does not take."""

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
                yield _no_such(f"leave[{index}].role", one.role, "leaves with consent only", asking)
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
                path = f"{place}.roles.exclude[{number}]"
                if name not in known:
                    yield _no_such(path, name, "may be left out", spared)
                elif why := known[name].needed(spec):
                    allowed = ", ".join(spared)
                    yield Problem(path, f"{name} cannot be left out: {why}", show(name), allowed)


class TakenOverIsAService:
    """A role that may take services over sets some up."""

    id: ClassVar[str] = "take-over"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Roles that there are not, or that set up no service of others' packages."""
        taking = sorted(name for name, role in roles().items() if role.may_take_over)
        for index, region in enumerate(spec.regions):
            for number, name in enumerate(region.take_over):
                if name not in taking:
                    path = f"regions[{index}].provider.take_over[{number}]"
                    yield _no_such(path, name, "may take a service over", taking)


def _no_such(path: str, name: str, what: str, roles_that_do: list[str]) -> Problem:
    """A role that is named, and not one that does or may do something; the nearest that is."""
    allowed = ", ".join(roles_that_do)
    message = f"{show(name)} is not a role that {what} ({allowed})"
    return Problem(path, message, show(name), allowed, nearest(name, roles_that_do))


def _hosts(path: str, one: LeaveSpec) -> Iterator[Problem]:
    """Hosts that are gone may be named; what can be no host's name is a slip."""
    if not one.hosts:
        yield Problem(path, "an empty list", "an empty list", "names of hosts, or all")
    for number, host in enumerate(one.hosts):
        if not LABEL.fullmatch(host):
            allowed = "a name as `causeway plan` has it, or all"
            yield Problem(f"{path}[{number}]", f"{show(host)} is no host's name", show(host), allowed)
