"""A region's alerts: one that is raised here is taken, shown and resolved; its members know each other."""

import hashlib
import json
from datetime import UTC, datetime, timedelta

import pytest
from testinfra.host import Host

from tests.verify.monitoring import answer, refuses_strangers
from tests.verify.support import Expect

SERVICE = "prometheus-alertmanager"
PATIENCE_S = 60
"""Members find each other and settle within half a minute."""
pytestmark = pytest.mark.deadline(2 * PATIENCE_S + 20)


def test_no_answer_without_a_certificate(host: Host, expect: Expect) -> None:
    refuses_strangers(host, expect.alertmanager_address, 9093)


def test_an_alert_is_taken_and_resolves(host: Host, expect: Expect) -> None:
    labels = {"alertname": "CausewayVerification", "instance": expect.host_name, "severity": "info"}
    api = f"https://{expect.alertmanager_address}:9093/api/v2/alerts"
    mine = f"{api}?filter=alertname=%22CausewayVerification%22&filter=instance=%22{expect.host_name}%22"
    now = datetime.now(UTC)

    def tell(starts: datetime, ends: datetime) -> None:
        alert = {"labels": labels, "startsAt": starts.isoformat(), "endsAt": ends.isoformat()}
        answer(host, api, SERVICE, body=json.dumps([alert]))

    tell(now - timedelta(hours=1), now + timedelta(hours=1))
    try:
        found = answer(host, mine, SERVICE, "len(found) == 1", PATIENCE_S)
        assert [one["labels"] for one in found] == [labels]
    finally:
        tell(now - timedelta(hours=1), now - timedelta(minutes=30))
    assert answer(host, mine, SERVICE, "found == []", PATIENCE_S) == []


def test_it_runs_with_what_is_written(host: Host, expect: Expect) -> None:
    written = host.file("/etc/prometheus/causeway-alertmanager.yml").content
    text = str(answer(host, f"https://{expect.alertmanager_address}:9093/metrics", SERVICE))
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    assert float(values["alertmanager_config_last_reload_successful"]) == 1
    assert float(values["alertmanager_config_hash"]) == hashed(written), "the file is not loaded; reload it"


def hashed(config: bytes) -> float:
    """As it says of what it has loaded: 48 bits of its MD5 (config/coordinator.go in its source)."""
    return float(int.from_bytes(hashlib.md5(config).digest()[:6], "little"))  # noqa: S324 - its own


def test_every_receiver_is_known(host: Host, expect: Expect) -> None:
    found = answer(host, f"https://{expect.alertmanager_address}:9093/api/v2/receivers", SERVICE)
    always = {"nobody"} | ({"dead-man"} if expect.alertmanager_dead_man else set())
    declared = {receiver["name"] for receiver in expect.alertmanager_receivers}
    assert {one["name"] for one in found} == declared | always


def test_members_know_each_other(host: Host, expect: Expect) -> None:
    others = len(expect.alertmanager_members) > 1
    ready = "found['cluster']['status'] == 'ready'"
    known = f"len(found['cluster'].get('peers', [])) == {len(expect.alertmanager_members)}"
    wanted = f"{ready} and {known}" if others else ""
    found = answer(
        host, f"https://{expect.alertmanager_address}:9093/api/v2/status", SERVICE, wanted, PATIENCE_S
    )
    assert found["cluster"]["status"] == ("ready" if others else "disabled")
    if others:
        addresses = sorted(peer["address"] for peer in found["cluster"]["peers"])
        assert addresses == sorted(f"{address}:9094" for address in expect.alertmanager_members)


def test_what_receivers_need_is_no_others_to_read(host: Host) -> None:
    folder = host.file("/etc/prometheus/causeway-receivers")
    assert (folder.mode, folder.group) == (0o750, "prometheus")
    shown = host.run("find /etc/prometheus/causeway-receivers -type f -perm /o=rwx").stdout
    assert shown == ""


def test_it_comes_back(host: Host) -> None:
    shown = host.run(f"systemctl show -P Restart -P UnitFileState -P ActiveState {SERVICE}").stdout.split()
    assert sorted(shown) == ["active", "always", "enabled"]
