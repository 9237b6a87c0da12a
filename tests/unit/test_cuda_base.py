"""What role `cuda_base` decides: which packages and versions, what it goes back to, how GPUs are set."""

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import ROOT
from infra.capabilities.gpu import reported
from infra.capabilities.gpu.handoff import variables
from infra.capabilities.gpu.known import MODELS, PRODUCTS
from infra.capabilities.gpu.packages import PATTERNS, SOURCES, wanted
from infra.declaration import ClusterSpec, GpuStackSpec
from infra.drift.assembly import PROBE_LIMIT_S
from infra.inventory.roles import role_hosts
from infra.inventory.steps import steps, values, words_in
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
import json, sys, time
from pathlib import Path
state = Path({state!r})
kept = state.with_suffix(".part")
now = json.loads(state.read_text())
words = sys.argv[1:]
now["asked"].append(" ".join(words))
now["holds"] = [str(file.readlink()) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
kept.write_text(json.dumps(now)); kept.rename(state)
time.sleep(now["takes_s"])
if words[0].startswith("--query-gpu="):
    fields = words[0].partition("=")[2].split(",")
    for index, gpu in enumerate(now["gpus"]):
        print(", ".join(str(index) if field == "index" else gpu[field] for field in fields))
elif words[0] == "--list-gpus":
    for index, gpu in enumerate(now["gpus"]):
        print(f"GPU {{index}}: NVIDIA H100 80GB HBM3 (UUID: GPU-{{index}})")
        for number, part in enumerate(gpu["parts"]):
            print(f"  MIG {{part}}     Device  {{number}}: (UUID: MIG-{{index}}-{{number}})")
elif words[0] == "--id":
    gpu, (option, value) = now["gpus"][int(words[1])], words[2].split("=")
    field = {{"--power-limit": "power.limit", "--persistence-mode": "persistence_mode",
              "--multi-instance-gpu": "mig.mode.current"}}[option]
    if option[2:] in now["refuses"]:
        sys.exit(f"{{option[2:]}}: Insufficient Permissions")
    if option == "--power-limit":
        gpu[field] = f"{{float(value):.2f}}"
    elif option[2:] not in now["ignores"]:
        gpu[field] = "Enabled" if value == "1" else "Disabled"
elif words[0] == "mig":
    gpu = now["gpus"][int(words[2])]
    if words[3] == "--create-gpu-instance":
        if gpu["parts"]:
            sys.exit("Insufficient Resources")
        gpu["parts"] = words[4].split(",")
    elif words[3] == "--destroy-gpu-instance":
        gpu["parts"] = []
kept.write_text(json.dumps(now)); kept.rename(state)
"""
SEVEN = ["1g.10gb"] * 7


def gpu(mode: str = "Disabled", *parts: str, persistence: str = "Enabled", limit: str = "700.00") -> Any:
    return {"mig.mode.current": mode, "parts": parts, "persistence_mode": persistence, "power.limit": limit}


class Machine:
    """GPUs, and the program with a stand-in for nvidia-smi."""

    def __init__(self, folder: Path, *gpus: Any, ignores: str = "") -> None:
        self.folder = folder
        self.state = folder / "state.json"
        self.tell(gpus=gpus, ignores=[ignores], refuses=[], asked=[], takes_s=0)
        smi = folder / "nvidia-smi"
        smi.write_text(STAND_IN.format(python=sys.executable, state=str(self.state)))
        smi.chmod(0o755)
        self.declare()

    def tell(self, **more: Any) -> None:
        """Have the stand-in know something else."""
        known = json.loads(self.state.read_text()) if self.state.exists() else {}
        self.state.write_text(json.dumps({**known, **more}))

    def declare(self, profile: str = "", count: int = 0, cap: float = 0, persistence: bool = True) -> None:
        said = {"power_cap_w": cap, "mig_profile": profile, "mig_count": count, "persistence": persistence}
        (self.folder / "gpu.json").write_text(json.dumps(said))

    def run(self, verb: str, limit_s: float = 30) -> tuple[list[str], str]:
        """What it said, and complained of."""
        program = (ROLE / "files" / "causeway_gpu.py").read_text()
        program = program.replace("/etc/causeway/gpu.json", str(self.folder / "gpu.json"))
        program = program.replace("/run/causeway-gpu.lock", str(self.folder / "lock"))
        program = re.sub(r"(?m)^LIMIT_S = \d+", f"LIMIT_S = {limit_s:g}", program)
        # From a file: dataclasses look for the module that they are in.
        (self.folder / "causeway_gpu.py").write_text(program)
        environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}
        done = subprocess.run(
            (sys.executable, "-B", self.folder / "causeway_gpu.py", verb),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert bool(done.returncode) == bool(done.stderr)
        return done.stdout.splitlines(), done.stderr.strip()

    def apply(self) -> str:
        """What setting them complained of."""
        return self.run("apply")[1]

    def check(self) -> list[str]:
        """How they are set; nothing is asked for on the way."""
        before = self.changes
        said, complaint = self.run("check")
        assert (complaint, self.changes) == ("", before)
        return said

    @property
    def gpus(self) -> list[Any]:
        found: list[Any] = json.loads(self.state.read_text())["gpus"]
        return [[one["mig.mode.current"], one["parts"]] for one in found]

    @property
    def changes(self) -> list[str]:
        """What it was asked to do, without questions."""
        asked = json.loads(self.state.read_text())["asked"]
        return [words for words in asked if not words.startswith(("--query-gpu", "--list-gpus"))]


def test_gpus_are_divided_once(tmp_path: Path) -> None:
    machine = Machine(tmp_path, gpu(), gpu("Enabled", "3g.40gb", "3g.40gb"))
    machine.declare("1g.10gb", 7, 500)
    assert machine.apply() == ""
    assert machine.gpus == [["Enabled", SEVEN]] * 2
    assert machine.changes[:2] == ["--id 0 --power-limit=500", "--id 1 --power-limit=500"]
    before = len(machine.changes)
    assert machine.run("apply") == ([], "")
    assert machine.changes[before:] == []


def test_gpus_become_whole_where_no_parts_are_declared(tmp_path: Path) -> None:
    machine = Machine(tmp_path, gpu("Enabled", *SEVEN), gpu(), gpu("[N/A]"))
    assert machine.apply() == ""
    assert machine.gpus == [["Disabled", []], ["Disabled", []], ["[N/A]", []]]


def test_a_gpu_that_has_to_be_reset_first_says_so(tmp_path: Path) -> None:
    machine = Machine(tmp_path, gpu(), ignores="multi-instance-gpu")
    machine.declare("1g.10gb", 7)
    assert "GPU 0 is divided only after a reset" in machine.apply()


def test_a_gpu_that_cannot_be_divided_is_no_silent_success(tmp_path: Path) -> None:
    machine = Machine(tmp_path, gpu("[N/A]"))
    machine.declare("1g.10gb", 7)
    assert "cannot be divided" in machine.apply()
    assert machine.changes == []


def test_what_a_driver_refuses_holds_up_nothing_else(tmp_path: Path) -> None:
    machine = Machine(tmp_path, gpu(persistence="Disabled"))
    machine.tell(refuses=["persistence-mode", "power-limit"])
    machine.declare("1g.10gb", 7, 500)
    complaint = machine.apply()
    assert "persistence-mode: Insufficient Permissions; " in complaint
    assert "power-limit: Insufficient Permissions" in complaint
    assert machine.gpus == [["Enabled", SEVEN]]


@pytest.mark.parametrize(
    ("declared", "there", "told", "says"),
    [
        ({"cap": 500}, gpu(limit="500.00"), gpu(limit="300.00"), "persistence on, power cap 300 W, whole"),
        ({}, gpu(), gpu("Enabled"), "persistence on, parts none"),
        ({"profile": "1g.10gb", "count": 7}, gpu("Enabled", *SEVEN), gpu(), "persistence on, whole"),
        (
            {"profile": "3g.40gb", "count": 2},
            gpu("Enabled", "3g.40gb", "3g.40gb"),
            gpu("Enabled", "3g.40gb"),
            "persistence on, parts 3g.40gb",
        ),
        ({}, gpu(), gpu(persistence="Disabled"), "persistence off, whole"),
        ({"persistence": False}, gpu(persistence="Disabled"), gpu(), "persistence on, whole"),
    ],
)
def test_what_somebody_tells_a_gpu_is_seen_and_taken_back(
    declared: dict[str, Any], there: Any, told: Any, says: str, tmp_path: Path
) -> None:
    machine = Machine(tmp_path, there)
    machine.declare(**declared)
    assert machine.run("apply") == ([], "")
    sealed = machine.check()
    machine.tell(gpus=[told])
    assert machine.check() == [f"GPU 0: {says}"] != sealed
    said, complaint = machine.run("apply")
    assert (bool(said), complaint, machine.check()) == (True, "", sealed)


def test_a_cap_that_is_not_declared_is_left_to_whoever_set_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path, gpu())
    sealed = machine.check()
    machine.tell(gpus=[gpu(limit="300.00")])
    assert machine.check() == sealed == ["GPU 0: persistence on, whole"]
    assert machine.run("apply") == ([], "")


def test_a_scan_waits_longer_for_a_look_than_the_look_for_the_driver() -> None:
    text = (ROLE / "files" / "causeway_gpu.py").read_text()
    limit = re.search(r"(?m)^LIMIT_S = (\d+)$", text)
    assert limit
    assert int(limit[1]) + 5 <= PROBE_LIMIT_S


def test_gpus_are_answered_for_as_they_are_then(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load(ROLE / "library" / "causeway_gpus.py")
    said: dict[str, Any] = {}

    class Module:
        params: ClassVar[dict[str, str]] = {"program": "/x.py"}
        check_mode = False

        def __init__(self, **_: Any) -> None:
            pass

        def run_command(self, argv: list[str]) -> tuple[int, str, str]:
            lines = {"apply": "GPU 0: persistence on\n", "check": "GPU 0: whole\nGPU 1: whole\n"}
            return 0, lines[argv[-1]], ""

        def exit_json(self, **answer: Any) -> None:
            said.update(answer)

    monkeypatch.setattr(module, "AnsibleModule", Module)
    module.main()
    assert said["changed"]
    assert said["governs"][0]["want"] == {"output": ["GPU 0: whole", "GPU 1: whole"]}
    Module.check_mode = True
    module.main()
    assert not said["changed"], "in check mode nothing is set"


def test_a_driver_that_hangs_is_named_in_time_and_asked_by_one_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path, gpu())
    machine.tell(takes_s=60)
    started = time.monotonic()
    assert machine.run("check", 5) == ([], "nvidia-smi gives no answer within 5 s")
    assert time.monotonic() - started < 30
    known = json.loads(machine.state.read_text())
    asked = known["asked"]
    assert str(tmp_path / "lock") in known["holds"], "the lock is its own as long as it hangs"
    with (tmp_path / "lock").open("w") as lock:  # as one has it that cannot be ended
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert machine.run("check", 0.5) == ([], "nvidia-smi gives no answer within 0.5 s")
    assert json.loads(machine.state.read_text())["asked"] == asked


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


@pytest.mark.parametrize("variable", ["fabric_manager", "dcgm", "dcgm_exporter"])
def test_services_that_are_declared_no_more_go(variable: str) -> None:
    # Each task that makes something only where one is declared; nothing else stops what it started.
    constants = values("cuda_base")

    def asked(value: Any) -> set[str]:
        words = words_in(value)
        return words.union(
            *(asked(constants[word]) for word in words if word.startswith("__") and word in constants)
        )

    making = [step for step in steps("cuda_base") if f"cuda_base_{variable}" in asked(step.task.get("loop"))]
    assert making
    assert [step.task["name"] for step in making if not step.values.get("causeway_declared")] == []


def test_gpus_are_divided_before_anybody_asks_them() -> None:
    lines = (ROOT / "roles/cuda_base/templates/causeway-gpu.service.j2").read_text().splitlines()
    before = {unit for line in lines if line.startswith("Before=") for unit in line[len("Before=") :].split()}
    waiting = re.findall(r"'(nvidia-[a-z-]+\.service)'", str(values("cuda_base")["__cuda_base_conditional"]))
    asking = {*waiting, values("cuda_base")["__cuda_base_exporter"]}
    assert before == asking - {"nvidia-persistenced.service", "nvidia-fabricmanager.service"}
