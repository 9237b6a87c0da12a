"""What Ansible, ssh and verification read of a stack, as files of the controller."""

import json
from pathlib import Path
from typing import Any

import pulumi
from pydantic import ValidationError

from infra import ROOT
from infra.errors import CausewayError
from infra.files import write_file
from infra.ground import ssh
from infra.ground.contract import Contract, load_contract
from infra.ground.identities import identities_file
from infra.providers.lifecycle import Lifecycle, Managed, Properties
from infra.stack import contract_file

INVENTORY_SOURCE = "---\nplugin: causeway\n"
"""What `inventories/<stack>/causeway.yml` says where the user has none; the plugin finds the rest."""


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
        for path in (contract_file(contract["stack"]), ROOT / contract["known_hosts_file"]):
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
            contract_file(contract.stack): contract.model_dump_json(indent=1) + "\n",
            ROOT / contract.known_hosts_file: ssh.known_hosts(contract, properties["host_keys"]),
            ssh.ssh_config_file(contract.stack): ssh.ssh_config(contract),
        }


class InventoryFiles(Managed, module="causeway", name="InventoryFiles"):
    """What Ansible, ssh and verification read."""

    contract: pulumi.Output[dict[str, Any]]

    def __init__(self, name: str, inputs: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(InventoryLifecycle, name, inputs, opts)


def standing_contract(stack: str, asked_for: str = "") -> Contract | None:
    """The contract of what stands; None where there is none, or another version's: `up` writes it anew.

    ASKED_FOR: what cannot be done without it, said where it is another version's.
    """
    if not contract_file(stack).exists():
        return None
    try:
        return load_contract(contract_file(stack))
    except CausewayError as error:
        if asked_for:
            print(f"{asked_for}: {error.message}", flush=True)
        return None


def _inventory_source(stack: str) -> Path:
    return ROOT / "inventories" / stack / "causeway.yml"
