"""The variables of roles `node_exporter`, `ipmi_exporter`, `dcgm_exporter`, `prometheus`, `alertmanager` and
`grafana`."""

from collections import Counter, defaultdict
from typing import Any

from infra import capabilities
from infra.capabilities.fabric.section import FabricSection
from infra.capabilities.gpu.section import GpuSection
from infra.capabilities.monitoring.section import (
    ADMIN,
    AUTHORITY,
    GRAFANA_SECRETS,
    GRAFANAS_KEY,
    SECRET_FIELDS,
    SECRETS,
    Bmcs,
    Grafana,
    Job,
    MonitoringSection,
    source_uid,
)
from infra.files import given_path
from infra.ground.capability import Role, SecretKind, always, for_itself, part_of
from infra.ground.contract import Contract
from infra.ground.endpoint import EVERYONE, NOBODY, HostSet
from infra.ground.groups import group_name
from infra.ground.remote import remote_variables
from infra.ground.secrets import GIVEN
from infra.stack import secret_file

OUT_OF_ORDER_MARGIN_H = 2
"""What a block of Prometheus' spans: beyond the longest cut, for what was on its way when it began."""


def _everyone(contract: Contract) -> HostSet:
    return EVERYONE if contract.section(MonitoringSection) else NOBODY


def _machines(contract: Contract) -> HostSet:
    section = contract.section(MonitoringSection)
    return HostSet(pools=section.bmcs.pools) if section and section.bmcs else NOBODY


def _dcgm_pools(contract: Contract) -> tuple[str, ...]:
    """Where DCGM's exporter is asked: without monitoring nobody asks."""
    gpus = contract.section(GpuSection)
    return gpus.exporters if gpus and contract.section(MonitoringSection) else ()


def _servers(contract: Contract) -> HostSet:
    section = contract.section(MonitoringSection)
    return HostSet(hosts=tuple(one.server for one in section.regions.values())) if section else NOBODY


def _alertmanagers(contract: Contract) -> HostSet:
    section = contract.section(MonitoringSection)
    if section is None:
        return NOBODY
    return HostSet(hosts=tuple(host for one in section.regions.values() for host in one.alertmanagers))


def _grafana_host(contract: Contract) -> HostSet:
    section = contract.section(MonitoringSection)
    return HostSet(hosts=(section.grafana.server,)) if section and section.grafana else NOBODY


def _told(contract: Contract, _host: str) -> dict[str, SecretKind]:
    section = contract.need(MonitoringSection)
    return {**SECRETS, **dict.fromkeys(section.given_secrets(), "given")}


def _servers_secrets(contract: Contract, _host: str) -> dict[str, SecretKind]:
    return {**SECRETS, **contract.need(MonitoringSection).senders_secrets()}


def _receivers_authority(contract: Contract) -> list[str | None]:
    section = contract.section(MonitoringSection)
    return [section.remote_write.ca_file] if section and section.remote_write else []


def _grafana_key(contract: Contract) -> list[str | None]:
    section = contract.section(MonitoringSection)
    return [section.grafana.key_file] if section and section.grafana else []


ROLES = (
    Role(
        "node_exporter",
        _everyone,
        lambda _contract, _host: SECRETS,
        services=always("prometheus-node-exporter.service"),
        needed=part_of("monitoring"),
    ),
    Role(
        "ipmi_exporter",
        _machines,
        lambda _contract, _host: SECRETS,
        services=always("prometheus-ipmi-exporter.service"),
        needed=for_itself,
    ),
    Role(
        "dcgm_exporter",
        lambda contract: HostSet(pools=_dcgm_pools(contract)),
        lambda _contract, _host: SECRETS,
        services=always("nvidia-dcgm-exporter.service"),
        needed=part_of("gpu_stack.dcgm_exporter"),
    ),
    Role(
        "alertmanager",
        _alertmanagers,
        _told,
        services=always("prometheus-alertmanager.service"),
        needed=part_of("monitoring"),
    ),
    Role(
        "prometheus",
        _servers,
        _servers_secrets,
        files=_receivers_authority,
        services=always(
            "prometheus.service",
            "prometheus-blackbox-exporter.service",
            "victoria-metrics.service",
            "vmagent.service",
        ),
        needed=part_of("monitoring"),
    ),
    Role(
        "grafana",
        _grafana_host,
        lambda _contract, _host: {**SECRETS, **GRAFANA_SECRETS},
        files=_grafana_key,
        services=always("grafana-server.service"),
        leaves="its users, and the dashboards and settings that somebody made in it",
        needed=part_of("monitoring"),
    ),
)


def variables(contract: Contract) -> dict[str, dict[str, dict[str, Any]]]:
    """By region where the authority is; by pool whether there are GPUs, and which ports are the fabric's."""
    section = contract.section(MonitoringSection)
    if section is None:
        return {}
    authority = str(secret_file(contract.stack, AUTHORITY))
    groups: dict[str, dict[str, Any]] = {
        group_name("region", name): {"node_exporter_authority": authority} for name in section.regions
    }
    ports: dict[str, set[str]] = defaultdict(set)
    fabric = contract.section(FabricSection)
    for host, nics in fabric.hosts.items() if fabric else ():
        ports[contract.hosts[host].pool].update(nic.name for nic in nics)
    for key, pool in contract.pools.items():
        own: dict[str, Any] = {"node_exporter_xids": True} if pool.gpus else {}
        own |= {"node_exporter_fabric_interfaces": sorted(ports[key])} if ports[key] else {}
        groups |= {group_name("pool", key): own} if own else {}
    found = {"node_exporter": groups} | _ipmi_exporter(section.bmcs, contract)
    told = {"dcgm_exporter_authority": authority}
    exporters = {group_name("pool", key): told for key in _dcgm_pools(contract)}
    return found | ({"dcgm_exporter": exporters} if exporters else {})


def _ipmi_exporter(bmcs: Bmcs | None, contract: Contract) -> dict[str, dict[str, dict[str, Any]]]:
    if bmcs is None:
        return {}
    told = {
        "ipmi_exporter_authority": str(secret_file(contract.stack, AUTHORITY)),
        **({"ipmi_exporter_bmc": "required"} if bmcs.required else {}),
    }
    return {"ipmi_exporter": {group_name("pool", key): told for key in bmcs.pools}}


def host_variables(contract: Contract) -> dict[str, dict[str, Any]]:
    """Servers alone know whom they ask: a node more changes nothing on the others."""
    section = contract.section(MonitoringSection)
    if section is None:
        return {}
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for name, region in section.regions.items():
        found[region.server] |= _prometheus(name, contract, section)
        for host in region.alertmanagers:
            found[host] |= _alertmanager(name, contract, section)
    if section.grafana:
        found[section.grafana.server] |= _grafana(section.grafana, contract, section)
    return dict(found)


def _prometheus(name: str, contract: Contract, section: MonitoringSection) -> dict[str, Any]:
    region, address = section.regions[name], contract.addresses()
    is_global = name == section.global_region
    return {
        "prometheus_authority": str(secret_file(contract.stack, AUTHORITY)),
        "prometheus_cluster": contract.cluster,
        "prometheus_stack": contract.stack,
        "prometheus_region": name,
        "prometheus_interval_s": section.interval_s,
        "prometheus_retention_days": section.time_days,
        "prometheus_retention_gib": section.size_gib,
        "prometheus_jobs": [_job(job, name, contract) for job in section.jobs],
        "prometheus_local_probes": [
            probe.model_dump(exclude={"hosts"})
            for probe in section.probes
            if not probe.hosts or region.server in probe.hosts
        ],
        "prometheus_peers": [
            {"region": path.region, "host": server, "address": address[server]}
            for path in region.paths
            for server in [section.regions[path.region].server]
        ],
        "prometheus_alertmanagers": [address[host] for host in region.alertmanagers],
        "prometheus_rules": _with_alerts(contract),
        "prometheus_declared": _declared(name, contract, section),
        "prometheus_watched_regions": list(section.watches(name)),
        "prometheus_sends_to": "" if is_global else address[section.regions[section.global_region].server],
        "prometheus_send_bytes_s": region.write_bytes_s or 0,
        "prometheus_receives": is_global and len(section.regions) > 1,
        "prometheus_out_of_order_h": section.longest_cut_h + OUT_OF_ORDER_MARGIN_H if is_global else 0,
    } | (
        remote_variables("prometheus_remote_write", section.remote_write, contract.stack)
        if section.remote_write
        else {}
    )


def _job(job: Job, region: str, contract: Contract) -> dict[str, Any]:
    """Its targets in one region, pool by pool."""
    pools: dict[str, list[dict[str, str]]] = defaultdict(list)
    for host in contract.members(job.on):
        own = contract.hosts[host]
        if contract.pools[own.pool].region == region:
            pools[own.pool].append({"host": host, "address": str(own.address)})
    return {
        "name": job.name,
        "port": job.port,
        "path": job.path,
        **({"labels": job.labels} if job.labels else {}),
        **({"samples": job.samples} if job.samples else {}),
        **({"interval_s": job.interval_s} if job.interval_s else {}),
        **({"told_by": job.told_by} if job.told_by else {}),
        "pools": [
            {"name": contract.pools[key].name, "role": contract.pools[key].role, "targets": targets}
            for key, targets in pools.items()
        ],
    }


def _declared(name: str, contract: Contract, section: MonitoringSection) -> list[dict[str, Any]]:
    """What alerts compare with, as series."""
    found: list[dict[str, Any]] = []

    def add(metric: str, value: float, **labels: str) -> None:
        found.append(
            {"name": f"causeway_declared_{metric}", "labels": {"region": name, **labels}, "value": value}
        )

    for path in section.regions[name].paths:
        add("path_rtt_seconds", round(path.rtt_ms / 1000, 6), target_region=path.region)
        add("path_loss_ratio", path.loss_ratio, target_region=path.region)
    count = Counter(host.pool for host in contract.hosts.values())
    for key, pool in contract.pools.items():
        if pool.region == name:
            add("nodes", count[key], pool=pool.name, node_role=pool.role)
            if pool.gpus:
                add("node_gpus", pool.gpus, pool=pool.name)
    for part in contract.sections.values():
        for one in part.declared(contract, name):
            add(one.name, one.value, **one.labels)
    return found


def _with_alerts(contract: Contract) -> list[str]:
    """The capabilities that are there and bring alerts; those without a section are everywhere."""
    return [
        name
        for name in capabilities.with_watch()
        if name in contract.sections or not capabilities.has_section(name)
    ]


def _alertmanager(name: str, contract: Contract, section: MonitoringSection) -> dict[str, Any]:
    region, address = section.regions[name], contract.addresses()
    watcher = section.regions[region.watched_by].server if region.watched_by else None
    return {
        "alertmanager_authority": str(secret_file(contract.stack, AUTHORITY)),
        "alertmanager_members": [address[host] for host in region.alertmanagers],
        "alertmanager_dead_man": address[watcher] if watcher else "",
        "alertmanager_receivers": [
            {key: GIVEN + value if key in SECRET_FIELDS else value for key, value in one.items()}
            for one in section.receivers
        ],
        "alertmanager_secrets_dir": str(secret_file(contract.stack, AUTHORITY).parent),
    }


def _grafana(grafana: Grafana, contract: Contract, section: MonitoringSection) -> dict[str, Any]:
    address = contract.addresses()
    return {
        "grafana_authority": str(secret_file(contract.stack, AUTHORITY)),
        "grafana_admin_password_file": str(secret_file(contract.stack, ADMIN)),
        "grafana_secret_key_file": str(secret_file(contract.stack, GRAFANAS_KEY)),
        "grafana_repository": grafana.repository,
        "grafana_repository_key": given_path(grafana.key_file),
        "grafana_interval_s": section.interval_s,
        "grafana_servers": [
            {"region": name, "uid": source_uid("metrics", name), "address": address[region.server]}
            for name, region in section.regions.items()
        ],
        "grafana_default_region": section.global_region,
    }
