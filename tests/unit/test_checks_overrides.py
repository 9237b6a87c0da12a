"""Role variables that would part hosts from switches are refused, with file and line."""

from pathlib import Path
from textwrap import indent

import pytest

from infra.checks import check_overrides
from infra.cli import main
from infra.declaration import ClusterSpec
from tests.unit.fabrics import TINY, cluster

DECLARATION = """
name: c
regions:
  - name: tokyo-2
    cidr: 10.81.0.0/16
    fabric: {kind: rail_optimized, radix: 4, rails: 2, link_gbps: 400, switch: {asic: spectrum-4}}
    pools:
      - {name: control, role: control, count: 1}
      - {name: gpu, role: gpu, count: 2, gpus: 2, gpu_model: h100-sxm, nics: 2, nic_gbps: 400}
"""


def found(folder: Path, file: str, text: str, spec: ClusterSpec | None = None) -> list[str]:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    problems = check_overrides(spec or cluster(2, **TINY), folder)
    return [str(problem).replace(str(folder), "…") for problem in problems]


@pytest.mark.parametrize(
    "file",
    [
        "group_vars/all/x.yml",
        "group_vars/all.yaml",
        "group_vars/region_r.yml",
        "group_vars/pool_r_gpu0/a",
        "host_vars/r-gpu0-1.yml",
    ],
)
def test_a_marking_that_switches_do_not_have_is_refused(tmp_path: Path, file: str) -> None:
    assert found(tmp_path, file, "---\nbase_x: 1\nroce_priority: 4\n") == [
        f"roce_priority: 4, but the switches of region r have 3 (…/{file}:3). "
        "Declare it in the region's fabric, for hosts and switches alike."
    ]


@pytest.mark.parametrize(
    "text",
    [
        "roce_priority: 3",
        "roce_priority: '{{ other }}'",
        "roce_mtu_bytes: 9216",
        "roce_bandwidth_pct: 70",
        "$ANSIBLE_VAULT;1.1",
        "a: [",
        "[1]",
        "",
    ],
)
def test_what_agrees_or_cannot_be_judged_is_let_through(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, "group_vars/all/x.yml", text) == []


@pytest.mark.parametrize(
    "file", ["group_vars/region_other.yml", "host_vars/other-gpu-0.yml", "group_vars/all/README.md"]
)
def test_other_regions_and_other_files_are_not_looked_at(tmp_path: Path, file: str) -> None:
    assert found(tmp_path, file, "roce_priority: 4") == []


def test_a_region_whose_name_begins_like_another_is_another(tmp_path: Path) -> None:
    data = cluster(2, **TINY).model_dump(mode="json")
    longer = {
        "name": "r-a",
        "cidr": "10.99.0.0/16",
        "pools": [{"name": "gpu", "role": "control", "count": 1}],
    }
    spec = ClusterSpec.model_validate({**data, "regions": [*data["regions"], longer]})
    for file in ("group_vars/pool_r_a_gpu.yml", "host_vars/r-a-gpu-0.yml"):
        assert found(tmp_path, file, "roce_priority: 4", spec) == []


def test_packets_larger_than_the_switches_take_are_refused(tmp_path: Path) -> None:
    said = found(tmp_path, "group_vars/all/x.yml", "roce_mtu_bytes: 9300")
    assert [line.split(" (")[0] for line in said] == [
        "roce_mtu_bytes: 9300 is larger than the 9216 of region r's switches"
    ]


def test_hosts_may_be_set_freely_where_no_switch_is_declared(tmp_path: Path) -> None:
    plain = {key: value for key, value in TINY.items() if key != "switch"}
    assert found(tmp_path, "group_vars/all/x.yml", "roce_priority: 4", cluster(2, **plain)) == []


def test_the_command_looks_beside_the_stacks_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    declaration = "config:\n  causeway:cluster:\n" + indent(DECLARATION, "    ")
    (tmp_path / "Pulumi.mine.yaml").write_text(declaration)
    variables = tmp_path / "inventories" / "mine" / "group_vars" / "region_tokyo_2.yml"
    variables.parent.mkdir(parents=True)
    assert main(["check", str(tmp_path / "Pulumi.mine.yaml")]) == 0
    variables.write_text("roce_dscp: 24\n")
    assert main(["check", str(tmp_path / "Pulumi.mine.yaml")]) == 2
    printed = capsys.readouterr().out
    assert "roce_dscp: 24, but the switches of region tokyo-2 have 26" in printed
    assert printed.endswith("1 error, 0 warnings\n")
