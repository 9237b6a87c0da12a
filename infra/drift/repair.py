"""Plans a repair: which roles have to run on which hosts, and what stands in their way there.

`python -m infra.drift.repair --stack STACK [--host HOST]… [--role ROLE]…` scans, and prints the plan as JSON:
`{"hosts": {host: {…HostPlan}}, "unreachable": {host: why}, "unsettled": {host: [line]}, "scanned": n}`.
playbooks/repair.yml carries it out.
"""

import argparse
import json
import posixpath
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from infra.drift.findings import MANIFEST_ROLE, Difference, HostReport
from infra.drift.kinds import OWNERSHIP, UNIT_FOLDERS
from infra.drift.manifest import Manifest, load_manifest
from infra.drift.scan import scan_stack
from infra.errors import CausewayError, ExitCode


@dataclass
class Obstacles:
    """What a role's tasks cannot change back by themselves; what causeway_drift_prepare takes."""

    thaw: list[str] = field(default_factory=list)
    """Files with the immutable bit."""
    ownership: dict[str, dict[str, str]] = field(default_factory=dict)
    """Path → sealed owner, group and mode, as far as they differ: many tasks leave them open."""
    parents: list[str] = field(default_factory=list)
    """Files that are gone, whose directory may be gone as well."""
    wrong_type: list[str] = field(default_factory=list)
    """Paths that are a directory instead of a file, and the like."""
    unmask: list[str] = field(default_factory=list)
    packages: dict[str, str] = field(default_factory=dict)
    """Package → sealed version."""
    holds: dict[str, bool] = field(default_factory=dict)
    remount: dict[str, str] = field(default_factory=dict)
    """Mount point → sealed options."""
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


@dataclass
class HostPlan:
    """One host's repair. `roles`: those to run; `lines`: what differs or was not sealed, in words."""

    roles: list[str]
    lines: list[str]
    obstacles: Obstacles = field(default_factory=Obstacles)


def host_plan(report: HostReport, manifest: Manifest) -> HostPlan:
    """What brings a host back of which the scan says that it differs."""
    lines = [f"{difference.role}: {difference}" for difference in report.differences]
    lines += map(report.unsettled, report.unsealed_roles)
    plan = HostPlan(report.drifted_roles, lines)
    for difference in report.differences:
        if difference.role != MANIFEST_ROLE and (find := OBSTACLES.get(difference.kind)):
            find(plan.obstacles, difference, manifest)
    return plan


def _path(found: Obstacles, difference: Difference, _manifest: Manifest) -> None:
    if difference.found.get("immutable"):
        found.thaw.append(difference.key)
    owned = {aspect: str(difference.expected[aspect]) for aspect in OWNERSHIP if aspect in difference.found}
    if owned and "type" not in difference.found:
        found.ownership[difference.key] = owned
    kind, expected = difference.found.get("type"), difference.expected.get("type")
    if kind == "absent":
        found.parents.append(difference.key)
    elif kind and expected != "absent":
        found.wrong_type.append(difference.key)


def _listing(found: Obstacles, difference: Difference, _manifest: Manifest) -> None:
    names = _more(difference, "names")
    found.added += [posixpath.join(difference.key, name) for name in names]


def _effective(found: Obstacles, difference: Difference, manifest: Manifest) -> None:
    entries = [entry for part in manifest.roles.values() for entry in part.entries]
    for entry in entries:
        if (entry.kind, entry.key) != (difference.kind, difference.key):
            continue
        starts = tuple(str(start) for start in entry.how.get("inputs", ()))
        own = [e.key for e in entries if e.kind == "file" and e.key.startswith(starts)]
        known = list(entry.how.get("sealed", ()))
        if not any(same["inputs"] == list(starts) for same in found.added_to):
            found.added_to.append({"inputs": list(starts), "known": sorted({*known, *own}), "own": own})


def _unit(found: Obstacles, difference: Difference, _manifest: Manifest) -> None:
    if difference.found.get("load") == "masked":
        found.unmask.append(difference.key)
        return
    fragment = difference.found.get("fragment")
    added = _more(difference, "dropins") + [fragment] * bool(fragment)
    ours = [str(path) for path in added if str(path).startswith(UNIT_FOLDERS)]
    found.added += ours
    if ours or difference.found.get("reload_needed"):
        found.restart.append(difference.key)


def _package(found: Obstacles, difference: Difference, _manifest: Manifest) -> None:
    if version := difference.expected.get("version"):
        found.packages[difference.key] = str(version)
    if "hold" in difference.expected:
        found.holds[difference.key] = bool(difference.expected["hold"])


def _mount(found: Obstacles, difference: Difference, _manifest: Manifest) -> None:
    mounted = difference.expected.get("mounted")
    if mounted and difference.found.get("mounted"):
        found.remount[difference.key] = str(mounted).split()[-1]


def _sysctl(found: Obstacles, difference: Difference, _manifest: Manifest) -> None:
    if difference.expected.get("live") is not None:
        found.sysctls[difference.key] = str(difference.expected["live"])


def _hostname(found: Obstacles, difference: Difference, _manifest: Manifest) -> None:
    found.hostname = str(difference.expected.get("kept") or "")


def _keys(found: Obstacles, difference: Difference, _manifest: Manifest) -> None:
    if added := _more(difference, "keys"):
        found.added_keys[difference.key] = added


def _more(difference: Difference, aspect: str) -> list[str]:
    expected = difference.expected.get(aspect) or ()
    return [str(item) for item in difference.found.get(aspect) or () if item not in expected]


OBSTACLES: Mapping[str, Callable[[Obstacles, Difference, Manifest], None]] = {
    "file": _path, "directory": _path, "link": _path, "listing": _listing, "effective": _effective,
    "unit": _unit, "package": _package, "mount": _mount, "sysctl": _sysctl, "authorized_keys": _keys,
    "hostname": _hostname,
}  # fmt: skip
"""Kind → what a role's tasks cannot do about a difference of it."""


def plan(stack: str, hosts: Iterable[str] | None, roles: list[str]) -> dict[str, Any]:
    """Scan and plan; the hosts to repair, those that could not be scanned, and roles only `up` brings."""
    planned: dict[str, Any] = {"hosts": {}, "unreachable": {}, "unsettled": {}, "scanned": 0}
    for report in scan_stack(stack, hosts, roles=roles):
        planned["scanned"] += 1
        if report.state in ("unreachable", "failed"):
            planned["unreachable"][report.host] = report.message
        if report.drifted_roles and (manifest := load_manifest(stack, report.host)):
            planned["hosts"][report.host] = asdict(host_plan(report, manifest))
        if left := [role for role in report.unsettled_roles if role not in report.drifted_roles]:
            planned["unsettled"][report.host] = [report.unsettled(role) for role in left]
    return planned


def main(words: list[str] | None = None) -> int:
    """Print the plan. FAILED or BAD_INPUT with an explanation when there can be none."""
    parser = argparse.ArgumentParser(prog="python -m infra.drift.repair", description=__doc__)
    parser.add_argument("--stack", required=True)
    parser.add_argument("--host", action="append", help="only this host")
    parser.add_argument("--role", action="append", default=[], help="only what this role governs")
    arguments = parser.parse_args(words)
    try:
        print(json.dumps(plan(arguments.stack, arguments.host, arguments.role)))
    except CausewayError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
