"""Addresses, neighbours and takers of packets that somebody added."""

from pathlib import Path

import pytest

from infra.drift.kinds import KINDS
from roles.base.drift import traffic
from tests.unit.test_drift_live import look
from tests.unit.test_drift_seal import checkout as checkout
from tests.unit.test_drift_surroundings import sealed_again


def test_addresses_of_a_new_interface_are_sealed_and_others_of_a_known_one_are_not() -> None:
    old = {"addresses": ["192.0.2.1/24 dev eth0"]}
    near, far = "192.0.2.9 dev eth0 lladdr 02", "198.51.100.2 dev wan0 lladdr 02"
    more = [*old["addresses"], "192.0.2.2/24 dev eth0", "198.51.100.1/24 dev wan0"]
    want, said = sealed_again("traffic", old, {"addresses": more, "neighbours": [near, far]})
    assert want["addresses"] == ["192.0.2.1/24 dev eth0", "198.51.100.1/24 dev wan0"]
    assert want["neighbours"] == [far]
    assert "192.0.2.2/24" in "".join(said)
    assert "wan0" not in "".join(said)


def test_addresses_and_neighbours_count_on_interfaces_that_had_addresses_and_no_such_neighbours() -> None:
    node = look(
        addresses=["192.0.2.1/24 dev eth0", "192.0.2.5/30 dev wan0"], neighbours=["192.0.2.6 dev wan0"]
    )
    assert node.want.keys() <= KINDS["traffic"].aspects.keys()
    lines = [f"192.0.2.9 dev {name}" for name in ("lo", "eth0", "wan0", "new0")]
    assert traffic.of_known_interfaces(node, lines) == lines[:3]
    assert traffic.of_quiet_interfaces(node, lines) == lines[:2]
    node = look("seal")
    assert traffic.of_quiet_interfaces(node, lines) == traffic.of_known_interfaces(node, lines) == lines


@pytest.mark.parametrize("text", ['{"address": "%s/29", "name": "rail0"}', '{\n  "address": "%s/29"\n}'])
def test_programs_of_roles_give_and_take_some_addresses_and_never_the_nodes_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Both files name the node's own as well: without it nothing on that interface would be looked at."""
    shared, rails = tmp_path / "keepalived.conf", tmp_path / "roce.json"
    shared.write_text(
        "unicast_src_ip 192.0.2.1\nunicast_peer {\n 192.0.2.2\n}\nvirtual_ipaddress {\n 192.0.2.9/32\n}\n"
    )
    own = '"management_address": "192.0.2.1"'
    rails.write_text(f'{{"interfaces": [{text % "198.51.100.2"}], {own}, "mtu_bytes": 9000}}')
    monkeypatch.setattr(traffic, "SHARED_FILE", str(shared))
    monkeypatch.setattr(traffic, "RAILS_FILE", str(rails))
    assert traffic.addresses_of_programs() == {"192.0.2.9", "198.51.100.2"}
    monkeypatch.setattr(traffic, "SHARED_FILE", str(tmp_path / "none"))
    monkeypatch.setattr(traffic, "RAILS_FILE", str(tmp_path / "none"))
    assert traffic.addresses_of_programs() == set()


def test_metrics_are_of_routes_that_were_sealed() -> None:
    line = "192.0.2.0/24 dev lo: mtu 600"
    assert traffic.is_of_known(look(routes=["192.0.2.0/24 dev lo"]), line)
    assert traffic.is_of_known(look("seal"), line)
    assert not traffic.is_of_known(look(routes=["192.0.2.0/24 dev lo metric 7"]), line)
    assert not traffic.is_of_known(look("seal"), "")
