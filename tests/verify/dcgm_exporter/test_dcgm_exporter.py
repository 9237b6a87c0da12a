"""What DCGM says of GPUs: there for who shows a certificate, read with no more rights than that takes."""

import re

import pytest
from testinfra.host import Host

from tests.verify.monitoring import TLS, answer, refuses_strangers
from tests.verify.support import Expect, VerdictRecorder

UNIT = "nvidia-dcgm-exporter.service"
GPUS = "/proc/driver/nvidia/gpus"
FIRST_LOOK_S = 60
"""The engine looks every few seconds; after a start the exporter has nothing to say for some of them."""
pytestmark = pytest.mark.deadline(FIRST_LOOK_S + 30)


@pytest.fixture(name="gpus")
def _gpus(host: Host, verdict: VerdictRecorder) -> int:
    """How many GPUs the driver has."""
    found = host.run(f"ls {GPUS}").stdout.split()
    if not found:
        verdict.unsupported("no GPU here")
    return len(found)


def test_it_waits_for_a_gpu(host: Host) -> None:
    shown = host.run(f"systemctl show -P UnitFileState -P Restart -P ActiveState {UNIT}").stdout.split()
    assert {"enabled", "always"} <= set(shown)
    assert "failed" not in shown
    waits = host.run(f"systemctl cat {UNIT}").stdout
    assert f"ConditionPathExistsGlob={GPUS}/*" in waits


def test_it_is_told_to_ask_for_certificates(host: Host, expect: Expect) -> None:
    words = host.file("/etc/default/nvidia-dcgm-exporter").content_string
    assert "--web-config-file=/etc/prometheus/nvidia-dcgm-exporter.web.yml" in words
    assert f"--address={expect.dcgm_exporter_address}:{expect.dcgm_exporter_port}" in words
    run = re.findall(r"^ExecStart=(.*)$", host.run(f"systemctl cat {UNIT}").stdout, re.MULTILINE)
    assert run[-2:] == ["", "/usr/bin/dcgm-exporter $ARGS"], "the package's own command line is taken back"


@pytest.mark.usefixtures("gpus")
def test_no_answer_without_a_certificate(host: Host, expect: Expect) -> None:
    refuses_strangers(host, expect.dcgm_exporter_address, expect.dcgm_exporter_port)


def test_every_gpu_is_told(host: Host, expect: Expect, verdict: VerdictRecorder, gpus: int) -> None:
    if not host.file(f"{TLS}/prometheus.pem").exists:
        verdict.rendered("this node may not ask it; the check of its region's Prometheus does")
    url = f"https://{expect.dcgm_exporter_address}:{expect.dcgm_exporter_port}/metrics"
    name = next(iter(expect.dcgm_exporter_fields))
    said = answer(host, url, "prometheus", f"found and {name!r} in found", FIRST_LOOK_S)
    assert len(set(re.findall(rf'^{name}\{{gpu="([0-9]+)"', said, re.MULTILINE))) == gpus


@pytest.mark.usefixtures("gpus")
def test_it_is_nobody_and_has_no_right(host: Host) -> None:
    pid = host.run(f"systemctl show -P MainPID {UNIT}").stdout.strip()
    status = dict(line.split(":", 1) for line in host.file(f"/proc/{pid}/status").content_string.splitlines())
    assert set(status["Uid"].split()) == {str(host.user("prometheus").uid)} != {"0"}
    assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
