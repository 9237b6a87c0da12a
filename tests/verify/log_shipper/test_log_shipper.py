"""A node's journal on its way: a line is delivered, none is dropped, no secret lies in the queue."""

import re
import time
import uuid

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, run_anew

UNIT = "causeway-log-shipper"
DATA = "/var/lib/causeway-log-shipper"
PATIENCE_S = 60
"""Lines are collected for a second; the rest is a busy node, and a store that has just been restarted."""
pytestmark = pytest.mark.deadline(PATIENCE_S + 20)


def counts(host: Host) -> dict[str, float]:
    """Result → lines, and `unreachable`."""
    said = host.run("syslog-ng-ctl stats prometheus --control=/run/causeway-log-shipper/control").stdout
    found = re.findall(r'^syslogng_output_events_total\{.*result="(\w+)"\} (\S+)', said, re.MULTILINE)
    away = re.findall(r"^(syslogng_output_unreachable)\{.*\} (\S+)", said, re.MULTILINE)
    return {name: float(value) for name, value in found + away}


def test_what_is_logged_is_delivered(host: Host) -> None:
    before = counts(host)
    host.run_test("logger -t causeway-verification '%s'", uuid.uuid4().hex)
    deadline = time.monotonic() + PATIENCE_S
    while (now := counts(host))["delivered"] <= before["delivered"] and time.monotonic() < deadline:
        time.sleep(1)
    assert now["delivered"] > before["delivered"]
    assert now["dropped"] == 0
    assert now["syslogng_output_unreachable"] == 0


def test_no_secret_lies_in_the_queue(host: Host) -> None:
    secret = "sesame" + uuid.uuid4().hex
    for line in (
        f"password={secret}",
        f'{{"token": "{secret}"}}',
        f"Authorization: Bearer {secret}",
        f"postgres://me:{secret}@db/x",
        f"X-Consul-Token: {secret}",
        f"-----BEGIN EC PRIVATE KEY----- {secret}",
    ):
        host.run_test("logger -t causeway-verification -- '%s'", line)
    mark = uuid.uuid4().hex
    host.run_test("logger -t causeway-verification '%s'", mark)
    deadline = time.monotonic() + PATIENCE_S
    while host.run(f"grep -rlaF {mark} {DATA}").rc and time.monotonic() < deadline:
        time.sleep(0.5)
    assert host.run(f"grep -rlaF {mark} {DATA}").rc == 0, "it does not come by the queue"
    assert host.run(f"grep -rlaF {secret} {DATA}").stdout == ""


def test_its_certificate_opens_no_other_service(host: Host) -> None:
    shown = host.run(
        "openssl x509 -in /etc/causeway-logs/shipper/certificate.pem -noout -ext extendedKeyUsage"
    ).stdout
    assert "TLS Web Client Authentication" in shown
    assert "Server" not in shown


def test_it_tells_of_itself(host: Host, expect: Expect) -> None:
    file = f"{expect.log_shipper_textfile_dir}/causeway_logs.prom"
    said = host.run(f"{run_anew(f'{UNIT}-metrics.service')} && cat {file}; date +%s").stdout
    *lines, now = said.splitlines()
    names = {re.split(r"[{ ]", line)[0] for line in lines}
    assert names >= {
        "syslogng_output_events_total",
        "syslogng_output_unreachable",
        "syslogng_disk_queue_disk_usage_bytes",
        "syslogng_disk_queue_capacity_bytes",
        "causeway_log_shipper_read_timestamp_seconds",
    }
    read = next(line for line in lines if line.startswith("causeway_log_shipper_read"))
    assert 0 <= int(now) - int(read.split()[1]) <= 60


def test_it_comes_back(host: Host) -> None:
    shown = host.run(f"systemctl show -P Restart -P UnitFileState -P ActiveState {UNIT}").stdout.split()
    assert sorted(shown) == ["active", "always", "enabled"]


def test_the_packages_own_daemon_stays_away(host: Host) -> None:
    shown = host.run("systemctl show -P LoadState -P ActiveState syslog-ng.service").stdout.split()
    assert sorted(shown) == ["inactive", "masked"]
