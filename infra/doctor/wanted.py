"""What is asked of each machine: all that its roles would meet there, told from roles and capabilities."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from infra import capabilities
from infra.doctor.sites import Question
from infra.ground.contract import Contract
from infra.ground.endpoint import Endpoint
from infra.ground.machine import Look
from infra.inventory.roles import roles_of
from infra.inventory.writes import written_by

COMMON_UNITS = (
    "NetworkManager.service",
    "systemd-networkd.service",
    "networking.service",
    "firewalld.service",
)
DISKS = ("/", "/usr", "/var", "/var/log")


class Port(NamedTuple):
    """Ports on which something of ours is to listen."""

    protocol: str
    first: int
    last: int
    name: str
    loopback: bool
    """On 127.0.0.1 alone."""


def requests_of(
    contract: Contract,
    hosts: tuple[str, ...],
    endpoints: tuple[Endpoint, ...],
    questions: Mapping[str, list[Question]],
) -> dict[str, dict[str, Any]]:
    """Host → what is asked of it."""
    roles, ports = roles_of(contract), ports_of(contract, endpoints)
    pools = {host: contract.hosts[host].pool for host in hosts}
    common = {(roles[host], pools[host]): _common(contract, roles[host], pools[host]) for host in hosts}
    requests: dict[str, dict[str, Any]] = {}
    for host in hosts:
        programs = {
            role: [program.file.read_text(), program.argument]
            for look in looks_of(roles[host]).values()
            for role, program in look.programs(contract, host).items()
        }
        requests[host] = {
            **common[roles[host], pools[host]],
            "ports": [[one.protocol, one.first, one.last, one.loopback] for one in ports[host]],
            "programs": programs,
            "sites": [[question.address, question.port] for question in questions.get(host, ())],
        }
    return requests


def _common(contract: Contract, roles: tuple[str, ...], pool: str) -> dict[str, Any]:
    """What is asked of all machines of a pool with the same roles."""
    looks = list(looks_of(roles).values())
    services = services_of(contract, capabilities.roles(), pool)
    return {
        "files": sorted({path for role in roles for path in written_by(role).files}),
        "texts": sorted({path for look in looks for path in look.texts}),
        "folders": sorted({pattern for look in looks for pattern in look.folders}),
        "units": sorted(
            {
                *COMMON_UNITS,
                *(unit for look in capabilities.looks().values() for unit in look.units),
                *(unit for each in services.values() for unit in each),
            }
        ),
        "disks": list(DISKS),
    }


def services_of(contract: Contract, roles: Iterable[str], pool: str) -> dict[str, tuple[str, ...]]:
    """Role → services of others' packages that it sets up on a pool's hosts, as patterns."""
    known = capabilities.roles()
    return {role: tuple(known[role].services(contract, pool)) for role in roles}


def looks_of(roles: Iterable[str]) -> dict[str, Look]:
    """Capability → what it looks for, of those whose roles these are."""
    owners = capabilities.owners()
    having = {owners[role] for role in roles}
    return {name: look for name, look in capabilities.looks().items() if name in having}


def ports_of(contract: Contract, endpoints: Iterable[Endpoint]) -> dict[str, list[Port]]:
    """Host → what is to listen there.

    Not what gateways have at the ends of links: their role's own look answers for that.
    """
    found: dict[str, list[Port]] = {host: [] for host in contract.hosts}
    for one in (each for each in endpoints if each.network != "wan"):
        protocols = [protocol for protocol in one.protocols if protocol in ("tcp", "udp")]
        loopback = one.network == "loopback"
        ranges = [
            Port(each, ports.first, ports.last, one.name, loopback)
            for ports in one.ports
            for each in protocols
        ]
        for host in contract.members(one.on):
            found[host] += ranges
    return found
