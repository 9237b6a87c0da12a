"""The network between GPU nodes. What it comes to is planned in `infra/planning/plan.py` still."""

from infra.capabilities.fabric.rules import (
    FabricHasNodes,
    FabricHoldsItsNodes,
    FabricIsNotOversubscribed,
    FabricLeafHasThePorts,
    FabricMtuFits,
    FabricRailsAreNics,
    FabricRangeIsFree,
    FabricSidesAgree,
    FabricSpeedsAgree,
    LosslessEndsAtTheEdge,
    NicNamesFit,
    SwitchBuffersFit,
    SwitchHasThePorts,
    SwitchHasTheSpeed,
    SwitchModelIsKnown,
)
from infra.ground.capability import Capability
from infra.ground.contract import Section


class Fabric(Capability[Section]):
    """Where a region declares one."""

    name = "fabric"
    rules = (
        NicNamesFit(),
        FabricHasNodes(),
        FabricSpeedsAgree(),
        FabricRailsAreNics(),
        FabricLeafHasThePorts(),
        FabricHoldsItsNodes(),
        FabricIsNotOversubscribed(),
        FabricRangeIsFree(),
        FabricSidesAgree(),
        FabricMtuFits(),
        SwitchModelIsKnown(),
        SwitchHasTheSpeed(),
        SwitchHasThePorts(),
        SwitchBuffersFit(),
        LosslessEndsAtTheEdge(),
    )


CAPABILITY = Fabric()
