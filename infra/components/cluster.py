"""What all parts of a stack stand on: the plan, the access key and, for local nodes, this machine."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import pulumi

from infra import ROOT
from infra.components.access_key import SshKey
from infra.components.departures import Departure
from infra.components.holding import consent, kept_by
from infra.components.secret import NodeSecret, Secret
from infra.declaration import ClusterSpec, ExistingProvider, LocalProvider, NodePoolSpec, RegionSpec
from infra.ground import ssh
from infra.ground.contract import Contract
from infra.ground.secrets import GIVEN
from infra.images.recipe import recipe_of
from infra.inventory.groups import Inventory, inventory_data
from infra.planning.contract import build_contract
from infra.planning.plan import Plan, make_plan
from infra.providers.local.resources import Machine


class Cluster(pulumi.ComponentResource):
    """The ground under the regions of one declaration."""

    def __init__(self, spec: ClusterSpec, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("causeway:cluster:Cluster", spec.name, None, opts)
        self.spec = spec
        self.stack = pulumi.get_stack()
        self.plan: Plan = make_plan(spec)
        self.contract: Contract = build_contract(spec, self.plan, self.stack)
        child = pulumi.ResourceOptions(parent=self)
        self.key = SshKey("access", self.stack, child)
        kinds, given = self.plan.secrets, pulumi.Config("causeway")
        self.secrets = [
            Secret(
                name,
                kind,
                self.stack,
                child,
                given.require_secret(name.removeprefix(GIVEN)) if kind == "given" else None,
            )
            for name, kind in kinds.items()
            if kind != "node"
        ]
        for name in (name for name, kind in kinds.items() if kind == "node"):
            NodeSecret(name, self.stack, child)
        self.departure = Departure(
            "departure",
            {
                "stack": self.stack,
                "hosts": list(self.contract.hosts),
                "keeps": kept_by(self.contract),
                "machines": self._all_machines(),
                "leave": consent(spec),
            },
            child,
        )
        self._machine = self._find_machine(child)
        self.register_outputs({"public_key": self.key.public_key})

    def require_machine(self) -> Machine:
        """This machine, which every local region stands on; RuntimeError when there is no such region."""
        if self._machine is None:
            raise RuntimeError("no region of this cluster stands on this machine")
        return self._machine

    def baked_image(self, region: str, pool: str) -> str:
        """The name that a local pool's baked image has, whether it was built or not."""
        return recipe_of(self.contract, f"{region}-{pool}", self._inventory).name

    def machines(self, region: RegionSpec, pool: NodePoolSpec) -> dict[str, dict[str, Any]]:
        """Name → address, port and host key of each machine of a pool; none where its nodes are made."""
        provider, nodes = region.provider, self.plan.pool_nodes(region.name, pool.name)
        if not isinstance(provider, ExistingProvider):
            return {}
        return {
            node.name: {
                "address": str(host.address),
                "port": host.ssh_port,
                "host_key": ssh.key_of_host(provider, host),
            }
            for node, host in zip(nodes, pool.hosts, strict=True)
        }

    def _all_machines(self) -> dict[str, dict[str, Any]]:
        return {
            name: machine
            for region in self.spec.regions
            for pool in region.pools
            for name, machine in self.machines(region, pool).items()
        }

    @cached_property
    def _inventory(self) -> Inventory:
        return inventory_data(self.contract, ROOT)

    def local_regions(self) -> Sequence[RegionSpec]:
        """The regions whose nodes stand on this machine."""
        return [region for region in self.spec.regions if isinstance(region.provider, LocalProvider)]

    def _find_machine(self, child: pulumi.ResourceOptions) -> Machine | None:
        local = self.local_regions()
        if not local:
            return None
        inputs = {
            "stack": self.stack,
            "cidrs": {region.name: str(region.cidr) for region in local},
            "nodes": sum(len(self.plan.region_nodes(region.name)) for region in local),
            "vm_memory_mib": self._vm_memory_mib(local),
            "link_mtu_bytes": max((link.mtu_bytes for link in self.spec.wan_links), default=0),
        }
        return Machine("machine", inputs, child)

    def _vm_memory_mib(self, regions: Sequence[RegionSpec]) -> dict[str, int]:
        return {
            node.name: region.provider.vm_memory_mib
            for region in regions
            for pool in region.pools
            if isinstance(region.provider, LocalProvider) and region.node_kind(pool) == "vm"
            for node in self.plan.pool_nodes(region.name, pool.name)
        }
