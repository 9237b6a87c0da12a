"""The variables of roles `log_store` and `log_shipper`, and what monitoring's Grafana is told of logs."""

from collections.abc import Mapping
from typing import Any

from infra.capabilities.logs.section import AUTHORITY, SECRETS, External, LogsSection
from infra.capabilities.monitoring.section import AUTHORITY as MONITORING_AUTHORITY
from infra.capabilities.monitoring.section import SECRETS as MONITORING_SECRETS
from infra.capabilities.monitoring.section import MonitoringSection, source_uid
from infra.ground.capability import Role, SecretKind, always, part_of
from infra.ground.contract import Contract
from infra.ground.endpoint import EVERYONE, NOBODY, HostSet
from infra.ground.groups import group_name
from infra.ground.remote import remote_variables
from infra.stack import secret_file


def _stores(contract: Contract) -> HostSet:
    section = contract.section(LogsSection)
    return HostSet(hosts=tuple(section.stores.values())) if section else NOBODY


def _shippers_secrets(contract: Contract, _host: str) -> Mapping[str, SecretKind]:
    section = contract.need(LogsSection)
    return section.secrets() if section.external else ALL_SECRETS


def _authority(contract: Contract) -> list[str | None]:
    section = contract.section(LogsSection)
    return [section.external.ca_file] if section and section.external else []


ALL_SECRETS = {**SECRETS, **MONITORING_SECRETS}
ROLES = (
    Role(
        "log_store",
        _stores,
        lambda _contract, _host: ALL_SECRETS,
        services=always("victoria-logs.service"),
        needed=part_of("monitoring.logs"),
    ),
    Role(
        "log_shipper",
        lambda contract: EVERYONE if contract.section(LogsSection) else NOBODY,
        _shippers_secrets,
        files=_authority,
        needed=part_of("monitoring.logs"),
    ),
)


def variables(contract: Contract) -> dict[str, dict[str, dict[str, Any]]]:
    """By region: where its store is, and what it keeps."""
    section = contract.section(LogsSection)
    if section is None:
        return {}
    if section.external is not None:
        told = {"log_shipper_queue_mib": section.queue_mib} | _external(section.external, contract)
        return {
            "log_shipper": {
                group_name("region", region): told | {"log_shipper_region": region}
                for region in contract.regions
            }
        }
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


def _external(external: External, contract: Contract) -> dict[str, Any]:
    return {
        "log_shipper_protocol": external.protocol,
        "log_shipper_cluster": contract.cluster,
        **remote_variables("log_shipper", external, contract.stack),
    }


def host_variables(contract: Contract) -> dict[str, dict[str, Any]]:
    """Where monitoring's Grafana finds the stores."""
    section, monitoring = contract.section(LogsSection), contract.section(MonitoringSection)
    if section is None or section.external or monitoring is None or monitoring.grafana is None:
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
