"""Takes a scenario's roles off its nodes again, and holds the nodes against what they were before.

    python -m tests.molecule.leaving look|leave --folder MOLECULE_EPHEMERAL_DIRECTORY [--roles A,B …]

`look` comes before the roles, `leave` after they were verified. Sealing, the plan and the playbook are the
product's own, on a contract in which the nodes are machines that somebody has.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from infra import ROOT
from infra.declaration import ClusterSpec
from infra.drift.merge import HostSeal, Record
from infra.drift.seal import seal_host
from infra.drift.trip import Trips
from infra.files import write_file
from infra.ground.contract import Contract
from infra.ground.ssh import known_hosts
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from infra.stack import contract_file, stack_dir
from tests.photograph import DATA, photograph

Pictures = dict[str, set[str]]


@dataclass(frozen=True)
class Scenario:
    """What molecule's own playbooks have left in its folder. STACK: the name under which nodes are sealed."""

    folder: Path
    stack: str

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
        argv = ("ssh", *words, "-oIdentitiesOnly=yes", f"root@{self.addresses[node]}", "sh")
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
        provider = {"kind": "existing", "ssh_key_file": str(self.folder / "id_ed25519")}
        pool = {"name": "all", "role": "control", "count": len(hosts), "hosts": hosts}
        region = {"name": "molecule", "provider": provider, "cidr": "10.88.0.0/16", "pools": [pool]}
        spec = ClusterSpec.model_validate({"name": "molecule", "regions": [region]})
        return build_contract(spec, make_plan(spec), self.stack)

    def seal(self) -> None:
        """Keep what the first run of the roles has recorded, as a run of a stack keeps it."""
        contract = self.contract()
        write_file(contract_file(self.stack), contract.model_dump_json())
        write_file(ROOT / contract.known_hosts_file, known_hosts(contract, self.host_keys))
        asyncio.run(self._seal(contract, json.loads((self.folder / "first-record.json").read_text())))

    async def _seal(self, contract: Contract, records: Mapping[str, Mapping[str, Record]]) -> None:
        trips = Trips(contract)
        for node, recorded in records.items():
            seal = HostSeal(self.stack, node, recorded, inputs={})
            await seal_host(trips, seal)
            problems = [line for part in seal.manifest.roles.values() for line in part.problems]
            if problems or seal.not_repaired:
                raise SystemExit("\n".join([f"{node}: not sealed", *problems, *seal.not_repaired]))

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
    """1 where a node is not what it was."""
    parser = argparse.ArgumentParser(description="Take a scenario's roles off its nodes again.")
    parser.add_argument("step", choices=("look", "leave"))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--roles", default="")
    parser.add_argument("--inventory", default="")
    options = parser.parse_args()
    picture = options.folder / "before.json"
    scenario = Scenario(options.folder, f"molecule-{os.getpid()}")
    if options.step == "look":
        picture.write_text(json.dumps({node: sorted(lines) for node, lines in scenario.pictures().items()}))
        return 0
    try:
        scenario.seal()
        said = scenario.leave(options.roles, options.inventory)
    finally:
        shutil.rmtree(ROOT / stack_dir(scenario.stack), ignore_errors=True)
    before = {node: set(lines) for node, lines in json.loads(picture.read_text()).items()}
    if found := differences(before, scenario.pictures()):
        print(said, *found, sep="\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
