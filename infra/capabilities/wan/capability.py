"""Links between regions: rules, plan, and the classes into which gateways put traffic."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from infra.capabilities.wan.endpoints import endpoints
from infra.capabilities.wan.plan import WanPlan, plan_wan
from infra.capabilities.wan.report import report
from infra.capabilities.wan.rules.gateways import (
    BackupsStandIn,
    BackupsTakeOver,
    EndsAreHandedOver,
    GatewaysKnowTheirLinks,
    GatewaysShareAnAddress,
    TunnelsEndInGateways,
)
from infra.capabilities.wan.rules.links import (
    LIMITS,
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
from infra.ground.capability import Capability, Planned, Report
from infra.ground.endpoint import Endpoint, TrafficClass, merged

CLASSED: tuple[TrafficClass, ...] = ("management", "scheduler", "scavenger")
"""What is in none of them is served as replication."""


class Wan(Capability[WanPlan]):
    """Every cluster has it."""

    name = "wan"
    uses = ("fabric",)
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
    limits: ClassVar = LIMITS

    def plan(self, spec: ClusterSpec, planned: Planned) -> WanPlan:
        """Every cluster has one, also where no link leads out of its only region."""
        return plan_wan(spec, planned)

    def section(self, plan: WanPlan) -> WanSection:
        """Links, routes, gateways and ports."""
        return plan.section

    def resources(self, plan: WanPlan) -> Mapping[str, int]:
        """They grow with links."""
        return {"wan_links": plan.resources}

    def report(self, plan: WanPlan) -> Report:
        """In a module of its own."""
        return report(plan)

    def endpoints(self, plan: WanPlan, planned: Planned) -> tuple[Endpoint, ...]:
        """In a module of its own."""
        return tuple(endpoints(plan.section, planned))

    def finish(self, plan: WanPlan, planned: Planned) -> WanPlan:
        """Gateways class whatever listens on the management network by what its owner says."""
        ours = [endpoint for endpoint in planned.endpoints if endpoint.network == "management"]
        ports = {
            name: tuple(map(str, merged(port for one in ours if one.traffic == name for port in one.ports)))
            for name in CLASSED
        }
        return replace(plan, section=plan.section.model_copy(update={"ports": ports}))


CAPABILITY = Wan()
