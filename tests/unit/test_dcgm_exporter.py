"""DCGM's exporter, as far as it can be held without one: where it stands, what it is told, what is read.

Its options, its unit and the form of its file of fields are those of NVIDIA/dcgm-exporter at d5e5f51
(pkg/cmd/app.go, packaging/config-files/systemd, internal/pkg/counters).
"""

import csv
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from infra.capabilities import alerts_of, roles
from infra.capabilities.gpu.handoff import variables as stacks
from infra.capabilities.gpu.known import DCGM_OF_EXPORTER
from infra.capabilities.gpu.rules import ExporterIsAsked, ExporterMatches
from infra.capabilities.monitoring.handoff import variables
from infra.capabilities.monitoring.section import AUTHORITY, MonitoringSection
from infra.declaration import ClusterSpec
from infra.inventory.roles import role_hosts
from tests.unit.contracts import contract_of

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "roles" / "dcgm_exporter"
OPTIONS = {"--address", "--collectors", "--collect-interval", "--remote-hostengine-info", "--web-config-file"}
FIELD = re.compile(r"DCGM_FI_DEV_\w+")
PLAY = """
- hosts: all
  gather_facts: false
  connection: local
  strategy: linear
  vars_files:
    - "{{ roles }}/metrics_service/defaults/main.yml"
    - "{{ roles }}/metrics_service/vars/main.yml"
    - "{{ roles }}/dcgm_exporter/defaults/main.yml"
    - "{{ roles }}/dcgm_exporter/vars/main.yml"
    - "{{ roles }}/cuda_base/defaults/main.yml"
    - "{{ roles }}/cuda_base/vars/main.yml"
  vars:
    ansible_host: 10.60.0.9
    ansible_facts: {virtualization_tech_guest: []}
    cuda_base_dcgm_exporter: true
    item: nvidia-dcgm-exporter.service
  tasks:
    - ansible.builtin.template:
        src: "{{ roles }}/{{ one }}.j2"
        dest: "{{ playbook_dir }}/{{ one | basename }}"
        mode: "0600"
      vars: "{{ told }}"
      loop:
        - metrics_service/templates/default
        - metrics_service/templates/unit.conf
        - dcgm_exporter/templates/fields.csv
        - cuda_base/templates/waits.conf
      loop_control:
        loop_var: one
"""


def told() -> dict[str, Any]:
    """What the role tells the helper."""
    tasks = YAML(typ="safe").load(ROLE / "tasks" / "main.yml")
    return next(dict(task["vars"]) for task in tasks if task["name"] == "Set the service up")


@pytest.fixture(name="rendered", scope="module")
def _rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exporter")
    (folder / "play.yml").write_text(PLAY.replace('"{{ told }}"', json.dumps(told())))
    done = subprocess.run(
        ["ansible-playbook", "-i", "hall-train-0,", "-e", f"roles={ROOT / 'roles'}", folder / "play.yml"],
        env=os.environ
        | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_INVENTORY_ENABLED": "host_list"},
        cwd=ROOT,
        text=True, check=False, timeout=300, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return folder


def test_it_stands_where_gpus_are_and_is_asked_there() -> None:
    contract = contract_of()
    assert set(role_hosts(contract, "dcgm_exporter")) == {"hall-train-0"}
    assert variables(contract)["dcgm_exporter"].keys() == {"pool_hall_train"}
    assert AUTHORITY in roles()["dcgm_exporter"].secrets(contract, "hall-train-0")
    (job,) = (one for one in contract.need(MonitoringSection).jobs if one.name == "dcgm-exporter")
    assert (job.port, job.pools, job.told_by) == (9400, ("hall-train",), None)
    defaults = YAML(typ="safe").load(ROLE / "defaults" / "main.yml")
    assert defaults["dcgm_exporter_port"] == job.port


def test_simulated_gpus_have_its_package_and_are_not_asked() -> None:
    def both(data: dict[str, Any]) -> None:
        gpu = next(pool for pool in data["regions"][0]["pools"] if pool["role"] == "gpu")
        gpu["gpu_stack"] = gpu["gpu_stack"] | {"dcgm": "4.6", "dcgm_exporter": "4.8.3"}

    contract = contract_of(both)
    assert set(role_hosts(contract, "dcgm_exporter")) == {"hall-train-0"}
    found = stacks(contract)["cuda_base"]["pool_tokyo_gpu"]
    assert found["cuda_base_packages"]["datacenter-gpu-manager-exporter"] == "4.8.3"
    assert found["cuda_base_dcgm_exporter"]


def problems(**stack: str | None) -> list[tuple[str, str, str | None]]:
    """Rule, severity and suggestion of what is wrong with the exporter of a stack."""
    own = {"driver": "580.95.05", "cuda": "13.0", "dcgm": "4.6", "dcgm_exporter": "4.8.3"} | stack
    pool = {"name": "gpu", "role": "gpu", "count": 1, "gpus": 8, "gpu_model": "h100-sxm"}
    pool["gpu_stack"] = {name: value for name, value in own.items() if value is not None}
    region = {"name": "tokyo", "cidr": "10.81.0.0/16", "pools": [pool]}
    data = {"name": "pacific", "regions": [region], "monitoring": {"kind": "prometheus"}}
    spec = ClusterSpec.model_validate(data)
    rules = (ExporterIsAsked(), ExporterMatches())
    return [(rule.id, rule.severity, one.suggestion) for rule in rules for one in rule.check(spec)]


@pytest.mark.parametrize(("exporter", "dcgm"), DCGM_OF_EXPORTER.items())
def test_each_goes_with_the_dcgm_it_is_made_with(exporter: Any, dcgm: Any) -> None:
    words = {"dcgm_exporter": ".".join(map(str, exporter))}
    for digits in (2, 3):
        assert problems(dcgm=".".join(map(str, dcgm[:digits])), **words) == []
    ((rule, severity, suggestion),) = problems(dcgm="4.0.0", **words)
    assert (rule, severity, suggestion) == ("gpu-stack-exporter-pair", "warning", None)


def test_another_dcgm_is_told_with_its_own_exporter() -> None:
    assert problems(dcgm="4.5.3") == [("gpu-stack-exporter-pair", "warning", "4.8.2")]
    assert problems(dcgm="4.4") == [("gpu-stack-exporter-pair", "warning", "4.7.1")]


def test_what_nobody_reads_is_refused() -> None:
    assert problems(dcgm_exporter="4.9.0") == [("gpu-stack-exporter", "error", "4.8.4")]
    assert problems(dcgm=None) == [("gpu-stack-exporter", "error", None)]


def test_its_options_are_the_exporters_and_ask_for_certificates(rendered: Path) -> None:
    words = re.fullmatch(r'ARGS="(.*)"', (rendered / "default").read_text().splitlines()[-1])
    assert words is not None
    options = dict(word.split("=", 1) for word in words[1].split())
    assert options.keys() == OPTIONS
    assert options["--address"] == "10.60.0.9:9400"
    assert options["--web-config-file"] == "/etc/prometheus/nvidia-dcgm-exporter.web.yml"
    assert options["--remote-hostengine-info"] == "127.0.0.1:5555"


def test_the_packages_own_command_line_is_taken_back(rendered: Path) -> None:
    lines = (rendered / "unit.conf").read_text().splitlines()
    starts = [line for line in lines if line.startswith("ExecStart")]
    assert starts == ["ExecStart=", "ExecStart=/usr/bin/dcgm-exporter $ARGS"]
    assert lines.index("[Service]") < lines.index("ExecStart=")
    assert "User=prometheus" in lines


def test_it_does_not_start_before_it_asks_for_certificates(rendered: Path) -> None:
    lines = (rendered / "waits.conf").read_text().splitlines()
    assert "ConditionPathExists=/etc/prometheus/nvidia-dcgm-exporter.web.yml" in lines
    assert "ConditionPathExistsGlob=/proc/driver/nvidia/gpus/*" in lines


def test_its_file_of_fields_has_what_rules_read_and_no_more(rendered: Path) -> None:
    lines = (rendered / "fields.csv").read_text().splitlines()
    rows = list(csv.reader(line for line in lines if not line.startswith("#")))
    assert {len(row) for row in rows} == {3}
    assert {row[1].strip() for row in rows} == {"gauge", "counter"}
    names = {row[0].strip() for row in rows}
    read = {name for room in ("gpu", "energy") for query in _queries(room) for name in _named(query)}
    assert names <= read
    for room in ("gpu", "energy"):
        for query in _queries(room):
            assert not _named(query) or names & _named(query), f"nothing of it is exported: {query}"


def _queries(room: str) -> list[str]:
    groups = YAML(typ="safe").load(alerts_of(room))["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"] if "DCGM" in rule["expr"]]


def _named(query: str) -> set[str]:
    """The fields that a query reads, those of a regular expression spelled out."""
    found = set(FIELD.findall(query))
    for form in re.findall(r'__name__=~"(DCGM[^"]+)"', query):
        found |= {name for name in SPELLED if re.fullmatch(form, name)}
    return found


SPELLED = {
    *("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"),
    *("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS"),
}
