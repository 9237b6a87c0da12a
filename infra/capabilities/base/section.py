"""What roles are told of a node's place, time and users."""

from typing import ClassVar, Literal

from infra.declaration.region import AdoptSpec, MirrorsSpec
from infra.ground.contract import Part, Section


class BaseRegion(Part):
    """What all nodes of a region share."""

    timezone: str
    locale: str
    time_servers: tuple[str, ...]
    """Hosts that keep the region's time together; none where the machines' own time servers are kept."""
    adopt: AdoptSpec = AdoptSpec()
    mirrors: MirrorsSpec | None = None


class BaseSection(Section):
    """The base of every node."""

    capability: ClassVar = "base"
    version: Literal[1] = 1
    authorized_keys: tuple[str, ...] = ()
    """Public keys that may log in beside the stack's own."""
    regions: dict[str, BaseRegion]
    sudo_secrets: tuple[str, ...] = ()
    """Names of the secrets that are passwords for sudo. The controller reads them, no role does."""
    shm_gib: dict[str, float]
    """Pool → size of /dev/shm, where it is declared."""


SECTION = BaseSection
