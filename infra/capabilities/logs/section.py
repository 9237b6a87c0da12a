"""What roles are told of logs."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from infra.ground.capability import SecretKind
from infra.ground.contract import Section
from infra.ground.remote import Remote

AUTHORITY = "logs-ca"
SECRETS: Mapping[str, SecretKind] = {AUTHORITY: "authority"}
"""It signs what nodes show to whom they send; it opens nothing else."""


class External(Remote):
    """A store of the site's own."""

    protocol: Literal["loki", "jsonlines"]


class LogsSection(Section):
    """Where the cluster's journals are kept: in stores of ours, or in one that is `external`."""

    capability: ClassVar = "logs"
    version: Literal[1] = 1
    kind: Literal["victorialogs", "external"]
    retention_days: int = 0
    size_gib: float = 0.0
    """Of stores of ours."""
    queue_mib: int
    stores: dict[str, str] = Field(default_factory=dict)
    """Region → the host of its store; none where it is external."""
    external: External | None = None

    def secrets(self) -> Mapping[str, SecretKind]:
        """What shippers read beside monitoring's: the authority, or the password of the site's own store."""
        if self.external is None:
            return SECRETS
        return {self.external.given_secret: "given"} if self.external.given_secret else {}


SECTION = LogsSection
