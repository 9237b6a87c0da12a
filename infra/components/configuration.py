"""Configuration and verification: the roles wave by wave, then the checks of every node."""

from typing import Any

import pulumi

from infra import ROOT
from infra.components.inventory import Inventory
from infra.components.verification import Verification
from infra.components.wave import Configuration, hosts_of
from infra.files import tree_hash, value_hash
from infra.ground.contract import Contract
from infra.inventory.groups import group_hosts, inventory_data
from infra.inventory.roles import role_order, roles_within


class Rollout(pulumi.ComponentResource):
    """The roles on every host, one wave after the other, and the checks once all waves are through.

    The hashes of roles and variables are inputs, so that a changed role shows in `pulumi preview`. Whatever
    an update has made, changed or repaired is verified in the same one.
    """

    def __init__(self, inventory: Inventory, opts: pulumi.ResourceOptions | None = None) -> None:
        cluster = inventory.cluster
        super().__init__("causeway:handoff:Rollout", cluster.spec.name, None, opts)
        self.inventory = inventory
        roles: dict[str, pulumi.Input[str]] = {
            **{role: tree_hash(*(f"roles/{name}" for name in roles_within(role))) for role in role_order()},
            "playbooks": tree_hash("playbooks", "ansible.cfg"),
            "overrides": tree_hash(
                *(f"inventories/{cluster.stack}/{kind}" for kind in ("group_vars", "host_vars"))
            ),
            "secrets": inventory.secrets,
        }
        variables = _variable_hashes(cluster.contract)
        before: list[pulumi.Resource] = [inventory]
        ensured = list(inventory.ensured)
        for regions in cluster.spec.rollout():
            wave = self._wave(regions, roles, variables, before)
            before, ensured = [wave], [*ensured, wave.ensured]
        inputs = {
            "stack": cluster.stack,
            "checks": tree_hash("tests/verify"),
            "roles": roles,
            "contract": value_hash(cluster.contract.model_dump(mode="json")),
            "instances": inventory.instances.apply(value_hash),
            "stands_since": pulumi.Output.all(*ensured).apply(value_hash),
        }
        self.verification = Verification(
            "verification", inputs, pulumi.ResourceOptions(parent=self, depends_on=before)
        )
        self.register_outputs({})

    def _wave(
        self,
        regions: tuple[str, ...],
        roles: dict[str, pulumi.Input[str]],
        variables: dict[str, str],
        before: list[pulumi.Resource],
    ) -> Configuration:
        cluster = self.inventory.cluster
        names = hosts_of(cluster.contract, regions)
        hosts = self.inventory.instances.apply(
            lambda instances: {
                name: {"instance": instances[name]["id"], "variables": variables[name]} for name in names
            }
        )
        wave = "+".join(regions)
        return Configuration(
            f"configure-{wave}",
            {"stack": cluster.stack, "wave": wave, "hosts": hosts, "roles": roles},
            pulumi.ResourceOptions(parent=self, depends_on=before),
        )


def _variable_hashes(contract: Contract) -> dict[str, str]:
    """Per host, one hash over all a role can see of it: its own and its groups' variables, all addresses."""
    data: dict[str, Any] = inventory_data(contract, ROOT)
    addresses = value_hash({name: str(host.address) for name, host in contract.hosts.items()})
    seen: dict[str, dict[str, Any]] = {name: {} for name in contract.hosts}
    everyone = data.get("all", {}).get("vars", {})
    for group, content in data.items():
        for name in group_hosts(data, [group]):
            seen[name][group] = content.get("vars", {})
    own = data["_meta"]["hostvars"]
    return {name: value_hash([addresses, everyone, groups, own[name]]) for name, groups in seen.items()}
