"""Logs: a store in every region, which takes the journals of its nodes and is cut off with nobody else."""

from collections.abc import Mapping

from infra.capabilities.logs.rules import RULES
from infra.capabilities.logs.section import External, LogsSection
from infra.capabilities.monitoring.section import MonitoringSection
from infra.declaration import ClusterSpec
from infra.ground.capability import Capability, Planned, Report, SecretKind
from infra.ground.endpoint import EVERYONE, Destination, Endpoint, HostSet, Ports, Scrape
from infra.ground.remote import Remote

STORE, INTAKE = 9428, 9429
"""Ports: VictoriaLogs' own, and the one beside it that only takes lines."""


class Logs(Capability[LogsSection]):
    """Where `monitoring.logs` is declared."""

    name = "logs"
    needs = ("monitoring",)
    rules = RULES

    def plan(self, spec: ClusterSpec, planned: Planned) -> LogsSection | None:
        """On each region's second control node, for the first has the metrics; or on the only one.

        A store of the site's own has no node here.
        """
        declared = spec.monitoring.logs if spec.monitoring else None
        if declared is None:
            return None
        if declared.kind == "external":
            external = External(protocol=declared.protocol, **Remote.of(declared).model_dump())
            return LogsSection(kind=declared.kind, queue_mib=declared.queue_mib, external=external)
        stores = {}
        for region in spec.regions:
            control = [node.name for node in planned.region_nodes(region.name) if node.role == "control"]
            stores[region.name] = control[:2][-1]
        return LogsSection(
            kind=declared.kind,
            retention_days=declared.retention_days,
            size_gib=declared.size_gib,
            queue_mib=declared.queue_mib,
            stores=stores,
        )

    def endpoints(self, plan: LogsSection, planned: Planned) -> tuple[Endpoint, ...]:
        """Who serves metrics may ask; every node may send, and do nothing else."""
        if plan.external:
            return ()
        stores = HostSet(hosts=tuple(plan.stores.values()))
        metrics = planned.section(MonitoringSection)
        servers = tuple(one.server for one in metrics.regions.values()) if metrics else ()
        return (
            Endpoint(
                "log-store",
                stores,
                (Ports.one(STORE),),
                "management",
                sources=HostSet(hosts=servers),
                scrape=Scrape(),
            ),
            Endpoint("log-intake", stores, (Ports.one(INTAKE),), "management", sources=EVERYONE),
        )

    def secrets(self, plan: LogsSection) -> Mapping[str, SecretKind]:
        """The authority of those who send, or the password of the site's own store."""
        return plan.secrets()

    def given(self, spec: ClusterSpec) -> Mapping[str, str]:
        """The password of the site's own store."""
        declared = spec.monitoring.logs if spec.monitoring else None
        secret = declared.password_secret if declared and declared.kind == "external" else None
        return {"monitoring.logs.password_secret": secret} if secret else {}

    def destinations(self, plan: LogsSection) -> tuple[Destination, ...]:
        """The site's own store, to which every node sends."""
        return (plan.external.destination("logs", EVERYONE),) if plan.external else ()

    def report(self, plan: LogsSection) -> Report:
        """Stores, and what is kept."""
        data = {"logs": plan.model_dump(mode="json", exclude={"version"}, exclude_defaults=True)}
        if plan.external:
            text = f"Logs to {plan.external.url} ({plan.external.protocol}), a store of your own;"
            text += f" a node keeps {plan.queue_mib} MiB that could not be sent"
            return Report(text, data)
        text = f"Logs by {plan.kind} on {', '.join(plan.stores.values())}\n"
        text += f"  kept for {plan.retention_days} days, at most {plan.size_gib:g} GiB a region;"
        text += f" a node keeps {plan.queue_mib} MiB that could not be sent"
        return Report(text, data)


CAPABILITY = Logs()
