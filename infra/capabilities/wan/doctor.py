"""What routing meets on a machine that somebody has; on gateways the role's own look says it."""

import json
from collections.abc import Iterator, Mapping

from infra import ROOT
from infra.capabilities.wan.handoff import gateway_ground
from infra.capabilities.wan.section import WanSection
from infra.ground.contract import Contract
from infra.ground.machine import Finding, Look, Machine, Program, adopted, in_the_way

GROUND = ROOT / "roles" / "wan_gateway" / "files" / "causeway_wan_ground.py"
STAY = {"frr.service": "FRR", "keepalived.service": "keepalived", "bird.service": "BIRD"}


def programs(contract: Contract, host: str) -> Mapping[str, Program]:
    """The look that role `wan_gateway` runs before anything else, on its machines."""
    wanted = gateway_ground(contract, host)
    return {} if wanted is None else {"wan_gateway": Program(GROUND, json.dumps(wanted))}


def judge(contract: Contract, host: str, machine: Machine) -> Iterator[Finding]:
    """Routing of somebody's stays where no gateway of ours is; nodes have to see their gateways."""
    region = contract.need(WanSection).regions[contract.region_of(host)]
    ground = gateway_ground(contract, host)
    links = [] if ground is None else ground["links"]
    own = {link["tunnel"]["device"] for link in links if "tunnel" in link}
    for tunnel in machine.wireguard:
        if tunnel not in own:
            yield adopted("WireGuard", f"tunnel {tunnel} stays")
    if ground is None:
        for unit, name in STAY.items():
            if machine.runs(unit):
                yield adopted(name, "it runs, and stays as it is")
    home = machine.home_of(contract.hosts[host].address)
    gateway = region.gateway_address
    if region.gateways and gateway and home and gateway not in home[1].network:
        says = f"the region's gateways ({gateway}) are not in its network {home[1].network}"
        yield in_the_way("gateways", says, "put nodes and gateways into one network")


LOOK = Look(judge, units=tuple(STAY), programs=programs)
