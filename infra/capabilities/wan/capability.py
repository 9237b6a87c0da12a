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
from infra.ground.capability import Capability
from infra.ground.contract import Section


class Wan(Capability[Section]):
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


CAPABILITY = Wan()
