"""A wave: the roles on the hosts of some regions, and the scan of what they made true."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pulumi

from infra import ROOT
from infra.components.holding import no_consent
from infra.components.inventory_files import standing_contract
from infra.components.leaving import (
    by_role,
    converged_dir,
    forget_gone,
    forget_left_behind,
    gone_nodes,
    leaving_roles_of,
    left_behind,
    say,
    show_what_stays,
    take_leave,
    without_successors,
)
from infra.converge.runner import run_playbook
from infra.drift.findings import HostReport
from infra.drift.leave import in_words
from infra.drift.manifest import PARTS, forget_host, not_sealed, remember_identity
from infra.drift.scan import scan_stack
from infra.errors import CausewayError
from infra.files import write_file
from infra.ground.contract import Contract
from infra.ground.identities import INSTANCE, load_identities
from infra.inventory.roles import role_order, roles_begun
from infra.providers.lifecycle import DRIFT, Lifecycle, Managed, Observed, Properties
from infra.stack import stack_dir
from infra.verify import verdicts

NOT_CURRENT = "not configured as declared"
SILENT = "did not answer"
DIFFERS = "differs"


class ConfigurationLifecycle(Lifecycle):
    """One wave: the roles, on the hosts of some regions.

    A converge record per host says with which inputs it last took each role, and an input of the wave with
    which it is to: only roles that differ in it, or on whose host something was found, run, so an interrupted
    `up` goes on where it stopped. `hosts`: name → {instance, roles: {role: hash}}. Before that, roles leave
    that a host's record has and its inputs have not; what nobody gets back by itself waits for consent.
    `leave`: role → why it waits, and hosts that may let it go, or `all`.
    """

    outputs = ("unreachable", "found", "differing")
    replace_on = ("stack",)

    def identity(self, inputs: Properties) -> str:
        """One per wave."""
        return f"configuration/{inputs['stack']}/{inputs['wave']}"

    def ensure(self, inputs: Properties, known: Properties) -> dict[str, Any]:
        """Converge the hosts whose record is not current.

        A failed host fails the wave, after the others finished. A host that does not answer does not hold
        up the waves behind: it is reported here, tried again at the next `up`, and fails the verification,
        which follows whenever this was called.
        """
        _remember_instances(inputs["stack"], known)
        # Which hosts are not current was seen against the last inputs, and is asked again against these.
        due = _due(inputs)
        drifted, silent = self._found(inputs, known, due)
        for name, roles in drifted.items():
            if all_due := _in_order(inputs, name, {*due.get(name, ()), *roles}):
                due[name] = all_due
        leaving, waiting = _leaving(inputs)
        if leaving:
            silent += self._take_leave(inputs, leaving)
        if due := without_successors(due, waiting):
            silent += self._converge(inputs, due)
            # What roles make no more is known once they ran.
            if parts := _parts(inputs, due):
                silent += self._take_leave(inputs, parts)
        verdicts.forget(inputs["stack"], {name: inputs["hosts"][name]["roles"] for name in silent})
        if contract := standing_contract(inputs["stack"]):
            forget_left_behind(contract, say)
            forget_gone(contract, say, inputs["leave"])
        if waiting:
            raise no_consent(by_role(waiting, waiting), inputs["leave"])
        # As drift, so that the next `up` tries them again even when nothing else has changed.
        return {
            "unreachable": silent,
            "found": dict.fromkeys(silent, SILENT),
            "differing": {},
            DRIFT: [f"{name}: {SILENT}" for name in silent],
        }

    def observe(self, properties: Properties) -> Observed:
        """Hosts that never took what is declared; on the others, what differs, a sentence each, and the roles
        that are not sealed or stale; and those that cannot be looked at, for nothing is known of them.
        """
        due = _due(properties)
        current = [name for name in properties["hosts"] if name not in due]
        found, differing = dict.fromkeys(due, NOT_CURRENT), {}
        sentences = [f"{name}: {NOT_CURRENT}" for name in due]
        for leaving in _leaving(properties):
            for name, roles in leaving.items():
                found[name] = NOT_CURRENT
                sentences.append(f"{name}: {', '.join(map(in_words, roles))} is to leave")
        if contract := standing_contract(properties["stack"]):
            sentences += [
                f"{name}: is gone, and others have yet to forget it" for name in gone_nodes(contract)
            ]
            sentences += [
                f"{name}: {role} has left, and others have yet to forget it"
                for role, names in left_behind(contract).items()
                for name in names
            ]
        for report in _reports(properties["stack"], current):
            sentences += _findings(report)
            if state := _state(report):
                found[report.host] = state
            if roles := _differing(report):
                differing[report.host] = roles
        return Observed(sentences, {"found": found, "differing": differing})

    def _found(
        self, inputs: Properties, known: Properties, due: Mapping[str, Sequence[str]]
    ) -> tuple[dict[str, list[str]], list[str]]:
        """Hosts with the roles that something differs of, and those that are silent still: they are asked
        again."""
        found, differing = _last_found(known), known.get("differing")
        drifted = {
            # A state of an older version does not say which.
            name: list(inputs["hosts"][name]["roles"] if differing is None else differing.get(name, ()))
            for name, state in found.items()
            if state == DIFFERS and name in inputs["hosts"]
        }
        silent = [name for name, state in found.items() if state == SILENT and name in inputs["hosts"]]
        again = list(_reports(inputs["stack"], sorted(set(silent).difference(due))))
        drifted |= {report.host: _differing(report) for report in again if _state(report) == DIFFERS}
        return drifted, [report.host for report in again if _state(report) == SILENT]

    def _take_leave(self, inputs: Properties, leaving: Mapping[str, Sequence[str]]) -> list[str]:
        """Take roles off hosts; those that did not answer. CausewayError where one failed."""
        stack = inputs["stack"]
        verdicts.forget(stack, leaving)
        for name, roles in leaving.items():  # a role that is declared again is to run again
            taken = _taken(inputs, name)
            _keep(inputs, name, {role: last for role, last in taken.items() if role not in roles})
        counts = (f"{in_words(role)} from {len(hosts)}" for role, hosts in by_role(leaving, leaving).items())
        print(f"leaving: {', '.join(counts)}", flush=True)
        result = take_leave(stack, leaving, f"leave-{inputs['wave']}", say)
        show_what_stays(result)
        if any(host.state == "failed" for host in result.hosts.values()):
            raise CausewayError(result.report(), hint="mend it and run ./run up again: it goes on from here")
        return [name for name in leaving if result.hosts[name].state == "unreachable"]

    def _converge(self, inputs: Properties, due: Mapping[str, Sequence[str]]) -> list[str]:
        """Run the due roles on their hosts; those that did not answer. CausewayError where one failed."""
        stack, records = inputs["stack"], {name: _taken(inputs, name) for name in due}
        verdicts.forget(stack, due)
        for name, roles in due.items():
            records[name] = {role: last for role, last in records[name].items() if role not in roles}
            _keep(inputs, name, records[name])
        names = [name for name in inputs["hosts"] if name in due]
        for line in _what_runs(due):
            print(line, flush=True)
        result = run_playbook(
            "playbooks/site.yml",
            stack=stack,
            limit=names,
            extra_vars={"causeway_due": by_role(due, names)},
            run_dir=ROOT / stack_dir(stack) / "runs" / inputs["wave"],
            on_progress=say,
        )
        begun = roles_begun(result.plays)
        for name in names:
            if result.hosts[name].state == "ok":
                taken = {role: inputs["hosts"][name]["roles"][role] for role in due[name] if role in begun}
                _keep(inputs, name, records[name] | taken)
        if any(host.state == "failed" for host in result.hosts.values()):
            raise CausewayError(result.report(), hint="mend it and run ./run up again: it goes on from here")
        converged = [name for name in names if result.hosts[name].state == "ok"]
        for line in not_sealed(stack, converged):
            print(line, flush=True)
        for report in _reports(stack, converged):
            for line in _differences(report):
                print(f"drift: not repaired by the roles: {line}", flush=True)
        unreachable = [name for name in names if result.hosts[name].state == "unreachable"]
        if unreachable:
            print(result.report(), flush=True)
        return unreachable

    def remove(self, properties: Properties) -> None:
        """Forget the records; the nodes keep their configuration for as long as they stand.

        Those of nodes that the rest of the stack has yet to forget stay until it has; and those of nodes that
        another wave has by now: its regions have another order, or other names.
        """
        contract = standing_contract(properties["stack"])
        moved = contract and properties["wave"] not in map("+".join, contract.waves)
        for name in properties["hosts"]:
            if contract and moved and name in contract.hosts:
                continue
            _record(properties, name).unlink(missing_ok=True)
            if contract is None or name in contract.hosts:
                forget_host(properties["stack"], name)


class Configuration(Managed, module="causeway", name="Configuration"):
    """A wave of regions, configured by the roles."""

    unreachable: pulumi.Output[list[str]]
    found: pulumi.Output[dict[str, str]]
    differing: pulumi.Output[dict[str, list[str]]]

    def __init__(self, name: str, inputs: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(ConfigurationLifecycle, name, inputs, opts)


def _last_found(known: Properties) -> dict[str, str]:
    """Host → what the last look found there: NOT_CURRENT, SILENT or DIFFERS."""
    if (found := known.get("found")) is not None:
        return dict(found)
    # A state of an older version has the sentences only: `host: what`.
    told = [sentence.partition(": ")[::2] for sentence in known.get(DRIFT) or ()]
    return {name: what if what in (NOT_CURRENT, SILENT) else DIFFERS for name, what in told}


def _state(report: HostReport) -> str:
    """What `found` says of a scanned host; empty where nothing differs."""
    if report.message:
        return SILENT
    return DIFFERS if _findings(report) else ""


def _findings(report: HostReport) -> list[str]:
    """What a scan says of a host: `host: role: what differs`, or `host: …` of it as a whole."""
    if report.message:
        return [f"{report.host}: {SILENT}"]
    unsettled = "; ".join(map(report.unsettled, report.unsettled_roles))
    return [*_differences(report), *([f"{report.host}: {unsettled}"] if unsettled else [])]


def _differences(report: HostReport) -> list[str]:
    """`host: role: what differs`."""
    return [f"{report.host}: {difference.role}: {difference}" for difference in report.differences]


def _reports(stack: str, hosts: list[str]) -> Iterator[HostReport]:
    """The scan of those hosts that the contract still has; says which of them could not be scanned."""
    contract = standing_contract(stack, "drift: not looked for") if hosts else None
    if contract is None:
        return
    for report in scan_stack(stack, [name for name in hosts if name in contract.hosts], anew=True):
        if report.message:
            print(f"drift: {report.host} {report.state}: {report.message}", flush=True)
        yield report


def _remember_instances(stack: str, known: Properties) -> None:
    """Where a node of ours was made anew, write into a manifest of an older version which one it is of."""
    identities = load_identities(stack)
    for name, last in known.get("hosts", {}).items():
        was, now = f"{INSTANCE}{last['instance']}", identities.get(name, "")
        if now.startswith(INSTANCE) and now != was:
            remember_identity(stack, name, was)


def _differing(report: HostReport) -> list[str]:
    """The roles that bring a scanned host back to what is declared."""
    return list(dict.fromkeys([*report.drifted_roles, *report.unsettled_roles]))


def _due(properties: Properties) -> dict[str, list[str]]:
    """Host → the roles that it did not take with these inputs, where there are any."""
    due = {}
    for name, host in properties["hosts"].items():
        taken = _taken(properties, name)
        # The state of an older version names no roles there; all are due then.
        roles = [role for role, inputs in host.get("roles", {}).items() if taken.get(role) != inputs]
        if roles or "roles" not in host:
            due[name] = roles
    return due


def _leaving(properties: Properties) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Host → roles of its record that it has no more: those that may leave, and those that wait."""
    # The state of an older version names no roles, and no consent.
    roles = {name: host["roles"] for name, host in properties["hosts"].items() if "roles" in host}
    return leaving_roles_of(properties["stack"], roles, properties.get("leave") or {})


def _parts(properties: Properties, ran: Collection[str]) -> dict[str, list[str]]:
    """Host → what its roles made, and make no more. RAN: the hosts on which roles ran."""
    hosts = {name: properties["hosts"][name] for name in ran}
    leaving, _waiting = _leaving({**properties, "hosts": hosts})
    found = {name: [role for role in roles if role.endswith(PARTS)] for name, roles in leaving.items()}
    return {name: roles for name, roles in found.items() if roles}


def _what_runs(due: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """One line: each role with the number of hosts that it runs on."""
    hosts = by_role(due, due)
    counts = (f"{role} on {len(hosts[role])}" for role in role_order() if role in hosts)
    yield f"{len(due)} host{'s' * (len(due) > 1)}: {', '.join(counts)}"


def _in_order(properties: Properties, name: str, roles: Iterable[str]) -> list[str]:
    wanted = set(roles)
    return [role for role in properties["hosts"][name]["roles"] if role in wanted]


def _taken(properties: Properties, name: str) -> dict[str, str]:
    """Role → the inputs with which a host last took it; none where an older version kept one hash for all."""
    path = _record(properties, name)
    try:
        taken = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return taken if isinstance(taken, dict) else {}


def _keep(properties: Properties, name: str, taken: Mapping[str, str]) -> None:
    write_file(_record(properties, name), json.dumps(taken, sort_keys=True) + "\n")


def _record(properties: Properties, name: str) -> Path:
    return converged_dir(properties["stack"]) / name


def hosts_of(contract: Contract, regions: Sequence[str]) -> list[str]:
    """The hosts of some regions, in declared order."""
    return [name for region in regions for name in contract.region_hosts(region)]
