"""What machines with GPUs said, as it was: an H200 and an H100, each alone in a virtual machine."""

import ctypes
import json
import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from infra.capabilities.acceptance.node import cuda, parse, ptx, series, xid
from infra.capabilities.acceptance.node.nccl import Result
from infra.capabilities.gpu import known, reported
from tests.unit.acceptance_node import EXPECTED, NOW, FakeTools, node, verdict_of

ROOT = Path(__file__).resolve().parents[2]
H200 = (Path(__file__).parent / "acceptance/h200.xml").read_text()
ONE = {"gpus": 1, "gpu_model": "h200-sxm"}
NCCL = """\
# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1073741824 step: 4(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0
#
# Using devices
#  Rank  0 Group  0 Pid    881 on         vm device  0 [0000:00:06] NVIDIA H200
#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong 
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         
     1048576        262144     float     sum      -1     7.86  133.32    0.00       0     0.74  1408.0    0.00       0
  1073741824     268435456     float     sum      -1   508.36  2112.2    0.00       0     1.57  684021    0.00       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0 
"""  # noqa: E501, W291 - as it was printed
BURN = """\
GPU 0: NVIDIA H200 (UUID: GPU-00000000-0000-0000-0000-000000000000)
Using compare file: compare.fatbin
Burning for 3 seconds.

Killing processes with SIGTERM (soft kill)
Initialized device 0 with 143155 MB of memory (142561 MB available, using 128305 MB of it), using FLOATS
Results are 268435456 bytes each, thus performing 499 iterations
Freed memory for dev 0
Uninitted cublas
done

Tested 1 GPUs:
\tGPU 0: OK
"""
XID = (
    "NVRM: Xid (PCI:0000:00:06): 31, pid=1046, name=oob, channel 0x0000000a, intr 00000000. MMU Fault: "
    "ENGINE GRAPHICS GPC1 GPCCLIENT_T1_8 faulted @ 0x0_00000000. "
    "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE"
)
QUERIES = {
    "h100-sxm": "NVIDIA H100 80GB HBM3, 580.159.04, Enabled, 700.00, Disabled\n",
    "h200-sxm": "NVIDIA H200, 580.159.04, Enabled, 700.00, Disabled\n",
}
"""What `reported.QUERY` was answered."""
PARTS = {
    "h100-sxm": {"1g.10gb": 7, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1},
    "h200-sxm": {"1g.18gb": 7, "1g.35gb": 4, "2g.35gb": 3, "3g.71gb": 2, "4g.71gb": 1, "7g.141gb": 1},
}
"""`nvidia-smi mig -lgip`, without the profiles that have the media engines."""


def test_an_h200_at_work_is_good(tmp_path: Path) -> None:
    made = node(tmp_path, expected=ONE, said={"nvidia-smi": H200}, state={"accepted": True})
    assert verdict_of(made)["reasons"] == []
    assert made.smi
    assert made.smi.driver == "580.159.04"
    (gpu,) = made.smi.gpus
    assert (gpu.pci, gpu.product, gpu.width, gpu.generation) == (
        "0000:00:06",
        "NVIDIA H200",
        (16, 16),
        (5, 5),
    )
    assert (gpu.busy, gpu.ecc, gpu.divided, gpu.slowed, gpu.uncorrectable) == (1, True, False, [], 0)
    assert gpu.fabric == [None] * 3, "no switch joins it to others"


def test_a_server_of_mps_is_no_work(tmp_path: Path) -> None:
    """It stays on every GPU from the first job on: a node that has one could never be tried again."""
    server = H200.replace(
        "<process_name>python3</process_name>", f"<process_name>{parse.MPS_SERVER}</process_name>"
    )
    made = node(tmp_path, expected=ONE, said={"nvidia-smi": server})
    assert verdict_of(made)
    assert made.smi
    assert [gpu.busy for gpu in made.smi.gpus] == [0]


def test_an_h200_at_work_as_metrics() -> None:
    text = series.told(FakeTools({"nvidia-smi": H200}), EXPECTED | ONE, NOW)
    labels = '{gpu="0",pci="0000:00:06"'
    assert f"causeway_gpu_power_watts{labels}}} 720.13\n" in text
    assert f"causeway_gpu_sm_clock_hertz{labels}}} 1515000000\n" in text
    assert f"causeway_gpu_memory_bytes{labels}}} {143771 << 20}\n" in text
    assert f'causeway_gpu_slowed_seconds_total{labels},reason="sw_power_cap"}} 4.068537\n' in text
    reasons = set(re.findall(r'slowed_seconds_total\{.*reason="([a-z_]+)"', text))
    assert {"hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"} < reasons
    told = set(re.findall(r"^(causeway_gpu_[a-z_]+)[ {]", text, re.MULTILINE))
    assert told == {f"causeway_gpu_{name}" for name in series.HELP} - {"causeway_gpu_slowed"}


def test_nccl_tests_and_gpu_burn() -> None:
    run = Result(NCCL)
    assert (run.gpus, run.collective, run.right) == ({"vm": 1}, "all_reduce_perf", True)
    assert run.bus_gbs == 0, "one GPU has nobody to exchange with"
    assert parse.burnt(BURN) == {0: True}


def test_an_xid_of_a_program_that_wrote_where_nothing_is() -> None:
    assert xid.event_of({"MESSAGE": XID}) == ("0000:00:06", 31, "restart_app")
    assert parse.pci_of("00000000:00:06.0") == "0000:00:06"


@pytest.mark.parametrize("model", QUERIES)
def test_the_tables_of_the_declaration_are_the_drivers(model: str) -> None:
    found = reported.gpus(QUERIES[model])
    assert list(reported.differences(found, 1, known.PRODUCTS[model], "580.159.04")) == []
    assert known.MODELS[model].mig == PARTS[model]


# What GPUs are tried with, where there is none: how it goes on, and that its numbers are exact.


class FakeLibrary:
    """A driver of so many GPUs whose programs count what a test says; GPU 1 may refuse a call."""

    def __init__(self, gpus: int, wrong: int = 0, refused: str = "") -> None:
        self.gpus, self.wrong, self.refused = gpus, wrong, refused
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            return self.answer(name, [getattr(one, "_obj", one) for one in arguments])

        return call

    def answer(self, name: str, arguments: list[Any]) -> int:
        if name == "cuDeviceGet":
            arguments[0].value = arguments[1].value
        elif name == "cuDeviceGetPCIBusId":
            arguments[0].value = f"0000:0{arguments[2].value}:00.0".encode()
            self.device = arguments[2].value
        elif name == "cuGetErrorString":
            arguments[1].value = b"it does not want to"
        elif name in ("cuDeviceGetCount", "cuDeviceGetAttribute"):
            arguments[0].value = self.gpus if name == "cuDeviceGetCount" else 9
        elif name == "cuMemGetInfo_v2":
            arguments[0].value = arguments[1].value = 1 << 30
        elif name == "cuMemcpyDtoH_v2" and isinstance(arguments[0], ctypes.c_uint64):
            arguments[0].value = self.wrong
        return 214 if name == self.refused else 0


@pytest.fixture(name="library")
def _library(monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(**how: Any) -> FakeLibrary:
        library = FakeLibrary(**how)
        monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
        return library

    monkeypatch.setattr(cuda, "LAUNCHES", 1)
    return made


def test_every_gpu_is_tried_with_everything(library: Any) -> None:
    calls = library(gpus=2).calls
    answer = cuda.tried(0)
    why, gpus = parse.tried(json.dumps(answer))
    assert (why, [gpu["pci"] for gpu in gpus]) == ("", ["0000:00:00", "0000:01:00"])
    assert all(gpu["error"] == "" and set(gpu["wrong"].values()) == {0} for gpu in gpus)
    assert all(gpu[speed] > 0 for gpu in gpus for speed in parse.SPEEDS)
    assert {"words of memory", "words copied", "sums", "sums of tensor cores"} == set(gpus[0]["wrong"])
    assert calls.count("cuModuleGetFunction") == 2 * 4


def test_what_is_wrong_is_counted(library: Any) -> None:
    library(gpus=1, wrong=3)
    _, (gpu,) = parse.tried(json.dumps(cuda.tried(0)))
    assert gpu["wrong"]["words of memory"] == 2 * 3, "written as it is, and turned round"
    assert all(gpu["wrong"].values())


@pytest.mark.parametrize("call", ["cuModuleLoadData", "cuMemAlloc_v2", "cuLaunchKernel", "cuCtxSynchronize"])
def test_a_gpu_that_refuses_says_so(call: str, library: Any) -> None:
    library(gpus=2, refused=call)
    why, gpus = parse.tried(json.dumps(cuda.tried(0)))
    assert why == ""
    assert {gpu["error"] for gpu in gpus} == {f"{call}: it does not want to (214)"}


def test_without_a_driver_it_says_so() -> None:
    words = [sys.executable, "-sB", "-m", "infra.capabilities.acceptance.node.cuda", "1"]
    lonely = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "LD_LIBRARY_PATH": "/nowhere"}
    done = subprocess.run(words, env=lonely, capture_output=True, text=True, check=True, timeout=60)
    why, gpus = parse.tried(done.stdout)
    assert why
    assert gpus == []


def number(text: str, value: int) -> int:
    """What PTX that `ptx.whole` made computes."""
    factor, add, mask, less = map(int, re.findall(r" ([0-9]+)[,;]", text))
    return ((value * factor + add) & mask) - less


def test_a_float_holds_every_number_that_is_computed() -> None:
    rows = [number(ptx.whole("%x", "%y"), row) for row in range(16)]
    columns = [number(ptx.whole("%x", "%y", 53), column) for column in range(8)]
    assert len(set(rows)) == 16
    assert len(set(columns)) == 8, "two columns that are the same could be exchanged"
    for left, right in product(rows, columns):
        assert abs(16 * 8 * left * right) + 4 < 1 << 24
    assert max(abs(one) for one in [*rows, *columns]) < 1 << 8, "bfloat16 holds eight bits"


@pytest.mark.parametrize(("capability", "names"), [((7, 0), {"plain"}), ((9, 0), {"plain", "tensor"})])
def test_a_gpu_gets_what_it_can_run(capability: tuple[int, int], names: set[str]) -> None:
    made = ptx.programs(capability)
    assert set(made) == names
    for name, text in made.items():
        assert text.count("{") == text.count("}")
        assert f".target sm_{70 if name == 'plain' else 80}\n" in text
        used = set(re.findall(r"%[a-z]+[0-9]*", text)) - {"%ctaid", "%ntid", "%tid", "%nctaid"}
        plain = set(re.findall(r"(%[a-z]+)[,;]", "".join(re.findall(r"\.reg [^;]+;", text))))
        arrays = {
            f"{register}{n}"
            for register, most in re.findall(r"(%[a-z]+)<([0-9]+)>", text)
            for n in range(int(most))
        }
        assert used - plain - arrays == {register for register, _ in re.findall(r"(%[a-z]+)<([0-9]+)>", text)}
