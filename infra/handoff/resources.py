"""The hand-off as Pulumi resources: key, files that Ansible reads, configuration waves, verification."""

import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pulumi
from pydantic import ValidationError

from infra import ROOT
from infra.drift.findings import HostReport
from infra.drift.manifest import forget_host, not_sealed, remember_identity
from infra.drift.scan import scan_stack
from infra.errors import CausewayError
from infra.handoff import secrets, ssh, verify
from infra.handoff.contract import Contract, load_contract, stack_dir
from infra.handoff.hashes import value_hash
from infra.handoff.identities import INSTANCE, identities_file, load_identities
from infra.handoff.runner import Progress, run_playbook
from infra.handoff.verdicts import Verdict, read_result
from infra.providers.lifecycle import DRIFT, Lifecycle, Managed, Observed, Properties

NOT_CURRENT = "not configured as declared"
SILENT = "did not answer"
DIFFERS = "differs"
INVENTORY_SOURCE = "---\nplugin: causeway\n"
"""What `inventories/<stack>/causeway.yml` says where the user has none; the plugin finds the rest."""


class SshKeyLifecycle(Lifecycle):
    """The stack's key pair: a secret in the state, a file (0600) on the controller for OpenSSH.

    The state is what counts; a file that is lost or changed is written again from it.
    """

    outputs = ("public_key", "private_key")
    replace_on = ("stack",)

    def identity(self, inputs: Properties) -> str:
        """One per stack."""
        return f"ssh/{inputs['stack']}"

    def ensure(self, inputs: Properties, known: Properties) -> dict[str, Any]:
        """The known one, else what a killed run had written, else a new one."""
        path = self._path(inputs)
        made = {key: known[key] for key in self.outputs if known.get(key)}
        if len(made) < len(self.outputs):
            written = path.read_text(errors="replace") if path.exists() else ""
            private = written if ssh.public_key(written) else ssh.new_key()
            made = {
                "private_key": private,
                "public_key": f"{ssh.public_key(private)} causeway {inputs['stack']}",
            }
        secrets.write(path, self._parts(made))
        return made

    def observe(self, properties: Properties) -> list[str]:
        """A controller that has the state but not the files gets the files."""
        path, parts = self._path(properties), self._parts(properties)
        files = {ending: path.with_name(path.name + ending) for ending in parts}
        secrets.write(path, {end: text for end, text in parts.items() if not files[end].exists()})
        return [
            f"{file.relative_to(ROOT)} is not what the state holds"
            for ending, file in files.items()
            if file.read_text(errors="replace") != parts[ending]
        ]

    def remove(self, properties: Properties) -> None:
        """Delete both files."""
        path = self._path(properties)
        path.unlink(missing_ok=True)
        path.with_suffix(".pub").unlink(missing_ok=True)

    def _path(self, properties: Properties) -> Path:
        return ROOT / stack_dir(properties["stack"]) / "ssh" / "id_ed25519"

    def _parts(self, properties: Properties) -> secrets.Parts:
        return {"": properties["private_key"], ".pub": properties["public_key"] + "\n"}


class SshKey(Managed, module="causeway", name="SshKey"):
    """The key by which the controller reaches every node of the stack."""

    public_key: pulumi.Output[str]
    private_key: pulumi.Output[str]

    def __init__(self, name: str, stack: str, opts: pulumi.ResourceOptions) -> None:
        secret = pulumi.ResourceOptions(additional_secret_outputs=["private_key"])
        super().__init__(SshKeyLifecycle, name, {"stack": stack}, pulumi.ResourceOptions.merge(opts, secret))


class InventoryLifecycle(Lifecycle):
    """The contract, the known hosts, the machines' identities and the ssh_config: files of the stack."""

    def identity(self, inputs: Properties) -> str:
        """One per stack."""
        return f"inventory/{inputs['contract']['stack']}"

    def ensure(self, inputs: Properties, known: Properties) -> dict[str, Any]:
        """Write the files, each whole or not at all."""
        ssh.control_dir().mkdir(mode=0o700, exist_ok=True)
        for path, text in self._files(inputs).items():
            write_file(path, text)
        source = _inventory_source(inputs["contract"]["stack"])
        if not source.exists():
            write_file(source, INVENTORY_SOURCE)
        return {}

    def observe(self, properties: Properties) -> list[str]:
        """Files that are missing or say something else."""
        try:
            files = self._files(properties)
        except ValidationError:
            return ["the contract was written by another version of Causeway"]
        return [
            f"{path.relative_to(ROOT)} is not what `up` wrote"
            for path, text in files.items()
            if not path.exists() or path.read_text() != text
        ]

    def remove(self, properties: Properties) -> None:
        """Delete the files; of `inventories/<stack>` only what `ensure` wrote, the rest is the user's."""
        contract = properties["contract"]  # another version's, perhaps, and to be removed all the same
        for path in (_contract_file(contract["stack"]), ROOT / contract["known_hosts_file"]):
            path.unlink(missing_ok=True)
        ssh.ssh_config_file(contract["stack"]).unlink(missing_ok=True)
        identities_file(contract["stack"]).unlink(missing_ok=True)
        source = _inventory_source(contract["stack"])
        if source.exists() and source.read_text() == INVENTORY_SOURCE:
            source.unlink()
            if not any(source.parent.iterdir()):
                source.parent.rmdir()

    def _files(self, properties: Properties) -> dict[Path, str]:
        contract = Contract.model_validate(properties["contract"])
        known = properties.get("identities")  # a state of an older version has none
        return {
            **({identities_file(contract.stack): json.dumps(known, sort_keys=True) + "\n"} if known else {}),
            _contract_file(contract.stack): contract.model_dump_json(indent=1) + "\n",
            ROOT / contract.known_hosts_file: ssh.known_hosts(contract, properties["host_keys"]),
            ssh.ssh_config_file(contract.stack): ssh.ssh_config(contract),
        }


class InventoryFiles(Managed, module="causeway", name="InventoryFiles"):
    """What Ansible, ssh and verification read."""

    contract: pulumi.Output[dict[str, Any]]

    def __init__(self, name: str, inputs: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(InventoryLifecycle, name, inputs, opts)


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


class VerificationLifecycle(Lifecycle):
    """The verification: Testinfra against every node, once the waves are through."""

    outputs = ("effective", "rendered", "unsupported")
    replace_on = ("stack",)

    def identity(self, inputs: Properties) -> str:
        """One per stack."""
        return f"verification/{inputs['stack']}"

    def ensure(self, inputs: Properties, known: Properties) -> dict[str, Any]:
        """Run all checks; CausewayError that names every failed one and every host that was not reached."""
        inventory = f"inventories/{inputs['stack']}"
        result = verify.verify(ROOT / inventory, on_progress=lambda line: print(line, flush=True))
        if result.failed:
            again = f"./run exec ansible-playbook playbooks/verify.yml -i {inventory}"
            raise CausewayError(result.report(), hint=f"{again} shows it again")
        counts = result.counts()
        return {kind: counts[Verdict(kind)] for kind in self.outputs}

    def observe(self, properties: Properties) -> list[str]:
        """A stack of which the last verification did not pass is verified again."""
        result = read_result(properties["stack"])
        if not result.failed:
            return []
        counts = ", ".join(f"{count} {verdict}" for verdict, count in result.counts().items())
        return [f"the last verification did not pass: {counts}"]

    def remove(self, properties: Properties) -> None:
        """Nothing stands for it."""


class Verification(Managed, module="causeway", name="Verification"):
    """What was verified, counted: effective, rendered only, unsupported here."""

    effective: pulumi.Output[int]
    rendered: pulumi.Output[int]
    unsupported: pulumi.Output[int]

    def __init__(self, name: str, inputs: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(VerificationLifecycle, name, inputs, opts)


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


def _inventory_source(stack: str) -> Path:
    return ROOT / "inventories" / stack / "causeway.yml"


def write_file(path: Path, text: str) -> None:
    """Write a file whole or not at all, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_text(text)
    part.replace(path)


def _say(progress: Progress) -> None:
    print(progress, flush=True)


def hosts_of(contract: Contract, regions: Sequence[str]) -> list[str]:
    """The hosts of some regions, in declared order."""
    return [name for region in regions for name in contract.region_hosts(region)]
