"""Names: deterministic, short enough for the kernel, never the same for two things."""

from ipaddress import IPv4Address
from pathlib import Path

import pytest

from infra.errors import BadInputError
from infra.providers.local import names
from infra.providers.local.nodes import FabricPort, Node

LONG = "l" * 63


@pytest.mark.parametrize(
    "name",
    [
        names.host_uplink(LONG, LONG),
        names.bridge_port(LONG, LONG),
        names.leaf_bridge(LONG, f"{LONG}-p7-leaf-1023"),
        names.link_interface(LONG),
        names.BRIDGE,
        names.ROUTER_UPLINK,
    ],
)
def test_an_interface_name_fits_the_kernel(name: str) -> None:
    assert 0 < len(name) <= 15


def test_names_that_run_together_are_told_apart_by_their_hash() -> None:
    assert names.router_netns("a-b", "c") == names.router_netns("a", "b-c")
    assert names.host_uplink("a-b", "c") != names.host_uplink("a", "b-c")
    assert names.netns_marker("a-b", "cw-a-b-c") != names.netns_marker("a", "cw-a-b-c")


def test_a_link_is_recognised_by_its_interface() -> None:
    assert names.link_interface("trans-sea") == "wan-trans-sea"
    assert names.link_interface(LONG) != names.link_interface(LONG[1:])


def test_a_mac_address_is_local_unicast_and_stays() -> None:
    first = int(names.mac("local", "tokyo-gpu-0").split(":")[0], 16)
    assert first & 0b11 == 0b10
    assert names.mac("local", "tokyo-gpu-0") == names.mac("local", "tokyo-gpu-0")
    assert names.mac("local", "tokyo-gpu-0") != names.mac("local", "tokyo-gpu-1")


@pytest.mark.parametrize("stack", ["", "..", ".hidden", "a/b", "a b", "-x", "x" * 41, "a\n"])
def test_a_stack_name_that_cannot_be_a_path_is_refused(stack: str) -> None:
    with pytest.raises(BadInputError, match="cannot be a stack"):
        names.stack_dir(stack)


def test_pruning_removes_empty_folders_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "RUN_DIR", tmp_path)
    links, other = names.stack_dir("one") / "links", names.stack_dir("two") / "netns"
    for folder in (links, other):
        folder.mkdir(parents=True)
    (names.stack_dir("two") / "note").touch()
    names.prune(links)
    names.prune(other)
    assert not names.stack_dir("one").exists()
    assert not other.exists()
    assert (names.stack_dir("two") / "note").exists()
    assert (tmp_path / "stacks").exists()


def node(**changes: object) -> Node:
    values: dict[str, object] = {
        "stack": "local",
        "region": "tokyo",
        "pool": "gpu",
        "name": "tokyo-gpu-0",
        "address": IPv4Address("10.81.32.0"),
        "gateway": IPv4Address("10.81.0.1"),
        "prefixlen": 16,
        "mtu_bytes": 1500,
        "image": "localhost/causeway-node:1",
        "public_key": "ssh-ed25519 AAAA",
        "urn": "urn:a",
        "shm_gib": 1.0,
    }
    return Node(**{**values, **changes})  # type: ignore[arg-type]  # the values' types are those above


def test_only_what_a_node_cannot_be_given_anew_is_its_definition() -> None:
    same = {"public_key": "ssh-ed25519 BBBB", "urn": "urn:b", "mtu_bytes": 9000, "shm_gib": 2.0}
    for key, value in same.items():
        assert node(**{key: value}).definition() == node().definition(), key
    different = {"image": "localhost/causeway-node:2", "address": IPv4Address("10.81.32.1"), "pool": "x"}
    for key, value in different.items():
        assert node(**{key: value}).definition() != node().definition(), key


def test_every_cable_of_a_node_has_ends_of_its_own() -> None:
    wired = node(fabric=(FabricPort("rail0", "leaf-0"), FabricPort("rail1", "leaf-1"))).cables
    assert [(cable.device, cable.bridge) for cable in wired] == [
        ("eth0", "br0"),
        ("rail0", "leaf-0"),
        ("rail1", "leaf-1"),
    ]
    assert len({cable.port for cable in wired}) == len({cable.mac for cable in wired}) == 3
    assert all(cable.alias.split(" ")[0] == "tokyo-gpu-0" for cable in wired), "by which they are found again"


def test_the_folder_of_a_machine_is_short_enough_for_its_sockets() -> None:
    folder = names.vm_dir("s" * 40, LONG)
    assert len(f"{folder}/monitor.sock") < 108
    assert folder.is_relative_to(names.vms_dir("s" * 40))
    assert folder != names.vm_dir("s" * 40, LONG[1:])
