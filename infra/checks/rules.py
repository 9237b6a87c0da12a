"""Rules across the objects of a declaration: one class a rule."""

from dataclasses import replace

from infra.capabilities.discovery.rules import DatacentersAreRegions, ServersCanAgree, ServersHaveNodes
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
from infra.declaration import ClusterSpec
from infra.ground.problem import DeclarationError, Problem, Source
from infra.ground.rule import Rule
from infra.ground.rules.access import AuthorizedKeysAreKeys
from infra.ground.rules.machines import (
    AddressesAreInTheRegion,
    AddressesAreUnique,
    HostKeysAreKeys,
    HostsMatchTheProvider,
)
from infra.ground.rules.names import HostNamesAreUnique, HostNamesFit, NamesAreLabels, NamesAreUnique
from infra.ground.rules.places import LocaleIsKnown
from infra.ground.rules.pools import (
    CountIsPositive,
    GpuModelIsGiven,
    GpuModelIsKnown,
    GpusAreOnGpuNodes,
    GpusPerNode,
    NicsHaveASpeed,
    NodeKindFits,
)
from infra.ground.rules.regions import (
    CidrHoldsItsPools,
    CidrIsPrivate,
    CidrIsUsable,
    CidrsAreApart,
    ClusterHasRegions,
    PoolsFitTheBlocks,
    RegionHasControl,
)
from infra.ground.rules.waves import WavesNameEveryRegion

ALL_RULES: tuple[Rule, ...] = (
    ClusterHasRegions(),
    NamesAreLabels(),
    NamesAreUnique(),
    HostNamesFit(),
    HostNamesAreUnique(),
    CidrIsUsable(),
    CidrIsPrivate(),
    CidrsAreApart(),
    PoolsFitTheBlocks(),
    CidrHoldsItsPools(),
    RegionHasControl(),
    LocaleIsKnown(),
    CountIsPositive(),
    GpusPerNode(),
    GpusAreOnGpuNodes(),
    GpuModelIsGiven(),
    GpuModelIsKnown(),
    NicsHaveASpeed(),
    NodeKindFits(),
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
    HostsMatchTheProvider(),
    AddressesAreUnique(),
    AddressesAreInTheRegion(),
    HostKeysAreKeys(),
    AuthorizedKeysAreKeys(),
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
    ServersCanAgree(),
    ServersHaveNodes(),
    DatacentersAreRegions(),
    WavesNameEveryRegion(),
)


def check(spec: ClusterSpec, source: Source | None = None) -> list[Problem]:
    """Everything the rules have to say, errors and warnings, in the order of the file."""
    found = [
        replace(problem, rule=rule.id, severity=rule.severity)
        for rule in ALL_RULES
        for problem in rule.check(spec)
    ]
    return (source or Source()).sort(found)


def require_valid(spec: ClusterSpec, source: Source | None = None) -> list[Problem]:
    """The warnings of a declaration that may be built; DeclarationError with all findings otherwise."""
    problems = check(spec, source)
    if any(problem.severity == "error" for problem in problems):
        raise DeclarationError(problems)
    return problems


__all__ = ["ALL_RULES", "Rule", "check", "require_valid"]
