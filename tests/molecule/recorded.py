"""Holds a scenario's nodes against the record of its first run, and takes the roles off them again.

    python -m tests.molecule.recorded look|seal|scan|leave|forget --folder MOLECULE_EPHEMERAL_DIRECTORY

`look` comes before the roles and `seal` after their first run, as in a run of a stack. After the second
run and the verification `scan` expects no difference, and `leave` nodes that are what they were before;
`forget` is for a scenario that runs its role again with other values, of which this is no record.
All of it is the product's own, on a contract in which the nodes are machines that somebody has.
"""

import argparse
import asyncio
import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from infra import ROOT
from infra.declaration import ClusterSpec
from infra.drift.findings import HostReport
from infra.drift.merge import HostSeal, Record
from infra.drift.scan import Scanner
from infra.drift.seal import seal_host
from infra.drift.trip import Trips
from infra.files import write_file
from infra.ground.contract import Contract, load_contract
from infra.ground.ssh import known_hosts
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from infra.stack import contract_file, stack_dir
from tests.photograph import DATA, photograph

Pictures = dict[str, set[str]]
SCENARIO = "molecule-"
"""How the stacks are called under whose names scenarios' nodes are sealed."""
WAY_IN = ("-oIdentitiesOnly=yes", "-oConnectionAttempts=3")


@dataclass(frozen=True)
class Scenario:
    """What molecule's own playbooks have left in its folder. USER: who logs in once the roles have run."""

    folder: Path
    user: str

    @property
    def stack(self) -> str:
        """The name under which its nodes are sealed."""
        return f"{SCENARIO}{hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]}"

    @cached_property
    def addresses(self) -> dict[str, str]:
        """Node → address."""
        return {
            path.name.removeprefix("address-"): path.read_text() for path in self.folder.glob("address-*")
        }

    @cached_property
    def host_keys(self) -> dict[str, str]:
        """Node → public host key."""
        lines = (self.folder / "known_hosts").read_text().splitlines()
        keys = {address: f"{kind} {key}" for address, kind, key in map(str.split, lines)}
        return {node: keys[address] for node, address in self.addresses.items()}

    def on(self, node: str, script: str) -> str:
        """What a shell script printed on a node."""
        words = ("-i", str(self.folder / "id_ed25519"), f"-oUserKnownHostsFile={self.folder}/known_hosts")
        argv = ("ssh", *words, *WAY_IN, f"root@{self.addresses[node]}", "sh")
        return subprocess.run(argv, input=script, text=True, stdout=subprocess.PIPE, check=True).stdout

    def pictures(self) -> Pictures:
        """Node → what it is now."""
        return {node: photograph(partial(self.on, node), DATA) for node in sorted(self.addresses)}

    def contract(self) -> Contract:
        """The nodes as machines of somebody's."""
        hosts = [
            {"name": node, "address": address, "host_key": self.host_keys[node]}
            for node, address in sorted(self.addresses.items())
        ]
        provider = {"kind": "existing", "ssh_user": self.user}
        provider["ssh_key_file"] = str(self.folder / "id_ed25519")
        pool = {"name": "all", "role": "control", "count": len(hosts), "hosts": hosts}
        region = {"name": "molecule", "provider": provider, "cidr": "10.88.0.0/16", "pools": [pool]}
        spec = ClusterSpec.model_validate({"name": "molecule", "regions": [region]})
        return build_contract(spec, make_plan(spec), self.stack)

    def seal(self) -> None:
        """Keep what the first run of the roles has recorded, as a run of a stack keeps it."""
        shutil.rmtree(ROOT / stack_dir(self.stack), ignore_errors=True)  # of a run that failed
        contract = self.contract()
        write_file(contract_file(self.stack), contract.model_dump_json())
        write_file(ROOT / contract.known_hosts_file, known_hosts(contract, self.host_keys))
        asyncio.run(self._seal(contract))

    async def _seal(self, contract: Contract) -> None:
        trips = Trips(contract)
        for node, recorded in self.records().items():
            seal = HostSeal(self.stack, node, recorded, inputs=dict.fromkeys(recorded, ""))
            await seal_host(trips, seal)
            problems = [line for part in seal.manifest.roles.values() for line in part.problems]
            if problems or seal.not_repaired:
                raise SystemExit("\n".join([f"{node}: not sealed", *problems, *seal.not_repaired]))

    def records(self) -> dict[str, dict[str, Record]]:
        """Node → role → what the first run has recorded: only that ran the handlers."""
        found: dict[str, dict[str, Record]] = json.loads((self.folder / "sealed.json").read_text())
        return found

    def scan(self) -> list[str]:
        """A line for each thing that is no more as it was sealed."""
        contract = load_contract(contract_file(self.stack))
        inputs = {node: dict.fromkeys(recorded, "") for node, recorded in self.records().items()}

        async def reports() -> list[HostReport]:
            scanner = Scanner(contract, inputs)
            return [await scanner.host(node) for node in inputs]

        return [
            f"{report.host}: {report.state}: {report.message} {report.differences}"
            for report in asyncio.run(reports())
            if report.state != "clean"
        ]

    def leave(self, roles: str, inventory: str) -> str:
        """Take the roles off the nodes, with their data; what the playbook printed."""
        given = {"causeway_stack": self.stack, "leave_roles": roles, "leave_purge_data": True}
        playbook = str(ROOT / "playbooks" / "leave.yml")
        argv = ("ansible-playbook", "--inventory", inventory, "--extra-vars", json.dumps(given), playbook)
        done = subprocess.run(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode:
            raise SystemExit(done.stdout)
        return done.stdout


def differences(before: Pictures, after: Pictures) -> list[str]:
    """A line for each thing that was there and is not, or the other way round."""
    return [
        f"{node}: {'missing' if line in before[node] else 'left behind'}: {line}"
        for node in sorted(before)
        for line in sorted(before[node] ^ after[node])
    ]


def main() -> int:
    """1 where a node is not what it should be."""
    parser = argparse.ArgumentParser(description="Hold a scenario's nodes against its record.")
    parser.add_argument("step", choices=("look", "seal", "scan", "leave", "forget"))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--user", default="root")
    parser.add_argument("--roles", default="")
    parser.add_argument("--inventory", default="")
    options = parser.parse_args()
    folder: Path = options.folder
    scenario = Scenario(folder, options.user)
    if options.step == "look":
        pictures = {node: sorted(lines) for node, lines in scenario.pictures().items()}
        (folder / "before.json").write_text(json.dumps(pictures))
    elif options.step == "seal":
        (folder / "record.json").rename(folder / "sealed.json")
        scenario.seal()
    else:
        try:
            return told(finish(scenario, options))
        finally:
            shutil.rmtree(ROOT / stack_dir(scenario.stack), ignore_errors=True)
    return 0


def finish(scenario: Scenario, options: argparse.Namespace) -> list[str]:
    """What is wrong at the end, a line each."""
    if options.step == "forget":
        return []
    if (found := scenario.scan()) or options.step == "scan":
        return found
    said = scenario.leave(options.roles, options.inventory)
    before = json.loads((scenario.folder / "before.json").read_text())
    left = differences({node: set(lines) for node, lines in before.items()}, scenario.pictures())
    return [said, *left] if left else []


def told(lines: list[str]) -> int:
    """Print what is wrong; the exit status."""
    print(*lines, sep="\n")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
