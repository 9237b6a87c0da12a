"""Logs: where the nodes' journals are kept, and for how long."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from infra.declaration.base import Float, Int, Spec
from infra.declaration.remote import RemoteSpec


class VictoriaLogs(Spec):
    """VictoriaLogs: a store in every region, which takes the journals of the region's nodes."""

    what: ClassVar = "the logs"
    kind: Literal["victorialogs"]
    """VictoriaLogs."""
    retention_days: Int = Field(default=30, ge=1, le=3650)
    """Days that lines are kept for."""
    size_gib: Float = Field(default=10.0, ge=0.25, le=1_000_000)
    """Room on the disk of the region's store; when it is taken, the oldest days go first."""
    queue_mib: Int = Field(default=256, ge=16, le=65_536)
    """Room on each node's disk for what could not be sent yet."""


class ExternalLogs(RemoteSpec):
    """A store of the site's own, to which every node sends; none is placed."""

    what: ClassVar = "the store of logs"
    kind: Literal["external"]
    """A store of yours."""
    protocol: Literal["loki", "jsonlines"]
    """`loki` for its push API, as Loki and others take it; `jsonlines` for an object a line, posted."""
    queue_mib: Int = Field(default=256, ge=16, le=65_536)
    """Room on each node's disk for what could not be sent yet."""


LogsSpec = Annotated[VictoriaLogs | ExternalLogs, Field(discriminator="kind")]
"""What `monitoring.logs` may be, told apart by `kind`."""
