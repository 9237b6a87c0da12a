"""What roles are told of monitoring."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from infra.files import value_hash
from infra.ground.capability import SecretKind
from infra.ground.contract import Part, Section
from infra.ground.endpoint import HostSet
from infra.ground.remote import Queries, Remote
from infra.ground.secrets import GIVEN

AUTHORITY = "monitoring-ca"
SECRETS: Mapping[str, SecretKind] = {AUTHORITY: "authority"}
"""It signs what every exporter and every server shows."""
ADMIN, GRAFANAS_KEY = "grafana-admin", "grafana-key"
GRAFANA_SECRETS: Mapping[str, SecretKind] = {ADMIN: "random", GRAFANAS_KEY: "random"}
"""What its administrator logs in by, and what it encrypts its data sources' keys by."""

SECRET_FIELDS = ("url_secret", "password_secret")
"""Fields of receivers that name a secret."""


QUERIES: Queries = {"/api/v1/write": "/api/v1/query", "/api/v1/push": "/prometheus/api/v1/query"}
"""Where series are taken (Prometheus, VictoriaMetrics; Mimir) → where the same server is asked for them."""
LONGEST_REGION = 20
"""Of a region's name in what Grafana calls its data sources by."""


class Job(Part):
    """What is asked for metrics in one way; its hosts by what they share."""

    name: str
    port: int
    path: str
    labels: dict[str, str] = Field(default_factory=dict)
    samples: int | None = None
    interval_s: int | None = None
    told_by: str | None = None
    everyone: bool = False
    regions: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    @property
    def on(self) -> HostSet:
        """The hosts."""
        return HostSet(self.everyone, self.regions, self.pools, self.hosts)


class LocalProbe(Part):
    """A question that a server asks its own node."""

    name: str
    port: int
    path: str
    refuse: str
    loopback: bool = True
    """Whether on loopback; at the node's address otherwise."""
    hosts: tuple[str, ...] = ()
    """The servers that ask it; empty means all."""


class Path(Part):
    """How another region is reached, as declared."""

    region: str
    rtt_ms: float
    loss_ratio: float
    """Of round trips."""


class MonitoredRegion(Part):
    """One region's share."""

    server: str
    """The host of its Prometheus."""
    alertmanagers: tuple[str, ...]
    """Hosts, in declared order."""
    watched_by: str | None = None
    """The region that hears when this one falls silent; None where there is no other."""
    paths: tuple[Path, ...]
    write_bytes_s: int | None = None
    """What may be sent to the global region in a second; None in that one itself."""


class Bmcs(Part):
    """Machines whose BMC is read by IPMI, where they have one."""

    pools: tuple[str, ...]
    """Keys of the contract's pools."""
    required: bool = False
    """Whether all of them have one."""


class Grafana(Part):
    """Where dashboards are looked at."""

    server: str
    """Its host."""
    repository: str
    key_file: str
    """As declared."""


def source_uid(kind: str, region: str) -> str:
    """What a data source of a region is called by in Grafana's links: 40 characters at most, as it wants."""
    name = region if len(region) <= LONGEST_REGION else value_hash(region)
    return f"causeway-{kind}-{name}"


class MonitoringSection(Section):
    """How the cluster is watched."""

    capability: ClassVar = "monitoring"
    version: Literal[1] = 1
    kind: Literal["prometheus"]
    interval_s: int
    time_days: int
    size_gib: float
    global_region: str
    longest_cut_h: int
    receivers: tuple[dict[str, Any], ...]
    """As declared; secrets by name."""
    regions: dict[str, MonitoredRegion]
    jobs: tuple[Job, ...]
    probes: tuple[LocalProbe, ...]
    grafana: Grafana | None = None
    bmcs: Bmcs | None = None
    """None where no machine may have one."""
    remote_write: Remote | None = None

    def given_secrets(self) -> tuple[str, ...]:
        """Names of those by which receivers are told, each once."""
        fields = (one[field] for one in self.receivers for field in SECRET_FIELDS if field in one)
        return tuple(dict.fromkeys(GIVEN + name for name in fields))

    def senders_secrets(self) -> Mapping[str, SecretKind]:
        """The password by which metrics are sent to a receiver of the site's own."""
        secret = self.remote_write.given_secret if self.remote_write else ""
        return {secret: "given"} if secret else {}

    def watches(self, region: str) -> tuple[str, ...]:
        """The regions whose silence is noticed in this one."""
        return tuple(name for name, other in self.regions.items() if other.watched_by == region)


SECTION = MonitoringSection
