"""Rules on regions, their pools, and the machines in them: what every cluster has."""

from infra.ground.rule import Rule
from infra.ground.rules.machines import (
    AddressesAreInTheRegion,
    AddressesAreUnique,
    HostKeysAreKeys,
    HostsMatchTheProvider,
)
from infra.ground.rules.names import (
    HostNamesAreNames,
    HostNamesAreUnique,
    HostNamesFit,
    NamesAreLabels,
    NamesAreUnique,
)
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

RULES: tuple[Rule, ...] = (
    ClusterHasRegions(),
    NamesAreLabels(),
    NamesAreUnique(),
    HostNamesAreNames(),
    HostNamesFit(),
    HostNamesAreUnique(),
    CidrIsUsable(),
    CidrIsPrivate(),
    CidrsAreApart(),
    PoolsFitTheBlocks(),
    CidrHoldsItsPools(),
    RegionHasControl(),
    CountIsPositive(),
    GpusPerNode(),
    GpusAreOnGpuNodes(),
    GpuModelIsGiven(),
    GpuModelIsKnown(),
    NicsHaveASpeed(),
    NodeKindFits(),
    HostsMatchTheProvider(),
    AddressesAreUnique(),
    AddressesAreInTheRegion(),
    HostKeysAreKeys(),
    WavesNameEveryRegion(),
)
