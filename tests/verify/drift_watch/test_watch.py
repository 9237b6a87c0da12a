"""A node tells of its own drift: a difference shows in the metrics, and is gone from them once it is gone."""

import json
import re
from collections.abc import Callable, Iterator

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, run_anew, settled

MANIFEST = "/var/lib/causeway/manifest.json"
TIMER = "causeway-drift-watch.timer"
SERVICE = "causeway-drift-watch.service"
GOVERNED = f"/etc/systemd/system/{TIMER}"
"""A file of the role's own whose mode may be another for a moment."""
NEVER = ("", "infinity")
LOOK_S = 120
"""A look gives way to everything else: on a busy node it takes as long as its unit lets it."""
pytestmark = pytest.mark.deadline(2 * LOOK_S)
OURS = {
    "machine": "",
    "salt": "none",
    "roles": {
        "drift_watch": {
            "sealed_at": "2026-01-01T00:00:00+00:00",
            "entries": [
                {"kind": "file", "key": GOVERNED, "task": "a check", "how": {}, "want": {"mode": "0644"}}
            ],
        }
    },
}
"""Stands in where nothing was sealed, as on a node that is not part of a stack."""
Look = Callable[[], dict[str, float]]


@pytest.fixture(scope="module")
def look(host: Host, expect: Expect) -> Iterator[Look]:
    """Makes the node look now, as its timer does; metric → value."""
    stands_in = host.run(f"test -e {MANIFEST}").rc != 0
    if stands_in:
        text = json.dumps(OURS).replace("'", "")
        assert host.run(f"mkdir -p /var/lib/causeway && echo '{text}' > {MANIFEST}").rc == 0

    def metrics() -> dict[str, float]:
        file = f"{expect.drift_watch_metrics_dir}/causeway_drift.prom"
        done = host.run(f"{run_anew(SERVICE)} && cat {file}")
        assert done.rc == 0, done.stderr
        lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    yield metrics
    if stands_in:
        host.run(f"rm {MANIFEST}")


@pytest.fixture(scope="module")
def looked_at(host: Host, look: Look) -> tuple[float, dict[str, float]]:
    """One look for all who ask only about that: the node's time just before it in seconds, what it found."""
    now = float(host.run("date +%s").stdout)
    return now, look()


@pytest.mark.experiment
def test_a_difference_shows_and_goes(
    host: Host, look: Look, looked_at: tuple[float, dict[str, float]]
) -> None:
    own, (_now, before) = 'causeway_drift_differences{role="drift_watch"}', looked_at
    assert before["causeway_drift_scan_success"] == 1
    try:
        assert host.run(f"chmod 0600 {GOVERNED}").rc == 0
        assert look()[own] == before[own] + 1
    finally:
        assert host.run(f"chmod 0644 {GOVERNED}").rc == 0
    assert look()[own] == before[own]


def test_its_probe_is_compiled_once_where_only_root_reads(
    host: Host, looked_at: tuple[float, dict[str, float]]
) -> None:
    """And nothing beside the sources, where somebody else may have compiled all that there is."""
    now, _found = looked_at
    assert host.run("find /run/causeway-drift/compiled -name 'probe.*.pyc'").stdout
    assert host.file("/run/causeway-drift").mode == 0o700
    assert host.run(f"find /usr/local/lib/causeway/infra -name '*.pyc' -newermt @{now:.0f}").stdout == ""


def test_it_tells_when_it_looked(host: Host, looked_at: tuple[float, dict[str, float]]) -> None:
    now, found = looked_at
    longest_s = seconds(host.run(f"systemctl show -P TimeoutStartUSec {SERVICE}").stdout.strip())
    # One look may have been under way, which is waited for.
    assert now - 1 <= found["causeway_drift_scan_timestamp_seconds"] <= now + longest_s
    assert 0 < found["causeway_drift_scan_duration_seconds"] < longest_s


def test_a_manifest_that_cannot_be_read_is_no_success(host: Host, expect: Expect) -> None:
    folder = host.run("mktemp -d").stdout.strip()
    try:
        argv = re.search(r"argv\[\]=(.*?) ;", host.run(f"systemctl show -P ExecStart {SERVICE}").stdout)
        environment = host.run(f"systemctl show -P Environment {SERVICE}").stdout.strip()
        assert argv
        command = argv[1].replace(MANIFEST, f"{folder}/none").replace(expect.drift_watch_metrics_dir, folder)
        done = host.run(f"echo '{{' > {folder}/none; env {environment} {command}")
        assert done.rc == 0, done.stderr
        assert "causeway_drift_scan_success 0\n" in host.file(f"{folder}/causeway_drift.prom").content_string
    finally:
        host.run(f"rm -r {folder}")


@pytest.mark.usefixtures("looked_at")  # a timer that has not fired yet has nothing to count from
def test_it_looks_as_often_as_declared(host: Host, expect: Expect) -> None:
    assert host.run(f"systemctl is-enabled {TIMER}; systemctl is-active {TIMER}").stdout.split() == [
        "enabled",
        "active",
    ]
    longest_s = expect.drift_watch_interval_s + expect.drift_watch_jitter_s
    ask = f"systemctl show --timestamp=unix -P NextElapseUSecMonotonic {TIMER}"
    # While it looks, no next look is due.
    elapse = settled(lambda: host.run(ask).stdout.strip(), lambda due: due not in NEVER, LOOK_S)
    assert elapse not in NEVER, "no next look is due"
    uptime_s = float(host.file("/proc/uptime").content_string.split()[0])
    assert seconds(elapse) - uptime_s <= longest_s + 5


def seconds(span: str) -> float:
    """`1h 2min 3.5s` in seconds."""
    units = {
        "y": 31557600,
        "month": 2629800,
        "w": 604800,
        "d": 86400,
        "h": 3600,
        "min": 60,
        "s": 1,
        "ms": 1e-3,
        "us": 1e-6,
    }
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)([a-z]+)", span))


@pytest.mark.usefixtures("looked_at")
def test_it_gives_way_to_everything_else(host: Host) -> None:
    shown = host.run(f"systemctl show -P Nice -P IOSchedulingClass -P CPUSchedulingPolicy {SERVICE}").stdout
    assert shown.split() == ["19", "3", "5"]
    assert host.run(f"systemctl show -P Result {SERVICE}").stdout.strip() == "success"
