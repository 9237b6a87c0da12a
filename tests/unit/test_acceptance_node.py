"""A node that is held against its declaration: faults one by one, tools that hang or talk nonsense, and the
way back in."""

import ast
import contextlib
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.capabilities.acceptance.node import __main__ as program
from infra.capabilities.acceptance.node import active, parse, series, tools, verdict, xid
from infra.capabilities.acceptance.node.nccl import Result
from infra.capabilities.acceptance.node.passive import found, is_model
from infra.ground.rules.pools import GPU_MODELS
from tests.unit.acceptance_node import (
    BOOT,
    EXPECTED,
    NOW,
    SYNCHRONISED,
    FakeNode,
    FakeTools,
    accepted,
    all_gpus,
    announced,
    gpu,
    nccl,
    node,
    pci,
    smi,
    tried,
    verdict_of,
    xid_line,
)

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "infra/capabilities/acceptance/node").glob("*.py"))
IN = accepted()
PROCESS = "<process_info><pid>1</pid></process_info>"


def test_a_good_node_that_is_in_stays_in(tmp_path: Path) -> None:
    said = verdict_of(node(tmp_path, state=IN))
    assert (said["severity"], said["action"], said["reasons"]) == ("good", "none", [])
    assert said["boot_id"] == BOOT


def test_seven_of_eight_declared_gpus_are_a_failure(tmp_path: Path) -> None:
    said = verdict_of(node(tmp_path, state=IN, said={"nvidia-smi": smi(gpu(n) for n in range(7))}))
    assert (said["severity"], said["action"]) == ("critical", "drain")
    assert "7 of 8 declared GPUs" in said["reasons"][0]


REFUSALS = (
    "No devices were found\n",
    "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n",
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
    "NVIDIA driver is installed and running.\n\n",
)
"""What nvidia-smi says where there is no driver, not its own, or no GPU."""


@pytest.mark.parametrize("said", REFUSALS)
def test_none_of_eight_is_a_failure_as_seven_are(said: str, tmp_path: Path) -> None:
    found = verdict_of(node(tmp_path, state=IN, said={"nvidia-smi": said}))
    assert (found["severity"], found["action"], found["accepted"]) == ("critical", "drain", False)
    assert found["reasons"][0].startswith(
        f"none of 8 declared GPUs answers: {said.split(':')[0].strip()[:60]}"
    )


LOST = "Unable to determine the device handle for GPU7: 0000:17:00.0: GPU is lost.  Reboot the system.\n"
DAMAGED = "WARNING: infoROM is corrupted at gpu 0000:17:00.0\n"


def test_what_it_says_beside_the_log_hides_no_gpu(tmp_path: Path) -> None:
    seven = smi(gpu(n) for n in range(7))
    for said, action in ((LOST + seven, "drain"), (seven + LOST, "drain"), (all_gpus() + DAMAGED, "none")):
        assert verdict_of(node(tmp_path, state=IN, said={"nvidia-smi": said}))["action"] == action


def test_simulated_gpus_are_never_good(tmp_path: Path) -> None:
    said = verdict_of(node(tmp_path, state=IN, expected={"simulated": True}))
    assert (said["severity"], said["action"]) == ("unsupported", "none")
    assert said["reasons"] == ["no GPU here: 8 h100-sxm are declared, and simulated"]


def test_without_a_driver_declared_gpus_are_missing(tmp_path: Path) -> None:
    made = FakeNode(FakeTools({}), EXPECTED, dict(IN), tmp_path)
    assert verdict_of(made)["action"] == "drain"


def test_gpus_of_others_are_unknown(tmp_path: Path) -> None:
    said = verdict_of(node(tmp_path, state=IN, expected={"vendor": "amd", "gpu_model": "mi300x"}))
    assert said["severity"] == "unknown"


@pytest.mark.parametrize(
    ("told", "action", "words"),
    [
        ({"product_name": "NVIDIA A100-SXM4-80GB"}, "drain", "h100-sxm is declared"),
        ({"remapped_row_failure": "Yes"}, "replace", "no spare rows"),
        ({"remapped_row_pending": "Yes"}, "watch", "next reset"),
        ({"unrepairable_memory": "Yes"}, "replace", "cannot be repaired"),
        ({"sram_threshold_exceeded": "Yes"}, "repair", "SRAM"),
        ({"row_remapper_histogram_none": "1 bank(s)"}, "watch", "1 banks of its memory"),
        ({"channel_repair_pending": "Yes"}, "watch", "repaired at its next reset"),
        ({"tpc_repair_pending": "Yes"}, "watch", "repaired at its next reset"),
        (
            {"state": "In Progress", "status": "N/A"},
            "drain",
            "not joined to the others by NVLink (In Progress)",
        ),
        ({"status": "Unknown Error"}, "drain", "(Completed, Unknown Error)"),
        ({"summary": "Unhealthy"}, "drain", "NVLink is not healthy"),
        ({"summary": "Limited Capacity"}, "watch", "NVLink is not healthy"),
        ({"state": "N/A", "status": "N/A", "summary": "N/A"}, "none", ""),
        ({"dram_uncorrectable": "2"}, "watch", "2 uncorrectable"),
        ({"current_ecc": "Disabled"}, "watch", "ECC is off"),
        ({"current_link_width": "8x"}, "drain", "8 of 16 lanes"),
        ({"current_link_gen": "3", "processes": PROCESS}, "watch", "generation 3"),
        ({"current_link_gen": "1"}, "none", ""),
        ({"clocks_event_reason_hw_thermal_slowdown": "Active"}, "watch", "hw_thermal_slowdown"),
        ({"gpu_recovery_action": "Reset"}, "reset", "asks for it"),
        ({"gpu_recovery_action": "Reboot"}, "reboot", "asks for it"),
        ({"gpu_recovery_action": "Drain P2P"}, "drain", "asks for it"),
        ({"gpu_recovery_action": "Drain and Reset"}, "reset", "asks for it"),
        ({"gpu_recovery_action": "Something new"}, "drain", "asks for it"),
        ({"gpu_recovery_action": "N/A"}, "none", ""),
    ],
)
def test_a_fault_of_one_gpu(told: Mapping[str, str], action: str, words: str, tmp_path: Path) -> None:
    said = verdict_of(node(tmp_path, state=IN, said={"nvidia-smi": all_gpus(g3=told)}))
    assert said["action"] == action
    assert any(words in reason for reason in said["reasons"]) == bool(words)


OLD = {"gpu_recovery_action": "N/A"}
"""Of a driver that cannot be asked."""
XIDS = {13: "none", 45: "none", 63: "none", 74: "drain", 79: "reboot", 94: "none", 119: "reset"}


@pytest.mark.parametrize(("number", "action"), XIDS.items())
def test_the_catalog_counts_where_the_driver_says_nothing(number: int, action: str, tmp_path: Path) -> None:
    made = node(tmp_path, state=IN, lines=[xid_line(number)], said={"nvidia-smi": all_gpus(g3=OLD)})
    said = verdict_of(made)
    assert said["action"] == action
    told = said["notes"] if action == "none" else said["reasons"]
    assert told == [f"GPU {pci(3)}: XID {number} since the boot"]


ASKED = {
    0: "none",
    1: "reset",
    2: "reboot",
    3: "drain",
    4: "reset",
    5: "drain",
    6: "reset",
    7: "reboot",
    9: "drain",
}


@pytest.mark.parametrize("number", XIDS)
@pytest.mark.parametrize(("asked", "action"), ASKED.items())
def test_what_xid_154_announces_goes_before_the_catalog(
    number: int, asked: int, action: str, tmp_path: Path
) -> None:
    lines = [xid_line(number), announced(asked)]
    said = verdict_of(node(tmp_path, state=IN, lines=lines, said={"nvidia-smi": all_gpus(g3=OLD)}))
    harmless = "none" if XIDS[number] == "none" else "watch"
    assert said["action"] == (harmless if action == "none" else action)


def test_the_last_announcement_counts_and_only_for_its_gpu(tmp_path: Path) -> None:
    lines = [announced(2), announced(0), announced(1, on=5)]
    told = {f"g{n}": OLD for n in range(8)}
    said = verdict_of(node(tmp_path, state=IN, lines=lines, said={"nvidia-smi": all_gpus(**told)}))
    assert said["action"] == "reset"
    assert any(
        pci(3) in reason and "asks for nothing" in reason for reason in said["reasons"] + said["notes"]
    )


def test_what_the_driver_says_now_goes_before_what_it_announced(tmp_path: Path) -> None:
    said = verdict_of(node(tmp_path, state=IN, lines=[xid_line(119), announced(2)]))
    assert said["action"] == "watch"


def test_nothing_of_before_a_repair_is_acted_on(tmp_path: Path) -> None:
    lines = [xid_line(79, at=NOW - 60)]
    made = node(tmp_path, state=IN, lines=lines, said={"nvidia-smi": all_gpus(g3=OLD)})
    assert verdict_of(made)["action"] == "reboot"
    made.state = verdict.repaired(made.state, NOW)
    assert verdict_of(made, "passive", NOW + 60)["action"] == "drain"
    assert verdict_of(made, "active", NOW + 120)["severity"] == "good"


@pytest.mark.parametrize("ahead_s", [-8 * 3600, 0, 8 * 3600])
def test_what_is_of_before_a_repair_is_known_whatever_the_clock_did(ahead_s: float, tmp_path: Path) -> None:
    def line(up_us: int, boot: str = BOOT) -> str:
        entry = json.loads(xid_line(79, at=NOW))
        entry |= {"__MONOTONIC_TIMESTAMP": str(up_us), "_BOOT_ID": boot.replace("-", "")}
        return json.dumps(entry)

    state = verdict.repaired(dict(IN), NOW + ahead_s, BOOT, 5_000_000) | {"accepted": True}
    for when, action in ((line(4_999_999), "none"), (line(5_000_000), "reboot"), (line(1, "2-2"), "reboot")):
        made = node(tmp_path, state=state, lines=[when], said={"nvidia-smi": all_gpus(g3=OLD)})
        assert verdict_of(made, now=NOW + ahead_s + 60)["action"] == action


def test_the_journal_of_this_boot_only_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "journalctl"
    program.write_text('#!/bin/sh\necho "$*" > "$ASKED"\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    made = node(tmp_path)
    assert super(FakeNode, made).journal() == ""
    assert "--boot" in (tmp_path / "asked").read_text().split()


# Joining, leaving, and coming back.


def test_a_new_node_waits_for_the_active_tier(tmp_path: Path) -> None:
    made = node(tmp_path)
    said = verdict_of(made)
    assert (said["severity"], said["action"]) == ("waiting", "drain")
    assert verdict_of(made, "active")["severity"] == "good"
    assert verdict_of(made)["accepted"]


def test_why_it_waits_is_said_as_long_as_it_does(tmp_path: Path) -> None:
    made = node(tmp_path)
    assert proven(made)["severity"] == "waiting"
    (reason,) = verdict_of(made)["reasons"]
    assert reason.endswith("there is no DCGM, and the driver's libcuda.so.1 is not here")


def test_a_node_that_was_out_returns_by_the_active_tier_only(tmp_path: Path) -> None:
    made = node(tmp_path, state=IN, said={"nvidia-smi": smi(gpu(n) for n in range(7))})
    assert verdict_of(made)["action"] == "drain"
    made.tools = FakeTools({**made.tools.said, "nvidia-smi": all_gpus()})  # type: ignore[attr-defined] # of ours
    for boot in (BOOT, "another"):
        assert verdict_of(made, boot=boot)["severity"] == "waiting"
    assert verdict_of(made, "active")["severity"] == "good"


def test_what_is_unknown_is_not_accepted(tmp_path: Path) -> None:
    made = node(tmp_path, said={"nvidia-smi": all_gpus()[:700]})
    assert verdict_of(made, "active")["severity"] == "waiting"
    made.state = accepted()
    said = verdict_of(made)
    assert (said["severity"], said["action"]) == ("unknown", "watch")


def test_a_node_that_flaps_stays_out_until_it_is_said_to_be_repaired(tmp_path: Path) -> None:
    made = node(tmp_path)
    good = made.tools.said  # type: ignore[attr-defined] # of ours
    at = NOW
    for _ in range(verdict.FLAPS):
        made.tools = FakeTools(good)
        at += 3600
        assert verdict_of(made, "active", at)["severity"] == "good"
        made.tools = FakeTools({**good, "nvidia-smi": smi(gpu(n) for n in range(7))})
        assert verdict_of(made, "passive", at + 60)["action"] in verdict.OUT
    made.tools = FakeTools(good)
    for later in (3600, verdict.FLAP_WINDOW_S - 1, verdict.FLAP_WINDOW_S + 1, 365 * 86400, -86400):
        said = verdict_of(made, "active", at + later)
        assert said["action"] == "repair"
        assert "taken out 3 times" in said["reasons"][0]
    at += 3600
    made.state = verdict.repaired(made.state, at)
    assert verdict_of(made, "active", at + 60)["severity"] == "good"


def test_since_is_when_the_action_began(tmp_path: Path) -> None:
    made = node(tmp_path, said={"nvidia-smi": all_gpus(g1={"remapped_row_failure": "Yes"})})
    assert verdict_of(made, now=NOW)["since"] == verdict_of(made, now=NOW + 900)["since"] == NOW
    made.tools = FakeTools({"nvidia-smi": all_gpus(g1={"gpu_recovery_action": "Reboot"})})
    assert verdict_of(made, now=NOW + 1800)["since"] == NOW + 1800


# NICs, memory, disks, clock.


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def nic(root: Path, name: str = "rail0", **other: str) -> None:
    files = {"operstate": "up", "carrier": "1", "speed": "400000", "device__current_link_width": "16"}
    files |= {"device__max_link_width": "16", "device__current_link_speed": "32.0 GT/s PCIe"}
    files |= {"device__max_link_speed": "32.0 GT/s PCIe", "statistics__rx_crc_errors": "5"} | other
    write(root, **{f"sys__class__net__{name}__{key}": text for key, text in files.items()})


RAILS: dict[str, Any] = {
    "nics": [{"name": "rail0", "gbps": 400}, {"name": "rail1", "gbps": 400}],
    "nic_count": 2,
    "nic_gbps": 400,
}


@pytest.mark.parametrize(
    ("other", "action", "words"),
    [
        ({}, "none", ""),
        ({"speed": "200000"}, "drain", "runs at 200 of 400 Gb/s"),
        ({"speed": "-1", "carrier": "0"}, "drain", "has no link"),
        ({"device__current_link_width": "8"}, "drain", "8 of 16 lanes"),
        ({"device__current_link_speed": "16.0 GT/s PCIe"}, "watch", "16.0 of 32.0 GT/s"),
        ({"speed": "-1"}, "watch", "does not tell its speed"),
    ],
)
def test_a_fault_of_one_nic(other: Mapping[str, str], action: str, words: str, tmp_path: Path) -> None:
    nic(tmp_path, "rail0")
    nic(tmp_path, "rail1", **other)
    said = verdict_of(node(tmp_path, state=IN, expected=RAILS))
    assert said["action"] == action
    assert any("rail1" in reason and words in reason for reason in said["reasons"]) == bool(words)


def test_a_nic_that_is_not_there_is_missed(tmp_path: Path) -> None:
    nic(tmp_path)
    said = verdict_of(node(tmp_path, state=IN, expected=RAILS))
    assert said["reasons"] == ["NIC rail1 is declared, and is not there"]
    said = verdict_of(node(tmp_path, state=IN, expected=RAILS | {"nics": []}))
    assert said["reasons"] == ["1 of 2 declared NICs have a link of 400 Gb/s"]


def test_ethtool_tells_speed_and_lanes(tmp_path: Path) -> None:
    nic(tmp_path, speed="-1")
    said = {"ethtool": "Settings for rail0:\n\tSpeed: 200000Mb/s\n\tLanes: 4\n\tLink detected: yes\n"}
    told = verdict_of(node(tmp_path, state=IN, expected=RAILS | {"nics": RAILS["nics"][:1]}, said=said))
    assert told["reasons"] == ["NIC rail0 runs at 200 of 400 Gb/s over 4 lanes"]


def test_new_errors_of_a_link_are_counted_since_the_last_look(tmp_path: Path) -> None:
    nic(tmp_path)
    made = node(tmp_path, state=IN, expected=RAILS | {"nics": RAILS["nics"][:1]})
    for errors, action in ((5, "none"), (105, "none"), (300, "watch"), (3, "none")):
        nic(tmp_path, statistics__rx_crc_errors=str(errors))
        assert verdict_of(made)["action"] == action, errors
        made.state["counters"] = dict(made.counters)


def test_a_module_of_memory_that_is_missing(tmp_path: Path) -> None:
    for kib, action in ((2070_000_000 + 40_000_000, "none"), (2_015_000_000, "drain")):
        write(tmp_path, proc__meminfo=f"MemTotal:       {kib} kB\n")
        assert verdict_of(node(tmp_path, state=IN, expected={"memory_gib": 2000}))["action"] == action


def test_disks_are_counted_alive_and_asked(tmp_path: Path) -> None:
    write(tmp_path, sys__class__nvme__nvme0__state="live", sys__class__nvme__nvme1__state="dead")
    told = {"nvme": '{"critical_warning": 4, "media_errors": 0}'}
    said = verdict_of(node(tmp_path, state=IN, expected={"nvme_disks": 3}, said=told))
    assert said["action"] == "repair"
    assert [reason.split(" (")[0] for reason in said["reasons"]] == [
        "disk nvme0 warns of itself",
        "2 of 3 declared NVMe disks are there",
        "disk nvme1 is dead",
    ]


@pytest.mark.parametrize(
    ("off", "leap", "action"),
    [
        (0.00002, "Normal", "none"),
        (-0.02, "Normal", "watch"),
        (0.0, "Not synchronised", "watch"),
        (2, "Normal", "drain"),
    ],
)
def test_a_clock_that_is_off(off: float, leap: str, action: str, tmp_path: Path) -> None:
    said = {"chronyc": SYNCHRONISED.format(off, leap)}
    assert verdict_of(node(tmp_path, state=IN, said=said))["action"] == action


# The tiers that prove.


QUICK = active.Depth(2, 10, 1, 1, 1)


def proven(made: FakeNode) -> dict[str, Any]:
    findings = [*found(made), *active.found(made, QUICK)]
    said, made.state = verdict.decided(findings, made.state, "active", BOOT, NOW)
    return said


def diag(form: str, *status: str) -> str:
    results = [{"entity_group": "GPU", "entity_id": n, "status": one} for n, one in enumerate(status)]
    for result in results:
        if result["status"] == "Fail":
            result["warnings"] = (
                "row remapping failed" if "GPU" in form else [{"warning": "row remapping failed"}]
            )
    tests = [{"name": "memory", "results": results}]
    return json.dumps({form: {"test_categories": [{"category": "Hardware", "tests": tests}]}})


FORMS = pytest.mark.parametrize("form", ["DCGM Diagnostic", "DCGM GPU Diagnostic"])


@FORMS
def test_dcgms_diagnosis_decides(form: str, tmp_path: Path) -> None:
    assert proven(node(tmp_path, said={"dcgmi": diag(form, "Pass", "Skip")}))["severity"] == "good"
    said = proven(node(tmp_path, said={"dcgmi": diag(form, "Pass", "Fail")}))
    assert said["action"] == "repair"
    assert said["reasons"][0] == "DCGM: memory: row remapping failed"
    assert proven(node(tmp_path, said={"dcgmi": diag(form, "Skip")}))["severity"] == "waiting"


def test_gpus_that_nothing_tried_are_not_accepted(tmp_path: Path) -> None:
    said = proven(node(tmp_path))
    assert said["severity"] == "waiting"
    assert any("nothing tried the GPUs" in reason for reason in said["reasons"])


def test_where_there_is_no_dcgm_the_driver_alone_does(tmp_path: Path) -> None:
    said = proven(node(tmp_path, said={"python3": tried()}))
    assert (said["severity"], said["accepted"]) == ("good", True)
    assert any("661.2 TFLOP/s of its tensor cores" in note for note in said["notes"])
    assert proven(node(tmp_path))["severity"] == "waiting"


@pytest.mark.parametrize(
    ("told", "action", "words"),
    [
        ({"wrong": {"words of memory": 2}}, "repair", "2 words of memory are wrong"),
        ({"wrong": {"sums of tensor cores": 1}}, "repair", "1 sums of tensor cores are wrong"),
        ({"error": "cuModuleLoadData: uncorrectable ECC error (214)"}, "drain", "does not work: cuModule"),
        ({"tensor_tflops": 300.0}, "watch", "300 of 661.2 TFLOP/s of its tensor cores"),
        ({"memory_gbs": 1000.0}, "watch", "1000 of 2638.2 GB/s of its memory"),
        ({"from_host_gbs": 25.0}, "watch", "25 GB/s from the host, and its link carries 63"),
    ],
)
def test_what_the_driver_alone_finds(told: dict[str, Any], action: str, words: str, tmp_path: Path) -> None:
    said = proven(node(tmp_path, said={"python3": tried(g3=told)}))
    assert said["action"] == action
    assert any(f"GPU {pci(3)}" in reason and words in reason for reason in said["reasons"])
    assert not any(pci(2) in reason for reason in said["reasons"])


def test_gpus_that_cuda_does_not_have_are_missing(tmp_path: Path) -> None:
    said = proven(node(tmp_path, said={"python3": tried(7)}))
    assert said["action"] == "drain"
    assert "CUDA has 7 of 8 declared GPUs" in said["reasons"][0]


def test_parts_of_gpus_are_not_taken_for_tried(tmp_path: Path) -> None:
    divided = all_gpus(g0={"current_mig": "Enabled"})
    made = node(tmp_path, said={"python3": tried(), "nvidia-smi": divided})
    assert proven(made)["severity"] == "waiting"
    assert not any(argv[0] == "python3" for argv in made.tools.ran)  # type: ignore[attr-defined] # FakeTools


def test_gpu_burn_goes_further_than_the_driver_alone(tmp_path: Path) -> None:
    good = "\n".join(f"\tGPU {n}: OK" for n in range(8))
    for text, action in (
        (good, "none"),
        (good.replace("5: OK", "5: FAULTY"), "repair"),
        (good.rpartition("\n")[0], "drain"),
    ):
        assert proven(node(tmp_path, said={"gpu-burn": text, "python3": tried()}))["action"] == action


@pytest.mark.parametrize(
    ("gbs", "wrong", "severity"), [(441, "0", "good"), (439, "0", "critical"), (470, "3", "critical")]
)
def test_nccl_within_the_node_reaches_the_floor(
    gbs: float, wrong: str, severity: str, tmp_path: Path
) -> None:
    said = {"dcgmi": diag("DCGM Diagnostic", "Pass"), "all_reduce_perf": nccl(["n"], gbs, wrong)}
    assert proven(node(tmp_path, said=said))["severity"] == severity


@pytest.mark.parametrize(
    ("mbps", "error", "action"), [(9000, 0, "none"), (5000, 0, "watch"), (9000, 5, "repair")]
)
def test_disks_are_read_by_fio(mbps: float, error: int, action: str, tmp_path: Path) -> None:
    (tmp_path / "var/tmp").mkdir(parents=True)
    write(tmp_path, sys__class__nvme__nvme0__state="live")
    fio = json.dumps({"jobs": [{"error": error, "read": {"bw_bytes": mbps * 1e6}}]})
    said = {"dcgmi": diag("DCGM Diagnostic", "Pass"), "fio": f"fio: a note\n{fio}"}
    disks = {"nvme_disks": 1, "nvme_read_mbps": 6000}
    assert proven(node(tmp_path, expected=disks, said=said))["action"] == action


# Tools that hang, or say anything.


def test_a_driver_that_hangs_takes_the_node_out(tmp_path: Path) -> None:
    said = verdict_of(node(tmp_path, state=IN, said={"nvidia-smi": None}))
    assert said["action"] == "drain"
    assert said["reasons"] == ["the driver hangs: nvidia-smi does not answer within 60 s"]


def test_a_tool_that_hangs_is_given_up(tmp_path: Path) -> None:
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\ntrap '' TERM\nsleep 60 & echo begun; wait\n")
    program.chmod(0o755)
    began = time.monotonic()
    with pytest.raises(tools.HangsError, match="does not answer"):
        tools.Tools().run([str(program)], 0.5)
    assert time.monotonic() - began < 20


def test_a_look_that_hangs_is_given_up_and_the_rest_counts(tmp_path: Path) -> None:
    class Stuck(FakeTools):
        def run(self, argv: Any, limit_s: float, at_home: bool = False) -> str:
            if argv[0] == "chronyc":
                time.sleep(30)
            return super().run(argv, limit_s, at_home)

    made = node(tmp_path, state=IN)
    made.tools = Stuck(made.tools.said)  # type: ignore[attr-defined] # of ours
    with pytest.raises(tools.HangsError):
        tools.within(0.2, "clock", lambda: made.tools.run(("chronyc",), 1))


def test_what_was_found_before_a_failure_counts(tmp_path: Path) -> None:
    nic(tmp_path, "rail0", speed="100000")
    nic(tmp_path, "rail1", speed="100000")
    said = verdict_of(node(tmp_path, state=IN, expected=RAILS, said={"ethtool": "no such device"}))
    assert said["severity"] == "unknown"
    made = node(tmp_path, state=IN, said={"nvidia-smi": smi(gpu(n) for n in range(7))})
    made.journal = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value] # anything may go wrong
    said = verdict_of(made)
    assert "7 of 8" in said["reasons"][0]
    assert any("ZeroDivisionError" in reason for reason in said["reasons"])


GARBAGE = st.text(max_size=200) | st.sampled_from(
    [
        all_gpus()[:700],
        "<nvidia_smi_log/>",
        "{}",
        "[]",
        "null",
        "<a>" * 2000,
        "[" * 5000,
        '{"jobs": [{}]}',
        nccl(["a"], 1),
    ]
)
ALL = ("nvidia-smi", "ethtool", "chronyc", "nvme", "dcgmi", "gpu-burn", "all_reduce_perf", "fio")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    said=st.fixed_dictionaries({}, optional={name: GARBAGE | st.none() for name in ALL}),
    lines=st.lists(GARBAGE),
)
def test_whatever_tools_say_there_is_a_verdict_and_it_is_not_good(
    said: dict[str, str | None], lines: list[str], tmp_path: Path
) -> None:
    nic(tmp_path)
    (tmp_path / "var/tmp").mkdir(parents=True, exist_ok=True)
    write(tmp_path, sys__class__nvme__nvme0__state="live")
    expected = RAILS | {"nvme_disks": 1}
    made = FakeNode(FakeTools({"nvidia-smi": "garbage", **said}), EXPECTED | expected, dict(IN), tmp_path)
    made.lines = lines
    told = proven(made)
    assert told["severity"] in ("unknown", "waiting", "critical")
    assert json.loads(json.dumps(told)) == told
    assert all(len(reason) <= 300 and "\n" not in reason for reason in told["reasons"])
    text = verdict.metrics(told, {"gpus": 0})
    assert f'action="{told["action"]}"}} 1\n' in text


READERS = (
    *(parse.Smi, parse.diagnosed, parse.tried, parse.burnt, parse.clock, parse.lanes, parse.smart, parse.fio),
    Result,
)


@given(st.text() | GARBAGE)
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_nonsense_is_a_value_error_and_nothing_else(reader: Any, text: str) -> None:
    with contextlib.suppress(ValueError):
        reader(text)


@given(
    st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5), st.lists)
    | st.dictionaries(
        st.sampled_from(sorted(verdict.new_state())),
        st.none() | st.integers() | st.text(max_size=3) | st.lists(st.none()),
    )
)
def test_a_state_that_is_nonsense_is_a_new_nodes(kept: Any) -> None:
    state = verdict.read_state(kept)
    said, _ = verdict.decided([], state, "passive", BOOT, NOW)
    assert said["action"] in verdict.ACTIONS
    assert all(math.isfinite(at) for at in state["taken_out"])


SERIES = re.compile(r'causeway_gpu_[a-z_]+(\{([a-z]+="[^"]*",?)+\})? -?[0-9.e+]+')


def told_of(said: str | None, **expected: Any) -> dict[str, float]:
    """Metric with labels → value, where nvidia-smi says this; None for one that hangs."""
    text = series.told(FakeTools({"nvidia-smi": said}), EXPECTED | expected, NOW)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(SERIES.fullmatch(line) for line in lines), text
    found = dict(line.rsplit(" ", 1) for line in lines)
    assert len(found) == len(lines), "each once"
    return {name.removeprefix("causeway_gpu_"): float(value) for name, value in found.items()}


def test_gpus_are_told_as_metrics() -> None:
    slow = {"clocks_event_reason_hw_thermal_slowdown": "Active", "remapped_row_failure": "Yes"}
    told = told_of(all_gpus(g3=slow))
    assert (told["answers"], told["declared"], told["found"]) == (1, 8, 8)
    third = f'gpu="3",pci="{pci(3)}"'
    values = {"temperature_celsius": 41, "power_watts": 612.5, "busy_ratio": 0.37, "pcie_replays_total": 3}
    values |= {"memory_used_bytes": 1 << 30, "row_remap_failed": 1, "pcie_lanes": 16, "pcie_lanes_most": 16}
    assert {name: told[f"{name}{{{third}}}"] for name in values} == values
    assert f"memory_temperature_celsius{{{third}}}" not in told, "what is not told is no value"
    assert [name for name in told if name.startswith("slowed")] == [
        f'slowed{{{third},reason="hw_thermal_slowdown"}}'
    ]


def test_older_drivers_name_what_a_board_draws_otherwise() -> None:
    text = (
        all_gpus().replace("gpu_power_readings", "power_readings").replace("instant_power_draw", "power_draw")
    )
    assert told_of(text)[f'power_watts{{gpu="0",pci="{pci(0)}"}}'] == 612.5


@pytest.mark.parametrize("said", [None, "garbage", "<nvidia_smi_log><gpu/></nvidia_smi_log>"])
def test_a_driver_that_does_not_answer_is_told_of(said: str | None) -> None:
    assert told_of(said) == {"answers": 0, "declared": 8, "read_timestamp_seconds": NOW}


@pytest.mark.parametrize("expected", [{"gpus": 0}, {"simulated": True}, {"vendor": "amd"}])
def test_of_gpus_that_are_not_there_nothing_is_told(expected: dict[str, Any]) -> None:
    assert told_of(all_gpus(), **expected) == {}


@given(st.dictionaries(st.sampled_from(["gpu_temp", "gpu_util", "used", "replay_counter"]), GARBAGE))
def test_whatever_a_driver_tells_is_a_number_or_no_value(told: dict[str, str]) -> None:
    with contextlib.suppress(ValueError):
        told_of(all_gpus(g0={name: escape(text) for name, text in told.items()}))


def test_entities_are_refused() -> None:
    bomb = '<!DOCTYPE a [<!ENTITY x "y">]><nvidia_smi_log>&x;</nvidia_smi_log>'
    with pytest.raises(ValueError, match="entities"):
        parse.Smi(bomb)


PRODUCTS = {
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA H100 NVL": "h100-nvl",
    "NVIDIA H200": "h200-sxm",
    "NVIDIA H200 NVL": "h200-nvl",
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA A100-SXM4-40GB": "a100-sxm-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
    "NVIDIA B200": "b200-sxm",
    "NVIDIA GB200": "gb200",
    "NVIDIA B300 SXM6 AC": "b300-sxm",
    "NVIDIA H20": "h20-sxm",
    "NVIDIA L4": "l4",
    "NVIDIA L40S": "l40s",
    "Tesla T4": "t4",
    "Tesla V100-SXM2-32GB": "v100-sxm",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtx-pro-6000",
    "NVIDIA GH200 480GB": "gh200",
}


@pytest.mark.parametrize(("product", "model"), PRODUCTS.items())
def test_a_product_is_its_model_and_no_other(product: str, model: str) -> None:
    assert [one for one in GPU_MODELS if is_model(product, one)] == [model]


# What travels.


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_node_with_python_38_can_read_it(file: Path) -> None:
    tree = ast.parse(file.read_text(), feature_version=(3, 8))
    newer = {"removeprefix", "removesuffix", "match_case"}
    assert not newer & {one.attr for one in ast.walk(tree) if isinstance(one, ast.Attribute)}
    for one in ast.walk(tree):
        if isinstance(one, ast.ImportFrom) and one.module and one.module.startswith("infra"):
            assert one.module.startswith("infra.capabilities.acceptance.node"), "nothing else travels"


def test_the_role_installs_all_of_it() -> None:
    there = {file.name for file in (ROOT / "roles/acceptance/files").iterdir()}
    assert there == {file.name for file in FILES}
    text = (ROOT / "roles/acceptance/tasks/program.yml").read_text()
    assert all(file.name in text for file in FILES)
    for file in FILES:
        assert (ROOT / "roles/acceptance/files" / file.name).resolve() == file.resolve()


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the program keeps what it finds; its tools have eight good GPUs, and DCGM."""
    (tmp_path / "expected").write_text(json.dumps(EXPECTED | {"metrics_dir": str(tmp_path)}))
    monkeypatch.setattr(program, "EXPECTED", tmp_path / "expected")
    monkeypatch.setattr(program, "KEPT", tmp_path)
    monkeypatch.setattr(xid, "journal", lambda _cursor: "")
    given_tools(monkeypatch)
    return tmp_path


def given_tools(monkeypatch: pytest.MonkeyPatch, **said: str) -> FakeTools:
    good = {"nvidia-smi": all_gpus(), "dcgmi": diag("DCGM Diagnostic", "Pass")}
    own = {name.replace("_", "-"): text for name, text in said.items()}
    made = FakeTools({**good, "chronyc": SYNCHRONISED.format(0, "Normal"), **own})
    monkeypatch.setattr(program, "Tools", lambda: made)
    return made


def kept_verdict(kept: Path) -> dict[str, Any]:
    return dict(json.loads((kept / "verdict.json").read_text()))


def test_auto_tries_a_node_that_waits_and_leaves_one_that_is_in_alone(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = given_tools(monkeypatch).ran
    assert program.main(["auto"]) == 0
    assert ("dcgmi", "diag", "-r", "2", "-j") in ran
    assert kept_verdict(kept)["tier"] == "active"
    ran.clear()
    assert program.main(["auto"]) == 0
    assert kept_verdict(kept)["tier"] == "passive"
    assert not any(argv[0] == "dcgmi" for argv in ran)


BUSY = all_gpus(g2={"processes": PROCESS})
SEVEN = smi(gpu(n) for n in range(7))


@pytest.mark.parametrize("log", [BUSY, SEVEN], ids=["at work", "bad"])
def test_auto_does_not_try_a_node_that_is_at_work_or_bad(
    log: str, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = given_tools(monkeypatch, nvidia_smi=log).ran
    assert program.main(["auto"]) == program.KEPT_AWAY
    assert not any(argv[0] == "dcgmi" for argv in ran)
    given_tools(monkeypatch)
    assert program.main(["auto"]) == 0, "and tries it once it can"
    assert kept_verdict(kept)["accepted"]


def test_auto_does_not_try_again_what_was_refused_just_before(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_tools(monkeypatch, dcgmi=diag("DCGM Diagnostic", "Fail"))
    assert program.main(["auto"]) == program.KEPT_AWAY
    assert kept_verdict(kept)["action"] == "repair"
    ran = given_tools(monkeypatch).ran
    assert program.main(["auto"]) == program.KEPT_AWAY
    assert not any(argv[0] == "dcgmi" for argv in ran)
    monkeypatch.setattr(program, "BOOT_ID", kept / "boot")
    (kept / "boot").write_text("another\n")
    assert program.main(["auto"]) == 0


def test_after_a_repair_dcgm_goes_deeper(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = given_tools(monkeypatch).ran
    assert program.main(["active", "--repaired"]) == 0
    assert ("dcgmi", "diag", "-r", "4", "-j") in ran
    assert kept_verdict(kept)["severity"] == "good"
    assert (
        'causeway_acceptance_verdict{severity="good",action="none"} 1\n'
        in (kept / "causeway_acceptance.prom").read_text()
    )


def test_the_program_runs_by_itself(tmp_path: Path) -> None:
    """As on a node, where neither the rest of the checkout nor its packages are."""
    package = tmp_path / "infra/capabilities/acceptance/node"
    package.mkdir(parents=True)
    for file in FILES:
        (package / file.name).write_bytes(file.read_bytes())
    text = (
        f"import runpy, sys; sys.path.insert(0, {str(tmp_path)!r}); sys.argv = ['x', 'show']; "
        "runpy.run_module('infra.capabilities.acceptance.node', run_name='__main__')"
    )
    words = [sys.executable, "-I", "-c", text]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["boot_id"], done.stderr
