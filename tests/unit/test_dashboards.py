"""`causeway dashboards`: files that Grafana takes, the same for the same dashboards."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra import cli
from infra.capabilities import dashboards
from infra.errors import ExitCode
from infra.ground.dashboard import Dashboard

each = pytest.mark.parametrize("dashboard", dashboards(), ids=lambda one: one.uid)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("dashboards") / "new" / "folder"
    assert cli.main(["dashboards", str(made), "--path", "/srv/boards"]) == ExitCode.OK
    return made


def read(folder: Path, dashboard: Dashboard) -> Any:
    return json.loads((folder / f"{dashboard.uid}.json").read_text())


def test_there_is_a_file_for_each_and_one_that_names_the_folder(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    assert names == {f"{one.uid}.json" for one in dashboards()} | {"causeway.yaml"}
    (provider,) = json.loads((folder / "causeway.yaml").read_text())["providers"]
    assert provider["options"] == {"path": "/srv/boards"}


def test_a_second_run_writes_the_same(folder: Path, tmp_path: Path) -> None:
    cli.main(["dashboards", str(tmp_path), "--path", "/srv/boards"])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }


@each
def test_every_panel_asks_what_was_written_of_the_source_that_is_chosen(
    folder: Path, dashboard: Dashboard
) -> None:
    written = read(folder, dashboard)
    assert (written["uid"], written["title"]) == (dashboard.uid, dashboard.title)
    assert [panel["title"] for panel in written["panels"]] == [one.title for one in dashboard.panels]
    for panel, one in zip(written["panels"], dashboard.panels, strict=True):
        assert [target["expr"] for target in panel["targets"]] == [query.expr for query in one.queries]
        assert len({target["refId"] for target in panel["targets"]}) == len(one.queries)
        for source in (panel["datasource"], *(target["datasource"] for target in panel["targets"])):
            assert source == {"type": "prometheus", "uid": "${datasource}"}
    assert len({panel["id"] for panel in written["panels"]}) == len(dashboard.panels)


@each
def test_what_can_be_chosen_is_what_the_page_is_about(folder: Path, dashboard: Dashboard) -> None:
    wanted = {
        "cluster": ["datasource"],
        "region": ["datasource", "region"],
        "node": ["datasource", "region", "node"],
    }
    variables = read(folder, dashboard)["templating"]["list"]
    assert [one["name"] for one in variables] == wanted[dashboard.about]


@each
def test_a_tables_columns_have_their_names(folder: Path, dashboard: Dashboard) -> None:
    """By the names that Grafana gives to the values of a table's queries."""
    for panel, one in zip(read(folder, dashboard)["panels"], dashboard.panels, strict=True):
        if one.kind == "table":
            named = panel["transformations"][-1]["options"]["renameByName"]
            several = [f"Value #{target['refId']}" for target in panel["targets"]]
            names = several if len(several) > 1 else ["Value"]
            assert named == dict(zip(names, (query.legend for query in one.queries), strict=True))


def test_a_panel_says_what_it_needs(folder: Path) -> None:
    needing = [
        (dashboard, number, query)
        for dashboard in dashboards()
        for number, panel in enumerate(dashboard.panels)
        for query in panel.queries
        if query.needs
    ]
    assert needing
    for dashboard, number, query in needing:
        assert query.needs in read(folder, dashboard)["panels"][number]["description"]


def test_where_nothing_can_be_written_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert cli.main(["dashboards", str(tmp_path / "file")]) == ExitCode.FAILED
    assert f"{tmp_path}/file/" in capsys.readouterr().err


def test_no_other_command_waits_for_grafanas_packages() -> None:
    """Completion imports every command."""
    program = (
        "import sys; from infra import cli; sys.stdout = None\ntry: cli.main(['--completion', 'bash'])\n"
    )
    program += "except SystemExit: pass\nsys.exit('grafana_foundation_sdk' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
