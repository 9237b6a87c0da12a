"""A node says of itself whether it is good: held against what is declared, never good by default."""

import json
import shlex
from typing import Any

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder, ask, run_anew

pytestmark = pytest.mark.deadline(120)

UNIT = "causeway-acceptance"
PROGRAM = "/usr/local/sbin/causeway-acceptance"
STAY = ("none", "watch")
GPU = (
    '<gpu id="00000000:1{}:00.0"><product_name>NVIDIA H100 80GB HBM3</product_name>'
    "<temperature><gpu_temp>41 C</gpu_temp></temperature></gpu>"
)
NO_CUDA = """#!/bin/sh
echo '{"error": "the GPUs of this machine are not to be disturbed", "gpus": []}'
"""
"""Where there are GPUs, jobs may be on them."""
ELSEWHERE = """
import contextlib, io, json, os, sys
from pathlib import Path
sys.path.insert(0, "/usr/local/lib/causeway")
from infra.capabilities.acceptance.node import __main__ as program
folder, tiers = Path(sys.argv[1]), sys.argv[2].split()
program.EXPECTED, program.KEPT = folder / "expected", folder
os.environ["PATH"] = f"{folder}:/usr/bin:/bin"
with contextlib.redirect_stdout(io.StringIO()):
    for tier in tiers:
        program.main([tier])
told = json.loads((folder / "verdict.json").read_text())
series = folder / "causeway_gpu.prom"
print(json.dumps({**told, "series": series.read_text() if series.exists() else ""}))
sys.stdout.flush()
os._exit(0)
"""
"""The node's own program, with other expectations, another place for what it keeps, and tools of ours."""
H100 = {"gpus": 8, "gpu_model": "h100-sxm", "simulated": False, "nic_count": 0, "nvme_disks": None}
H100 |= {"memory_gib": None, "vendor": "nvidia"}


@pytest.fixture(scope="module")
def said(host: Host) -> dict[str, Any]:
    """The verdict of a look that is made now, as its timer makes it."""
    before = int(host.run("date +%s").stdout)
    done = host.run(run_anew(f"{UNIT}.service"))
    assert done.rc == 0, f"a bad node is no failure of the unit: {done.stderr}"
    shown = host.run(f"{PROGRAM} show")
    assert shown.rc == 0, shown.stderr
    answer = json.loads(shown.stdout)
    assert answer["verdict"]["at"] >= before - 1
    assert answer["verdict"]["boot_id"] == answer["boot_id"]
    return dict(answer["verdict"])


def elsewhere(host: Host, gpus: int, tiers: str, **more: Any) -> dict[str, Any]:
    """What the program says here, where nvidia-smi would have so many GPUs."""
    folder = host.run("mktemp -d").stdout.strip()
    known = json.loads(host.file("/etc/causeway/acceptance.json").content_string)
    expected = json.dumps({**known, "metrics_dir": folder, "nics": [], **H100, **more})
    try:
        log = f"<nvidia_smi_log>{''.join(map(GPU.format, range(gpus)))}</nvidia_smi_log>"
        tool = f"#!/bin/sh\necho {shlex.quote(log)}\n"
        for name, text in (("nvidia-smi", tool), ("python3", NO_CUDA), ("expected", expected)):
            host.run_test("printf %%s %s | install -m 0755 /dev/stdin %s/%s", text, folder, name)
        return dict(ask(host, ELSEWHERE, folder, tiers))
    finally:
        host.run(f"rm -r {folder}")


def test_its_gpus(said: dict[str, Any], expect: Expect, verdict: VerdictRecorder) -> None:
    declared = expect.acceptance_gpus
    assert said["gpus_declared"] == declared
    if not declared:
        verdict.not_declared("no GPUs")
    if expect.acceptance_simulated:
        assert said["severity"] != "good"
        assert any("no GPU here" in reason for reason in said["reasons"])
        verdict.unsupported("no GPU here: they are declared, and simulated")
    if said["gpus_found"] < declared:
        assert said["action"] not in STAY, "a GPU is missing, and jobs may start"


def test_its_metrics_say_the_same(host: Host, said: dict[str, Any], expect: Expect) -> None:
    text = host.file(f"{expect.acceptance_metrics_dir}/causeway_acceptance.prom").content_string
    labels = f'{{severity="{said["severity"]}",action="{said["action"]}"}}'
    assert f"causeway_acceptance_verdict{labels} 1\n" in text
    assert f"causeway_acceptance_verdict_timestamp_seconds {said['at']}\n" in text


def test_eight_gpus_are_good_and_seven_are_not(host: Host) -> None:
    eight, seven = (elsewhere(host, number, "passive") for number in (8, 7))
    assert not any("declared GPUs" in reason for reason in eight["reasons"])
    assert "7 of 8 declared GPUs" in "".join(seven["reasons"])
    assert seven["action"] not in STAY


def test_gpus_are_told_as_metrics_each_minute(host: Host, expect: Expect) -> None:
    done = host.run(run_anew("causeway-gpus.service"))
    assert done.rc == 0, done.stderr
    shown = host.run("systemctl show -P UnitFileState -P ActiveState causeway-gpus.timer").stdout.split()
    assert sorted(shown) == ["active", "enabled"]
    own = host.file(f"{expect.acceptance_metrics_dir}/causeway_gpu.prom").content_string
    known = (
        expect.acceptance_gpus
        and not expect.acceptance_simulated
        and expect.acceptance_gpu_vendor == "nvidia"
    )
    assert bool(own) == bool(known)
    series = elsewhere(host, 2, "passive series")["series"]
    assert 'causeway_gpu_temperature_celsius{gpu="1",pci="0000:11:00"} 41\n' in series
    assert "causeway_gpu_found 2\n" in series
    assert "causeway_gpu_declared 8\n" in series


def test_joining_is_earned(host: Host) -> None:
    """Where nothing tries the GPUs the node waits, however good it looks."""
    new = elsewhere(host, 8, "passive active passive")
    assert (new["severity"], new["accepted"]) == ("waiting", False)
    without = elsewhere(host, 0, "passive active passive", simulated=True)
    assert (without["severity"], without["accepted"]) == ("unsupported", True)


def test_it_looks_at_boot_and_as_often_as_declared(host: Host, expect: Expect) -> None:
    shown = host.run(f"systemctl show -P UnitFileState -P ActiveState {UNIT}.timer").stdout.split()
    assert sorted(shown) == ["active", "enabled"]
    spans = host.run(f"systemctl show -P TimersMonotonic {UNIT}.timer").stdout
    assert "OnBootUSec=1min" in spans
    hours, minutes = divmod(expect.acceptance_interval_min, 60)
    span = " ".join(f"{number}{unit}" for number, unit in ((hours, "h"), (minutes, "min")) if number)
    assert f"OnUnitInactiveUSec={span} " in spans
