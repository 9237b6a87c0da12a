"""Rules across the objects of a declaration: one class a rule."""

from dataclasses import replace

from infra.checks.problem import DeclarationError, Problem, Source
from infra.checks.rules.access import AuthorizedKeysAreKeys
from infra.checks.rules.base import Rule
from infra.checks.rules.discovery import DatacentersAreRegions, ServersCanAgree, ServersHaveNodes
from infra.checks.rules.existing import (
    AddressesAreInTheRegion,
    AddressesAreUnique,
    HostKeysAreKeys,
    HostsMatchTheProvider,
)
from infra.checks.rules.fabric import (
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
from infra.checks.rules.gateways import (
    BackupsStandIn,
    BackupsTakeOver,
    EndsAreHandedOver,
    GatewaysKnowTheirLinks,
    GatewaysShareAnAddress,
    TunnelsEndInGateways,
)
from infra.checks.rules.links import (
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
from infra.checks.rules.names import HostNamesAreUnique, HostNamesFit, NamesAreLabels, NamesAreUnique
from infra.checks.rules.network import (
    CidrHoldsItsPools,
    CidrIsPrivate,
    CidrIsUsable,
    CidrsAreApart,
    ClusterHasRegions,
    PoolsFitTheBlocks,
    RegionHasControl,
)
from infra.checks.rules.places import LocaleIsKnown
from infra.checks.rules.pools import (
    CountIsPositive,
    GpuModelIsGiven,
    GpuModelIsKnown,
    GpusAreOnGpuNodes,
    GpusPerNode,
    NicsHaveASpeed,
    NodeKindFits,
)
from infra.checks.rules.rollout import WavesNameEveryRegion
from infra.spec import ClusterSpec

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
