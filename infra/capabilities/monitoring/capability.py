"""Monitoring: a Prometheus and alerts in every region, and the region that sees them all."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from infra.capabilities.gpu.section import GpuSection
from infra.capabilities.monitoring import sizes
from infra.capabilities.monitoring.rules import RULES
from infra.capabilities.monitoring.section import (
    GRAFANA_SECRETS,
    SECRET_FIELDS,
    SECRETS,
    Bmcs,
    Grafana,
    Job,
    LocalProbe,
    MonitoredRegion,
    MonitoringSection,
    Path,
)
from infra.capabilities.wan.section import WanSection
from infra.declaration import ClusterSpec, MonitoringSpec, RegionSpec
from infra.ground.capability import Capability, Planned, Report, SecretKind
from infra.ground.endpoint import EVERYONE, Destination, Endpoint, HostSet, Ports, Probe, Scrape
from infra.ground.names import natural
from infra.ground.nodes import pool_key
from infra.ground.remote import Remote

NODE_EXPORTER, PROMETHEUS, ALERTMANAGER, GOSSIP, DEAD_MAN, GRAFANA = 9100, 9090, 9093, 9094, 9095, 3000
IPMI_EXPORTER, DCGM_EXPORTER = 9290, 9400
"""Ports, as all these programs are known by."""
HEALTH = Probe("grafana", GRAFANA, "/api/health", refuse=r'"database":\s*"[^o]', loopback=False)
"""200, and `ok` for its database: grafana/grafana, pkg/api/http_server.go, apiHealthHandler."""
MAX_ALERTMANAGERS = 3
"""Of a region: they tell each other what was sent, and two may fail."""
IPMI_INTERVAL_S = 60
"""FreeIPMI reads all of a BMC's records anew at each look, by a slow bus: many seconds on some machines."""
OF_ITS_CLASS = 0.8
"""The part of a class's share of a link that is used for what a cut has left over."""


class Monitoring(Capability[MonitoringSection]):
    """Where `monitoring` is declared."""

    name = "monitoring"
    uses = ("wan", "fabric", "gpu")
    rules = RULES

    def plan(self, spec: ClusterSpec, planned: Planned) -> MonitoringSection | None:
        """Servers on each region's first control nodes."""
        declared = spec.monitoring
        if declared is None:
            return None
        chosen = declared.global_region or spec.rollout()[0][0]
        names = [region.name for region in spec.regions]
        regions = {name: _region(name, names, chosen, planned) for name in names}
        shown = declared.grafana
        return MonitoringSection(
            kind=declared.kind,
            interval_s=declared.interval_s,
            time_days=declared.retention.time_days,
            size_gib=sizes.size_gib(declared, spec.regions),
            global_region=chosen,
            longest_cut_h=declared.longest_cut_h,
            receivers=tuple(one.model_dump(mode="json", exclude_none=True) for one in declared.receivers),
            regions=regions,
            jobs=(),
            probes=(),
            grafana=Grafana(
                server=regions[chosen].server, repository=shown.repository, key_file=shown.key_file
            )
            if shown
            else None,
            bmcs=_bmcs(declared, spec.regions),
            remote_write=Remote.of(declared.remote_write) if declared.remote_write else None,
        )

    def endpoints(self, plan: MonitoringSection, planned: Planned) -> tuple[Endpoint, ...]:
        """All by TLS, to those who show a certificate."""
        servers = HostSet(hosts=tuple(region.server for region in plan.regions.values()))
        alerts = HostSet(hosts=tuple(host for one in plan.regions.values() for host in one.alertmanagers))
        watchers = {region.watched_by for region in plan.regions.values()}
        ears = HostSet(hosts=tuple(one.server for name, one in plan.regions.items() if name in watchers))
        return (
            Endpoint(
                "node-exporter",
                EVERYONE,
                (Ports.one(NODE_EXPORTER),),
                "management",
                sources=servers,
                scrape=Scrape(),
            ),
            # What a cut has left over comes here, and may wait.
            Endpoint(
                "prometheus", servers, (Ports.one(PROMETHEUS),), "scavenger", sources=servers, scrape=Scrape()
            ),
            Endpoint(
                "alertmanager",
                alerts,
                (Ports.one(ALERTMANAGER),),
                "management",
                sources=servers,
                scrape=Scrape(),
            ),
            Endpoint(
                "alertmanager-cluster", alerts, (Ports.one(GOSSIP),), "management", ("tcp", "udp"), alerts
            ),
            Endpoint("dead-man", ears, (Ports.one(DEAD_MAN),), "management", sources=alerts, scrape=Scrape()),
            *_paths(servers),
            *_grafana(plan),
            *_ipmi(plan, servers),
            *_dcgm(planned, servers),
        )

    def finish(self, plan: MonitoringSection, planned: Planned) -> MonitoringSection:
        """Everybody's endpoints that have metrics, and the alerts of those who are declared."""
        jobs, probes = list[Job](), dict[str, LocalProbe]()
        for one in planned.endpoints:
            on = one.on
            if one.scrape:
                jobs.append(
                    Job(
                        name=one.name,
                        port=one.ports[0].first,
                        path=one.scrape.path,
                        labels=dict(one.scrape.labels),
                        samples=one.scrape.samples,
                        interval_s=one.scrape.interval_s,
                        told_by=one.scrape.told_by,
                        everyone=on.everyone,
                        regions=on.regions,
                        pools=on.pools,
                        hosts=on.hosts,
                    )
                )
            if (probe := one.probe) is not None:
                probes[probe.name] = LocalProbe.model_validate({**asdict(probe), "hosts": on.hosts})
        return plan.model_copy(update={"jobs": tuple(jobs), "probes": tuple(probes.values())})

    def secrets(self, plan: MonitoringSection) -> Mapping[str, SecretKind]:
        """The authority, and what receivers name."""
        own = GRAFANA_SECRETS if plan.grafana else {}
        return {**SECRETS, **own, **plan.senders_secrets(), **dict.fromkeys(plan.given_secrets(), "given")}

    def given(self, spec: ClusterSpec) -> Mapping[str, str]:
        """What receivers name, of alerts and of metrics."""
        if spec.monitoring is None:
            return {}
        receivers, far = spec.monitoring.receivers, spec.monitoring.remote_write
        sent = {"monitoring.remote_write.password_secret": far.password_secret or ""} if far else {}
        return {path: name for path, name in sent.items() if name} | {
            f"monitoring.receivers[{index}].{field}": name
            for index, receiver in enumerate(receivers)
            for field in SECRET_FIELDS
            if (name := getattr(receiver, field, None))
        }

    def destinations(self, plan: MonitoringSection) -> tuple[Destination, ...]:
        """The site's own receiver of metrics, to which every region's server sends."""
        servers = HostSet(hosts=tuple(region.server for region in plan.regions.values()))
        return (plan.remote_write.destination("remote-write", servers),) if plan.remote_write else ()

    def report(self, plan: MonitoringSection) -> Report:
        """Servers, and what is kept."""
        places = ", ".join(f"{region.server}" for region in plan.regions.values())
        text = f"Monitoring by {plan.kind} on {places}; {plan.global_region} sees all regions\n"
        text += f"  kept for {plan.time_days} days, at most {plan.size_gib:g} GiB a region; one look in"
        text += f" {plan.interval_s} s"
        watched = (f"{name} by {one.watched_by}" for name, one in plan.regions.items() if one.watched_by)
        if silence := ", ".join(watched):
            text += f"; silence is noticed: {silence}"
        if plan.grafana:
            text += f"\n  Grafana on {plan.grafana.server}, port {GRAFANA}"
        if plan.bmcs:
            where = "every one of" if plan.bmcs.required else "where there is one in"
            text += f"\n  BMCs by IPMI, {where} {', '.join(plan.bmcs.pools)}"
        if plan.remote_write:
            text += f"\n  what regions record goes to {plan.remote_write.url} as well, a receiver of your own"
        shown = plan.model_dump(mode="json", exclude={"version", "jobs", "probes"})
        return Report(text, {"monitoring": shown})


def _paths(servers: HostSet) -> Iterator[Endpoint]:
    """By pings between the servers it is known which region is in reach."""
    if len(servers.hosts) > 1:
        yield Endpoint("path-probe", servers, (), "management", ("icmp",), servers)


def _grafana(plan: MonitoringSection) -> Iterator[Endpoint]:
    """For people, who have a password and come from anywhere."""
    if plan.grafana:
        on = HostSet(hosts=(plan.grafana.server,))
        yield Endpoint("grafana", on, (Ports.one(GRAFANA),), "management", probe=HEALTH)


def _bmcs(declared: MonitoringSpec, regions: tuple[RegionSpec, ...]) -> Bmcs | None:
    """Pools of machines somebody has: what is made here is no machine, and has none."""
    pools = tuple(
        pool_key(region.name, pool.name)
        for region in regions
        for pool in region.pools
        if not region.provider.makes_nodes and "ipmi_exporter" not in pool.roles.exclude
    )
    if declared.bmc == "none" or not pools:
        return None
    return Bmcs(pools=pools, required=declared.bmc == "required")


def _ipmi(plan: MonitoringSection, servers: HostSet) -> Iterator[Endpoint]:
    if plan.bmcs:
        yield Endpoint(
            "ipmi-exporter",
            HostSet(pools=plan.bmcs.pools),
            (Ports.one(IPMI_EXPORTER),),
            "management",
            sources=servers,
            scrape=Scrape(interval_s=IPMI_INTERVAL_S, told_by="causeway_bmc_present"),
        )


def _dcgm(planned: Planned, servers: HostSet) -> Iterator[Endpoint]:
    """Where GPUs are that somebody declared to be asked by DCGM's exporter."""
    gpus = planned.section(GpuSection)
    if gpus and gpus.exporters:
        ports, on = (Ports.one(DCGM_EXPORTER),), HostSet(pools=gpus.exporters)
        yield Endpoint("dcgm-exporter", on, ports, "management", sources=servers, scrape=Scrape())


def _region(name: str, names: list[str], chosen: str, planned: Planned) -> MonitoredRegion:
    control = [node.name for node in planned.region_nodes(name) if node.role == "control"]
    wan = planned.section(WanSection)
    routes = [route for other in names if wan and (route := wan.route(name, other))]
    there = {route.region for route in routes}
    others = sorted(there, key=natural)
    watcher = chosen if name != chosen else next(iter(others), None)
    return MonitoredRegion(
        server=control[0],
        alertmanagers=tuple(control[: MAX_ALERTMANAGERS if len(control) >= MAX_ALERTMANAGERS else 1]),
        watched_by=watcher,
        paths=tuple(
            Path(
                region=route.region,
                rtt_ms=route.rtt_ms,
                loss_ratio=round(1 - (1 - route.loss_pct / 100) ** 2, 9),
            )
            for route in routes
        ),
        write_bytes_s=None if name == chosen else _write_bytes_s(name, chosen, wan),
    )


def _write_bytes_s(name: str, chosen: str, wan: WanSection | None) -> int:
    """Within scavenger's share of the narrowest link on the way, by the backup's too."""
    route = wan.route(name, chosen) if wan else None
    if wan is None or route is None:
        return 1
    ways = [wan.links[link] for link in (*route.path, *route.backup_path)]
    share = min(link.bandwidth_mbps * link.classes.scavenger_pct / 100 for link in ways)
    return max(1, int(share * OF_ITS_CLASS * 1e6 / 8))


CAPABILITY = Monitoring()
