"""The plan: every node, address and link that `up` would make, and how many resources it takes."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from infra.capabilities import capabilities
from infra.declaration import ClusterSpec, NodePoolSpec, RegionSpec
from infra.ground import addresses
from infra.ground.capability import Capability, Planned, SecretKind
from infra.ground.contract import Section
from infra.ground.endpoint import Destination, Endpoint
from infra.ground.nodes import Nodes, PlannedNode

P = TypeVar("P")


@dataclass(frozen=True)
class Plan(Nodes):
    """What would stand: the nodes, and what every capability that is declared comes to."""

    plans: dict[str, Any]
    """Capability → what it has planned; `of` knows its type."""
    sections: dict[str, Section]
    """Capability → what of that is in the contract."""
    endpoints: tuple[Endpoint, ...]
    destinations: tuple[Destination, ...]
    """Outside of the cluster."""
    secrets: dict[str, SecretKind]
    """Name → kind of those that all regions share."""
    resources: dict[str, int]

    def of(self, capability: Capability[P]) -> P | None:
        """What one capability has planned; None where it is not declared."""
        found: P | None = self.plans.get(capability.name)
        return found


def make_plan(spec: ClusterSpec) -> Plan:
    """Plan a declaration that has passed the checks. Linear in the number of nodes."""
    nodes = tuple(
        node
        for region in spec.regions
        for index, pool in enumerate(region.pools)
        for node in _pool_nodes(region, index, pool)
    )
    plans, sections, endpoints = _plans(spec, nodes)
    declared = [one for one in capabilities() if one.name in plans]
    secrets = {one.name: one.secrets(plans[one.name]) for one in declared}
    resources = Counter(_resource_counts(spec))
    counted = set[str]()
    for one in declared:
        resources.update(one.resources(plans[one.name]))
        own = secrets[one.name].keys() - counted
        resources.update({one.name: len(own)} if own else {})
        counted |= own
    return Plan(
        nodes=nodes,
        plans=plans,
        sections=sections,
        endpoints=endpoints,
        destinations=tuple(found for one in declared for found in one.destinations(plans[one.name])),
        secrets=one_owner_each(secrets),
        resources=dict(resources),
    )


def one_owner_each(secrets: Mapping[str, Mapping[str, SecretKind]]) -> dict[str, SecretKind]:
    """Name → kind of the secrets of all capabilities; ValueError where two name one alike.

    What the user gives is the user's, and may be read by several.
    """
    owners: dict[str, str] = {}
    for capability, own in secrets.items():
        for name in (name for name, kind in own.items() if kind != "given"):
            if (other := owners.setdefault(name, capability)) != capability:
                raise ValueError(f"secret {name} is one of {other} and one of {capability}; one renames it")
    return {name: kind for own in secrets.values() for name, kind in own.items()}


def _plans(
    spec: ClusterSpec, nodes: tuple[PlannedNode, ...]
) -> tuple[dict[str, Any], dict[str, Section], tuple[Endpoint, ...]]:
    """What every capability that is declared comes to, its section, and what listens for all of them."""
    plans: dict[str, Any] = {}
    sections: dict[str, Section] = {}
    for one in capabilities():
        _keep(one, one.plan(spec, Planned(nodes, sections)), plans, sections)
    declared = [one for one in capabilities() if one.name in plans]
    planned = Planned(nodes, sections)
    endpoints = tuple(found for one in declared for found in one.endpoints(plans[one.name], planned))
    planned = Planned(nodes, dict(sections), endpoints)
    for one in declared:
        _keep(one, one.finish(plans[one.name], planned), plans, sections)
    return plans, sections, endpoints


def _keep(one: Capability[Any], plan: Any, plans: dict[str, Any], sections: dict[str, Section]) -> None:
    """Take down a plan that is new, and its section: of a large fabric that takes a second."""
    if plan is None or plan is plans.get(one.name):
        return
    plans[one.name] = plan
    if section := one.section(plan):
        sections[one.name] = section


def _pool_nodes(region: RegionSpec, index: int, pool: NodePoolSpec) -> Iterator[PlannedNode]:
    ports = [host.ssh_port for host in pool.hosts] or [22] * pool.count
    for number, (address, port) in enumerate(
        zip(addresses.pool_addresses(region, index), ports, strict=True)
    ):
        name = addresses.host_name(region, pool, number)
        yield PlannedNode(name, region.name, pool.name, pool.role, address, port)


def _resource_counts(spec: ClusterSpec) -> dict[str, int]:
    """Pulumi resources by what they are for, components and the stack included.

    They grow with pools and links, never with nodes. What capabilities make is added to these.
    """
    networks = sum(region.provider.owns_router for region in spec.regions)
    return {
        "cluster": 4 + bool(networks),  # the stack, the component, the key, who goes; this machine
        "regions": len(spec.regions) + networks,  # the component; its network
        "node_pools": 2 * sum(len(region.pools) for region in spec.regions),  # the component; its nodes
        "wan_links": 0,
        "hand_off": 2,  # the component; the files
        "configuration": 1 + len(spec.rollout()),  # the component; the waves
        "verification": 1,
    }
