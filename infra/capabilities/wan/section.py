"""What roles are told of the WAN, beside its links and routes."""

from typing import ClassVar, Literal

from infra.ground.contract import Section
from infra.ground.endpoint import TrafficClass


class WanSection(Section):
    """The WAN of a cluster that has links."""

    capability: ClassVar = "wan"
    version: Literal[1] = 1
    ports: dict[TrafficClass, tuple[str, ...]]
    """Class → the ports that gateways serve so, by number: `179`, or `8500-8503`; replication is all else."""


SECTION = WanSection
