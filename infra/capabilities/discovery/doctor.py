"""What the discovery meets on a machine that somebody has: another Consul, another resolver."""

from collections.abc import Iterable, Iterator

from infra.capabilities.discovery.section import STUB, DiscoverySection
from infra.ground.contract import Contract
from infra.ground.machine import Finding, Look, Machine, adopted, fine, in_the_way

RESOLVED = "systemd-resolved.service"
FOLDER = "/etc/consul.d"
OURS = tuple(f"{FOLDER}/{name}.hcl" for name in ("consul", "secrets", "services"))
REWRITE = ("NetworkManager", "dhclient", "dhcpcd", "resolvconf", "cloud-init")


def judge(contract: Contract, host: str, machine: Machine) -> Iterator[Finding]:
    """One agent on a machine, and names asked of who answers for them."""
    section = contract.need(DiscoverySection)
    place = section.datacenters[contract.region_of(host)]
    if section.kind == "consul":
        yield from _agent(machine)
    if section.kind == "consul" or place.servers:
        yield from _resolver(section.kind, place.resolver, machine)


def _agent(machine: Machine) -> Iterator[Finding]:
    """Settings of somebody's; one that runs is named as other services are."""
    strange = [
        path
        for path, whose in machine.files.items()
        if path.startswith(FOLDER) and path.endswith((".hcl", ".json")) and whose != "ours"
    ]
    if others := [path for path in strange if path not in OURS]:
        says = f"the agent would read settings of somebody's too ({others[0]})"
        yield in_the_way("Consul", says, f"move them out of {FOLDER}")
    else:
        yield fine("Consul", "no settings of somebody's")


def _resolver(role: str, how: str, machine: Machine) -> Iterator[Finding]:
    """What sends the machine's own questions somewhere, and what becomes of it."""
    zone = {"consul": "Consul for .consul", "names": "control nodes for names of nodes"}[role]
    if how == "keep":
        stays = machine.resolver or "/etc/resolv.conf"
        yield adopted("resolver", f"{stays} stays as it is, and asks nobody of ours")
    elif machine.resolver in REWRITE:
        says = f"{machine.resolver} writes /etc/resolv.conf, and takes out what role {role} puts there"
        yield in_the_way("resolver", says, "install systemd-resolved, or adopt `resolver: keep`")
    elif machine.resolver:
        yield adopted("resolver", f"{machine.resolver} stays, and asks {zone}")


def unopened(machine: Machine) -> Iterable[str]:
    """Where systemd-resolved runs, programs ask that."""
    resolved = machine.units.get(RESOLVED)
    return (STUB,) if resolved and resolved.active else ()


LOOK = Look(
    judge,
    units=(RESOLVED,),
    folders=(f"{FOLDER}/*.hcl", f"{FOLDER}/*.json"),
    freed={STUB: "have it listen on other addresses only, or adopt `resolver: keep`"},
    unopened=unopened,
)
