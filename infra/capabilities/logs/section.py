"""What roles are told of logs."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from infra.ground.capability import SecretKind
from infra.ground.contract import Section

AUTHORITY = "logs-ca"
SECRETS: Mapping[str, SecretKind] = {AUTHORITY: "authority"}
"""It signs what nodes show to whom they send; it opens nothing else."""


class LogsSection(Section):
    """Where the cluster's journals are kept."""

    capability: ClassVar = "logs"
    version: Literal[1] = 1
    kind: Literal["victorialogs"]
    retention_days: int
    size_gib: float
    queue_mib: int
    stores: dict[str, str]
    """Region → the host of its store."""


SECTION = LogsSection
