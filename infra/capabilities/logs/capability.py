"""Logs: a store in every region, which takes the journals of its nodes and is cut off with nobody else."""

from collections.abc import Mapping

from infra.capabilities.logs.section import SECRETS, LogsSection
from infra.capabilities.monitoring.section import MonitoringSection
from infra.declaration import ClusterSpec
from infra.ground.capability import Capability, Planned, Report, SecretKind
from infra.ground.endpoint import EVERYONE, Endpoint, HostSet, Ports, Scrape

STORE, INTAKE = 9428, 9429
"""Ports: VictoriaLogs' own, and the one beside it that only takes lines."""


class Logs(Capability[LogsSection]):
    """Where `monitoring.logs` is declared."""

    name = "logs"
    needs = ("monitoring",)

    def plan(self, spec: ClusterSpec, planned: Planned) -> LogsSection | None:
        """On each region's second control node, for the first has the metrics; or on the only one."""
        declared = spec.monitoring.logs if spec.monitoring else None
        if declared is None:
            return None
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
        """The authority of those who send."""
        return SECRETS

    def report(self, plan: LogsSection) -> Report:
        """Stores, and what is kept."""
        text = f"Logs by {plan.kind} on {', '.join(plan.stores.values())}\n"
        text += f"  kept for {plan.retention_days} days, at most {plan.size_gib:g} GiB a region;"
        text += f" a node keeps {plan.queue_mib} MiB that could not be sent"
        return Report(text, {"logs": plan.model_dump(mode="json", exclude={"version"})})


CAPABILITY = Logs()
