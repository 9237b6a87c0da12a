"""How a gateway shares a link out and says what it measured: the role's own code."""

import math
import os
import re
import time
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loaded import load

CODE = Path(__file__).resolve().parents[2] / "roles" / "wan_gateway" / "files" / "causeway_wan_gateway.py"
GATEWAY = load(CODE)
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
    def ping(_peer: str, count: int, *options: str) -> tuple[int, list[float]]:
        return count, [70.0] * (count if "-M" in options else count - 3)

    monkeypatch.setattr(gateway, "ping", ping)
    window = [[30, 0] for _ in range(19)]
    found = {name: value for name, _, value in gateway.measure(LINK, 30, window)}
    assert found["link_loss_ratio"] == pytest.approx(3 / 600)
    assert found["link_declared_loss_ratio"] == pytest.approx(0.004, rel=0.01)
    assert (found["link_up"], found["link_rtt_seconds"], found["link_mtu_bytes"]) == (1, 0.07, 1500)
    gateway.measure(LINK, 30, window)
    assert sum(sent for sent, _ in window) == 600, "older rounds are forgotten"


def test_a_dead_link_has_no_round_trip(gateway: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "ping", lambda _peer, count, *_options: (count, []))
    found = gateway.measure(LINK, 30, [])
    text = "\n".join(gateway.exposition(found, 1.0))
    assert 'causeway_wan_link_up{link="sea"} 0' in text
    assert 'causeway_wan_link_loss_ratio{link="sea"} 1' in text
    assert 'causeway_wan_link_rtt_seconds{link="sea"}' not in text


def test_the_largest_packet_is_found(gateway: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def ping(_peer: str, count: int, *options: str) -> tuple[int, list[float]]:
        size = int(options[options.index("-s") + 1]) + 28
        return count, [70.0] if size <= 1392 else []

    monkeypatch.setattr(gateway, "ping", ping)
    assert gateway.path_mtu(LINK) == 1392


# Neighbours

SEA = {**LINK, "peer_asn": 64601}
CONFIG = {
    "links": [
        SEA,
        {**SEA, **TUNNELLED, "name": "tunnel"},
        {**LINK, "name": "plain", "peer": "100.100.0.6"},
    ],
    "gateways": ["10.81.0.12"],
}
ESTABLISHED = {
    **{"state": "Established", "pfxRcd": 1, "peerUptimeEstablishedEpoch": 1764091234},
    "connectionsDropped": 3,
}
LABELS = {
    "100.100.0.2": 'link="sea",peer="100.100.0.2"',
    "100.101.0.2": 'link="tunnel",peer="100.101.0.2"',
    "10.81.0.12": 'peer="10.81.0.12"',
}

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
addresses = st.sampled_from([*LABELS, "100.100.0.6", "198.51.100.1", "\n", 'x"} 1\n'])
sessions = st.fixed_dictionaries(
    {},
    optional={
        "state": st.sampled_from(["Established", "Idle (Admin)", "Active"]) | anything,
        "pfxRcd": st.sampled_from([0, 7, 10**400, -1, True]) | anything,
        "peerUptimeEstablishedEpoch": st.sampled_from([1764091234, float("inf"), float("nan")]) | anything,
    },
)
bgp_answers = anything | st.fixed_dictionaries(
    {"peers": anything | st.dictionaries(addresses, sessions | anything, max_size=5)}
)
bfd_entries = st.fixed_dictionaries(
    {},
    optional={
        "peer": addresses | anything,
        "status": st.sampled_from(["up", "down", "init", "shutdown"]) | anything,
    },
)
bfd_answers = anything | st.lists(bfd_entries | anything, max_size=6)


def by_name(metrics: list[tuple[str, str, float]]) -> dict[str, dict[str, float]]:
    """Metric → labels → value; no series is there twice."""
    assert len({(name, of) for name, of, _ in metrics}) == len(metrics)
    return {name: {of: value for other, of, value in metrics if other == name} for name, _, _ in metrics}


def test_neighbours_are_those_that_frr_is_told_of(gateway: ModuleType) -> None:
    assert gateway.neighbours(CONFIG) == LABELS, "inside a tunnel where there is one; no plain router"


def test_what_frr_says_of_each_neighbour(gateway: ModuleType) -> None:
    bgp = {"peers": {"100.100.0.2": ESTABLISHED, "100.101.0.2": {"state": "Idle (Admin)", "pfxRcd": 0}}}
    bfd = [{"peer": "100.100.0.2", "status": "up"}, {"peer": "100.101.0.2", "status": "down"}]
    found = by_name(gateway.told(LABELS, bgp, bfd))
    sea, tunnel, mate = LABELS.values()
    assert found["bgp_up"] == found["bfd_up"] == {sea: 1, tunnel: 0, mate: 0}, "an unknown one is gone"
    assert found["bgp_prefixes"] == {sea: 1, tunnel: 0}
    assert found["bgp_changed_timestamp_seconds"] == {sea: 1764091234}
    assert found["bgp_drops_total"] == {sea: 3}
    text = "\n".join(gateway.exposition(gateway.told(LABELS, bgp, bfd), 1.0))
    assert f"causeway_wan_bgp_changed_timestamp_seconds{{{sea}}} 1764091234\n" in text, "to the second"


@given(bgp=bgp_answers, bfd=bfd_answers)
def test_whatever_frr_answers_every_neighbour_has_a_state_and_the_file_can_be_read(
    bgp: Any, bfd: Any
) -> None:
    gateway = load(CODE)
    metrics = gateway.told(LABELS, bgp, bfd)
    found = by_name(metrics)
    for name in ("bgp_up", "bfd_up"):
        assert found[name].keys() == set(LABELS.values())
        assert set(found[name].values()) <= {0, 1}
    assert found["frr_up"] == {
        'daemon="bgpd"': float(isinstance(bgp, dict)),
        'daemon="bfdd"': float(isinstance(bfd, list)),
    }
    for peer, of in LABELS.items():
        peers = bgp["peers"] if isinstance(bgp, dict) and isinstance(bgp.get("peers"), dict) else {}
        session = peers.get(peer)
        stands = isinstance(session, dict) and session.get("state") == "Established"
        assert found["bgp_up"][of] == stands
        entries = [entry for entry in bfd if isinstance(entry, dict)] if isinstance(bfd, list) else []
        assert found["bfd_up"][of] == any(
            entry.get("peer") == peer and entry.get("status") == "up" for entry in entries
        )
    for line in "\n".join(gateway.exposition(metrics, 1.0)).splitlines():
        assert line.startswith("# ") or math.isfinite(float(line.rpartition(" ")[2])), line
        assert line.startswith("# ") or re.fullmatch(
            r'causeway_wan_\w+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? \S+', line
        )


@pytest.mark.parametrize(
    ("says", "answer"),
    [
        ("echo '{\"peers\": {}}'", {"peers": {}}),
        ("echo '{}'; exit 1", {}),
        ("echo 'vtysh: a warning' >&2; echo '[]'", []),
        ("echo '% BGP instance not found'", None),
        ("echo 'Exiting: failed to connect to any daemons.' >&2; exit 1", None),
        ("echo '{\"peers\": {'", None),
        ("printf '\\377\\376\\000'", None),
        ("printf '[%.0s' $(seq 100000)", None),
        ("sleep 30", None),
        ("sleep 30 & wait", None),
    ],
)
def test_a_daemon_is_waited_for_only_so_long(
    gateway: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, answer: Any
) -> None:
    vtysh = tmp_path / "vtysh"
    vtysh.write_text(f"#!/bin/sh\n{says}\n")
    vtysh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    if says.startswith("sleep"):  # the others answer, however slow this machine is
        monkeypatch.setattr(gateway, "FRR_LIMIT_S", 1)
    began = time.monotonic()
    assert gateway.ask_frr("bgpd", "bgp ipv4 unicast summary") == answer
    assert time.monotonic() - began < 25


def test_without_frr_every_neighbour_is_down_and_links_are_measured(
    gateway: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(gateway, "WINDOW_FILE", tmp_path / "loss.json")
    monkeypatch.setattr(gateway, "ping", lambda _peer, count, *_options: (count, [70.0] * count))
    gateway.probe(CONFIG, tmp_path, 3)
    text = (tmp_path / "causeway_wan.prom").read_text()
    for of in LABELS.values():
        assert f"causeway_wan_bgp_up{{{of}}} 0\n" in text
        assert f"causeway_wan_bfd_up{{{of}}} 0\n" in text
    assert 'causeway_wan_frr_up{daemon="bgpd"} 0\n' in text
    assert 'causeway_wan_link_up{link="sea"} 1\n' in text
    assert 'causeway_wan_gateway_up{peer="10.81.0.12"} 1\n' in text


def as_shown(rate_bits: int) -> str:
    """A rate as `tc` writes it (print_rate in lib/utils_math.c of iproute2)."""
    for unit in ("", "K", "M", "G"):
        if rate_bits < 1000 or (rate_bits % 1000 and rate_bits < 10**6):
            return f"{rate_bits}{unit}bit"
        rate_bits //= 1000
    return f"{rate_bits}Tbit"


@given(st.floats(1, 400_000), st.floats(1, 100))
def test_classes_are_read_as_people_read_them(bandwidth_mbps: float, rate_pct: float) -> None:
    """Rates are cut off behind, and the keeper must not make the same classes anew every few seconds."""
    wanted = GATEWAY.wanted_classes({**LINK, "bandwidth_mbps": bandwidth_mbps}, rate_pct)

    def shown(served_last: str = "") -> str:
        lines = []
        for handle, one in wanted.items():
            prio = 9 if handle == served_last else one["prio"]
            place = "root" if handle == "1:1" else f"parent 1:1 leaf {handle[2:]}: prio {prio}"
            rates = f"rate {as_shown(one['rate'] * 8)} ceil {as_shown(one['ceil'] * 8)}"
            lines.append(f"class htb {handle} {place} {rates} burst 15000b cburst 15000b \n")
        return "".join(lines)

    for text, is_same in ((shown(), True), (shown("1:20"), False), ("", False)):
        with patch.object(GATEWAY, "run", lambda *_, text=text: (0, text)):
            assert GATEWAY.same(GATEWAY.in_force("eth0"), wanted) == is_same
