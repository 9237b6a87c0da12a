"""The variables of role `acceptance`."""

from typing import Any

from infra.capabilities.acceptance.section import AcceptanceSection, AcceptedPool
from infra.capabilities.fabric.section import FabricSection
from infra.ground.capability import Role, part_of
from infra.ground.contract import Contract, PoolContract
from infra.ground.endpoint import NOBODY, HostSet
from infra.ground.groups import group_name

AMD = "mi"
"""How the names of AMD's models begin; all others are NVIDIA's (infra/ground/rules/pools.py)."""


def _hosts(contract: Contract) -> HostSet:
    section = contract.section(AcceptanceSection)
    return HostSet(pools=tuple(section.pools)) if section else NOBODY


ROLES = (Role("acceptance", _hosts, needed=part_of("acceptance")),)


def variables(contract: Contract) -> dict[str, dict[str, dict[str, Any]]]:
    """By pool, all that its nodes share."""
    section = contract.section(AcceptanceSection)
    pools = section.pools if section else {}
    return {
        "acceptance": {
            group_name("pool", key): _shared(contract.pools[key], section, pool)
            for key, pool in pools.items()
            if section
        }
    }


def host_variables(contract: Contract) -> dict[str, dict[str, Any]]:
    """The names of its fabric ports, and what each has to reach."""
    section, fabric = contract.section(AcceptanceSection), contract.section(FabricSection)
    if section is None or fabric is None:
        return {}
    return {
        host: {
            "acceptance_nics": [
                {"name": nic.name, "gbps": fabric.regions[contract.region_of(host)].link_gbps} for nic in nics
            ]
        }
        for host, nics in fabric.hosts.items()
        if contract.hosts[host].pool in section.pools
    }


def _shared(pool: PoolContract, section: AcceptanceSection, own: AcceptedPool) -> dict[str, Any]:
    figures = own.model_dump(exclude_none=True)
    return {
        "acceptance_interval_min": section.interval_min,
        "acceptance_clock_limit_ms": section.clock_limit_ms,
        "acceptance_gpus": pool.gpus,
        "acceptance_gpu_model": pool.gpu_model or "",
        "acceptance_gpu_vendor": "amd" if (pool.gpu_model or "").startswith(AMD) else "nvidia",
        "acceptance_simulated": pool.gpus_simulated,
        "acceptance_nic_count": pool.nics,
        "acceptance_nic_gbps": pool.nic_gbps or 0,
        **{f"acceptance_{name}": value for name, value in figures.items()},
    }
