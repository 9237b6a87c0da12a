"""Service discovery: a datacenter for every region, and the services that its nodes offer."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from infra.capabilities.discovery import servers
from infra.capabilities.discovery.rules import DatacentersAreRegions, ServersCanAgree, ServersHaveNodes
from infra.capabilities.discovery.section import SECRETS, STUB, Datacenter, DiscoverySection, Service
from infra.declaration import ClusterSpec, ConsulDiscovery
from infra.ground.capability import Capability, Planned, Report, SecretKind
from infra.ground.endpoint import EVERYONE, Endpoint, HostSet, Ports, Probe
from infra.ground.problem import listing

RPC_PORT, GOSSIP_PORT, WAN_GOSSIP_PORT = 8300, 8301, 8302
API_PORTS, HTTPS_PORT = Ports(8500, 8503), 8501
DNS_PORT, STUB_PORT = 8600, 53
NAMES_PORT = 8653
"""As role `names` has it."""

LEADER = Probe("consul-leader", HTTPS_PORT, "/v1/status/leader", refuse='^""')
"""The answer is the leader's address, and empty without one; anybody may ask."""


class Discovery(Capability[DiscoverySection]):
    """What is declared, or else names of nodes alone, answered by each region's first control nodes."""

    name = "discovery"
    rules = (ServersCanAgree(), ServersHaveNodes(), DatacentersAreRegions())
    limits: ClassVar = {(ConsulDiscovery, "servers"): listing(servers.SERVER_COUNTS)}

    def plan(self, spec: ClusterSpec, planned: Planned) -> DiscoverySection:
        """The first control nodes of each region are its servers."""
        declared = spec.discovery
        datacenters = {}
        for region in spec.regions:
            control = [node.name for node in planned.region_nodes(region.name) if node.role == "control"]
            datacenters[region.name] = Datacenter(
                name=servers.datacenter(declared, region.name),
                servers=tuple(control[: servers.server_count(declared, region)]),
                resolver=region.adopt.resolver,
            )
        return DiscoverySection(
            kind=declared.kind if declared else "names",
            primary=servers.primary_region(declared, spec) if declared else "",
            datacenters=datacenters,
            services={},
        )

    def endpoints(self, plan: DiscoverySection, planned: Planned) -> tuple[Endpoint, ...]:
        """Servers talk to servers and agents, agents gossip, and programs ask their own node's agent."""
        if plan.kind == "names":
            return tuple(_names_endpoints(plan))
        hosts = tuple(host for region in plan.datacenters.values() for host in region.servers)
        on = HostSet(hosts=hosts)
        return (
            Endpoint("consul-rpc", on, (Ports.one(RPC_PORT),), "scheduler"),
            Endpoint("consul-gossip", EVERYONE, (Ports.one(GOSSIP_PORT),), "scheduler", ("tcp", "udp")),
            Endpoint("consul-wan", on, (Ports.one(WAN_GOSSIP_PORT),), "scheduler", ("tcp", "udp"), on),
            Endpoint("consul-api", EVERYONE, (API_PORTS,), "scheduler", probe=LEADER),
            Endpoint("consul-dns", EVERYONE, (Ports.one(DNS_PORT),), "scheduler", ("tcp", "udp")),
            *_stub(plan),
        )

    def finish(self, plan: DiscoverySection, planned: Planned) -> DiscoverySection:
        """Its services are the endpoints that have a check, on the pools of which every node has them."""
        if plan.kind == "names":
            return plan
        services: dict[str, tuple[Service, ...]] = {}
        elsewhere: dict[str, tuple[Service, ...]] = {}
        offered = _offered(planned)
        for key, nodes in planned.by_pool().items():
            common = [name for name, by_host in offered.items() if all(n.name in by_host for n in nodes)]
            for node in nodes:
                own = tuple(offered[name][node.name] for name in common)
                if own != services.setdefault(key, own):
                    elsewhere[node.name] = own
        return plan.model_copy(update={"services": services, "elsewhere": elsewhere})

    def secrets(self, plan: DiscoverySection) -> Mapping[str, SecretKind]:
        """For gossip, certificates and tokens."""
        return SECRETS if plan.kind == "consul" else {}

    def report(self, plan: DiscoverySection) -> Report:
        """Datacenters with their servers, and where rights are granted; who answers for names without one."""
        if plan.kind == "names":
            return _names_report(plan)
        places = (
            f"datacenter {region.name} on {_span(region.servers[0], region.servers[-1])}"
            for region in plan.datacenters.values()
        )
        text = f"Service discovery by {plan.kind}: {', '.join(places)}; "
        text += f"rights are granted in {plan.primary}"
        shown = plan.model_dump(mode="json", exclude={"version", "services", "elsewhere"})
        return Report(text, {"discovery": shown})


def _offered(planned: Planned) -> dict[str, dict[str, Service]]:
    """Service → host → what it is there: of one that asks by several ports, each host has one."""
    found: dict[str, dict[str, Service]] = {}
    for endpoint in planned.endpoints:
        if endpoint.check is not None:
            service = Service(name=endpoint.name, port=endpoint.ports[0].first, check=endpoint.check)
            by_host = found.setdefault(endpoint.name, {})
            by_host |= dict.fromkeys(endpoint.on.hosts, service)
            for node in planned.nodes:
                if endpoint.on.has_pool(node.region, node.pool_key):
                    by_host[node.name] = service
    return found


def _stub(plan: DiscoverySection) -> Iterator[Endpoint]:
    """Where resolvers are set, a name server that only its own node asks; not where systemd-resolved runs."""
    if regions := tuple(plan.answered):
        on, ports = HostSet(regions=regions), (Ports.one(STUB_PORT),)
        yield Endpoint(STUB, on, ports, "scheduler", ("tcp", "udp"), on, network="loopback")


def _names_endpoints(plan: DiscoverySection) -> Iterator[Endpoint]:
    """On those that answer for their region; all others' own servers of names ask these."""
    if named := plan.answered:
        on, ports = HostSet(regions=tuple(named)), (Ports.one(NAMES_PORT),)
        answering = HostSet(hosts=tuple(host for region in named.values() for host in region.servers))
        yield Endpoint("names", answering, ports, "scheduler", ("tcp", "udp"), on)
        yield Endpoint("names", on, ports, "scheduler", ("tcp", "udp"), on, network="loopback")
        yield from _stub(plan)


def _names_report(plan: DiscoverySection) -> Report:
    """Nothing where every node has all names in its `/etc/hosts`."""
    places = [
        f"in {name} by {_span(region.servers[0], region.servers[-1])}"
        for name, region in plan.answered.items()
    ]
    return Report(f"Names of nodes are answered {', '.join(places)}" if places else "")


def _span(first: str, last: str) -> str:
    return first if first == last else f"{first} … {last}"


CAPABILITY = Discovery()
