"""The variables of roles `consul` and `names`."""

from collections.abc import Iterable
from typing import Any

from infra.capabilities.discovery.section import SECRETS, Datacenter, DiscoverySection, Service
from infra.ground.capability import Role, always, part_of
from infra.ground.contract import Contract
from infra.ground.endpoint import EVERYONE, NOBODY, HostSet
from infra.ground.groups import group_name
from infra.stack import secret_file


def _consul_hosts(contract: Contract) -> HostSet:
    section = contract.section(DiscoverySection)
    return EVERYONE if section and section.kind == "consul" else NOBODY


def _names_hosts(contract: Contract) -> HostSet:
    return HostSet(regions=tuple(_named(contract)))


def _name_servers(contract: Contract) -> HostSet:
    return HostSet(hosts=tuple(host for region in _named(contract).values() for host in region.servers))


def _named(contract: Contract) -> dict[str, Datacenter]:
    """The regions in which control nodes answer for names, and no discovery does."""
    section = contract.section(DiscoverySection)  # none where an older version planned
    return section.answered if section and section.kind == "names" else {}


ROLES = (
    Role(
        "consul",
        _consul_hosts,
        lambda _contract, _host: SECRETS,
        services=always("consul.service"),
        leaves="what its servers remember, and the names of services",
        needed=part_of("discovery"),
    ),
    Role(
        "names",
        _names_hosts,
        reads=Contract.addresses,
        readers=_name_servers,
        instead_of=("consul",),
        needed=lambda _spec: "nodes find each other by name through it, or through `discovery`",
    ),
)


def variables(contract: Contract) -> dict[str, dict[str, dict[str, Any]]]:
    """By region what its datacenter shares, by pool what its nodes offer."""
    if named := _named(contract):
        return {"names": {group_name("region", name): _names(contract, one) for name, one in named.items()}}
    section = contract.section(DiscoverySection)
    if section is None or section.kind != "consul":
        return {}
    groups = {
        group_name("region", name): _datacenter(name, contract, section) for name in section.datacenters
    }
    for key, services in section.services.items():
        groups[group_name("pool", key)] = {"consul_node_kind": key, "consul_services": _dumped(services)}
    return {"consul": groups}


def host_variables(contract: Contract) -> dict[str, dict[str, Any]]:
    """What those hosts offer that have other ports than the rest of their pool."""
    section = contract.section(DiscoverySection)
    if section is None or section.kind != "consul":
        return {}
    return {host: {"consul_services": _dumped(own)} for host, own in section.elsewhere.items()}


def _dumped(services: Iterable[Service]) -> list[dict[str, Any]]:
    return [service.model_dump() for service in services]


def _names(contract: Contract, region: Datacenter) -> dict[str, Any]:
    """What all nodes of a region share."""
    return {
        "names_domain": f"nodes.{contract.cluster}.internal",
        "names_servers": [str(contract.hosts[host].address) for host in region.servers],
    }


def _datacenter(region: str, contract: Contract, section: DiscoverySection) -> dict[str, Any]:
    """What all nodes of a region's datacenter share."""
    addresses = {
        name: [str(contract.hosts[host].address) for host in datacenter.servers]
        for name, datacenter in section.datacenters.items()
    }
    own: dict[str, Any] = {"consul_dns": "none"} if section.datacenters[region].resolver == "keep" else {}
    return own | {
        "consul_datacenter": section.datacenters[region].name,
        "consul_primary_datacenter": section.datacenters[section.primary].name,
        "consul_server_addresses": addresses[region],
        "consul_wan_servers": {
            datacenter.name: addresses[name]
            for name, datacenter in section.datacenters.items()
            if name != region
        },
        "consul_node_kinds": [
            {"name": key, "services": [service.name for service in services]}
            for key, services in section.services.items()
        ],
        "consul_secrets_dir": str(secret_file(contract.stack, "consul-ca").parent),
    }
