"""Roles that leave nodes, nodes that are gone for good, and what the others are told of both."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from infra import ROOT, capabilities
from infra.components.holding import drained, holders, is_let_go, remember_drained, takers_of, without
from infra.converge.runner import Progress, Rehearsal, RunResult, run_playbook
from infra.drift.journal import record_of
from infra.drift.leave import leaving_roles
from infra.drift.manifest import Manifest, drift_dir, forget_host
from infra.errors import CausewayError, one_line
from infra.ground.contract import Contract
from infra.ground.identities import INSTANCE
from infra.ground.names import some
from infra.inventory.roles import role_hosts, roles_with
from infra.providers.local import nodes
from infra.stack import stack_dir

MOST_SHOWN = 40
FORGET = "forget"
"""The file with tasks of roles for nodes that are gone."""


def take_leave(
    stack: str,
    leave: Mapping[str, Sequence[str]],
    run: str,
    on_progress: Callable[[Progress], None],
    *,
    purge_data: bool = False,
    node_goes: bool = False,
    inventory: Path | None = None,
    runs: Path | None = None,
    rehearsal: Rehearsal | None = None,
) -> RunResult:
    """Take roles off hosts: host → roles, in any order. RUN: the folder of its log, in RUNS or the stack's.

    NODE_GOES: the nodes go with them, so the roles say good-bye, and nothing is given back.
    REHEARSAL: only say what would change, as `run_playbook` does.
    """
    return run_playbook(
        "playbooks/leave.yml",
        stack=stack,
        inventory=inventory,
        limit=list(leave),
        extra_vars={
            "causeway_leave_due": leave,
            "leave_purge_data": purge_data,
            "leave_node_goes": node_goes,
        },
        run_dir=(runs or ROOT / stack_dir(stack) / "runs") / run,
        on_progress=on_progress,
        rehearsal=rehearsal,
    )


def show_what_stays(result: RunResult) -> None:
    """Print what a run that took roles off left where it was, and why: hosts, thing and reason a line."""
    found: dict[str, list[str]] = {}
    for name, host in result.hosts.items():
        for text in host.left:
            found.setdefault(text, []).append(name)
    for text, hosts in list(found.items())[:MOST_SHOWN]:
        print(one_line(f"{some(hosts)}: stays: {text}"), flush=True)
    if len(found) > MOST_SHOWN:
        print(f"{len(found) - MOST_SHOWN} more stay: {result.log}", flush=True)


def recorded_roles(stack: str, hosts: Iterable[str]) -> dict[str, list[str]]:
    """Host → the roles of its record; none where no role came."""
    found = {name: record_of(stack, name) for name in hosts}
    return {name: list(one.roles) for name, one in found.items() if one and one.roles}


def recorded(stack: str) -> set[str]:
    """The hosts of which this controller has a record, declared or not."""
    return {path.stem for end in ("json", "changed") for path in drift_dir(stack).glob(f"*.{end}")}


def gone_nodes(contract: Contract) -> list[str]:
    """Nodes that were made here, took roles, are declared no more, and do not stand any more.

    Pulumi takes a whole pool away only once all else of an update is done.
    """
    ours = [name for name, one in _not_declared(contract).items() if one.identity.startswith(INSTANCE)]
    there = nodes.standing(contract.stack) if ours else set()
    return [name for name in ours if name not in there]


def not_given_back(contract: Contract) -> Iterator[str]:
    """A line for each machine of yours that is declared no more, and did not answer when it was taken out."""
    for name, one in _not_declared(contract).items():
        if one.identity and not one.identity.startswith(INSTANCE) and one.roles:
            yield (
                f"{name} is declared no more, and keeps {', '.join(one.roles)}: it did not answer when "
                "it was taken out. Declare it again, and take it out while it answers; once it is gone for "
                f"good: ./run exec causeway forget {contract.stack} --host {name}"
            )


def _not_declared(contract: Contract) -> dict[str, Manifest]:
    """The records of hosts that are declared no more."""
    left = sorted(recorded(contract.stack) - contract.hosts.keys())
    found = {name: record_of(contract.stack, name) for name in left}
    return {name: one for name, one in found.items() if one}


def forget_gone(
    contract: Contract,
    on_progress: Callable[[Progress], None],
    leave: Mapping[str, Mapping[str, Any]],
) -> None:
    """Have the others forget the nodes that are gone; nothing where there are none. LEAVE: see `consent`."""
    if gone := gone_nodes(contract):
        print(f"gone for good: {', '.join(gone)}", flush=True)
        forget_all(contract, gone, on_progress, leave)


def forget_all(
    contract: Contract,
    gone: Sequence[str],
    on_progress: Callable[[Progress], None],
    leave: Mapping[str, Mapping[str, Any]],
) -> None:
    """Have the others forget these, and what the declaration lets go also where it may be the only copy."""
    let_go = [name for name in gone if any(is_let_go(leave, role, name) for role in holders())]
    for lossy, hosts in ((False, [name for name in gone if name not in let_go]), (True, let_go)):
        if hosts:
            forget(contract, hosts, on_progress, lossy=lossy)


def forget(
    contract: Contract,
    hosts: Collection[str],
    on_progress: Callable[[Progress], None],
    *,
    lossy: bool = False,
) -> None:
    """Have the roles of the other hosts forget HOSTS, then this controller. It may be done again.

    LOSSY: also where what they held may be the only copy. CausewayError where a role cannot.
    """
    groups = [group - set(hosts) for role in roles_with(FORGET) for group in _groups(contract, role)]
    variables = {"forget_hosts": sorted(hosts), "forget_lossy": lossy}
    again = f"./run exec causeway forget {contract.stack} --host {' --host '.join(sorted(hosts))}"
    _require_heard(have_others(contract, groups, FORGET, on_progress, variables), groups, again)
    remember_drained(contract.stack, without(drained(contract.stack), hosts))
    for name in hosts:
        forget_host(contract.stack, name)
        (converged_dir(contract.stack) / name).unlink(missing_ok=True)


def converged_dir(stack: str) -> Path:
    """Where is kept which roles a host last took, with which inputs."""
    return ROOT / stack_dir(stack) / "converged"


def leaving_roles_of(
    stack: str, declared: Mapping[str, Collection[str]], leave: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Host → roles of its record that are not DECLARED there any more: those that may leave, those that wait.

    DECLARED: host → its roles; LEAVE: see `consent`. A role of which others have taken over what it held
    there waits for nobody.
    """
    handed_over = drained(stack)
    allowed: dict[str, list[str]] = {}
    waiting: dict[str, list[str]] = {}
    for name, roles in declared.items():
        manifest = None
        with suppress(
            CausewayError
        ):  # of that host nobody knows what would leave; where it seals, it is said
            manifest = record_of(stack, name)
        for role in leaving_roles(manifest, roles) if manifest else ():
            may = role not in leave or is_let_go(leave, role, name) or name in handed_over.get(role, ())
            (allowed if may else waiting).setdefault(name, []).append(role)
    return allowed, waiting


def without_successors(
    due: Mapping[str, Sequence[str]], waiting: Mapping[str, Collection[str]]
) -> dict[str, list[str]]:
    """DUE without the roles that come in the place of others that wait on that host: both govern the same.

    A host of which nothing else is due is none of it; one of an older state, which names no role, stays.
    """
    instead_of = {name: {*role.instead_of} for name, role in capabilities.roles().items()}
    found = {
        name: [role for role in mine if not instead_of.get(role, set()).intersection(waiting.get(name, ()))]
        for name, mine in due.items()
    }
    return {name: mine for name, mine in found.items() if mine or not due[name]}


def by_role(due: Mapping[str, Sequence[str]], hosts: Iterable[str]) -> dict[str, list[str]]:
    """Role → its hosts, in the order of these."""
    found: dict[str, list[str]] = {}
    for name in hosts:
        for role in due[name]:
            found.setdefault(role, []).append(name)
    return found


def _groups(contract: Contract, role: str) -> list[set[str]]:
    """Hosts of a role, put together where each of them can do what one of them can."""
    hosts = role_hosts(contract, role)
    groups = {frozenset(takers_of(role, contract, host)) or frozenset(hosts) for host in hosts}
    return [set(group) for group in sorted(groups, key=sorted)]


def silent_in(result: RunResult, groups: Iterable[Collection[str]]) -> bool:
    """Whether of some group no host did well."""
    well = {name for name, host in result.hosts.items() if host.state == "ok"}
    return any(group and not well.intersection(group) for group in groups)


def have_others(
    contract: Contract,
    groups: Iterable[Collection[str]],
    step: str,
    on_progress: Callable[[Progress], None],
    variables: Mapping[str, Any],
    roles: Sequence[str] | None = None,
) -> RunResult | None:
    """Have these roles, or all, do a step on groups of hosts; None where there is no host."""
    asked = set().union(*groups)
    if not asked:
        return None
    return run_playbook(
        "playbooks/forget.yml",
        stack=contract.stack,
        limit=[name for name in contract.hosts if name in asked],
        extra_vars={"forget_roles": roles or roles_with(step), "forget_step": step, **variables},
        run_dir=ROOT / stack_dir(contract.stack) / "runs" / step,
        on_progress=on_progress,
    )


def say(progress: Progress) -> None:
    """Print how far a run is."""
    print(progress, flush=True)


def left_behind(contract: Contract) -> dict[str, list[str]]:
    """Role → hosts that it has left, after others took over what it held there, and have yet to forget it."""
    found = {
        role: [name for name in sorted(hosts) if name in contract.hosts and not _has(contract, role, name)]
        for role, hosts in drained(contract.stack).items()
    }
    return {role: hosts for role, hosts in found.items() if hosts}


def _has(contract: Contract, role: str, host: str) -> bool:
    return role in recorded_roles(contract.stack, [host]).get(host, ()) or host in role_hosts(contract, role)


def forget_left_behind(contract: Contract, on_progress: Callable[[Progress], None]) -> None:
    """Have the others forget what a role held on hosts that it has left. CausewayError where they cannot."""
    for role, hosts in left_behind(contract).items():
        groups = _groups(contract, role)
        variables = {"forget_hosts": hosts, "forget_lossy": False}
        _require_heard(have_others(contract, groups, FORGET, on_progress, variables, [role]), groups)
        remember_drained(contract.stack, without(drained(contract.stack), hosts, [role]))


def _require_heard(
    result: RunResult | None, groups: Sequence[Collection[str]], again: str = "./run up"
) -> None:
    if result and (
        silent_in(result, groups) or any(host.state == "failed" for host in result.hosts.values())
    ):
        raise CausewayError(result.report(), hint=f"mend it, then: {again}")
