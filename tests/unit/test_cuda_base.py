"""What role `cuda_base` decides: which packages and versions, what it goes back to, how GPUs are set."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import ROOT
from infra.capabilities.gpu import reported
from infra.capabilities.gpu.handoff import variables
from infra.capabilities.gpu.known import MODELS, PRODUCTS
from infra.capabilities.gpu.packages import PATTERNS, SOURCES, wanted
from infra.declaration import ClusterSpec, GpuStackSpec
from infra.inventory.roles import role_hosts
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from tests.loaded import load

ROLE = ROOT / "roles" / "cuda_base"
H100 = "NVIDIA H100 80GB HBM3"


cuda = load(ROLE / "module_utils" / "causeway_cuda.py")


def stack(**more: Any) -> GpuStackSpec:
    return GpuStackSpec.model_validate({"driver": "580.95.05", "cuda": "13.0", **more})


# Names and versions


def test_packages_have_the_names_of_their_source() -> None:
    both = {"mps": True, "cuda_toolkit": True}
    packages, kernel = wanted(stack(dcgm="4.6", **both), "open", "580.95.05", True)
    assert packages == {
        "nvidia-driver-cuda": "580.95.05",
        "nvidia-persistenced": "580.95.05",
        "cuda-toolkit-13-0": "13.0",
        "nvidia-fabricmanager": "580.95.05",
        "nvlsm": "",
        "datacenter-gpu-manager-4-core": "4.6",
        "datacenter-gpu-manager-4-cuda13": "4.6",
    }
    assert kernel == {"nvidia-kernel-open-dkms": "580.95.05"}
    debian = stack(driver="550.163.01", cuda="12.4", source={"kind": "debian"}, **both)
    packages, kernel = wanted(debian, "proprietary", None, False)
    assert packages == {
        **dict.fromkeys(("nvidia-smi", "libcuda1", "nvidia-persistenced", "nvidia-cuda-mps"), "550.163.01"),
        "nvidia-cuda-toolkit": "12.4",
    }
    assert kernel == {"nvidia-kernel-dkms": "550.163.01"}


@pytest.mark.parametrize(
    ("driver", "name"), [("570.172.08", "nvidia-fabricmanager-570"), ("580.65.06", "nvidia-fabricmanager")]
)
def test_fabric_manager_is_the_drivers(driver: str, name: str) -> None:
    packages, _ = wanted(stack(driver=driver, cuda="12.8"), "open", driver, False)
    assert packages[name] == driver


def test_what_has_the_drivers_version_is_matched_by_a_pattern() -> None:
    for source in SOURCES.values():
        for part in ("driver", "persistence", "mps", "open", "proprietary", "fabric"):
            for name in source.packages.get(part, ()):
                assert cuda.follows(name, list(PATTERNS)), name


@pytest.mark.parametrize(
    ("version", "declared", "fits"),
    [
        ("580.95.05-1", "580.95.05", True),
        ("1:4.6.0-1", "4.6", True),
        ("12.4.131~12.4.1-2", "12.4", True),
        ("12.40.1-2", "12.4", False),
        ("580.95.051-1", "580.95.05", False),
        ("580.105.08-1", "580.95.05", False),
        ("2025.1-1", "", True),
    ],
)
def test_a_version_is_one_of_what_is_declared(version: str, declared: str, fits: bool) -> None:
    assert cuda.is_of(version, declared) is fits


def of(driver: str, **packages: str) -> Any:
    return cuda.Wanted({"nvidia-smi": driver, **packages}, driver, ["*nvidia*", "libcuda*"])


def test_what_is_installed_and_fits_stays_though_there_is_a_newer_revision() -> None:
    offered = {"nvidia-smi": ["580.95.05-2", "580.95.05-1"]}
    assert of("580.95.05").targets({"nvidia-smi": "580.95.05-1"}, offered)[0] == {"nvidia-smi": "580.95.05-1"}
    assert of("580.95.05").targets({}, offered)[0] == {"nvidia-smi": "580.95.05-2"}


def test_dependencies_of_the_old_driver_go_with_it_and_nothing_else_does() -> None:
    installed = {
        "nvidia-smi": "570.1-1",
        "libcuda1": "570.1-1",
        "nvidia-support": "2024-1",
        "bash": "570.1-1",
    }
    offered = {"nvidia-smi": ["580.2-1"], "libcuda1": ["580.2-1", "570.1-1"], "nvidia-support": ["2025-1"]}
    assert of("580.2").targets(installed, offered) == ({"nvidia-smi": "580.2-1", "libcuda1": "580.2-1"}, [])


def test_what_no_source_has_is_told_with_what_there_is() -> None:
    _, missing = of("590.1").targets({}, {"nvidia-smi": ["580.2-1"]})
    assert missing == ["nvidia-smi 590.1 (there: 580.2-1)"]


def test_each_package_is_pinned_and_what_is_the_drivers_prefers_its_version() -> None:
    said = of("580.2").preferences({"nvidia-smi": "580.2-1"})
    assert "Package: nvidia-smi\nPin: version 580.2-1\nPin-Priority: 1001\n" in said
    assert "Package: *nvidia* libcuda*\nPin: version 580.2*\nPin-Priority: 995\n" in said


PACKAGES = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["1-1", "1-2", "2-1"]))


@given(before=PACKAGES, now=PACKAGES)
def test_the_way_back_leads_back(before: dict[str, str], now: dict[str, str]) -> None:
    back, gone = cuda.way_back(before, now)
    assert {name: version for name, version in {**now, **back}.items() if name not in gone} == before


# What a contract says


def declared(**more: Any) -> ClusterSpec:
    pool = {"name": "gpu", "role": "gpu", "count": 2, "gpus": 8, "gpu_model": "h100-sxm"}
    pools = [{**pool, "gpu_stack": {"driver": "580.95.05", "cuda": "13.0", **more}}, {**pool, "name": "bare"}]
    region = {"name": "tokyo", "cidr": "10.81.0.0/16", "pools": pools}
    return ClusterSpec.model_validate({"name": "pacific", "regions": [region]})


def handed(**more: Any) -> dict[str, Any]:
    spec = declared(**more)
    contract = build_contract(spec, make_plan(spec), "lab")
    assert role_hosts(contract, "cuda_base") == ("tokyo-gpu-0", "tokyo-gpu-1")
    (found,) = variables(contract)["cuda_base"].values()
    return found


def test_a_pool_with_a_stack_takes_the_role() -> None:
    found = handed(mig={"profile": "1g.10gb", "count": 7}, power_cap_w=500)
    assert found["cuda_base_packages"]["nvidia-fabricmanager"] == found["cuda_base_driver"] == "580.95.05"
    assert (found["cuda_base_gpus"], found["cuda_base_gpus_simulated"]) == (8, True)
    assert (found["cuda_base_mig_profile"], found["cuda_base_mig_count"]) == ("1g.10gb", 7)
    assert found["cuda_base_power_cap_w"] == 500
    assert found["cuda_base_source_keyring"].startswith("/usr/share/keyrings/cuda-")


def test_a_mirror_has_the_makers_names_and_a_key_of_its_own() -> None:
    found = handed(source={"mirror": "https://mirror.example.org/cuda", "key_file": "keys/cuda.asc"})
    assert found["cuda_base_source_url"] == "https://mirror.example.org/cuda"
    assert found["cuda_base_source_key"] == str(ROOT / "keys/cuda.asc")
    assert found["cuda_base_source_keyring"].startswith("/etc/apt/keyrings/")
    assert "nvidia-driver-cuda" in found["cuda_base_packages"]


# What nvidia-smi reports

LINE = f"{H100}, 580.95.05, Enabled, 700.00, Disabled\n"


def test_an_answer_is_read() -> None:
    (gpu,) = reported.gpus(LINE)
    assert gpu == reported.Gpu(H100, "580.95.05", True, 700.0, False)
    (other,) = reported.gpus("Tesla T4, 580.95.05, Disabled, [N/A], [N/A]\n")
    assert (other.persistence, other.power_limit_w, other.divided) == (False, None, None)
    with pytest.raises(ValueError, match="Unable to determine"):
        reported.gpus("Unable to determine the device handle for GPU0000:1A:00.0: Unknown Error\n")


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([LINE] * 8, []),
        ([LINE] * 7, ["7 GPUs, and 8 are declared"]),
        ([LINE] * 9, ["9 GPUs, and 8 are declared"]),
        ([], ["0 GPUs, and 8 are declared"]),
        ([LINE] * 7 + [LINE.replace(H100, "NVIDIA H100 PCIe")], ["GPU 7 is a NVIDIA H100 PCIe, which"]),
        ([LINE] * 7 + [LINE.replace("580.95.05", "570.10")], ["GPU 7 has driver 570.10, and"]),
    ],
)
def test_gpus_are_held_against_the_declaration(lines: list[str], told: list[str]) -> None:
    found = reported.gpus("".join(lines))
    said = list(reported.differences(found, 8, PRODUCTS["h100-sxm"], "580.95.05"))
    assert len(said) == len(told)
    assert all(one.startswith(start) for one, start in zip(said, told, strict=True))


def test_every_model_has_a_name_that_no_other_has() -> None:
    assert set(PRODUCTS) == set(MODELS)
    for name in (
        H100,
        "NVIDIA H200",
        "NVIDIA H200 NVL",
        "NVIDIA L40",
        "NVIDIA L40S",
        "NVIDIA A100-SXM4-40GB",
    ):
        assert len([model for model, one in PRODUCTS.items() if re.fullmatch(one, name)]) == 1, name


# The program that sets GPUs, against a stand-in for nvidia-smi

STAND_IN = """#!{python}
import json, sys
from pathlib import Path
state = Path({state!r})
now = json.loads(state.read_text())
words = sys.argv[1:]
now["asked"].append(" ".join(words))
if words[0].startswith("--query-gpu"):
    for index, (mode, _) in enumerate(now["gpus"]):
        print(f"{{index}}, {{mode}}")
elif words[0] == "--list-gpus":
    for index, (_, parts) in enumerate(now["gpus"]):
        print(f"GPU {{index}}: NVIDIA H100 80GB HBM3 (UUID: GPU-{{index}})")
        for number, part in enumerate(parts):
            print(f"  MIG {{part}}     Device  {{number}}: (UUID: MIG-{{index}}-{{number}})")
elif words[0] == "--id" and now["takes"]:
    now["gpus"][int(words[1])][0] = "Enabled" if words[2].endswith("1") else "Disabled"
elif words[0] == "mig":
    gpu = now["gpus"][int(words[2])]
    if words[3] == "--create-gpu-instance":
        if gpu[1]:
            sys.exit("Insufficient Resources")
        gpu[1] = words[4].split(",")
    elif words[3] == "--destroy-gpu-instance":
        gpu[1] = []
state.write_text(json.dumps(now))
"""


class Machine:
    """Two GPUs, and the program with a stand-in for nvidia-smi."""

    def __init__(self, folder: Path, gpus: list[Any], takes: bool = True) -> None:
        self.folder = folder
        self.state = folder / "state.json"
        self.state.write_text(json.dumps({"gpus": gpus, "takes": takes, "asked": []}))
        smi = folder / "nvidia-smi"
        smi.write_text(STAND_IN.format(python=sys.executable, state=str(self.state)))
        smi.chmod(0o755)

    def apply(self, profile: str = "", count: int = 0, cap: float = 0) -> str:
        """Run it; what it complained of."""
        settings = {"power_cap_w": cap, "mig_profile": profile, "mig_count": count}
        (self.folder / "gpu.json").write_text(json.dumps(settings))
        program = (ROLE / "files" / "causeway_gpu.py").read_text()
        program = program.replace("/etc/causeway/gpu.json", str(self.folder / "gpu.json"))
        environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}
        done = subprocess.run(
            (sys.executable, "-c", program, "apply"),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert bool(done.returncode) == bool(done.stderr)
        return done.stderr

    @property
    def gpus(self) -> list[Any]:
        found: list[Any] = json.loads(self.state.read_text())["gpus"]
        return found

    @property
    def changes(self) -> list[str]:
        """What it was asked to do, without questions."""
        asked = json.loads(self.state.read_text())["asked"]
        return [words for words in asked if not words.startswith(("--query-gpu", "--list-gpus"))]


def test_gpus_are_divided_once(tmp_path: Path) -> None:
    machine = Machine(tmp_path, [["Disabled", []], ["Enabled", ["3g.40gb", "3g.40gb"]]])
    assert machine.apply("1g.10gb", 7, 500) == ""
    assert machine.gpus == [["Enabled", ["1g.10gb"] * 7]] * 2
    assert "--power-limit=500" in machine.changes
    before = len(machine.changes)
    assert machine.apply("1g.10gb", 7) == ""
    assert machine.changes[before:] == []


def test_gpus_become_whole_where_no_parts_are_declared(tmp_path: Path) -> None:
    machine = Machine(tmp_path, [["Enabled", ["1g.10gb"] * 7], ["Disabled", []], ["[N/A]", []]])
    assert machine.apply() == ""
    assert machine.gpus == [["Disabled", []], ["Disabled", []], ["[N/A]", []]]


def test_a_gpu_that_has_to_be_reset_first_says_so(tmp_path: Path) -> None:
    machine = Machine(tmp_path, [["Disabled", []]], takes=False)
    assert "GPU 0 is divided only after a reset" in machine.apply("1g.10gb", 7)


def test_a_gpu_that_cannot_be_divided_is_no_silent_success(tmp_path: Path) -> None:
    machine = Machine(tmp_path, [["[N/A]", []]])
    assert "cannot be divided" in machine.apply("1g.10gb", 7)
    assert machine.changes == []


@pytest.mark.parametrize(
    "said", ["E: Unable to fetch some archives, maybe run apt-get update", "E: no space"]
)
def test_where_the_archive_has_dropped_something_the_lists_are_fetched_and_it_is_tried_again(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load(ROLE / "library" / "causeway_cuda_base.py")
    monkeypatch.setattr(module, "ARCHIVES", tmp_path / "archives")
    ran: list[str] = []

    def run_command(argv: list[str], **_: Any) -> tuple[int, str, str]:
        ran.append("update" if "update" in argv else "install")
        return (0, "", "") if "update" in ran else (100, "", said)

    node = module.Node(SimpleNamespace(run_command=run_command))
    if "maybe" in said:
        node.install({"nvidia-smi": "580.2-1"}, [])
        assert ran == ["install", "update", "install"]
    else:
        with pytest.raises(module.BrokenError, match="no space"):
            node.install({"nvidia-smi": "580.2-1"}, [])
        assert ran == ["install"]
