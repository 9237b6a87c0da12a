"""Inventory plugin: a stack's contract as Ansible hosts, groups and variables."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ansible.plugins.inventory import BaseInventoryPlugin
from ansible.utils.display import Display

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:  # plain `ansible-playbook` knows this file's folder, not the checkout
    sys.path.append(str(ROOT))

from infra.converge import parsed  # noqa: E402 - needs the path set above
from infra.errors import CausewayError, ExitCode  # noqa: E402 - likewise

if TYPE_CHECKING:
    from ansible.inventory.data import InventoryData
    from ansible.parsing.dataloader import DataLoader

    from infra.ground.contract import Contract

DOCUMENTATION = """
name: causeway
short_description: The hosts of a Causeway stack
description:
  - Reads the contract that C(./run up) leaves behind and defines its hosts, groups and variables.
  - Groups C(region_*), C(pool_*), C(role_*) and C(feature_*) always exist, also when they are empty.
  - Everything a user may want to change stands on groups, so C(group_vars/all/) beside the source wins.
options:
  plugin:
    description: Names this plugin.
    required: true
    choices: [causeway]
    type: str
  stack:
    description: The stack. Left out, the name of the folder in which the source file is.
    type: str
  contract:
    description:
      - The contract's file, absolute or relative to the checkout.
      - Left out, it is C(.causeway/stacks/<stack>/contract.json), and where that is missing
        the output C(contract) of the Pulumi stack.
    type: str
"""

PULUMI_TIMEOUT_S = 60

parsed.use()  # Ansible loads its inventory before any playbook


class InventoryModule(BaseInventoryPlugin):  # type: ignore[misc]  # ansible has no types
    """Loads what `infra.inventory.groups` makes of a contract into Ansible's inventory."""

    NAME = "causeway"
    trusted_by_default = False
    """Nothing here is a template: a template runs commands on this machine, and keys come from other people.

    What we write as a template stands in playbooks and roles, which Ansible trusts by itself.
    """

    def verify_file(self, path: str) -> bool:
        """Whether a file is a source for this plugin; decided by its name, as Ansible's plugins do."""
        return super().verify_file(path) and Path(path).name in ("causeway.yml", "causeway.yaml")

    def parse(self, inventory: InventoryData, loader: DataLoader, path: str, cache: bool = True) -> None:
        """Fill Ansible's inventory, or end the command with one line that names the next step."""
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        stack = self.get_option("stack") or Path(path).absolute().parent.name
        try:
            contract = read_contract(stack, self.get_option("contract"))
            from infra.ground import sudo
            from infra.inventory.groups import inventory_data

            data = inventory_data(contract, ROOT)
            if any(region.sudo_source for region in contract.regions.values()):
                sudo.share()  # before Ansible forks a process for each host
        except CausewayError as error:
            stop(f"{error.message}: {error.hint}")
        except ImportError as error:
            stop(f"{sys.executable} lacks {error.name}: run this through ./run exec")
        load(inventory, data)


def stop(message: str) -> NoReturn:
    """End the Ansible command here.

    An exception would make Ansible try its other plugins on the source, and bury the cause under
    what those have to say about it; with no hosts there is nothing to go on with.
    """
    Display().error(message, wrap_text=False)
    raise SystemExit(ExitCode.FAILED)


def read_contract(stack: str, file: str | None) -> Contract:
    """The contract from its file, else from the Pulumi stack. CausewayError when there is neither."""
    from infra.ground.contract import Contract, load_contract
    from infra.stack import contract_file

    path = ROOT / file if file else contract_file(stack)
    pulumi = shutil.which("pulumi")
    if file or path.is_file() or pulumi is None or "PULUMI_BACKEND_URL" not in os.environ:
        return load_contract(path)
    text = _stack_output(pulumi, stack)
    if text is None:
        return load_contract(path)  # which says that there is none
    value = json.loads(text)
    return Contract.model_validate_json(value if isinstance(value, str) else text)


def _stack_output(pulumi: str, stack: str) -> str | None:
    """The stack's output `contract` as JSON text; None when Pulumi knows no such stack or output."""
    command = [pulumi, "stack", "output", "contract", "--json", "--stack", stack, "--non-interactive"]
    answer = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=PULUMI_TIMEOUT_S, check=False
    )
    return answer.stdout if answer.returncode == 0 else None


def load(inventory: InventoryData, data: dict[str, Any]) -> None:
    """Enter script-shaped data: groups first, so that hosts find their ancestors in one pass."""
    hostvars = data.pop("_meta")["hostvars"]
    for name in data:
        inventory.add_group(name)
    for name, group in data.items():
        for variable, value in group["vars"].items():
            inventory.set_variable(name, variable, value)
        for child in group["children"]:
            inventory.add_child(name, child)
    for name, group in data.items():
        for host in group["hosts"]:
            inventory.add_host(host, name)
    for host, variables in hostvars.items():
        for variable, value in variables.items():
            inventory.set_variable(host, variable, value)
