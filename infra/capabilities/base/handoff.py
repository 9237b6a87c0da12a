"""The variables of role `base`."""

from typing import Any

from infra.capabilities.base.section import BaseSection
from infra.capabilities.discovery.section import DiscoverySection
from infra.declaration.region import AdoptSpec, MirrorsSpec
from infra.files import given_path
from infra.ground.capability import Role
from infra.ground.contract import Contract
from infra.ground.endpoint import EVERYONE, HostSet
from infra.ground.groups import group_name


def _unanswered(contract: Contract) -> HostSet:
    """Where nobody answers for the names of nodes, and they are all in /etc/hosts."""
    return HostSet(regions=tuple(name for name in contract.regions if not _answered(contract, name)))


def _answered(contract: Contract, region: str) -> bool:
    section = contract.section(DiscoverySection)  # none where an older version planned
    return section is not None and region in section.answered


def _authorities(contract: Contract) -> list[str | None]:
    regions = contract.need(BaseSection).regions.values()
    return [region.mirrors.ca_file for region in regions if region.mirrors is not None]


ALL = AdoptSpec()
"""As the role's own defaults have it."""
OTHERS = ("resolver",)
"""What is another role's to keep."""
ROLES = (
    Role(
        "base",
        lambda _contract: EVERYONE,
        reads=Contract.addresses,
        readers=_unanswered,
        files=_authorities,
        needed=lambda _spec: "all others stand on it: `adopt` says what of machines you have stays yours",
    ),
)


def variables(contract: Contract) -> dict[str, dict[str, dict[str, Any]]]:
    """By region, and by pool what a pool declares."""
    section = contract.need(BaseSection)
    groups = {group_name("region", name): _region(name, contract, section) for name in section.regions}
    for key, size in section.shm_gib.items():
        groups[group_name("pool", key)] = {"base_shm_gib": size}
    return {"base": groups, "artefact": _artefact_mirrors(section)}


def _artefact_mirrors(section: BaseSection) -> dict[str, dict[str, Any]]:
    """For the helper role, whoever includes it."""
    return {
        group_name("region", name): {
            "artefact_mirror": {
                "url": mirrors.artefacts,
                "proxy": mirrors.proxy or "",
                "ca_file": given_path(mirrors.ca_file),
            }
        }
        for name, region in section.regions.items()
        if (mirrors := region.mirrors) is not None and mirrors.artefacts is not None
    }


def _mirrors(mirrors: MirrorsSpec) -> dict[str, Any]:
    found = {
        "packages": mirrors.packages,
        "security": mirrors.security,
        "components": list(mirrors.components),
        "proxy": mirrors.proxy,
        "ca_file": given_path(mirrors.ca_file),
    }
    return {f"base_mirror_{name}": value for name, value in found.items() if value}


def _region(name: str, contract: Contract, section: BaseSection) -> dict[str, Any]:
    region = section.regions[name]
    variables: dict[str, Any] = {
        "base_timezone": region.timezone,
        "base_locale": region.locale,
        "base_ntp_region_servers": [str(contract.hosts[host].address) for host in region.time_servers],
        "base_ntp_allow": [str(contract.regions[name].cidr)],
    }
    variables |= {
        f"base_adopt_{what}": how
        for what, how in region.adopt
        if what not in OTHERS and how != getattr(ALL, what)
    }
    if _answered(contract, name):
        # Who answers for all others, and who keeps the time, are known without asking.
        variables["base_hosts_entries"] = _control_nodes(name, contract)
    if region.mirrors is not None:
        variables |= _mirrors(region.mirrors)
    if section.authorized_keys:
        variables["base_authorized_keys"] = list(section.authorized_keys)
    return variables


def _control_nodes(region: str, contract: Contract) -> dict[str, str]:
    """Those of a region: name → address."""
    keys = {key for key, pool in contract.pools.items() if pool.region == region and pool.role == "control"}
    return {name: str(host.address) for name, host in contract.hosts.items() if host.pool in keys}
