"""Configuration and verification: the roles wave by wave, then the checks of what changed."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from infra.components.holding import consent
from infra.components.inventory import Inventory
from infra.components.verification import Verification
from infra.components.wave import Configuration, hosts_of
from infra.drift.inputs import FROM_A_NODE, role_inputs
from infra.files import tree_hash, value_hash
from infra.ground.contract import Contract
from infra.ground.identities import identities_of


class Rollout(pulumi.ComponentResource):
    """The roles on every host, one wave after the other, and the checks once all waves are through.

    What each role's work on a host depends on is an input, so that `pulumi preview` shows which roles run
    where. Whatever an update has made, changed or repaired is verified in the same one (infra/verify/due.py).
    """

    def __init__(self, inventory: Inventory, opts: pulumi.ResourceOptions | None = None) -> None:
        cluster = inventory.cluster
        super().__init__("causeway:handoff:Rollout", cluster.spec.name, None, opts)
        self.inventory = inventory
        before: list[pulumi.Resource] = [inventory]
        waves = list[pulumi.Output[str]]()
        for regions in cluster.spec.rollout():
            wave = self._wave(regions, before)
            before, waves = [wave], [*waves, wave.ensured]
        inputs = {
            "stack": cluster.stack,
            "checks": tree_hash("tests/verify"),
            "overrides": tree_hash(f"inventories/{cluster.stack}"),
            "contract": value_hash(cluster.contract.model_dump(mode="json")),
            "instances": inventory.instances.apply(value_hash),
            "pools": inventory.pools_ensured,
            "ways": pulumi.Output.all(*inventory.ways_ensured).apply(value_hash),
            "stands_since": pulumi.Output.all(*waves).apply(value_hash),
        }
        self.verification = Verification(
            "verification", inputs, pulumi.ResourceOptions(parent=self, depends_on=before)
        )
        self.register_outputs({})

    def _wave(self, regions: tuple[str, ...], before: list[pulumi.Resource]) -> Configuration:
        cluster = self.inventory.cluster
        names = hosts_of(cluster.contract, regions)
        known = pulumi.Output.all(self.inventory.secrets, self.inventory.instances)
        hosts = known.apply(lambda both: _hosts(cluster.contract, names, *both))
        wave = "+".join(regions)
        return Configuration(
            f"configure-{wave}",
            {"stack": cluster.stack, "wave": wave, "hosts": hosts, "leave": consent(cluster.spec)},
            pulumi.ResourceOptions(parent=self, depends_on=before),
        )


def _hosts(
    contract: Contract,
    names: Sequence[str],
    fingerprints: Mapping[str, str],
    instances: Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Host → its instance, and role → what the role's work there depends on."""
    inputs = role_inputs(
        contract,
        identities_of(contract, instances),
        lambda name, kind: FROM_A_NODE if kind == "node" else fingerprints[name],
    )
    return {name: {"instance": instances[name]["id"], "roles": inputs[name]} for name in names}
