"""How a gateway shares a link out and says what it measured: the role's own code."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.loaded import load

CODE = Path(__file__).resolve().parents[2] / "roles" / "wan_gateway" / "files" / "causeway_wan_gateway.py"
LINK = {
    "name": "sea",
    "address": "100.100.0.1/30",
    "peer": "100.100.0.2",
    "rtt_ms": 70.0,
    "bandwidth_mbps": 100.0,
    "loss_pct": 0.2,
    "mtu_bytes": 1500,
    "handover_mtu_bytes": 1500,
    "classes": {"management_pct": 10, "scheduler_pct": 20, "replication_pct": 60, "scavenger_pct": 10},
}
TUNNELLED = {**LINK, "mtu_bytes": 1440, "tunnel": {"address": "100.101.0.1/30", "peer": "100.101.0.2"}}


@pytest.fixture
def gateway() -> ModuleType:
    return load(CODE)


def test_shares_fit_the_link_and_leave_the_queue_here(gateway: ModuleType) -> None:
    classes = gateway.wanted_classes(LINK, 95)
    leaves = [values for handle, values in classes.items() if handle != "1:1"]
    assert classes["1:1"]["rate"] == 95e6 / 8
    assert sum(values["rate"] for values in leaves) <= classes["1:1"]["rate"]
    assert {values["ceil"] for values in leaves} == {classes["1:1"]["rate"]}
    assert [values["prio"] for values in leaves] == [0, 1, 2, 3]


def test_what_a_tunnel_adds_goes_off_its_rate(gateway: ModuleType) -> None:
    assert gateway.root_bytes_s(TUNNELLED, 100) == 100e6 / 8 * 1440 / 1500
    assert gateway.inner(TUNNELLED, "peer") == "100.101.0.2"
    assert gateway.inner(LINK, "peer") == "100.100.0.2"


def test_rates_as_the_kernel_rounds_them_are_the_same(gateway: ModuleType) -> None:
    wanted = gateway.wanted_classes(LINK, 95)
    assert gateway.same(
        {handle: {**values, "rate": values["rate"] - 1} for handle, values in wanted.items()}, wanted
    )
    slower = {**wanted, "1:30": {**wanted["1:30"], "rate": wanted["1:30"]["rate"] * 9 // 10}}
    assert not gateway.same(slower, wanted)
    assert not gateway.same({"1:1": wanted["1:1"]}, wanted)


def test_loss_is_reported_over_many_rounds(gateway: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def ping(_link: Any, count: int, *options: str) -> tuple[int, list[float]]:
        return count, [70.0] * (count if options else count - 3)

    monkeypatch.setattr(gateway, "ping", ping)
    window = [[30, 0] for _ in range(19)]
    found = {name: value for name, _, value in gateway.measure(LINK, 30, window)}
    assert found["loss_ratio"] == pytest.approx(3 / 600)
    assert found["declared_loss_ratio"] == pytest.approx(0.004, rel=0.01)
    assert (found["up"], found["rtt_seconds"], found["mtu_bytes"]) == (1, 0.07, 1500)
    gateway.measure(LINK, 30, window)
    assert sum(sent for sent, _ in window) == 600, "older rounds are forgotten"


def test_a_dead_link_has_no_round_trip(gateway: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "ping", lambda _link, count, *_options: (count, []))
    found = gateway.measure(LINK, 30, [])
    text = "\n".join(gateway.exposition(found, 1.0))
    assert 'causeway_wan_link_up{link="sea"} 0' in text
    assert 'causeway_wan_link_loss_ratio{link="sea"} 1' in text
    assert 'causeway_wan_link_rtt_seconds{link="sea"}' not in text


def test_the_largest_packet_is_found(gateway: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def ping(_link: Any, count: int, *options: str) -> tuple[int, list[float]]:
        size = int(options[options.index("-s") + 1]) + 28
        return count, [70.0] if size <= 1392 else []

    monkeypatch.setattr(gateway, "ping", ping)
    assert gateway.path_mtu(LINK) == 1392
