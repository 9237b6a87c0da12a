"""The variables of roles `tcp_tuning` and `wan_gateway`."""

from typing import Any

from infra.capabilities.fabric.section import FabricSection
from infra.capabilities.wan.links import tunnel_secret
from infra.capabilities.wan.section import WanSection
from infra.capabilities.wan.tcp import flows_to_fill
from infra.ground import addresses
from infra.ground.capability import Role, SecretKind, for_itself
from infra.ground.contract import Contract
from infra.ground.endpoint import HostSet
from infra.ground.groups import group_name
from infra.stack import secret_file

NCCL_MOST_SOCKETS = 64
"""Of one connection, over all its threads (NCCL_NSOCKS_PERTHREAD in NCCL's user guide)."""


def _linked(contract: Contract) -> tuple[str, ...]:
    return tuple(name for name, region in contract.need(WanSection).regions.items() if region.routes)


def _gateway_hosts(contract: Contract) -> HostSet:
    regions = contract.need(WanSection).regions.values()
    return HostSet(hosts=tuple(host for region in regions if region.routes for host in region.gateways))


def _tunnel_keys(contract: Contract, host: str) -> dict[str, SecretKind]:
    """Both ends' keys of its region's tunnels: its own, and the public half of the far one."""
    links = contract.need(WanSection).links
    region = contract.region_of(host)
    return {
        tunnel_secret(name, end): "wireguard"
        for name, link in links.items()
        if region in link.ends and all(each.tunnel_address for each in link.ends.values())
        for end in link.ends
    }


ROLES = (
    Role("tcp_tuning", lambda contract: HostSet(regions=_linked(contract)), needed=for_itself),
    Role(
        "wan_gateway",
        _gateway_hosts,
        _tunnel_keys,
        leaves="the way to other regions",
        needed=lambda _spec: "a pool of role `gateway` is made of it: declare another role",
    ),
)


def variables(contract: Contract) -> dict[str, dict[str, dict[str, Any]]]:
    """By region how its nodes send what is for others; by pool what its gateways do."""
    tuning = {group_name("region", name): _wan(name, contract) for name in _linked(contract)}
    gateways: dict[str, dict[str, Any]] = {}
    wan = contract.need(WanSection)
    for key, pool in contract.pools.items():
        if pool.gpus and wan.regions[pool.region].routes:
            tuning[group_name("pool", key)] = {"tcp_tuning_nccl_sockets": nccl_sockets(wan, pool.region)}
        if pool.role == "gateway" and wan.regions[pool.region].routes:
            group = group_name("pool", key)
            # They learn their routes from each other.
            tuning.setdefault(group, {})["tcp_tuning_wan_routes"] = []
            gateways[group] = _gateway(pool.region, contract)
    return {"tcp_tuning": tuning, "wan_gateway": gateways}


def nccl_sockets(wan: WanSection, region: str) -> int:
    """Sockets of each of NCCL's connections to other regions: those that the path with most flows needs."""
    return min(
        NCCL_MOST_SOCKETS,
        max(
            flows_to_fill(
                route.congestion_control, route.rtt_ms, route.bandwidth_mbps, route.loss_pct, route.mss_bytes
            )
            for route in wan.regions[region].routes
        ),
    )


def _carried(name: str, contract: Contract) -> set[str]:
    """The regions to which a region's gateways have links: emulated, or handed over to them at both ends."""
    wan = contract.need(WanSection)
    made = {key for key, link in wan.links.items() if all(end.address for end in link.ends.values())}
    return {
        route.region
        for route in wan.regions[name].routes
        if any(path and made.issuperset(path) for path in (route.path, route.backup_path))
    }


def _wan(name: str, contract: Contract) -> dict[str, Any]:
    """How a region's nodes send what is for other regions."""
    region = contract.need(WanSection).regions[name]
    # Not by gateways that have no link there: the machines may know another path.
    by_us = _carried(name, contract) if region.gateways else {route.region for route in region.routes}
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
            for route in region.routes
        ],
    }


def _gateway(name: str, contract: Contract) -> dict[str, Any]:
    """What the gateways of one region share: a gateway picks its own links by its address."""
    wan = contract.need(WanSection)
    region = wan.regions[name]
    variables: dict[str, Any] = {
        **{f"wan_gateway_{traffic}_ports": list(found) for traffic, found in wan.ports.items()},
        "wan_gateway_asn": region.asn,
        "wan_gateway_region_cidr": str(contract.regions[name].cidr),
        "wan_gateway_far_cidrs": [str(contract.regions[far].cidr) for far in _gateways_reach(name, contract)],
        "wan_gateway_members": [str(contract.hosts[host].address) for host in region.gateways],
        "wan_gateway_vip": str(region.gateway_address or "") if len(region.gateways) > 1 else "",
        "wan_gateway_links": [
            _link(key, name, contract)
            for key, link in wan.links.items()
            if name in link.ends and link.ends[name].address
        ],
    }
    fabric = contract.section(FabricSection)
    if fabric and name in fabric.regions:
        roce = fabric.regions[name].roce
        variables["wan_gateway_remarked_dscps"] = sorted({roce.dscp, roce.cnp_dscp})
    return variables


def gateway_ground(contract: Contract, host: str) -> dict[str, Any] | None:
    """What a gateway's machine is asked before anything is changed there; None for one that is no gateway."""
    if host not in _gateway_hosts(contract).hosts:
        return None
    said, own = _gateway(contract.region_of(host), contract), str(contract.hosts[host].address)
    links = [link for link in said["wan_gateway_links"] if link["gateway"] == own]
    return {"links": links, "shares": said["wan_gateway_vip"] != ""}


def _gateways_reach(name: str, contract: Contract) -> list[str]:
    """The regions that gateways are to reach, or to call unreachable while no link leads there.

    Between regions whose links are made, these are the only paths; machines you have may know others.
    """
    made = {key for key, region in contract.regions.items() if region.makes_links}
    reached = _carried(name, contract) | (made if name in made else set())
    return [key for key in contract.regions if key != name and key in reached]


def _link(name: str, region: str, contract: Contract) -> dict[str, Any]:
    """One link, as the gateway at its end in `region` sees it."""
    wan = contract.need(WanSection)
    link = wan.links[name]
    far = link.b if region == link.a else link.a
    here, there = link.ends[region], link.ends[far]
    routes = wan.regions[region].routes
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
        variables["peer_asn"] = wan.regions[far].asn
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
