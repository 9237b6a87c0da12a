"""The variables of roles `container_runtime` and `registry`."""

from collections.abc import Mapping
from typing import Any

from infra.capabilities.containers.section import AUTHORITY, PULL, ContainersSection, Runtime, Server
from infra.files import given_path
from infra.ground.capability import Role, SecretKind, always, part_of
from infra.ground.contract import Contract
from infra.ground.endpoint import HostSet
from infra.ground.groups import group_name
from infra.ground.secrets import GIVEN
from infra.stack import secret_file


def _pools(contract: Contract) -> dict[str, Runtime]:
    section = contract.section(ContainersSection)
    return section.pools if section else {}


def _servers(contract: Contract) -> tuple[Server, ...]:
    section = contract.section(ContainersSection)
    return section.servers if section else ()


def _authorities(contract: Contract) -> list[str | None]:
    return [one.ca_file for pool in _pools(contract).values() for one in pool.registries]


def _cache_authorities(contract: Contract) -> list[str | None]:
    return [cache.ca_file for one in _servers(contract) for cache in one.caches]


def _client_secrets(contract: Contract, _host: str) -> Mapping[str, SecretKind]:
    return {AUTHORITY: "authority"} if _servers(contract) else {}


def _server_secrets(contract: Contract, host: str) -> Mapping[str, SecretKind]:
    given: dict[str, SecretKind] = {
        name: "given" for one in _servers(contract) if one.host == host for name in one.given()
    }
    return {AUTHORITY: "authority", **given}


def _engine_services(contract: Contract, pool: str) -> tuple[str, ...]:
    """Podman has none that runs; of containerd somebody's Docker may be the user."""
    declared = _pools(contract).get(pool)
    return ("containerd.service",) if declared and declared.engine == "containerd" else ()


ROLES = (
    Role(
        "registry",
        lambda contract: HostSet(hosts=tuple(one.host for one in _servers(contract))),
        _server_secrets,
        leaves="the images that were pushed to it",
        takers=lambda _contract, _host: (),
        files=_cache_authorities,
        services=always("docker-registry.service"),
        needed=part_of("registries"),
    ),
    Role(
        "container_runtime",
        lambda contract: HostSet(pools=tuple(_pools(contract))),
        _client_secrets,
        files=_authorities,
        services=_engine_services,
        needed=part_of("container_runtime"),
    ),
)


def variables(contract: Contract) -> dict[str, dict[str, dict[str, Any]]]:
    """By pool: its engine, where images come from and where they lie."""
    own = _own(contract)
    found = {
        group_name("pool", key): {
            "container_runtime_engine": one.engine,
            "container_runtime_registries": _registries(contract, contract.pools[key].region, one),
            "container_runtime_gpus": one.gpus,
            "container_runtime_gpus_simulated": contract.pools[key].gpus_simulated,
        }
        | own
        | ({"container_runtime_storage_path": one.storage_path} if one.storage_path else {})
        for key, one in _pools(contract).items()
    }
    return {"container_runtime": found} if found else {}


def host_variables(contract: Contract) -> dict[str, dict[str, Any]]:
    """Of the hosts that serve registries: what each keeps, and who may push."""
    return {one.host: _server(contract, one) for one in _servers(contract)}


def _own(contract: Contract) -> dict[str, Any]:
    servers = _servers(contract)
    return (
        {
            "container_runtime_own": [_place(contract, one) for one in servers],
            "container_runtime_own_authority": str(secret_file(contract.stack, AUTHORITY)),
        }
        if servers
        else {}
    )


def _place(contract: Contract, server: Server) -> str:
    return f"{contract.hosts[server.host].address}:{PULL}"


def _registries(contract: Contract, region: str, runtime: Runtime) -> list[dict[str, Any]]:
    """Each registry with who is asked for its images: the region's, other regions', then declared ones.

    Of ours it is the registry itself that is asked last, and in its own region also first.
    """
    section = contract.need(ContainersSection)
    nearest = sorted(section.servers, key=lambda one: one.region != region)
    found: dict[str, dict[str, Any]] = {}
    for one in nearest:
        kept = [cache.name for cache in one.caches] + [peer.name for peer in section.peers(one)]
        for name in kept:
            entry = found.setdefault(name, {"name": name, "mirrors": [], "authority": ""})
            entry["mirrors"].append(f"{_place(contract, one)}/{name}")
    for one in nearest:
        if one.push_username:
            entry = found.setdefault(one.name, {"name": one.name, "mirrors": [], "authority": ""})
            entry["server"] = _place(contract, one)
            if one.region == region and entry["mirrors"]:
                entry["mirrors"].insert(0, entry["server"])
    for declared in runtime.registries:
        entry = found.setdefault(declared.name, {"name": declared.name, "mirrors": [], "authority": ""})
        entry["mirrors"] += declared.mirrors
        entry["authority"] = given_path(declared.ca_file)
    return list(found.values())


def _server(contract: Contract, server: Server) -> dict[str, Any]:
    section = contract.need(ContainersSection)
    found = {
        "registry_name": server.name,
        "registry_authority": str(secret_file(contract.stack, AUTHORITY)),
        "registry_storage_path": server.storage_path,
        "registry_untagged_days": server.untagged_days,
        "registry_tagged_days": server.tagged_days or 0,
        "registry_caches": [
            {
                "name": one.name,
                "url": one.url,
                "username": one.username or "",
                "password_file": _given(contract, one.password_secret),
                "ca_file": given_path(one.ca_file),
            }
            for one in server.caches
        ],
        "registry_peers": [
            {"name": one.name, "host": one.host, "address": _place(contract, one)}
            for one in section.peers(server)
        ],
    }
    if server.push_username:
        found["registry_push_username"] = server.push_username
        found["registry_push_password_file"] = _given(contract, server.push_secret)
    return found


def _given(contract: Contract, secret: str | None) -> str:
    return str(secret_file(contract.stack, GIVEN + secret)) if secret else ""
