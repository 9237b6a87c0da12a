"""Plans a roll-out: which tasks of the roles that are due a host need not run.

A task is left out where what it depends on is as it was when the role was sealed, and the scan finds all that
it governs as sealed. playbooks/site.yml asks this as the action `causeway_rollout_plan`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from infra.drift.claims import NEUTRAL
from infra.drift.findings import MANIFEST_ROLE, RoleReport
from infra.drift.inputs import Inputs
from infra.drift.kinds import KINDS, kind_of
from infra.drift.manifest import Entry, RoleManifest, load_manifest
from infra.drift.repair import readers
from infra.drift.scan import scan_stack
from infra.drift.task_inputs import Known, TaskInputs
from infra.errors import CausewayError
from infra.ground.contract import load_contract
from infra.ground.identities import load_identities
from infra.stack import contract_file

STAY = frozenset(("package", "user", "group"))
"""Kinds that a restart or another task's change leaves as they are, beside those that stand alone."""


def plan(stack: str, due: Mapping[str, Sequence[str]]) -> dict[str, dict[str, list[str]]]:
    """Host → role → its tasks that need not run there. DUE: role → hosts.

    Nothing of a role that was not sealed, or of which something differs, and nothing on a host that cannot be
    scanned: they run whole there.
    """
    contract = load_contract(contract_file(stack))
    tasks = TaskInputs(Inputs(contract, load_identities(stack)))
    sealed = {host: dict(_sealed(stack, host, due)) for host in dict.fromkeys(_hosts(due))}
    asked = [host for host, parts in sealed.items() if parts]
    found: dict[str, dict[str, list[str]]] = {}
    for report in scan_stack(stack, asked, roles=list(due), anew=True) if asked else ():
        if report.message or MANIFEST_ROLE in report.roles:
            continue
        for role, part in sealed[report.host].items():
            now = tasks.of(report.host, role)
            if left_out := unchanged_tasks(report.roles[role], part, now, tasks.known(role)):
                found.setdefault(report.host, {})[role] = left_out
    return found


def _hosts(due: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for hosts in due.values():
        yield from hosts


def _sealed(stack: str, host: str, due: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, RoleManifest]]:
    """The due roles of a host that know what their tasks depended on."""
    try:
        manifest = load_manifest(stack, host)
    except CausewayError:  # the converge says so where it seals
        return
    for role, part in manifest.roles.items() if manifest else ():
        if host in due.get(role, ()) and part.sealed_at is not None and part.tasks:
            yield role, part


def unchanged_tasks(
    report: RoleReport, part: RoleManifest, now: Mapping[str, str], steps: Sequence[Known]
) -> list[str]:
    """Tasks of a role that would change nothing; none where a change may undo what others made.

    NOW: task → hash of what it depends on. With a package, an interface or a command that changed the whole
    role runs, and what a restart may take away (routes, mounts, modules) is made again with any change.
    """
    governed = [entry for entry in part.entries if not entry.handler]
    if report.differences or report.state not in ("stale", "clean") or not all(e.tasks for e in governed):
        return []
    changed = {task for task in {*now, *part.tasks} if now.get(task) != part.tasks.get(task)}
    if not _stand_alone(changed, governed, steps):
        return []
    known = {task for entry in governed for task in entry.tasks}
    needed = {task.task for task in part.uncovered} | {step.task for step in steps if step.later}
    needed |= changed | (known - now.keys())
    needed |= readers([entry.key for entry in governed if changed & {*entry.tasks}], governed)
    if changed:
        needed |= {task for entry in governed if not _lasts(entry) for task in entry.tasks}
    return sorted(known - _with_partners(needed, governed))


def _stand_alone(changed: set[str], governed: Sequence[Entry], steps: Sequence[Known]) -> bool:
    """Whether no other task has to run after one of those."""
    kinds = [kind_of(entry.kind, entry.key) for entry in governed if changed & {*entry.tasks}]
    modules = {step.module for step in steps if step.task in changed} - NEUTRAL
    kinds += [kind for kind in KINDS.values() if modules.intersection(kind.modules)]
    recorded = {module for kind in KINDS.values() for module in kind.modules}
    return modules <= recorded and all(kind.stands_alone for kind in kinds)


def _lasts(entry: Entry) -> bool:
    return entry.kind in STAY or kind_of(entry.kind, entry.key).stands_alone


def _with_partners(needed: Collection[str], governed: Sequence[Entry]) -> set[str]:
    """Those tasks, and all that govern a thing together with one of them: it is sealed as a whole."""
    found, parts = set(needed), [{*e.tasks} for e in governed if not kind_of(e.kind, e.key).is_sum]
    while more := {task for tasks in parts if tasks & found for task in tasks} - found:
        found |= more
    return found
