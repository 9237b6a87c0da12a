"""A wave: the roles on the hosts of some regions, and the scan of what they made true."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pulumi

from infra import ROOT
from infra.converge.runner import Progress, run_playbook
from infra.drift.findings import HostReport
from infra.drift.manifest import forget_host, not_sealed, remember_identity
from infra.drift.scan import scan_stack
from infra.errors import CausewayError
from infra.files import value_hash, write_file
from infra.ground.contract import Contract, load_contract
from infra.ground.identities import INSTANCE, load_identities
from infra.providers.lifecycle import DRIFT, Lifecycle, Managed, Observed, Properties
from infra.stack import stack_dir

NOT_CURRENT = "not configured as declared"
SILENT = "did not answer"
DIFFERS = "differs"


class ConfigurationLifecycle(Lifecycle):
    """One wave: the roles, on the hosts of some regions.

    A converge record per host says which roles and variables it last took, and as which instance; only
    hosts whose record differs are touched, so an interrupted `up` goes on where it stopped.
    """

    outputs = ("unreachable", "found")
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
        not_current = self._stale(inputs)
        drifted, silent = self._found(inputs, known, not_current)
        stale = [name for name in inputs["hosts"] if name in not_current or name in drifted]
        if stale:
            silent += self._converge(inputs, stale, drifted)
        # As drift, so that the next `up` tries them again even when nothing else has changed.
        return {
            "unreachable": silent,
            "found": dict.fromkeys(silent, SILENT),
            DRIFT: [f"{name}: {SILENT}" for name in silent],
        }

    def observe(self, properties: Properties) -> Observed:
        """Hosts that never took what is declared; on the others, what differs, a sentence each, and the roles
        that are not sealed or stale; and those that cannot be looked at, for nothing is known of them.
        """
        stale = self._stale(properties)
        current = [name for name in properties["hosts"] if name not in stale]
        found = dict.fromkeys(stale, NOT_CURRENT)
        sentences = [f"{name}: {NOT_CURRENT}" for name in stale]
        for report in _reports(properties["stack"], current):
            sentences += _findings(report)
            if state := _state(report):
                found[report.host] = state
        return Observed(sentences, {"found": found})

    def _found(
        self, inputs: Properties, known: Properties, not_current: Collection[str]
    ) -> tuple[set[str], list[str]]:
        """The hosts on which something differs, and those that are silent still: they are asked again."""
        found = _last_found(known)
        drifted = {name for name, state in found.items() if state == DIFFERS}
        silent = {name for name, state in found.items() if state == SILENT and name in inputs["hosts"]}
        again = _reports(inputs["stack"], sorted(silent.difference(not_current)))
        now = {report.host: _state(report) for report in again}
        drifted |= {name for name, state in now.items() if state == DIFFERS}
        return drifted, [name for name, state in now.items() if state == SILENT]

    def _converge(self, inputs: Properties, stale: list[str], drifted: Collection[str]) -> list[str]:
        """Run the roles on the stale hosts; those that did not answer. CausewayError where one failed."""
        for name in stale:
            _record(inputs, name).unlink(missing_ok=True)
        result = run_playbook(
            "playbooks/site.yml",
            stack=inputs["stack"],
            limit=stale,
            run_dir=ROOT / stack_dir(inputs["stack"]) / "runs" / inputs["wave"],
            on_progress=_say,
        )
        for name in stale:
            if result.hosts[name].state == "ok":
                write_file(_record(inputs, name), _digest(inputs, name) + "\n")
        if any(host.state == "failed" for host in result.hosts.values()):
            raise CausewayError(result.report(), hint="mend it and run ./run up again: it goes on from here")
        converged = [name for name in stale if result.hosts[name].state == "ok"]
        for line in not_sealed(inputs["stack"], converged):
            print(line, flush=True)
        for report in _reports(inputs["stack"], converged):
            for line in _differences(report):
                print(f"drift: not repaired by the roles: {line}", flush=True)
        unreachable = [name for name in stale if result.hosts[name].state == "unreachable"]
        if unreachable:
            print(result.report(), flush=True)
        return unreachable

    def remove(self, properties: Properties) -> None:
        """Forget the records; the nodes keep their configuration for as long as they stand."""
        for name in properties["hosts"]:
            _record(properties, name).unlink(missing_ok=True)
            forget_host(properties["stack"], name)

    def _stale(self, properties: Properties) -> list[str]:
        return [
            name
            for name in properties["hosts"]
            if not (path := _record(properties, name)).exists()
            or path.read_text().strip() != _digest(properties, name)
        ]


class Configuration(Managed, module="causeway", name="Configuration"):
    """A wave of regions, configured by the roles."""

    unreachable: pulumi.Output[list[str]]
    found: pulumi.Output[dict[str, str]]

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
    if not hosts or not _contract_file(stack).exists():
        return
    try:
        contract = load_contract(_contract_file(stack))
    except CausewayError as error:  # another version's: `up` writes it anew, and converges
        print(f"drift: not looked for: {error.message}", flush=True)
        return
    for report in scan_stack(stack, [name for name in hosts if name in contract.hosts]):
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


def _digest(properties: Properties, name: str) -> str:
    """What a host's converge record must say: its instance and variables, and the roles of the wave."""
    return value_hash([properties["hosts"][name], properties["roles"]])


def _record(properties: Properties, name: str) -> Path:
    return ROOT / stack_dir(properties["stack"]) / "converged" / name


def _contract_file(stack: str) -> Path:
    return ROOT / stack_dir(stack) / "contract.json"


def _say(progress: Progress) -> None:
    print(progress, flush=True)


def hosts_of(contract: Contract, regions: Sequence[str]) -> list[str]:
    """The hosts of some regions, in declared order."""
    return [name for region in regions for name in contract.region_hosts(region)]
