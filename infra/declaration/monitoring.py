"""Monitoring: what is kept of a cluster's metrics, where all of it is seen, and who is told."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from infra.declaration.base import (
    FilePath,
    Float,
    Int,
    Mailbox,
    ModelName,
    Repository,
    Server,
    Spec,
    UserName,
)
from infra.declaration.logs import LogsSpec
from infra.declaration.remote import RemoteSpec

Severity = Literal["page", "ticket"]


class RetentionSpec(Spec):
    """What each region's Prometheus keeps; the first limit that is reached counts."""

    what: ClassVar = "the retention"
    time_days: Int = Field(default=15, ge=1, le=3650)
    """Days."""
    size_gib: Float | None = Field(default=None, ge=0.25, le=1_000_000)
    """Room on the disk of a region's first control node; unset means as much as the days take."""


class ReceiverSpec(Spec):
    """Who is told of alerts."""

    what: ClassVar = "a receiver"
    name: str
    """A DNS label of its own."""
    regions: tuple[str, ...] = ()
    """Names of the regions whose alerts it gets; unset means all."""
    severities: tuple[Severity, ...] = ("page", "ticket")
    """`page` wakes somebody up, `ticket` waits for the morning."""


class WebhookReceiver(ReceiverSpec):
    """Alertmanager's JSON, posted to a URL."""

    kind: Literal["webhook"]
    """A program of yours."""
    url_secret: str
    """Name of the secret that is the URL, set by `causeway secret NAME`."""


class SlackReceiver(ReceiverSpec):
    """A channel of Slack's, or of what speaks its protocol."""

    kind: Literal["slack"]
    """Slack's incoming webhooks."""
    url_secret: str
    """Name of the secret that is the incoming webhook's URL."""
    channel: ModelName
    """The channel's name, without #."""


class EmailReceiver(ReceiverSpec):
    """Mail by a server that takes it."""

    kind: Literal["email"]
    """Mail."""
    to: Mailbox
    """To whom, as `ops@example.org`."""
    sender: Mailbox
    """From whom."""
    smarthost: Server
    """The server that takes the mail, as `mail.example.org:587`; it has to offer STARTTLS."""
    username: UserName | None = None
    """By which name it is asked; unset means by none."""
    password_secret: str | None = None
    """Name of the secret that is the password."""


Receiver = Annotated[WebhookReceiver | SlackReceiver | EmailReceiver, Field(discriminator="kind")]


class GrafanaSpec(Spec):
    """A Grafana beside the global region's Prometheus, with the dashboards of all capabilities."""

    what: ClassVar = "the Grafana"
    repository: Repository = "https://apt.grafana.com"
    """Grafana's packages for Debian, or a mirror of them with the same layout."""
    key_file: FilePath
    """File on this machine with the key that signs them, and nothing else; Grafana's is
    <https://apt.grafana.com/gpg.key>."""


class RemoteWriteSpec(RemoteSpec):
    """A receiver of the site's own, by Prometheus' remote-write protocol."""

    what: ClassVar = "the receiver of metrics"


class PrometheusMonitoring(Spec):
    """Prometheus: a server and alerts in every region, a view of all of them in one."""

    what: ClassVar = "the monitoring"
    kind: Literal["prometheus"]
    """Prometheus."""
    bmc: Literal["auto", "required", "none"] = "auto"
    """BMCs of machines you have, read by IPMI on the machine itself: `auto` where its kernel has one,
    `required` where a machine without one is to fail, `none` nowhere."""
    interval_s: Int = Field(default=15, ge=5, le=60)
    """Seconds between two looks at a target."""
    retention: RetentionSpec = RetentionSpec()
    """What is kept."""
    global_region: str | None = None
    """Name of the region that sees all others; unset means the first of the first wave."""
    longest_cut_h: Int = Field(default=24, ge=1, le=168)
    """Hours that a region may be cut off for, without a gap in what the global region knows afterwards."""
    receivers: tuple[Receiver, ...] = ()
    """Who is told of alerts."""
    remote_write: RemoteWriteSpec | None = None
    """Who is sent what the global region gets, by every region itself; unset means nobody."""
    grafana: GrafanaSpec | None = None
    """Where dashboards are looked at; unset means in a Grafana of yours, or nowhere."""
    logs: LogsSpec | None = None
    """Where the nodes' journals are kept; unset means on the nodes alone."""


MonitoringSpec = PrometheusMonitoring
"""What `monitoring` may be; another kind joins here, told apart by `kind`."""
