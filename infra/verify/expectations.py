"""What verification expects of each host, and how to reach it: read from the inventory by Ansible itself.

    python -m infra.verify.expectations --inventory DIR [--limit PATTERN]   → JSON on stdout

Role defaults, group and host variables and their templates are resolved by Ansible's own code, so that the
expected values are exactly those the roles got. A process of its own, since Ansible reads its configuration
once, when it is imported.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from infra import ROOT
from infra.ground.groups import group_name
from infra.ground.sudo import Become
from infra.inventory.roles import helper_roles, role_order


@dataclass(frozen=True)
class Expectation:
    """One host: its features, their role variables, and its connection."""

    host: str
    features: tuple[str, ...]
    variables: dict[str, Any]
    """Role variables by full name, defaults included, templates resolved."""
    connection: str
    """`ssh`, or `podman` for a container of a role's own test."""
    address: str
    """For ssh what to connect to; for podman the container's name."""
    ssh_options: dict[str, str]
    """ssh_config keywords for this host."""
    become: bool
    stack: str | None
    sudo_source: str = ""
    """Where the password comes from that sudo asks for there; empty where it asks for none."""
    experiments: bool = False
    """Whether checks may alter the node for a moment: one that we made, by default."""

    @property
    def hostspec(self) -> str:
        """The host as Testinfra names it."""
        if self.connection == "podman":
            return f"podman://{self.address}"
        return f"ssh://{self.host}" + ("?sudo=true" if self.become else "")

    @property
    def becoming(self) -> Become:
        """How commands become root on it."""
        user = self.ssh_options.get("User", "root") if self.become else "root"
        return Become(self.stack or "", self.host, user, self.sudo_source if self.become else "")


@dataclass(frozen=True)
class Expectations:
    """All hosts asked for, and the addresses of all hosts of the inventory."""

    hosts: tuple[Expectation, ...]
    addresses: dict[str, str]

    def dump(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))

    def with_experiments(self, wanted: bool) -> "Expectations":
        """With experiments on every host, or on none."""
        return replace(self, hosts=tuple(replace(host, experiments=wanted) for host in self.hosts))

    def only(self, roles: Mapping[str, Collection[str]]) -> "Expectations":
        """Only the hosts that are named, and of each only the roles that are."""
        hosts = (
            replace(host, features=tuple(name for name in host.features if name in roles[host.host]))
            for host in self.hosts
            if host.host in roles
        )
        return replace(self, hosts=tuple(hosts))


def parse(text: str) -> Expectations:
    """The reverse of `Expectations.dump`."""
    data = json.loads(text)
    hosts = (Expectation(**{**host, "features": tuple(host["features"])}) for host in data["hosts"])
    return Expectations(tuple(hosts), data["addresses"])


def ssh_options(variables: dict[str, Any]) -> dict[str, str]:
    """ssh_config keywords from Ansible's connection variables. Host keys are always checked."""
    options = {"HostName": str(variables.get("ansible_host", variables["inventory_hostname"]))}
    for keyword, name in (
        ("Port", "ansible_port"),
        ("User", "ansible_user"),
        ("IdentityFile", "ansible_ssh_private_key_file"),
    ):
        if variables.get(name):
            options[keyword] = str(variables[name])
    words = shlex.split(str(variables.get("ansible_ssh_common_args", "")))
    for flag, setting in pairwise(words):
        if flag == "-o" and "=" in setting:
            keyword, value = setting.split("=", 1)
            options.setdefault(keyword, value)
    return options | {"StrictHostKeyChecking": "yes"}


def read(inventory: str, limit: str | None) -> Expectations:
    """Ask Ansible. Its own errors (AnsibleError) tell what is wrong with the inventory."""
    from ansible.inventory.manager import InventoryManager
    from ansible.parsing.dataloader import DataLoader
    from ansible.plugins.loader import init_plugin_loader
    from ansible.vars.manager import VariableManager

    init_plugin_loader()
    loader = DataLoader()
    manager = InventoryManager(loader=loader, sources=[inventory])
    if limit:
        manager.subset(limit)
    return of_hosts(
        manager.get_hosts("all"), manager, VariableManager(loader=loader, inventory=manager), loader
    )


def of_hosts(hosts: Iterable[Any], inventory: Any, variables: Any, loader: Any) -> Expectations:
    """What is expected of Ansible's HOSTS, by its managers of inventory and variables and its loader."""
    everybody = inventory.get_hosts("all", ignore_limits=True)
    addresses = dict(_address(host, variables, loader) for host in everybody)
    defaults = {
        feature: loader.load_from_file(str(defaults_file(feature)), trusted_as_template=True)
        for feature in _features()
    }
    return Expectations(tuple(_expectation(host, variables, defaults, loader) for host in hosts), addresses)


def _features() -> tuple[str, ...]:
    """What may have checks of its own: every role. Helpers have a group in their own tests only."""
    return (*role_order(), *helper_roles())


def defaults_file(feature: str) -> Path:
    """Where a role's defaults stand."""
    return ROOT / "roles" / feature / "defaults" / "main.yml"


def _address(host: Any, manager: Any, loader: Any) -> tuple[str, str]:
    """A host's name and its address, or an empty one."""
    from ansible.template import Templar

    # What stands on the host itself needs no look into its groups: 10,000 hosts stay quick.
    known = host.vars if "ansible_host" in host.vars else manager.get_vars(host=host)
    value = Templar(loader=loader, variables=known).template(known.get("ansible_host", ""))
    return host.name, str(value)


def _expectation(host: Any, manager: Any, defaults: dict[str, dict[str, Any]], loader: Any) -> Expectation:
    from ansible.template import Templar

    known = manager.get_vars(host=host)
    groups = {group.name for group in host.get_groups()}
    features = tuple(name for name in _features() if group_name("feature", name) in groups)
    merged = {key: value for name in features for key, value in defaults[name].items()} | known
    own = [key for name in features for key in defaults[name]]
    connection = ("ansible_connection", "ansible_host", "ansible_port", "ansible_user", "ansible_become")
    wanted = [*own, *connection, "ansible_ssh_private_key_file", "ansible_ssh_common_args"]
    wanted += ["causeway_stack", "causeway_for_trials", "causeway_sudo_source"]
    templar = Templar(loader=loader, variables=merged)
    values = templar.template({key: merged[key] for key in wanted if key in merged})
    podman = str(values.get("ansible_connection", "ssh")).endswith("podman")
    return Expectation(
        host=host.name,
        features=features,
        variables={key: values[key] for key in own},
        connection="podman" if podman else "ssh",
        address=str(values.get("ansible_host", host.name)),
        ssh_options={} if podman else ssh_options({**values, "inventory_hostname": host.name}),
        become=bool(values.get("ansible_become", False)),
        stack=values.get("causeway_stack"),
        sudo_source=str(values.get("causeway_sudo_source", "")).rpartition("/")[2],
        experiments=bool(values.get("causeway_for_trials", False)),
    )


def main() -> int:
    """Print the expectations of an inventory."""
    parser = argparse.ArgumentParser(prog="python -m infra.verify.expectations")
    parser.add_argument("--inventory", required=True)
    parser.add_argument("--limit")
    arguments = parser.parse_args()
    print(read(arguments.inventory, arguments.limit).dump())
    return 0


if __name__ == "__main__":
    sys.exit(main())
