"""`causeway up --dry-run`: what roles would change on machines that are there already, as diffs.

Ansible's check mode, by the same runner, roles and variables as `up`. Nothing is written on a machine, and of
the stack nothing but its key, which has to be handed out before anybody gets in.
"""

import difflib
import json
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from infra import ROOT
from infra.commands.doctor import make_key
from infra.components import taken_out
from infra.components.holding import consent, held_by, kept_by, no_consent, require_taken_over
from infra.components.inventory_files import standing_contract
from infra.components.leaving import by_role, leaving_roles_of, recorded_roles, take_leave
from infra.converge.progress import failure_message
from infra.converge.runner import RunResult, run_playbook
from infra.declaration import ClusterSpec
from infra.doctor.examine import Declared
from infra.errors import CausewayError, shown
from infra.files import write_file
from infra.ground import ssh, sudo
from infra.ground.contract import Contract
from infra.ground.machine import Grade
from infra.ground.names import some
from infra.ground.variable_files import KINDS as VARIABLES
from infra.inventory.roles import roles_of

HIDDEN = "changes, and is not shown: it may hold a secret"
MOST_LINES = 60
"""Of one diff: a program that is new is a thousand."""
UNSAID = "changes; the module does not say what"


@dataclass
class Changes:
    """Task → what it would change → the hosts on which it would."""

    found: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    untold: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """Task → why that cannot be told → the hosts: what it builds on is not there yet."""

    def take(self, host: str, task: str, result: Mapping[str, Any]) -> None:
        """One task's result on one host."""
        table, said = (self.untold, failure_message) if result.get("failed") else (self.found, in_words)
        table.setdefault(task, {}).setdefault(said(result), []).append(host)

    def hosts(self) -> set[str]:
        """On which anything would change."""
        return {host for diffs in self.found.values() for hosts in diffs.values() for host in hosts}

    def lines(self) -> Iterator[str]:
        """All of them, for people; a machine's words show as they are, and do nothing."""
        for task, diffs in self.found.items():
            for diff, hosts in diffs.items():
                yield f"{task}: {some(hosts)}"
                lines = diff.splitlines()
                yield from (f"  {shown(line)}" for line in lines[:MOST_LINES])
                if len(lines) > MOST_LINES:
                    yield f"  … and {len(lines) - MOST_LINES} more lines"
        for task, reasons in self.untold.items():
            for why, hosts in reasons.items():
                yield f"not told: {task}: {some(hosts)}: {shown(why)}"


def rehearse(spec: ClusterSpec, stack: str) -> None:
    """Show what `up` would change, and which hosts were left out, and why.

    CausewayError, at the end, where `up` would stop before it changes anything.
    """
    declared = Declared(spec, stack)
    make_key(declared)
    changes = Changes()
    left_out = {host: "`up` makes it" for host in declared.contract.hosts if host not in declared.host_keys}
    for report in declared.examine(declared.machines()):
        if report.silent or report.grade == Grade.IMPOSSIBLE:
            left_out[report.host] = report.silent or report.findings[0].words
    goes = _Leaving(declared, left_out)
    hosts = [host for host in declared.contract.hosts if host not in left_out]
    for run, names in ((goes.run, list(goes.due)), (partial(_run, declared, hosts), hosts)):
        if names:
            result = run(changes)
            left_out |= {host: _ended(result, host) for host in result.failed}
    for line in (*goes.lines(), *changes.lines()):
        print(line)
    asked_of, changing = {*hosts, *goes.due}, changes.hosts()
    print(
        f"machines asked: {len(asked_of)}, of which would change: {len(changing)}; nothing was written there"
    )
    for host, why in left_out.items():
        print(f"left out: {host}: {shown(why)}")
    if goes.refusal:
        raise goes.refusal


class _Leaving:
    """What goes, of machines that a stack has had: roles that are declared no more, and whole machines."""

    def __init__(self, declared: Declared, left_out: Collection[str]) -> None:
        """LEFT_OUT: machines that cannot be asked."""
        self.stack, self.machines = declared.contract.stack, list[str]()
        self.due: dict[str, list[str]] = {}
        """Host → the roles that leave it."""
        self.refusal: CausewayError | None = None
        self._consent = consent(declared.spec)
        if contract := standing_contract(self.stack, "roles that leave: not looked for"):
            self._find(declared, contract, left_out)

    def _find(self, declared: Declared, contract: Contract, left_out: Collection[str]) -> None:
        hosts, keys = declared.contract.hosts, declared.host_keys
        known = {name: {"address": str(hosts[name].address), "host_key": key} for name, key in keys.items()}
        try:
            sudo.ready(contract)
            self.machines = taken_out.answering(contract, known)
            held = held_by(contract, self.machines, hosts, kept_by(declared.contract), self._consent)
            require_taken_over(held, self._consent)
        except CausewayError as error:  # `up` stops at it, and nothing leaves
            self.refusal = error
            return
        for role, part in held.items():  # what others take over waits for nobody then
            self._consent[role]["hosts"] += part.handed_over()
        stay = [name for name in keys if name in contract.hosts and name not in left_out]
        roles = roles_of(declared.contract)
        leaving, waiting = leaving_roles_of(self.stack, {name: roles[name] for name in stay}, self._consent)
        self.due = recorded_roles(self.stack, self.machines) | leaving
        if waiting:
            self.refusal = no_consent(by_role(waiting, waiting), self._consent)

    def run(self, changes: Changes) -> RunResult:
        """Take leave in check mode, by the inventory that the stack has had."""
        with tempfile.TemporaryDirectory(prefix="causeway-rehearsal-") as name:
            say = partial(print, file=sys.stderr, flush=True)
            runs = Path(name)
            return take_leave(self.stack, self.due, "leave", say, runs=runs, rehearsal=changes.take)

    def lines(self) -> Iterator[str]:
        """Which machines go, and which roles leave from where."""
        for name in self.machines:
            yield f"declared no more, and would be given back: {name}"
        for role, hosts in by_role(self.due, self.due).items():
            yield f"{role} would leave: {some(hosts)}"


def _ended(result: RunResult, host: str) -> str:
    found = result.hosts[host]
    return f"{found.state} at “{found.task}”: {found.message}"


def _run(declared: Declared, hosts: list[str], changes: Changes) -> RunResult:
    """The roles in check mode, by an inventory that is gone afterwards."""
    stack = declared.contract.stack
    with tempfile.TemporaryDirectory(prefix="causeway-rehearsal-") as name:
        folder = Path(name)
        known = folder / "known_hosts"
        contract = declared.contract.model_copy(update={"known_hosts_file": str(known)})
        write_file(known, ssh.known_hosts(contract, declared.host_keys))
        write_file(folder / "contract.json", contract.model_dump_json())
        inventory = folder / stack
        inventory.mkdir()
        for kind in VARIABLES:
            if (own := ROOT / "inventories" / stack / kind).is_dir():
                (inventory / kind).symlink_to(own)
        source = {"plugin": "causeway", "stack": stack, "contract": str(folder / "contract.json")}
        write_file(inventory / "causeway.yml", json.dumps(source) + "\n")
        return run_playbook(
            "playbooks/site.yml",
            stack=stack,
            inventory=inventory,
            limit=hosts,
            run_dir=folder / "run",
            on_progress=partial(print, file=sys.stderr, flush=True),
            rehearsal=changes.take,
        )


def in_words(result: Mapping[str, Any]) -> str:
    """What a task would change: a diff where its module gives one."""
    if "censored" in result:
        return HIDDEN
    items = [item for item in result.get("results") or () if isinstance(item, dict) and item.get("changed")]
    if items:
        return "\n".join(dict.fromkeys(in_words(item) for item in items))
    given = {**(result.get("invocation") or {}), **result}
    diffs, path = result.get("diff") or [], str(given.get("dest") or given.get("path") or "")
    parts = (_diff(diff, path) for diff in (diffs if isinstance(diffs, list) else [diffs]))
    text = "\n".join(filter(None, parts))
    return text or UNSAID


def _diff(found: Mapping[str, Any], path: str) -> str:
    """One diff as Ansible's modules give it: two texts or two mappings, or a text of its own."""
    if prepared := found.get("prepared"):
        return str(prepared).strip()
    before, after = (_lines(found.get(what)) for what in ("before", "after"))
    path = str(found.get("before_header") or path)  # `after_header` may be a file of the controller's
    old, new = path or "before", path or "after"
    return "\n".join(difflib.unified_diff(before, after, old, new, lineterm="", n=1))


def _lines(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [f"{key}: {item}" for key, item in sorted(value.items())]
    return str(value or "").splitlines()
