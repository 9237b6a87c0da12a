"""The variables of role `container_runtime`."""

from typing import Any

from infra.capabilities.containers.section import ContainersSection, Registry, Runtime
from infra.files import given_file
from infra.ground.capability import Role
from infra.ground.contract import Contract
from infra.ground.endpoint import HostSet
from infra.ground.groups import group_name


def _pools(contract: Contract) -> dict[str, Runtime]:
    section = contract.section(ContainersSection)
    return section.pools if section else {}


def _authorities(contract: Contract) -> list[str | None]:
    return [one.ca_file for pool in _pools(contract).values() for one in pool.registries]


ROLES = (
    Role(
        "container_runtime",
        lambda contract: HostSet(pools=tuple(_pools(contract))),
        files=_authorities,
    ),
)


def variables(contract: Contract) -> dict[str, dict[str, dict[str, Any]]]:
    """By pool: its engine, where images come from and where they lie."""
    found = {
        group_name("pool", key): {
            "container_runtime_engine": one.engine,
            "container_runtime_registries": [_registry(each) for each in one.registries],
            "container_runtime_gpus": one.gpus,
            "container_runtime_gpus_simulated": contract.pools[key].gpus_simulated,
        }
        | ({"container_runtime_storage_path": one.storage_path} if one.storage_path else {})
        for key, one in _pools(contract).items()
    }
    return {"container_runtime": found} if found else {}


def _registry(registry: Registry) -> dict[str, Any]:
    authority = str(given_file(registry.ca_file)) if registry.ca_file else ""
    return {"name": registry.name, "mirrors": list(registry.mirrors), "authority": authority}
