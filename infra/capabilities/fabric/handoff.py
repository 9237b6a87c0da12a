"""The variables of role `roce`."""

from typing import Any

from infra.ground.capability import Role
from infra.ground.contract import Contract, FabricContract, FabricNicContract
from infra.ground.endpoint import HostSet
from infra.ground.groups import group_name


def _hosts(contract: Contract) -> HostSet:
    return HostSet(hosts=tuple(name for name, host in contract.hosts.items() if host.fabric))


ROLES = (Role("roce", _hosts),)


def variables(contract: Contract) -> dict[str, dict[str, dict[str, Any]]]:
    """By region how its RDMA traffic is marked; by pool whether software stands in for its NICs."""
    groups = {
        group_name("region", name): _marking(region.fabric)
        for name, region in contract.regions.items()
        if region.fabric
    }
    for key, pool in contract.pools.items():
        if pool.node_kind == "vm" and pool.nics and contract.regions[pool.region].fabric:
            # Its NICs have no RDMA, and its kernel may load what stands in for it.
            groups[group_name("pool", key)] = {"roce_soft_device": True}
    return {"roce": groups}


def host_variables(contract: Contract) -> dict[str, dict[str, Any]]:
    """Its fabric interfaces, of which no two hosts share one."""
    found = {}
    for name, host in contract.hosts.items():
        fabric = contract.regions[contract.region_of(name)].fabric if host.fabric else None
        if fabric:
            found[name] = {"roce_interfaces": [_interface(fabric, port) for port in host.fabric]}
    return found


def _marking(fabric: FabricContract) -> dict[str, Any]:
    marking = fabric.roce.model_dump(exclude={"tos"})  # which follows from the DSCP
    return {"roce_mtu_bytes": fabric.mtu_bytes, **{f"roce_{key}": value for key, value in marking.items()}}


def _interface(fabric: FabricContract, port: FabricNicContract) -> dict[str, str]:
    rail = fabric.rail_cidrs[port.plane * fabric.rails + port.rail]
    address = {"name": port.name, "address": f"{port.address}/{port.prefix}"}
    if rail.prefixlen == port.prefix:  # the whole rail is one subnet: nothing is behind the leaf
        return address
    return {**address, "gateway": str(port.gateway), "network": str(rail)}
