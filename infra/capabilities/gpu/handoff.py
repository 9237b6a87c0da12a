"""The variables of role `cuda_base`."""

from typing import Any

from infra.capabilities.gpu.known import PRODUCTS
from infra.capabilities.gpu.packages import GIVEN_KEY, PATTERNS, SOURCES
from infra.capabilities.gpu.section import GpuPool, GpuSection
from infra.files import given_path
from infra.ground.capability import Role, always, part_of
from infra.ground.contract import Contract
from infra.ground.endpoint import HostSet
from infra.ground.groups import group_name


def _pools(contract: Contract) -> dict[str, GpuPool]:
    section = contract.section(GpuSection)
    return section.pools if section else {}


def _keys(contract: Contract) -> list[str | None]:
    return [pool.key_file for pool in _pools(contract).values()]


ROLES = (
    Role(
        "cuda_base",
        lambda contract: HostSet(pools=tuple(_pools(contract))),
        files=_keys,
        services=always("nvidia-persistenced.service", "nvidia-fabricmanager.service", "nvidia-dcgm.service"),
        needed=part_of("gpu_stack"),
    ),
)


def variables(contract: Contract) -> dict[str, dict[str, dict[str, Any]]]:
    """By pool: its packages, where they come from, and how its GPUs are set."""
    found = {
        group_name("pool", key): _variables(pool)
        | {
            "cuda_base_gpus_simulated": contract.pools[key].gpus_simulated,
            "cuda_base_pool": group_name("pool", key),
        }
        for key, pool in _pools(contract).items()
    }
    return {"cuda_base": found} if found else {}


def _variables(pool: GpuPool) -> dict[str, Any]:
    source = SOURCES[pool.source]
    return {
        "cuda_base_driver": pool.driver,
        "cuda_base_packages": pool.packages,
        "cuda_base_kernel_packages": pool.kernel_packages,
        "cuda_base_patterns": list(PATTERNS),
        "cuda_base_metapackages": list(source.metapackages),
        "cuda_base_source_url": pool.mirror or source.url,
        "cuda_base_source_suites": list(source.suites),
        "cuda_base_source_components": list(source.components),
        "cuda_base_source_keyring": GIVEN_KEY if pool.key_file else source.keyring,
        "cuda_base_source_key": given_path(pool.key_file),
        "cuda_base_gpus": pool.gpus,
        "cuda_base_gpu_product": PRODUCTS[pool.model],
        "cuda_base_persistence": pool.persistence,
        "cuda_base_power_cap_w": pool.power_cap_w,
        "cuda_base_mig_profile": pool.mig_profile,
        "cuda_base_mig_count": pool.mig_count,
        "cuda_base_mps": pool.mps,
        "cuda_base_time_slices": pool.time_slices,
        "cuda_base_fabric_manager": pool.fabric_manager,
        "cuda_base_subnet_manager": pool.subnet_manager,
        "cuda_base_dcgm": pool.dcgm,
        "cuda_base_dcgm_exporter": pool.dcgm_exporter,
        **{f"cuda_base_{name}": value for name, value in pool.host.model_dump(mode="json").items()},
    }
