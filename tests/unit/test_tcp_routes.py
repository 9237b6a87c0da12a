"""Which route the congestion control of a WAN route is set on: the role's own code."""

import socket
import threading
from ipaddress import IPv4Network
from pathlib import Path
from types import ModuleType

import pytest

from tests.loaded import load

CODE = Path(__file__).resolve().parents[2] / "roles" / "tcp_tuning" / "module_utils" / "causeway_tcp.py"
DEFAULT = {"dst": "default", "gateway": "10.81.0.1", "dev": "eth0", "protocol": "4"}
LOCAL = {"dst": "10.81.0.0/16", "dev": "eth0", "protocol": "2"}
FAR = IPv4Network("10.82.0.0/16")


@pytest.fixture
def tcp() -> ModuleType:
    return load(CODE)


def test_traffic_follows_the_longest_prefix(tcp: ModuleType) -> None:
    wider = {"dst": "10.0.0.0/8", "gateway": "10.81.0.9", "dev": "eth1", "protocol": "4"}
    assert tcp.route_to(FAR, [DEFAULT, LOCAL]) == DEFAULT
    assert tcp.route_to(FAR, [DEFAULT, wider, LOCAL]) == wider


def test_a_narrower_route_does_not_stand_for_the_network(tcp: ModuleType) -> None:
    narrower = {"dst": "10.82.3.0/24", "gateway": "10.81.0.9", "dev": "eth1", "protocol": "4"}
    assert tcp.route_to(FAR, [narrower, DEFAULT]) == DEFAULT


def test_no_route_is_refused_with_the_reason(tcp: ModuleType) -> None:
    with pytest.raises(tcp.RefusedError, match="no route leads there yet"):
        tcp.route_to(FAR, [LOCAL])


def test_several_next_hops_are_refused(tcp: ModuleType) -> None:
    with pytest.raises(tcp.RefusedError, match="several next hops"):
        tcp.route_to(FAR, [{"dst": "default", "nexthops": [], "protocol": "4"}])


def test_a_declared_gateway_is_the_next_hop(tcp: ModuleType) -> None:
    wanted = {"cidr": str(FAR), "via": "10.81.0.2"}
    assert tcp.next_hop(wanted, [DEFAULT, LOCAL]) == {
        "dst": "10.81.0.2",
        "gateway": "10.81.0.2",
        "dev": "eth0",
    }
    assert tcp.next_hop({"cidr": str(FAR)}, [DEFAULT, LOCAL]) == DEFAULT


def test_a_gateway_elsewhere_is_refused(tcp: ModuleType) -> None:
    with pytest.raises(tcp.RefusedError, match=r"gateway 10\.99\.0\.2 is not on a network of this node"):
        tcp.next_hop({"cidr": str(FAR), "via": "10.99.0.2"}, [DEFAULT, LOCAL])


def test_only_metrics_of_ours_are_compared(tcp: ModuleType) -> None:
    route = {**DEFAULT, "metrics": [{"mtu": 1400, "congestion": "bbr", "initcwnd": 10}]}
    assert tcp.route_metrics(route) == {"congestion": "bbr", "mtu": 1400}


def test_an_mtu_is_set_only_where_the_interface_has_a_larger_one(tcp: ModuleType) -> None:
    wanted = {"cidr": str(FAR), "congestion_control": "bbr", "mtu_bytes": 1400}
    assert tcp.wanted_metrics(wanted, "lo") == {"congestion": "bbr", "mtu": 1400}
    assert tcp.wanted_metrics({**wanted, "mtu_bytes": 70000}, "lo") == {"congestion": "bbr"}


def test_a_file_is_written_once(tcp: ModuleType, tmp_path: Path) -> None:
    target = tmp_path / "routes.json"
    assert tcp.write(target, "[]", dry_run=True)
    assert not target.exists()
    assert tcp.write(target, "[]", dry_run=False)
    assert not tcp.write(target, "[]", dry_run=False)


def test_changes_without_end_do_not_keep_the_routes_away(tcp: ModuleType) -> None:
    """Somebody else's routes flap faster than they settle."""
    monitor, kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    over = threading.Event()

    def flap() -> None:
        for _ in range(1000):
            if over.wait(tcp.SETTLE_S / 10):
                return
            kernel.send(b"a route changed")

    flapping = threading.Thread(target=flap)
    flapping.start()
    try:
        tcp.drain(monitor)
        assert flapping.is_alive(), "it waited until all was quiet"
    finally:
        over.set()
        flapping.join()
        monitor.close()
        kernel.close()
