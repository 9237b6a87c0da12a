"""The variables of role `consul`."""

from typing import Any

from infra.capabilities.discovery.section import SECRETS, DiscoverySection
from infra.ground.capability import Role
from infra.ground.contract import Contract
from infra.ground.endpoint import EVERYONE, NOBODY, HostSet
from infra.ground.groups import group_name
from infra.stack import secret_file


def _hosts(contract: Contract) -> HostSet:
    return EVERYONE if contract.section(DiscoverySection) else NOBODY


ROLES = (
    Role(
        "consul",
        _hosts,
        lambda _contract, _host: SECRETS,
        leaves="what its servers remember, and the names of services",
    ),
)


def variables(contract: Contract) -> dict[str, dict[str, dict[str, Any]]]:
    """By region what its datacenter shares, by pool what its nodes offer."""
    section = contract.section(DiscoverySection)
    if section is None:
        return {}
    groups = {
        group_name("region", name): _datacenter(name, contract, section) for name in section.datacenters
    }
    for key, services in section.services.items():
        own = [service.model_dump() for service in services]
        groups[group_name("pool", key)] = {"consul_node_kind": key, "consul_services": own}
    return {"consul": groups}


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
