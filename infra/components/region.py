"""A region and its node pools, on whichever provider it declares."""

from collections.abc import Mapping
from typing import Any

import pulumi

from infra.capabilities.fabric.section import FabricSection, Nic
from infra.capabilities.wan.section import WanSection
from infra.components.cluster import Cluster
from infra.declaration import ExistingProvider, LocalProvider, NodePoolSpec, RegionSpec
from infra.ground import addresses
from infra.ground.contract import Contract, RegionContract
from infra.providers.existing.resources import ExistingNodePool
from infra.providers.local.names import leaf_bridge
from infra.providers.local.resources import LocalNetwork, LocalNodePool

LOCAL_SHM_GIB = 1.0
"""Shared memory of local nodes that declare none; podman's own 64 MiB are too few for NCCL to start."""

URN_TYPES = "causeway:region:Region$causeway:region:NodePool"
"""What a node's label says of its pool. Spelled out, because a resource cannot wait for its parent's URN."""


class NodePool(pulumi.ComponentResource):
    """Nodes of one kind. `instances` maps a host's name to {id, host_key}."""

    instances: pulumi.Output[dict[str, Any]]
    ensured: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        spec: NodePoolSpec,
        region: RegionSpec,
        cluster: Cluster,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("causeway:region:NodePool", name, None, opts)
        # A component keeps its dependencies to itself; without them `destroy` may take the network first.
        child = pulumi.ResourceOptions(parent=self, depends_on=opts.depends_on if opts else None)
        inputs = {"stack": cluster.stack, "region": region.name, "pool": spec.name}
        if isinstance(region.provider, ExistingProvider):
            inputs |= _existing_inputs(spec, region, region.provider, cluster)
            pool: ExistingNodePool | LocalNodePool = ExistingNodePool(f"{name}-hosts", inputs, child)
        else:
            inputs |= _local_inputs(name, spec, region, cluster)
            pool = LocalNodePool(f"{name}-nodes", inputs, child)
        self.instances, self.ensured = pool.instances, pool.ensured
        self.register_outputs({"instances": self.instances})


class Region(pulumi.ComponentResource):
    """One site: its network where the provider makes one, and its pools."""

    instances: pulumi.Output[dict[str, Any]]
    """{host name: {id, host_key}} of all pools."""
    ensured: list[pulumi.Output[str]]
    """When anything was last done to the network."""
    pools_ensured: dict[str, pulumi.Output[str]]
    """Pool, as the contract has it → when anything was last done to its nodes."""

    def __init__(
        self, name: str, spec: RegionSpec, cluster: Cluster, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("causeway:region:Region", name, None, opts)
        self.spec = spec
        under: list[pulumi.Resource] = [cluster.departure]
        if isinstance(spec.provider, LocalProvider):
            under.append(self._network(name, cluster))
        child = pulumi.ResourceOptions(parent=self, depends_on=under)
        named = {f"{name}-{pool.name}": pool for pool in spec.pools}
        pools = {key: NodePool(key, pool, spec, cluster, child) for key, pool in named.items()}
        self.instances = pulumi.Output.all(*(pool.instances for pool in pools.values())).apply(_merged)
        self.ensured = [network.ensured for network in under if isinstance(network, LocalNetwork)]
        self.pools_ensured = {key: pool.ensured for key, pool in pools.items()}
        self.register_outputs({"instances": self.instances})

    def _network(self, name: str, cluster: Cluster) -> LocalNetwork:
        wan = cluster.contract.need(WanSection).regions[name]
        peers = [str(other.cidr) for other in cluster.local_regions() if other.name != name]
        inputs = {
            "stack": cluster.stack,
            "region": name,
            "cidr": str(self.spec.cidr),
            "mtu_bytes": self.spec.mtu_bytes,
            "peers": peers,
            "wan_gateway": str(wan.gateway_address) if wan.gateways else None,
            **_leafs(name, cluster.contract),
        }
        opts = pulumi.ResourceOptions(parent=self, depends_on=[cluster.require_machine()])
        return LocalNetwork(f"{name}-network", inputs, opts)


def _local_inputs(name: str, spec: NodePoolSpec, region: RegionSpec, cluster: Cluster) -> dict[str, Any]:
    planned = cluster.plan.pool_nodes(region.name, spec.name)
    machine = cluster.require_machine()
    inputs = {
        "nodes": {node.name: str(node.address) for node in planned},
        "cidr": str(region.cidr),
        "gateway": str(addresses.router_address(region.cidr)),
        "mtu_bytes": region.mtu_bytes,
        "shm_gib": spec.shm_gib or LOCAL_SHM_GIB,
        "image": machine.image,
        "baked": cluster.baked_image(region.name, spec.name),
        "public_key": cluster.key.public_key,
        "urn": f"urn:pulumi:{cluster.stack}::{pulumi.get_project()}::{URN_TYPES}::{name}",
    }
    fabric_ports = _fabric_ports(cluster.contract)
    fabric = {
        node.name: {port.name: leaf_bridge(region.name, port.leaf) for port in ports}
        for node in planned
        if (ports := fabric_ports.get(node.name))
    }
    if fabric:
        inputs["fabric"] = fabric
    if isinstance(region.provider, LocalProvider) and region.node_kind(spec) == "vm":
        memory_mib = region.provider.vm_memory_mib
        inputs |= {"node_kind": "vm", "memory_mib": memory_mib, "image": machine.vm_image}
    return inputs


def _fabric_ports(contract: Contract) -> Mapping[str, tuple[Nic, ...]]:
    """Host → its ports, of those that are on a fabric."""
    fabric = contract.section(FabricSection)
    return fabric.hosts if fabric else {}


def _leafs(region: str, contract: Contract) -> dict[str, dict[str, list[str]]]:
    """Each leaf's bridge → the leaf's address in every subnet that a host has on it."""
    leafs: dict[str, set[str]] = {}
    hosts = _fabric_ports(contract)
    for host in contract.region_hosts(region):
        for port in hosts.get(host, ()):
            leafs.setdefault(leaf_bridge(region, port.leaf), set()).add(f"{port.gateway}/{port.prefix}")
    return {"leafs": {leaf: sorted(held) for leaf, held in sorted(leafs.items())}} if leafs else {}


def _existing_inputs(
    spec: NodePoolSpec, region: RegionSpec, provider: ExistingProvider, cluster: Cluster
) -> dict[str, Any]:
    contract = cluster.contract.regions[region.name]
    return {
        "hosts": cluster.machines(region, spec),
        "ssh_user": provider.ssh_user,
        "ssh_key_file": contract.ssh_private_key_file,
        **_access(contract),
        "public_key": cluster.key.public_key,
    }


def _access(region: RegionContract) -> dict[str, Any]:
    """What else leads in, where it is declared: a stack that has none of it keeps the inputs it had."""
    parts = region.model_dump(mode="json", include={"ssh_agent", "ssh_jump"}, exclude_defaults=True)
    return {"access": parts} if parts else {}


def _merged(pools: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: instance for pool in pools for name, instance in pool.items()}
