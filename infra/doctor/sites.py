"""What has to be open between nodes, from the endpoints of all capabilities; and questions whether it is."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from infra.capabilities.wan.section import WanSection
from infra.ground.contract import Contract
from infra.ground.endpoint import Destination, Endpoint, HostSet
from infra.ground.machine import Finding, Machine, in_the_way
from infra.ground.names import some

WITHOUT_PORTS = "–"
OUTSIDE, NO_REGION = "outside", ""
"""In place of a network, and of a region: what is no node of the cluster. Regions have names."""


@dataclass(frozen=True)
class Opening:
    """One row: what listens, where, and who asks it."""

    name: str
    protocol: str
    ports: str
    on: str
    sources: str
    network: str
    between_sites: bool
    """Whether a source may be in another region."""


@dataclass(frozen=True)
class Question:
    """A port of another site, or of `NO_REGION`, that is asked whether anything comes back from it."""

    endpoint: str
    region: str
    host: str
    address: str
    port: int


def openings(
    contract: Contract, endpoints: Iterable[Endpoint], destinations: Iterable[Destination] = ()
) -> list[Opening]:
    """All that has to be open, by the name of what listens."""
    rows = []
    for one in (each for each in endpoints if each.network != "loopback"):
        listening, asking = _places(contract, one.on), _places(contract, one.sources)
        if not listening or not asking:
            continue
        ports = ", ".join(map(str, one.ports)) or WITHOUT_PORTS
        between = any(a != b for a in listening for b in asking)
        on, sources = said(contract, one.on), said(contract, one.sources)
        rows += [Opening(one.name, each, ports, on, sources, one.network, between) for each in one.protocols]
    for far in destinations:
        sources = said(contract, far.sources)
        rows.append(Opening(far.name, "tcp", str(far.port), far.host, sources, OUTSIDE, between_sites=False))
    return sorted(dict.fromkeys(rows), key=lambda row: (row.name, row.protocol, row.ports))


def said(contract: Contract, hosts: HostSet) -> str:
    """A set of hosts in words."""
    if hosts.everyone:
        return "every node"
    if hosts.regions and not (hosts.pools or hosts.hosts):
        return f"nodes of {', '.join(hosts.regions)}"
    return some(contract.members(hosts), 6)


def _places(contract: Contract, hosts: HostSet) -> set[str]:
    if hosts.everyone:
        return set(contract.regions)
    return {contract.region_of(host) for host in contract.members(hosts)}


def questions(
    contract: Contract, endpoints: Iterable[Endpoint], destinations: Iterable[Destination] = ()
) -> dict[str, list[Question]]:
    """Host → what it asks: the first machine of a region one machine for each TCP port of another region.

    Not where gateways of ours are to make the way between the two: there is none yet. What is outside of all
    regions is asked by the first machine of each region that is to send there.
    """
    listening = [
        one for one in endpoints if "tcp" in one.protocols and one.network == "management" and one.ports
    ]
    had = [name for name, region in contract.regions.items() if not region.makes_nodes]
    found: dict[str, list[Question]] = {}
    for region in had:
        others = [far for far in had if far != region and not _by_gateways(contract, region, far)]
        found[contract.region_hosts(region)[0]] = [
            question for far in others for question in _of_region(contract, region, far, listening)
        ]
        for one in destinations:
            own = [host for host in contract.members(one.sources) if contract.region_of(host) == region]
            if own:
                question = Question(one.name, NO_REGION, one.host, one.host, one.port)
                found.setdefault(own[0], []).append(question)
    return found


def _of_region(
    contract: Contract, region: str, far: str, listening: Iterable[Endpoint]
) -> Iterator[Question]:
    for one in listening:
        there = [host for host in contract.members(one.on) if contract.region_of(host) == far]
        if there and region in _places(contract, one.sources):
            host = contract.hosts[there[0]]
            yield Question(one.name, far, there[0], str(host.address), one.ports[0].first)


def _by_gateways(contract: Contract, region: str, far: str) -> bool:
    regions = contract.need(WanSection).regions
    return bool(regions[region].gateways and regions[far].gateways)


def unanswered(asked: list[Question], machine: Machine) -> Iterator[Finding]:
    """The ports of other sites from which a machine heard nothing; one finding for a site that is silent."""
    silent = [asked[number] for number in machine.closed if number < len(asked)]
    for region in dict.fromkeys(question.region for question in asked):
        of_region = [question for question in silent if question.region == region]
        if region == NO_REGION:
            yield from (_unanswered_outside(one) for one in of_region)
            continue
        if len(of_region) == sum(question.region == region for question in asked):
            yield in_the_way(
                "sites",
                f"nothing comes back from region {region}, at any of its ports",
                f"lead a way there ({of_region[0].address}), and open what `causeway doctor --ports` lists",
            )
            continue
        for one in of_region:
            yield in_the_way(
                "sites",
                f"nothing comes back from TCP port {one.port} ({one.endpoint}) of {one.host}",
                "open it between the sites; `causeway doctor --ports` lists all",
            )


def _unanswered_outside(one: Question) -> Finding:
    return in_the_way(
        "sites",
        f"nothing comes back from TCP port {one.port} of {one.host} ({one.endpoint})",
        "open the way out to it, and see that its name is known here",
    )
