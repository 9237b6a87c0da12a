"""Links between regions. What they come to is planned in `infra/planning/plan.py` still."""

from infra.capabilities.wan.rules.gateways import (
    BackupsStandIn,
    BackupsTakeOver,
    EndsAreHandedOver,
    GatewaysKnowTheirLinks,
    GatewaysShareAnAddress,
    TunnelsEndInGateways,
)
from infra.capabilities.wan.rules.links import (
    ClassesFitTheLink,
    FlowsFillTheLink,
    LinkEndsExist,
    LinksDoNotCompete,
    LossIsLow,
    MtuCarriesIpv6,
    MtuFitsThePath,
    OneFlowIsCarried,
    RatesArePossible,
    RegionsAreOneCluster,
    RegionsAreReached,
)
from infra.capabilities.wan.section import WanSection
from infra.declaration import ClusterSpec
from infra.ground.capability import Capability, Planned
from infra.ground.endpoint import Endpoint, HostSet, Ports, TrafficClass

BGP_PORT = 179
CLASSED: tuple[TrafficClass, ...] = ("management", "scheduler", "scavenger")
"""What is in none of them is served as replication."""


class Wan(Capability[WanSection]):
    """Where links are declared."""

    name = "wan"
    rules = (
        LinkEndsExist(),
        RegionsAreReached(),
        RegionsAreOneCluster(),
        LinksDoNotCompete(),
        MtuFitsThePath(),
        MtuCarriesIpv6(),
        RatesArePossible(),
        LossIsLow(),
        FlowsFillTheLink(),
        OneFlowIsCarried(),
        ClassesFitTheLink(),
        BackupsStandIn(),
        BackupsTakeOver(),
        TunnelsEndInGateways(),
        GatewaysShareAnAddress(),
        EndsAreHandedOver(),
        GatewaysKnowTheirLinks(),
    )

    def plan(self, spec: ClusterSpec, planned: Planned) -> WanSection | None:
        """Its links and routes are elsewhere in the contract."""
        return WanSection(ports={}) if spec.wan_links else None

    def endpoints(self, section: WanSection, planned: Planned) -> tuple[Endpoint, ...]:
        """Gateways tell each other the way; BFD and ICMP they know without a port of ours."""
        gateways = HostSet(hosts=tuple(node.name for node in planned.nodes if node.role == "gateway"))
        return (Endpoint("bgp", gateways, (Ports.one(BGP_PORT),), "management", sources=gateways),)

    def finish(self, section: WanSection, planned: Planned) -> WanSection:
        """Gateways class whatever listens on the management network by what its owner says."""
        ports = {
            name: sorted(
                {
                    ports
                    for endpoint in planned.endpoints
                    if endpoint.traffic == name and endpoint.network == "management"
                    for ports in endpoint.ports
                }
            )
            for name in CLASSED
        }
        return WanSection(ports={name: tuple(map(str, found)) for name, found in ports.items()})


CAPABILITY = Wan()
