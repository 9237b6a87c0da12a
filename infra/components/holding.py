"""Roles that hold data: what they hold where, who takes it over, and what goes with consent only."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra import ROOT, capabilities
from infra.declaration import ClusterSpec
from infra.errors import CausewayError
from infra.files import write_file
from infra.ground.contract import Contract
from infra.inventory.roles import role_hosts, roles_with
from infra.stack import stack_dir

DRAIN = "drain"
"""The file with tasks of roles by which others take over what a host holds."""
SHOWN_HOSTS = 5


def consent(spec: ClusterSpec) -> dict[str, dict[str, Any]]:
    """Role that leaves with consent only → why, and the hosts that have it."""
    given: dict[str, list[str]] = {}
    for one in spec.leave:
        given.setdefault(one.role, []).extend(one.hosts)
    return {
        name: {"why": role.leaves, "hosts": given.get(name, [])}
        for name, role in capabilities.roles().items()
        if role.leaves
    }


GOING = "declared no more, and not taken away without consent", "declare it again, or say so"


def no_consent(
    waiting: Mapping[str, Sequence[str]],
    why: Mapping[str, Mapping[str, Any]],
    said: tuple[str, str] = GOING,
) -> CausewayError:
    """What waits, role → hosts, why, and the lines that let it go. SAID: what waits there, and what to do."""
    reasons = (f"{role} on {', '.join(hosts)} ({why[role]['why']})" for role, hosts in waiting.items())
    lines = (
        f"{{role: {role}, hosts: [{', '.join(hosts if len(hosts) <= SHOWN_HOSTS else ['all'])}]}}"
        for role, hosts in waiting.items()
    )
    return CausewayError(
        f"{said[0]}: {'; '.join(reasons)}",
        hint=f"{said[1]} in the cluster's declaration: leave: [{', '.join(lines)}]",
    )


def holders() -> list[str]:
    """The roles that hold data."""
    return [name for name, role in capabilities.roles().items() if role.takers]


def takers_of(role: str, contract: Contract, host: str) -> Collection[str]:
    """The hosts that can take over what a role holds on a host."""
    takers = capabilities.roles()[role].takers
    return takers(contract, host) if takers else ()


def is_let_go(leave: Mapping[str, Mapping[str, Any]], role: str, host: str) -> bool:
    """Whether the declaration lets a role go from a host."""
    return bool({host, "all"} & set(leave[role]["hosts"]))


@dataclass(frozen=True)
class Held:
    """What is held of one role where it is about to go: host → who can take it over; whose may be lost."""

    takers: Mapping[str, set[str]]
    let_go: Collection[str]

    def nobody_takes(self) -> list[str]:
        """The hosts that hold something, and nobody takes it over or has let it go."""
        return [host for host, takers in self.takers.items() if not takers and host not in self.let_go]

    def handed_over(self) -> list[str]:
        """The hosts from which others take over what they hold."""
        return [host for host, takers in self.takers.items() if takers and host not in self.let_go]


def held_by(
    contract: Contract,
    going: Collection[str],
    staying: Collection[str],
    keeps: Mapping[str, Collection[str]],
    leave: Mapping[str, Mapping[str, Any]],
) -> dict[str, Held]:
    """Role that holds data → what it holds on hosts that are about to go, and on those that it is to leave.

    KEEPS: role → the hosts that are to have it. Of a host that stays, and whose data nobody can take over,
    nothing is said here: the role waits for consent, and stays as long.
    """
    found: dict[str, Held] = {}
    for role in holders():
        left = set(staying).difference(keeps[role])
        parting = [host for host in role_hosts(contract, role) if host in going or host in left]
        takers = {host: set(takers_of(role, contract, host)).difference(parting) for host in parting}
        concerned = {host: its for host, its in takers.items() if its or host in going}
        found[role] = Held(concerned, [host for host in parting if is_let_go(leave, role, host)])
    return found


def kept_by(contract: Contract) -> dict[str, list[str]]:
    """Role that holds data → the hosts that are to have it."""
    return {role: list(role_hosts(contract, role)) for role in holders()}


def require_taken_over(
    held: Mapping[str, Held], leave: Mapping[str, Mapping[str, Any]], said: tuple[str, str] = GOING
) -> None:
    """CausewayError where nobody takes over what a role holds, and nobody has let it go."""
    if lost := {role: hosts for role, part in held.items() if (hosts := part.nobody_takes())}:
        raise no_consent(lost, leave, said)


def drained(stack: str) -> dict[str, set[str]]:
    """Role → the hosts that others have been asked to take everything over from."""
    try:
        found = json.loads(drained_file(stack).read_text())
    except FileNotFoundError:
        return {}
    if isinstance(found, list):  # an older version named no role
        found = dict.fromkeys(roles_with(DRAIN), found)
    return {role: set(hosts) for role, hosts in found.items() if hosts}


def remember_drained(stack: str, hosts: Mapping[str, Collection[str]]) -> None:
    """Write down from whom everything is taken over, or that it is from nobody."""
    if found := {role: sorted(names) for role, names in hosts.items() if names}:
        write_file(drained_file(stack), json.dumps(found, sort_keys=True) + "\n")
    else:
        drained_file(stack).unlink(missing_ok=True)


def without(
    found: Mapping[str, Collection[str]], hosts: Collection[str], roles: Collection[str] | None = None
) -> dict[str, set[str]]:
    """The same without some hosts, of some roles or all."""
    return {
        role: set(names).difference(hosts if roles is None or role in roles else ())
        for role, names in found.items()
    }


def drained_file(stack: str) -> Path:
    """Where that is written."""
    return ROOT / stack_dir(stack) / "drained.json"
