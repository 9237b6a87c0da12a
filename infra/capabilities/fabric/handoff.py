"""The variables of role `roce`."""

from typing import Any

from infra.capabilities.fabric.section import FabricRegion, FabricSection, Nic
from infra.ground.capability import Role, for_itself
from infra.ground.contract import Contract
from infra.ground.endpoint import NOBODY, HostSet
from infra.ground.groups import group_name


def _hosts(contract: Contract) -> HostSet:
    section = contract.section(FabricSection)
    return HostSet(hosts=tuple(section.hosts)) if section else NOBODY


ROLES = (Role("roce", _hosts, needed=for_itself),)


def variables(contract: Contract) -> dict[str, dict[str, dict[str, Any]]]:
    """By region how its RDMA traffic is marked; by pool whether software stands in for its NICs."""
    section = contract.section(FabricSection)
    if section is None:
        return {}
    groups = {group_name("region", name): _marking(region) for name, region in section.regions.items()}
    for key, pool in contract.pools.items():
        if pool.node_kind == "vm" and pool.nics and pool.region in section.regions:
            # Its NICs have no RDMA, and its kernel may load what stands in for it.
            groups[group_name("pool", key)] = {"roce_soft_device": True}
    return {"roce": groups}


def host_variables(contract: Contract) -> dict[str, dict[str, Any]]:
    """Its fabric interfaces, of which no two hosts share one."""
    section = contract.section(FabricSection)
    if section is None:
        return {}
    regions = section.regions
    return {
        name: {"roce_interfaces": [_interface(regions[contract.region_of(name)], port) for port in ports]}
        for name, ports in section.hosts.items()
    }


def _marking(region: FabricRegion) -> dict[str, Any]:
    marking = region.roce.model_dump(exclude={"tos"})  # which follows from the DSCP
    return {
        "roce_mtu_bytes": region.mtu_bytes,
        "roce_nccl_profile": region.nccl,
        **{f"roce_{key}": value for key, value in marking.items()},
    }


def _interface(region: FabricRegion, port: Nic) -> dict[str, str]:
    rail = region.rail_cidrs[port.plane * region.rails + port.rail]
    address = {"name": port.name, "address": f"{port.address}/{port.prefix}"}
    if rail.prefixlen == port.prefix:  # the whole rail is one subnet: nothing is behind the leaf
        return address
    return {**address, "gateway": str(port.gateway), "network": str(rail)}
