"""Role grafana, as far as it can be held without a Grafana: what it is told, and what its templates render.

Real Ansible renders them, with the variables that the inventory hands on. What Grafana takes is said by its
documentation: administration/provisioning (data sources, dashboards) and setup-grafana/configure-grafana.
"""

import configparser
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from infra.capabilities import dashboards, host_variables, roles
from infra.capabilities.monitoring.grafana import dashboard_files
from infra.capabilities.monitoring.section import ADMIN, GRAFANAS_KEY, source_uid
from infra.inventory.roles import role_hosts
from infra.stack import secret_file
from tests.rendered import render
from tests.unit.test_monitoring import contract_of

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "roles" / "grafana"
TEMPLATES = sorted(path.stem for path in (ROLE / "templates").glob("*.j2"))
REGIONS = {"tokyo": (1, 1), "osaka": (1, 1)}
GRAFANA = {"key_file": "grafana.asc", "repository": "https://mirror.example.org/grafana"}
LOGS = {"kind": "victorialogs"}
CONTRACTS = {
    "alone": contract_of({"tokyo": (1, 1)}, [], grafana=GRAFANA),
    "both": contract_of(REGIONS, [("tokyo", "osaka")], grafana=GRAFANA, global_region="osaka", logs=LOGS),
}
SERVER = {"alone": "tokyo-control-0", "both": "osaka-control-0"}
UID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
"""What Grafana takes for one."""
SOURCE_KEYS = {
    *("name", "type", "uid", "access", "orgId", "url", "isDefault", "jsonData", "secureJsonData"),
    *("version", "editable"),
}
PROVIDER_KEYS = {
    *("name", "type", "orgId", "folder", "folderUid", "allowUiUpdates", "disableDeletion"),
    *("updateIntervalSeconds", "options"),
}
BY_FILE = re.compile(r"\$__file\{(/[^}\s]+)\}")
"""How Grafana is told to read a value from a file."""


@dataclass(frozen=True)
class Rendered:
    """What the templates of the role become for one contract."""

    folder: Path
    name: str

    def text(self, template: str) -> str:
        return (self.folder / f"{self.name}-{template}").read_text()

    def yaml(self, template: str) -> Any:
        return YAML(typ="safe", pure=True).load(self.text(template))

    def ini(self) -> configparser.ConfigParser:
        found = configparser.ConfigParser(interpolation=None, strict=True)
        found.read_string(self.text("grafana.ini"))
        return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made, own = tmp_path_factory.mktemp("grafana"), {"grafana_address": "10.60.0.9"}
    told = {name: host_variables(contract)[SERVER[name]] | own for name, contract in CONTRACTS.items()}
    render(made, "grafana", told)
    return made


@pytest.fixture(params=CONTRACTS)
def rendered(request: pytest.FixtureRequest, folder: Path) -> Rendered:
    return Rendered(folder, request.param)


def test_it_stands_beside_the_global_regions_server_where_it_is_declared() -> None:
    for name, contract in CONTRACTS.items():
        assert list(role_hosts(contract, "grafana")) == [SERVER[name]]
        secrets = roles()["grafana"].secrets(contract, SERVER[name])
        assert {ADMIN: "random", GRAFANAS_KEY: "random"}.items() <= secrets.items()
    without = contract_of(REGIONS, [("tokyo", "osaka")])
    assert not list(role_hosts(without, "grafana"))
    assert not any(key.startswith("grafana_") for own in host_variables(without).values() for key in own)


def test_the_server_beside_it_asks_whether_it_answers_and_no_other_does() -> None:
    own = host_variables(CONTRACTS["both"])
    asked = {
        host: [probe["name"] for probe in found["prometheus_local_probes"]]
        for host, found in own.items()
        if "prometheus_local_probes" in found
    }
    assert asked == {"osaka-control-0": ["grafana"], "tokyo-control-0": []}


def test_data_sources_are_what_grafana_takes(rendered: Rendered) -> None:
    found = rendered.yaml("datasources.yaml")
    assert found.keys() == {"apiVersion", "prune", "datasources"}
    assert found["apiVersion"] == 1
    sources = found["datasources"]
    for one in sources:
        assert one.keys() == SOURCE_KEYS
        assert UID.fullmatch(one["uid"])
        assert one["access"] == "proxy"
        assert re.fullmatch(r"https://[0-9.]+:(9090|9428)", one["url"])
    for key in ("name", "uid", "url"):
        assert len({one[key] for one in sources}) == len(sources), key
    (default,) = (one for one in sources if one["isDefault"])
    assert f"{default['name']}-control-0" == SERVER[rendered.name]


def test_every_region_is_asked_by_a_certificate(rendered: Rendered) -> None:
    contract, sources = CONTRACTS[rendered.name], rendered.yaml("datasources.yaml")["datasources"]
    expected = {
        (kind, f"https://{contract.hosts[f'{region}-control-0'].address}:{port}")
        for region in contract.regions
        for kind, port in (("prometheus", 9090), ("victoriametrics-logs-datasource", 9428))
        if kind == "prometheus" or rendered.name == "both"
    }
    assert {(one["type"], one["url"]) for one in sources} == expected
    for one in sources:
        assert one["jsonData"].items() >= {"tlsAuth": True, "tlsAuthWithCACert": True}.items()
        assert one["secureJsonData"].keys() == {"tlsCACert", "tlsClientCert", "tlsClientKey"}
        assert all(BY_FILE.fullmatch(value) for value in one["secureJsonData"].values())


def test_the_dashboards_ask_sources_that_are_there(rendered: Rendered) -> None:
    """By a variable, which is filled with the sources of its type, the default one first."""
    types = {one["type"] for one in rendered.yaml("datasources.yaml")["datasources"]}
    assert dashboard_files().keys() == {f"{one.uid}.json" for one in dashboards()}
    for text in dashboard_files().values():
        one = json.loads(text)
        variables = {
            f"${{{variable['name']}}}": variable["query"]
            for variable in one["templating"]["list"]
            if variable["type"] == "datasource"
        }
        asked = {(panel["datasource"]["uid"], panel["datasource"]["type"]) for panel in one["panels"]}
        assert asked <= variables.items()
        assert set(variables.values()) <= types


def test_the_dashboards_folder_is_what_grafana_takes(rendered: Rendered) -> None:
    found = rendered.yaml("dashboards.yaml")
    assert found["apiVersion"] == 1
    (provider,) = found["providers"]
    assert provider.keys() == PROVIDER_KEYS
    assert (provider["type"], provider["allowUiUpdates"]) == ("file", False)
    assert provider["options"] == {"path": "/etc/grafana/causeway/dashboards"}


def test_the_server_speaks_tls_and_lets_nobody_in_without_a_password(rendered: Rendered) -> None:
    ini = rendered.ini()
    server, security = ini["server"], ini["security"]
    assert (server["protocol"], server["http_addr"], server["http_port"]) == ("https", "10.60.0.9", "3000")
    assert server["min_tls_version"] == "TLS1.2"
    assert not ini["auth.anonymous"].getboolean("enabled")
    assert not ini["users"].getboolean("allow_sign_up")
    assert security.getboolean("cookie_secure")
    assert [BY_FILE.fullmatch(security[key])[1] for key in ("admin_password", "secret_key")] == [  # type: ignore[index] # it matches
        "/etc/grafana/causeway/admin-password",
        "/etc/grafana/causeway/secret-key",
    ]
    assert ini.has_section("plugins") == (rendered.name == "both")


def test_packages_are_vouched_for_by_the_declared_key(rendered: Rendered) -> None:
    lines = rendered.text("causeway-grafana.sources").splitlines()
    fields = dict(line.split(": ", 1) for line in lines if not line.startswith("#"))
    assert fields == {
        "Types": "deb",
        "URIs": GRAFANA["repository"],
        "Suites": "stable",
        "Components": "main",
        "Signed-By": "/etc/apt/keyrings/causeway-grafana.asc",
    }


@pytest.mark.parametrize("template", TEMPLATES)
def test_no_template_reads_a_secret(template: str, rendered: Rendered) -> None:
    """It would be in a file that is recorded, and in a run's artifacts."""
    text = (ROLE / "templates" / f"{template}.j2").read_text()
    assert not re.search(r"lookup|password_file|key_file|authority(?!\.pem)", text)
    assert rendered.text(template)


def test_what_reads_a_secret_is_not_logged_and_on_no_command_line() -> None:
    """Both files, wherever they are read."""
    files = [*(ROLE / "tasks").glob("*.yml"), *(ROLE / "handlers").glob("*.yml")]
    tasks = [task for file in files for task in YAML(typ="safe", pure=True).load(file.read_text())]
    reading = [task for task in tasks if re.search(r"grafana_(admin_password|secret_key)_file", str(task))]
    assert len(reading) == 3
    for task in reading:
        assert task["no_log"] is True, task["name"]
        if command := task.get("ansible.builtin.command"):
            assert "lookup" not in str(command["argv"])
    own = host_variables(CONTRACTS["both"])["osaka-control-0"]
    assert own["grafana_admin_password_file"] == str(secret_file("s", ADMIN))


@given(st.lists(st.from_regex(r"[a-z][a-z0-9-]{0,61}[a-z0-9]", fullmatch=True), unique=True))
def test_every_region_has_a_uid_of_its_own_that_grafana_takes(regions: list[str]) -> None:
    uids = [source_uid(kind, region) for kind in ("metrics", "logs") for region in regions]
    assert all(UID.fullmatch(uid) for uid in uids)
    assert len(set(uids)) == len(uids)
