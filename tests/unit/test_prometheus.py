"""What role prometheus' templates make of a declaration."""

from ipaddress import ip_address
from typing import Any

import pytest
from ruamel.yaml import YAML

from infra.capabilities import host_variables
from infra.capabilities.monitoring.section import MonitoringSection
from tests.rendered import render
from tests.unit.test_monitoring import contract_of

CONTRACT = contract_of(
    {"tokyo": (3, 2), "osaka": (1, 1), "lima": (4, 1)},
    [("tokyo", "osaka"), ("osaka", "lima")],
    logs={"kind": "victorialogs"},
    grafana={"key_file": "grafana.asc"},
)
REGIONS = CONTRACT.need(MonitoringSection).regions


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Region → the configuration of its server."""
    folder, own = tmp_path_factory.mktemp("prometheus"), host_variables(CONTRACT)
    address = CONTRACT.addresses()
    told = {one.server: own[one.server] | {"ansible_host": address[one.server]} for one in REGIONS.values()}
    render(folder, "prometheus", told, only="prometheus.yml")
    load = YAML(typ="safe", pure=True).load
    return {name: load(folder / f"{one.server}-prometheus.yml") for name, one in REGIONS.items()}


@pytest.mark.parametrize("region", REGIONS)
def test_every_target_is_a_declared_host_by_its_name(configured: dict[str, Any], region: str) -> None:
    """Alerts name it in a command, and inhibition holds a host's alerts together by it."""
    for job in configured[region]["scrape_configs"]:
        for group in job["static_configs"] or ():
            labels = group["labels"]
            host = CONTRACT.hosts[labels["instance"]]
            (address,) = (target.removeprefix("https://").partition(":")[0] for target in group["targets"])
            assert ip_address(address) in (host.address, ip_address("127.0.0.1")), (job["job_name"], labels)
            assert labels["region"] == region


@pytest.mark.parametrize("region", REGIONS)
def test_no_two_targets_have_the_same_labels(configured: dict[str, Any], region: str) -> None:
    """Their samples would be one series, of which Prometheus refuses every second."""
    seen = [
        (
            job["job_name"] if not job["job_name"].startswith("probe-") else "probe",
            *sorted(group["labels"].items()),
        )
        for job in configured[region]["scrape_configs"]
        for group in job["static_configs"] or ()
    ]
    assert sorted(set(seen)) == sorted(seen)
