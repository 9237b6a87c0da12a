"""Container nodes: what podman's own faults must not spoil."""

import os
from dataclasses import replace
from errno import ENOSPC
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from infra.errors import CausewayError
from infra.providers.local import bridge, containers, nodes


@pytest.fixture
def busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A podman that refuses as often as the file says, as it does after a `podman run` that was killed."""
    left = tmp_path / "left"
    podman = tmp_path / "podman"
    podman.write_text(
        f'#!/bin/sh\nn=$(cat {left})\n[ "$n" -gt 0 ] || exit 0\n'
        f"echo $((n - 1)) > {left}\necho shm: device or resource busy >&2\nexit 125\n"
    )
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return left


def test_what_podman_removes_after_some_tries_only_is_removed(
    busy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "DISCARD_PAUSE_S", 0)
    busy.write_text("5")
    containers.discard("cw-s-a-0")
    assert busy.read_text().strip() == "0"


def test_what_podman_never_removes_is_said(busy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "DISCARD_WITHIN_S", 0)
    busy.write_text("100")
    with pytest.raises(CausewayError, match="resource busy"):
        containers.discard("cw-s-a-0")


def test_podmans_bridge_keeps_the_address_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[list[str]] = []
    monkeypatch.setattr(bridge, "run", told.append)
    bridge.keep_address(tmp_path)
    assert told == [], "no container is on it"
    link = tmp_path / "podman0"
    link.mkdir()
    (link / "address").write_text("02:00:00:00:00:01\n")
    for kind, expected in (("1", "ip link set dev podman0 address 02:00:00:00:00:01"), ("3", "")):
        told.clear()
        (link / "addr_assign_type").write_text(f"{kind}\n")
        bridge.keep_address(tmp_path)
        assert [" ".join(words) for words in told] == [expected] * bool(expected)


class Workshop:
    """An engine whose disk is full for one of its nodes."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.removed: list[str] = []

    def records(self, *_pool: str) -> dict[str, dict[str, str]]:
        return {}

    def begun(self, *_pool: str) -> set[str]:
        return set(self.made)

    def bring_up(self, node: nodes.Node, _record: object) -> None:
        if node.name == "a-0":
            raise OSError(ENOSPC, os.strerror(ENOSPC), "/var/lib/containers")
        self.made.append(node.name)

    def remove(self, _stack: str, name: str) -> None:
        if name == "a-1":
            raise OSError(ENOSPC, os.strerror(ENOSPC), "/var/lib/containers")
        self.removed.append(name)


def test_a_full_disk_is_put_down_to_its_node_and_the_others_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    workshop = Workshop()
    monkeypatch.setattr(nodes, "ENGINES", {"container": workshop})
    home, gateway = IPv4Address("10.0.0.9"), IPv4Address("10.0.0.1")
    first = nodes.Node("s", "r", "p", "a-0", home, gateway, 24, 1500, "image", "key", "urn", None)
    said: list[str] = []
    with pytest.raises(CausewayError, match=r"1 of 2 nodes of the pool r/p failed: a-0: .*No space left.*"):
        nodes.reconcile("s", "r", "p", [first, replace(first, name="a-1")], said.append)
    assert workshop.made == ["a-1"]
    assert any("a-0 failed" in line for line in said)


def test_a_node_that_cannot_be_removed_is_named_and_the_others_go(monkeypatch: pytest.MonkeyPatch) -> None:
    workshop = Workshop()
    workshop.made = ["a-0", "a-1", "a-2"]
    monkeypatch.setattr(nodes, "ENGINES", {"container": workshop})
    with pytest.raises(CausewayError, match=r"1 of 3 nodes could not be removed: a-1: .*No space left.*"):
        nodes.remove_pool("s", "r", "p")
    assert sorted(workshop.removed) == ["a-0", "a-2"]
