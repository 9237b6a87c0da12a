"""Contract values as role variables: the only place that knows both sets of names.

The inventory plugin emits them on groups, at the lowest inventory precedence, so that anything in
`inventories/<stack>/group_vars/all/` overrides them. Values are plain JSON types.
"""

from collections.abc import Mapping
from typing import Any

from infra.capabilities.wan.links import tunnel_secret
from infra.ground import addresses
from infra.ground.contract import (
    Contract,
    DiscoveryContract,
    FabricContract,
    FabricNicContract,
    HostContract,
    PoolContract,
    RegionContract,
)
from infra.ground.groups import group_name
from infra.inventory.roles import role_order
from infra.stack import secret_file

MAX_REGION_TIME_SERVERS = 3

Variables = Mapping[str, Any]


def feature_hosts(contract: Contract, feature: str) -> tuple[str, ...]:
    """The hosts a feature is switched on for, in declared order. ValueError for an unknown feature."""
    if feature in ("base", "drift_watch"):
        return tuple(contract.hosts)
    if feature == "tcp_tuning":
        far = {name for name, region in contract.regions.items() if region.wan_routes}
        return tuple(host for host in contract.hosts if contract.region_of(host) in far)
    if feature == "consul":
        return tuple(contract.hosts) if contract.discovery else ()
    if feature == "roce":
        return tuple(name for name, host in contract.hosts.items() if host.fabric)
    if feature == "wan_gateway":
        linked = [region for region in contract.regions.values() if region.wan_routes]
        gateways = {name for region in linked for name in region.gateways}
        return tuple(host for host in contract.hosts if host in gateways)
    raise ValueError(f"{feature} is not one of {', '.join(role_order())}")


def role_variables(contract: Contract) -> dict[str, dict[str, Any]]:
    """Group name → the role variables its hosts share: `region_<name>` and `pool_<region>_<pool>`.

    Shape: `{"region_tokyo": {"base_timezone": "Asia/Tokyo", …}, "pool_tokyo_gpu": {…}}`.
    """
    servers = _time_servers(contract)
    groups = {
        group_name("region", name): _region(region, servers[name], contract.authorized_keys)
        | _wan(name, contract)
        for name, region in contract.regions.items()
    }
    pools = {group_name("pool", key): _pool(pool, contract) for key, pool in contract.pools.items()}
    if contract.discovery:
        services = _services(contract, servers)
        for name in contract.regions:
            groups[group_name("region", name)] |= _datacenter(name, contract, contract.discovery, services)
        for key in contract.pools:
            own = {"consul_node_kind": key, "consul_services": services[key]}
            pools[group_name("pool", key)] |= own
    return groups | pools


def _datacenter(
    region: str, contract: Contract, discovery: DiscoveryContract, services: Mapping[str, list[Variables]]
) -> dict[str, Any]:
    """What all nodes of a region's datacenter share."""
    own = discovery.datacenters[region]
    addresses = {
        name: [str(contract.hosts[host].address) for host in datacenter.servers]
        for name, datacenter in discovery.datacenters.items()
    }
    return {
        "consul_datacenter": own.name,
        "consul_primary_datacenter": discovery.datacenters[discovery.primary].name,
        "consul_server_addresses": addresses[region],
        "consul_wan_servers": {
            datacenter.name: addresses[name]
            for name, datacenter in discovery.datacenters.items()
            if name != region
        },
        "consul_node_kinds": [
            {"name": key, "services": [service["name"] for service in offered]}
            for key, offered in services.items()
        ],
        "consul_secrets_dir": str(secret_file(contract.stack, "consul-ca").parent),
    }


def _services(contract: Contract, time_servers: Mapping[str, list[str]]) -> dict[str, list[Variables]]:
    """Pool → what its nodes offer, by what their roles run there."""
    hosts: dict[str, list[HostContract]] = {key: [] for key in contract.pools}
    for host in contract.hosts.values():
        hosts[host.pool].append(host)
    services: dict[str, list[Variables]] = {}
    for key, members in hosts.items():
        services[key] = [{"name": "ssh", "port": members[0].ssh_port, "check": "ssh"}]
        if all(str(host.address) in time_servers[contract.pools[key].region] for host in members):
            services[key].append({"name": "ntp", "port": 123, "check": "ntp"})
    return services


def host_variables(contract: Contract, name: str) -> dict[str, Any]:
    """The role variables that are a host's own: its fabric interfaces, of which no two hosts share one."""
    fabric = contract.regions[contract.region_of(name)].fabric
    if fabric is None or not contract.hosts[name].fabric:
        return {}
    return {"roce_interfaces": [_interface(fabric, port) for port in contract.hosts[name].fabric]}


def _interface(fabric: FabricContract, port: FabricNicContract) -> dict[str, str]:
    rail = fabric.rail_cidrs[port.plane * fabric.rails + port.rail]
    address = {"name": port.name, "address": f"{port.address}/{port.prefix}"}
    if rail.prefixlen == port.prefix:  # the whole rail is one subnet: nothing is behind the leaf
        return address
    return {**address, "gateway": str(port.gateway), "network": str(rail)}


def _time_servers(contract: Contract) -> dict[str, list[str]]:
    """Per region the addresses of its first control nodes: they keep the region's time together."""
    servers: dict[str, list[str]] = {name: [] for name in contract.regions}
    for host in contract.hosts.values():
        pool = contract.pools[host.pool]
        if pool.role == "control" and len(servers[pool.region]) < MAX_REGION_TIME_SERVERS:
            servers[pool.region].append(str(host.address))
    return servers


def _carried(name: str, contract: Contract) -> set[str]:
    """The regions to which a region's gateways have links: emulated, or handed over to them at both ends."""
    made = {key for key, link in contract.links.items() if all(end.address for end in link.ends.values())}
    return {
        route.region
        for route in contract.regions[name].wan_routes
        if any(path and made.issuperset(path) for path in (route.path, route.backup_path))
    }


def _wan(name: str, contract: Contract) -> dict[str, Any]:
    """How a region's nodes send what is for other regions."""
    region = contract.regions[name]
    if not region.wan_routes:
        return {}
    # Not by gateways that have no link there: the machines may know another way.
    by_us = _carried(name, contract) if region.gateways else {route.region for route in region.wan_routes}
    via = {} if region.gateway_address is None else {"via": str(region.gateway_address)}
    return {
        "tcp_tuning_buffer_max_bytes": region.tcp_buffer_max_bytes,
        "tcp_tuning_wan_routes": [
            {
                "cidr": str(route.cidr),
                "congestion_control": route.congestion_control,
                "mtu_bytes": route.mtu_bytes,
                **(via if route.region in by_us else {}),
            }
            for route in region.wan_routes
        ],
    }


def _region(region: RegionContract, time_servers: list[str], keys: tuple[str, ...]) -> dict[str, Any]:
    variables: dict[str, Any] = {
        "base_timezone": region.timezone,
        "base_locale": region.locale,
        "base_ntp_region_servers": time_servers,
        "base_ntp_allow": [str(region.cidr)],
    }
    if keys:
        variables["base_authorized_keys"] = list(keys)
    return variables | _roce(region.fabric)


def _roce(fabric: FabricContract | None) -> dict[str, Any]:
    if fabric is None:
        return {}
    marking = fabric.roce.model_dump(exclude={"tos"})  # which follows from the DSCP
    return {
        "roce_mtu_bytes": fabric.mtu_bytes,
        **{f"roce_{key}": value for key, value in marking.items()},
    }


def _pool(pool: PoolContract, contract: Contract) -> dict[str, Any]:
    variables: dict[str, Any] = {} if pool.shm_gib is None else {"base_shm_gib": pool.shm_gib}
    if pool.role == "gateway" and contract.regions[pool.region].wan_routes:
        variables["tcp_tuning_wan_routes"] = []  # gateways learn their routes from each other
        variables |= _gateway(pool.region, contract)
    if pool.node_kind == "vm" and pool.nics and contract.regions[pool.region].fabric:
        # Its NICs have no RDMA, and its kernel may load what stands in for it.
        variables["roce_soft_device"] = True
    return variables


def _gateway(name: str, contract: Contract) -> dict[str, Any]:
    """What the gateways of one region share: a gateway picks its own links by its address."""
    region = contract.regions[name]
    variables: dict[str, Any] = {
        "wan_gateway_asn": region.asn,
        "wan_gateway_region_cidr": str(region.cidr),
        "wan_gateway_far_cidrs": [str(contract.regions[far].cidr) for far in _gateways_reach(name, contract)],
        "wan_gateway_members": [str(contract.hosts[host].address) for host in region.gateways],
        "wan_gateway_vip": str(region.gateway_address or "") if len(region.gateways) > 1 else "",
        "wan_gateway_links": [
            _link(key, name, contract)
            for key, link in contract.links.items()
            if name in link.ends and link.ends[name].address
        ],
    }
    if region.fabric:
        roce = region.fabric.roce
        variables["wan_gateway_remarked_dscps"] = sorted({roce.dscp, roce.cnp_dscp})
    return variables


def _gateways_reach(name: str, contract: Contract) -> list[str]:
    """The regions that gateways are to reach, or to call unreachable while no link leads there.

    Between local regions links are the only roads; machines you have may know others.
    """
    local = {key for key, region in contract.regions.items() if region.provider == "local"}
    reached = _carried(name, contract) | (local if name in local else set())
    return [key for key in contract.regions if key != name and key in reached]


def _link(name: str, region: str, contract: Contract) -> dict[str, Any]:
    """One link, as the gateway at its end in `region` sees it."""
    link = contract.links[name]
    far = link.b if region == link.a else link.a
    here, there = link.ends[region], link.ends[far]
    routes = contract.regions[region].wan_routes
    variables: dict[str, Any] = {
        "name": name,
        "gateway": str(contract.hosts[here.gateway].address) if here.gateway else "",
        "address": str(here.address),
        "peer": str(there.public_address or there.address.ip) if there.address else "",
        "backup": link.backup_of is not None,
        "primary_for": [str(route.cidr) for route in routes if route.path[:1] == (name,)],
        "standby_for": [str(route.cidr) for route in routes if route.backup_path[:1] == (name,)],
        "rtt_ms": link.rtt_ms,
        "bandwidth_mbps": link.bandwidth_mbps,
        "loss_pct": link.loss_pct,
        "mtu_bytes": link.mtu_bytes,
        "handover_mtu_bytes": link.handover_mtu_bytes,
        "classes": link.classes.model_dump(),
    }
    if there.gateway:
        variables["peer_asn"] = contract.regions[far].asn
    if here.tunnel_address and there.tunnel_address:
        variables["tunnel"] = {
            "device": addresses.link_device("wg", name),
            "address": str(here.tunnel_address),
            "peer": str(there.tunnel_address.ip),
            "port": link.tunnel_port,
            "private_key_file": str(secret_file(contract.stack, tunnel_secret(name, region))),
            "peer_public_key_file": str(secret_file(contract.stack, tunnel_secret(name, far), ".pub")),
        }
    return variables
