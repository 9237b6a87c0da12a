"""The variables of roles `log_store` and `log_shipper`, and what monitoring's Grafana is told of logs."""

from typing import Any

from infra.capabilities.logs.section import AUTHORITY, SECRETS, LogsSection
from infra.capabilities.monitoring.section import AUTHORITY as MONITORING_AUTHORITY
from infra.capabilities.monitoring.section import SECRETS as MONITORING_SECRETS
from infra.capabilities.monitoring.section import MonitoringSection, source_uid
from infra.ground.capability import Role
from infra.ground.contract import Contract
from infra.ground.endpoint import EVERYONE, NOBODY, HostSet
from infra.ground.groups import group_name
from infra.stack import secret_file


def _stores(contract: Contract) -> HostSet:
    section = contract.section(LogsSection)
    return HostSet(hosts=tuple(section.stores.values())) if section else NOBODY


ALL_SECRETS = {**SECRETS, **MONITORING_SECRETS}
ROLES = (
    Role("log_store", _stores, lambda _contract, _host: ALL_SECRETS),
    Role(
        "log_shipper",
        lambda contract: EVERYONE if contract.section(LogsSection) else NOBODY,
        lambda _contract, _host: ALL_SECRETS,
    ),
)


def variables(contract: Contract) -> dict[str, dict[str, dict[str, Any]]]:
    """By region: where its store is, and what it keeps."""
    section = contract.section(LogsSection)
    if section is None:
        return {}
    authority, nodes = (str(secret_file(contract.stack, name)) for name in (MONITORING_AUTHORITY, AUTHORITY))
    store = {
        "log_store_authority": authority,
        "log_store_senders_authority": nodes,
        "log_store_retention_days": section.retention_days,
        "log_store_size_gib": section.size_gib,
    }
    shipper = {
        "log_shipper_authority": nodes,
        "log_shipper_store_authority": authority,
        "log_shipper_queue_mib": section.queue_mib,
    }
    stores, shippers = {}, {}
    for region, host in section.stores.items():
        group = group_name("region", region)
        stores[group] = store
        shippers[group] = {**shipper, "log_shipper_store": str(contract.hosts[host].address)}
    return {"log_store": stores, "log_shipper": shippers}


def host_variables(contract: Contract) -> dict[str, dict[str, Any]]:
    """Where monitoring's Grafana finds the stores."""
    section, monitoring = contract.section(LogsSection), contract.section(MonitoringSection)
    if section is None or monitoring is None or monitoring.grafana is None:
        return {}
    stores = [
        {
            "region": region,
            "uid": source_uid("logs", region),
            "address": str(contract.hosts[host].address),
        }
        for region, host in section.stores.items()
    ]
    return {monitoring.grafana.server: {"grafana_log_stores": stores}}
