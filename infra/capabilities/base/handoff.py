"""The variables of role `base`."""

from typing import Any

from infra.capabilities.base.section import BaseSection
from infra.ground.capability import Role
from infra.ground.contract import Contract
from infra.ground.endpoint import EVERYONE
from infra.ground.groups import group_name


def _addresses(contract: Contract) -> dict[str, str]:
    return {name: str(host.address) for name, host in contract.hosts.items()}


ROLES = (Role("base", lambda _contract: EVERYONE, reads=_addresses),)


def variables(contract: Contract) -> dict[str, dict[str, dict[str, Any]]]:
    """By region, and by pool what a pool declares."""
    section = contract.need(BaseSection)
    groups = {group_name("region", name): _region(name, contract, section) for name in section.regions}
    for key, size in section.shm_gib.items():
        groups[group_name("pool", key)] = {"base_shm_gib": size}
    return {"base": groups}


def _region(name: str, contract: Contract, section: BaseSection) -> dict[str, Any]:
    region = section.regions[name]
    variables: dict[str, Any] = {
        "base_timezone": region.timezone,
        "base_locale": region.locale,
        "base_ntp_region_servers": [str(contract.hosts[host].address) for host in region.time_servers],
        "base_ntp_allow": [str(contract.regions[name].cidr)],
    }
    if section.authorized_keys:
        variables["base_authorized_keys"] = list(section.authorized_keys)
    return variables
