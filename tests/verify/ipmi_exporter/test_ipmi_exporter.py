"""What a BMC says: there for who shows a certificate, read with no more rights than that takes."""

import re

import pytest
from testinfra.host import Host

from tests.verify.monitoring import TLS, answer, refuses_strangers
from tests.verify.support import Expect, VerdictRecorder

UNIT = "prometheus-ipmi-exporter.service"
USER = "ipmi-exporter"
NO_BMC = "no BMC"
MAY_FAIL = {"dcmi"}
"""Not every BMC has the DCMI extension."""
LOOK_S = 50
"""As long as Prometheus waits for one look. A busy BMC may leave one out: it is looked at once more."""
pytestmark = pytest.mark.deadline(2 * LOOK_S + 20)


def told(host: Host, expect: Expect) -> bool:
    """Whether the node says that it has a BMC."""
    said = host.file(f"{expect.ipmi_exporter_textfile_dir}/causeway_bmc.prom").content_string
    return {"causeway_bmc_present 1\n": True, "causeway_bmc_present 0\n": False}[said]


@pytest.fixture
def bmc(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if not told(host, expect):
        verdict.unsupported(NO_BMC)


def test_it_says_whether_there_is_a_bmc(host: Host, expect: Expect) -> None:
    there = host.run(f"test -c {expect.ipmi_exporter_device}").rc == 0
    assert told(host, expect) == there
    if not there:
        assert host.run(f"systemctl cat {UNIT}").rc != 0, "nothing is installed for a BMC that is not there"


@pytest.mark.usefixtures("bmc")
def test_no_answer_without_a_certificate(host: Host, expect: Expect) -> None:
    refuses_strangers(host, expect.ipmi_exporter_address, expect.ipmi_exporter_port)


@pytest.mark.usefixtures("bmc")
def test_the_bmc_answers(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if not host.file(f"{TLS}/prometheus.pem").exists:
        verdict.rendered("this node may not ask it; the check of its region's Prometheus does")
    url = f"https://{expect.ipmi_exporter_address}:{expect.ipmi_exporter_port}/metrics"
    sensors = "ipmi" in expect.ipmi_exporter_collectors
    read = 'ipmi_up{collector="ipmi"} 1' if sensors else "ipmi_up"
    said = answer(host, url, "prometheus", f"found and {read!r} in found", LOOK_S, read_s=LOOK_S)
    up = dict(re.findall(r'^ipmi_up\{collector="([a-z]+)"\} (\d)$', said, re.MULTILINE))
    assert set(up) == set(expect.ipmi_exporter_collectors)
    assert {name for name, value in up.items() if value != "1"} <= MAY_FAIL, up
    if "ipmi" in up:
        assert re.search(r"^ipmi_[a-z]+_state\{", said, re.MULTILINE), "a BMC without sensors"


@pytest.mark.usefixtures("bmc")
def test_it_is_nobody_and_has_no_right(host: Host) -> None:
    pid = host.run(f"systemctl show -P MainPID {UNIT}").stdout.strip()
    status = dict(line.split(":", 1) for line in host.file(f"/proc/{pid}/status").content_string.splitlines())
    assert set(status["Uid"].split()) == {str(host.user(USER).uid)} != {"0"}
    assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert status["NoNewPrivs"].strip() == "1"


@pytest.mark.usefixtures("bmc")
def test_the_device_is_its_alone(host: Host, expect: Expect) -> None:
    device = expect.ipmi_exporter_device
    assert belongs(host, device) == f"root:{USER}:660"
    others = host.run(f"setpriv --reuid=prometheus --regid=prometheus --init-groups test -r {device}")
    assert others.rc != 0, "node_exporter could switch the machine off"


def belongs(host: Host, device: str) -> str:
    """Owner, group and mode."""
    return str(host.run(f"stat --dereference --format=%U:%G:%a {device}").stdout.strip())


@pytest.mark.experiment
@pytest.mark.usefixtures("bmc")
def test_the_device_is_roots_again_when_it_ends(host: Host, expect: Expect) -> None:
    host.run(f"systemctl stop {UNIT}")
    try:
        assert belongs(host, expect.ipmi_exporter_device) == "root:root:600"
    finally:
        assert host.run(f"systemctl start {UNIT}").rc == 0


@pytest.mark.usefixtures("bmc")
def test_it_comes_back(host: Host) -> None:
    shown = host.run(f"systemctl show -P Restart -P UnitFileState -P ActiveState {UNIT}").stdout.split()
    assert sorted(shown) == ["active", "always", "enabled"]
