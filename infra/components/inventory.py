"""The hand-off: the contract as a stack output and as files, once the nodes stand."""

from collections.abc import Sequence
from typing import Any, cast

import pulumi

from infra import capabilities
from infra.components.cluster import Cluster
from infra.components.inventory_files import InventoryFiles
from infra.components.region import Region
from infra.components.wan_link import WanLink
from infra.ground.identities import identities_of


class Inventory(pulumi.ComponentResource):
    """What Ansible, ssh and verification read. `instances` maps every host to {id, host_key}."""

    instances: pulumi.Output[dict[str, Any]]
    contract: pulumi.Output[dict[str, Any]]
    secrets: pulumi.Output[dict[str, str]]
    """Name → fingerprint of every secret that a role may read."""
    ways_ensured: list[pulumi.Output[str]]
    """When anything was last done to networks and links."""
    pools_ensured: dict[str, pulumi.Output[str]]
    """Pool → when anything was last done to its nodes."""

    def __init__(
        self,
        cluster: Cluster,
        regions: Sequence[Region],
        links: Sequence[WanLink],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("causeway:handoff:Inventory", cluster.spec.name, None, opts)
        self.cluster = cluster
        self.instances = pulumi.Output.all(*(region.instances for region in regions)).apply(
            lambda parts: {name: instance for part in parts for name, instance in part.items()}
        )
        host_keys = self.instances.apply(
            lambda instances: {name: instance["host_key"] for name, instance in instances.items()}
        )
        identities = self.instances.apply(lambda instances: identities_of(cluster.contract, instances))
        contract = cluster.contract.model_dump(mode="json")
        files = InventoryFiles(
            "inventory",
            {"contract": contract, "host_keys": host_keys, "identities": identities},
            pulumi.ResourceOptions(parent=self, depends_on=[*regions, *links]),
        )
        for module in capabilities.resources():
            module.build(cluster.stack, cluster.spec, cluster.plan, pulumi.ResourceOptions(parent=self))
        self.contract = files.contract
        self.files = files
        secrets = [*cluster.secrets, *(secret for link in links for secret in link.secrets)]
        fingerprints = {secret.secret_name: secret.fingerprint for secret in secrets}
        self.secrets = pulumi.Output.from_input(cast(dict[str, str], fingerprints))  # which waits for each
        self.pools_ensured = {key: at for region in regions for key, at in region.pools_ensured.items()}
        self.ways_ensured = [
            *(ensured for region in regions for ensured in region.ensured),
            *(ensured for link in links for ensured in link.ensured),
        ]
        self.register_outputs({"contract": self.contract})
