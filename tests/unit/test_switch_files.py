"""The switches' files as a resource: written, looked at, mended and taken away with their switch."""

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format, struct_pb2  # type: ignore[import-untyped]  # its types are apart

from infra.capabilities.fabric import resources as switches
from infra.capabilities.fabric.resources import SwitchFilesLifecycle, switch_inputs
from infra.capabilities.fabric.sonic import switch_files
from infra.capabilities.fabric.topology import plan_fabric
from infra.declaration import RegionSpec
from tests.unit.fabrics import TINY, cluster


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(switches, "ROOT", tmp_path)
    return tmp_path / ".causeway" / "stacks" / "unit" / "switches"


def region(nodes: int) -> RegionSpec:
    return cluster(nodes, **TINY).regions[0]


def kept(properties: dict[str, Any]) -> dict[str, Any]:
    """As Pulumi hands properties back: every number is a float."""
    struct = struct_pb2.Struct()
    json_format.ParseDict(properties, struct)
    plain: dict[str, Any] = json_format.MessageToDict(struct)
    return plain


def written(folder: Path) -> dict[str, Any]:
    return {path.parent.name: json.loads(path.read_text()) for path in folder.glob("*/config_db.json")}


def test_every_switch_has_its_file_and_a_second_look_finds_nothing(folder: Path) -> None:
    inputs = kept(switch_inputs("unit", 4, region(5)))
    made = SwitchFilesLifecycle().ensure(inputs, {})
    plan = plan_fabric(4, region(5))
    assert plan is not None
    assert {f"{name}/config_db.json" for name in made["switches"]} == {name for name, _ in switch_files(plan)}
    assert written(folder)["r-leaf-0"] == json.loads(dict(switch_files(plan))["r-leaf-0/config_db.json"])
    assert SwitchFilesLifecycle().observe({**inputs, **made}) == []


def test_a_changed_and_a_missing_file_are_drift_and_are_written_again(folder: Path) -> None:
    inputs = switch_inputs("unit", 0, region(5))
    made = SwitchFilesLifecycle().ensure(inputs, {})
    before = written(folder)
    (folder / "r-leaf-0" / "config_db.json").write_text("{}")
    (folder / "r-spine-0" / "config_db.json").unlink()
    assert SwitchFilesLifecycle().observe({**inputs, **made}) == [
        f".causeway/stacks/unit/switches/{name}/config_db.json is not what `up` wrote"
        for name in ("r-leaf-0", "r-spine-0")
    ]
    SwitchFilesLifecycle().ensure(inputs, made)
    assert written(folder) == before


def test_switches_that_are_no_more_leave_no_file(folder: Path) -> None:
    large = SwitchFilesLifecycle().ensure(switch_inputs("unit", 0, region(5)), {})
    small = SwitchFilesLifecycle().ensure(switch_inputs("unit", 0, region(1)), large)
    assert set(written(folder)) == set(small["switches"]) < set(large["switches"])
    (folder / "r-leaf-0" / "note").write_text("mine")
    SwitchFilesLifecycle().remove({**switch_inputs("unit", 0, region(1)), **small})
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["note"]


def test_switches_of_another_version_are_planned_anew_and_stop_no_refresh(folder: Path) -> None:
    properties = kept(switch_inputs("unit", 0, region(4)))
    properties["declared"]["pools"][0]["gpu_model"] = "H100 SXM5, 80 GB"
    assert SwitchFilesLifecycle().observe(properties) == [
        "the switches were planned by another version of Causeway"
    ]
    assert not written(folder)
