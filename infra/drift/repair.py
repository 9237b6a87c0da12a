"""Plans a repair: which roles have to run on which hosts, which of their tasks, and what stands in their way.

playbooks/repair.yml carries it out; its tasks call this as the action `causeway_drift_plan`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from infra.drift.findings import MANIFEST_ROLE, Difference, HostReport, RoleReport
from infra.drift.journal import Change, noted_changes
from infra.drift.kinds import kind_of
from infra.drift.manifest import Entry, Manifest, RoleManifest, load_manifest
from infra.drift.scan import scan_stack
from infra.drift.trip import login_of
from infra.errors import why


@dataclass
class Obstacles:
    """What a role's tasks cannot change back by themselves; what causeway_drift_prepare takes."""

    thaw: list[str] = field(default_factory=list)
    """What has the immutable or the append-only bit."""
    attributes: dict[str, list[str]] = field(default_factory=dict)
    """Path → names of extended attributes that it did not have, or had with another value."""
    ownership: dict[str, dict[str, str]] = field(default_factory=dict)
    """Path → sealed owner, group and mode, as far as they differ: many tasks leave them open."""
    parents: list[str] = field(default_factory=list)
    """Files that are gone, whose directory may be gone as well."""
    wrong_type: list[str] = field(default_factory=list)
    """Paths that are a directory instead of a file, and the like."""
    packages: dict[str, str] = field(default_factory=dict)
    """Package → sealed version, where it is to have this one and no other."""
    updates: dict[str, str] = field(default_factory=dict)
    """Package → sealed version, where a newer one is as good."""
    sysctls: dict[str, str] = field(default_factory=dict)
    """Setting → sealed value."""
    hostname: str = ""
    """The sealed name, where the file that keeps it says another: a mounted one cannot be replaced."""
    added: list[str] = field(default_factory=list)
    """Files that somebody put beside a role's own: moved away with consent only."""
    added_to: list[dict[str, Any]] = field(default_factory=list)
    """Programs that say something else than sealed: their inputs, those known, the role's own among them."""
    added_keys: dict[str, list[str]] = field(default_factory=dict)
    """File of authorised keys → keys as the probe shows them: taken out with consent only."""
    restart: list[str] = field(default_factory=list)
    """Units that files were added to."""
    commands: list[dict[str, Any]] = field(default_factory=list)
    """What else clears the way, as the kinds have it: `what` it does, in words, and its `argv`."""

    undone: list[dict[str, Any]] = field(default_factory=list)
    """What somebody added that is no file: `what`, in words, and the `argv` that takes it away; `first` where
    it hides something."""

    @property
    def takes_rights(self) -> bool:
        """Whether anything of it may be what the repair itself comes in by."""
        return bool(self.added_keys or self.added or self.undone)

    def undo(self, what: str, *argv: str, first: bool = False) -> None:
        """Have a command take away what somebody added: with consent, or else it is named.

        FIRST: before all else that clears the way.
        """
        command = {"what": what, "argv": list(argv)} | ({"first": True} if first else {})
        if command not in self.undone:
            self.undone.append(command)

    def run(self, what: str, *argv: str, first: bool = False) -> None:
        """Have a command clear the way; once, however many entries ask for it. FIRST: before the others."""
        command = {"what": what, "argv": list(argv)}
        if command not in self.commands:
            self.commands.insert(0 if first else len(self.commands), command)


@dataclass
class HostPlan:
    """One host's repair. `roles`: those to run; `lines`: what differs or was not sealed, in words."""

    roles: list[str]
    lines: list[str]
    settled: dict[str, list[str]] = field(default_factory=dict)
    """Role → names of its tasks that need not run."""
    obstacles: Obstacles = field(default_factory=Obstacles)


def settled_tasks(report: RoleReport, part: RoleManifest) -> list[str]:
    """Tasks of a drifted role of which the scan found everything that they govern as it was sealed.

    They would change nothing. None where something differs on which others stand, that only a handler keeps,
    or of which not all tasks are known.
    """
    differing = {(difference.kind, difference.key) for difference in report.differences}
    entries = [entry for entry in part.entries if (entry.kind, entry.key) in differing]
    if report.state != "drift" or not all(kind_of(*thing).stands_alone for thing in differing):
        return []
    known = all(entry.tasks for entry in part.entries if not entry.handler)
    if not known or any(entry.handler for entry in entries):
        return []
    needed = {task for entry in entries if not _told_by_others(entry, entries) for task in entry.tasks}
    needed |= {task.task for task in part.uncovered} | readers({key for _, key in differing}, part.entries)
    return sorted({task for entry in part.entries for task in entry.tasks} - needed)


def readers(written: Collection[str], entries: Iterable[Entry]) -> set[str]:
    """The tasks that have something read what is written anew: it may be in force as somebody edited it."""
    return {
        task
        for entry in entries
        if any(map(kind_of(entry.kind, entry.key).reads, written))
        for task in entry.tasks
    }


def _told_by_others(entry: Entry, entries: Sequence[Entry]) -> bool:
    """Whether it is a directory that lacks a file of ours: the file's own entry says which tasks make it.

    What a program says is another thing: for that, files may be written again that are as they were sealed.
    """
    return entry.kind == "listing" and any(other.key.startswith(f"{entry.key}/") for other in entries)


def host_plan(report: HostReport, manifest: Manifest, changes: Collection[Change] = ()) -> HostPlan:
    """What brings a host back of which the scan says that it differs.

    CHANGES: what tasks changed since they were sealed. What is generated, and they made anew, goes unsaid.
    """
    anew = made_anew(manifest, changes)
    lines = [f"{difference.role}: {difference}" for difference in report.differences if not anew(difference)]
    lines += map(report.unsettled, report.unsealed_roles)
    plan = HostPlan(report.drifted_roles, lines)
    for difference in report.differences:
        if difference.role != MANIFEST_ROLE:
            kind_of(difference.kind, difference.key).obstacle(plan.obstacles, difference, manifest)
    if MANIFEST_ROLE not in report.roles:
        plan.settled = {
            role: settled_tasks(report.roles[role], part)
            for role, part in manifest.roles.items()
            if role in plan.roles
        }
    return plan


def made_anew(manifest: Manifest, changes: Collection[Change]) -> Callable[[Difference], bool]:
    """Whether a difference is the content of what is generated (`how: {generated: true}`) and was changed.

    A lost key or certificate cannot be as it was sealed again. The seal at the end of the run compares what
    was written with what is found.
    """
    generated = {
        (role, entry.kind, entry.key)
        for role, part in manifest.roles.items()
        for entry in part.entries
        if entry.how.get("generated")
    }.intersection(changes)
    return lambda found: (found.role, found.kind, found.key) in generated and set(found.found) == {"digest"}


def keep_login(found: Obstacles, user: str, fingerprint: str) -> None:
    """Leave what the repair itself comes in by where it is, also where it was not sealed: its key, and what
    lets a user who is not root become root, which may be any file of sudo's and any group. Where any key of
    the agent's may be the one (no fingerprint), none is taken away."""
    kept = {
        path: [key for key in keys if fingerprint and fingerprint not in key.split()]
        for path, keys in found.added_keys.items()
    }
    found.added_keys = {path: keys for path, keys in kept.items() if keys}
    if user != "root":
        found.added = [path for path in found.added if "/sudoers" not in path]
        found.undone = [command for command in found.undone if user not in command["argv"]]


def plan(
    stack: str,
    hosts: Iterable[str] | None,
    roles: Sequence[str] = (),
    withheld: Collection[str] = (),
    *,
    repaired: bool = False,
    spared: Mapping[str, Collection[str]] = {},
) -> dict[str, Any]:
    """Scan and plan; the hosts to repair, those that could not be scanned, and roles only `up` brings.

    `{"hosts": {host: HostPlan as a dict}, "roles": {host: [role to run]}, "unreachable": {host: why},
    "unsettled": {host: [line]}, "said": [line]}`. WITHHELD are roles that may not run. REPAIRED: the roles
    have run, and nothing is sealed yet; but for those SPARED, host → roles, of which nothing is said again.
    CausewayError as scan_stack has it.
    """
    planned: dict[str, Any] = {"hosts": {}, "roles": {}, "unreachable": {}, "unsettled": {}}
    scanned = 0
    for report in scan_stack(stack, hosts, roles=roles, anew=True):
        scanned += 1
        if report.state in ("unreachable", "failed"):
            planned["unreachable"][report.host] = report.message
        if report.drifted_roles and (manifest := load_manifest(stack, report.host)):
            try:
                changes = noted_changes(stack, report.host) if repaired else ()
                of_host = host_plan(report, manifest, changes)
            except Exception as error:  # what a node once said may make no sense; the others are repaired
                planned["unreachable"][report.host] = f"its repair cannot be planned: {why(error)}"
                continue
            if of_host.obstacles.takes_rights:
                keep_login(of_host.obstacles, *login_of(stack, report.host))
            of_host.lines = without_roles(of_host.lines, spared.get(report.host, ()))
            found = asdict(of_host)
            found["obstacles"] = {what: items for what, items in found["obstacles"].items() if items}
            found["roles"] = [role for role in found["roles"] if role not in withheld]
            planned["hosts"][report.host] = found
            if found["roles"]:
                planned["roles"][report.host] = found["roles"]
        if left := [role for role in report.unsettled_roles if role not in report.drifted_roles]:
            planned["unsettled"][report.host] = [report.unsettled(role) for role in left]
    planned["said"] = list(in_words(scanned, planned))
    return planned


def without_roles(lines: Iterable[str], roles: Collection[str]) -> list[str]:
    """What is said of a host, without what is said of some roles: each line begins with its role."""
    return [line for line in lines if line.partition(":")[0] not in roles]


def in_words(scanned: int, planned: Mapping[str, Any]) -> Iterator[str]:
    """What a repair says first: how it stands, then each node's differences."""
    differ, silent = len(planned["hosts"]), len(planned["unreachable"])
    yield (
        f"{scanned} nodes scanned, {differ} differ, {silent} cannot be scanned"
        + ("" if differ else ": nothing to repair")
    )
    for host, found in sorted(planned["hosts"].items()):
        yield from (f"{host}: {line}" for line in found["lines"])
