"""What routing meets on a machine that somebody has; on gateways the role's own look says it."""

import json
from collections.abc import Iterator, Mapping

from infra import ROOT
from infra.capabilities.wan.handoff import gateway_ground
from infra.capabilities.wan.section import WanSection
from infra.ground.contract import Contract
from infra.ground.machine import Finding, Look, Machine, Program, in_the_way, stays

GROUND = ROOT / "roles" / "wan_gateway" / "files" / "causeway_wan_ground.py"
STAY = ("frr.service", "keepalived.service", "bird.service")


def programs(contract: Contract, host: str) -> Mapping[str, Program]:
    """The look that role `wan_gateway` runs before anything else, on its machines."""
    wanted = gateway_ground(contract, host)
    return {} if wanted is None else {"wan_gateway": Program(GROUND, json.dumps(wanted))}


def tunnels(contract: Contract, host: str) -> Iterator[str]:
    """Those of links that end on this machine."""
    ground = gateway_ground(contract, host)
    for link in [] if ground is None else ground["links"]:
        if "tunnel" in link:
            yield link["tunnel"]["device"]


def judge(contract: Contract, host: str, machine: Machine) -> Iterator[Finding]:
    """Routing of somebody's stays where no gateway of ours is; nodes have to see their gateways."""
    region = contract.need(WanSection).regions[contract.region_of(host)]
    ground = gateway_ground(contract, host)
    if ground is None:
        yield from (stays(unit) for unit in STAY if machine.runs(unit))
    home = machine.home_of(contract.hosts[host].address)
    gateway = region.gateway_address
    if region.gateways and gateway and home and gateway not in home[1].network:
        says = f"the region's gateways ({gateway}) are not in its network {home[1].network}"
        yield in_the_way("gateways", says, "put nodes and gateways into one network")


LOOK = Look(judge, units=STAY, programs=programs, tunnels=tunnels)
