"""Machines you already have: configured and proven by SSH, never created, and left running by `down`."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from infra.providers.local import image, network, nodes, sweep
from tests.integration.checkout import Checkout, containers, said

OTHER_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG1pbmltYWwta2V5LWZvci10aGUtdGVzdC1vbmx5LTEy"

USERS_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJqBqDHZ/KXKmhYaL93/jxJxnoSp/pxzjvdkxrVFGUfc night@desk"
ADMIN = """
useradd --create-home --shell /bin/bash admin
echo 'admin ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/admin
mv /root/.ssh /home/admin/ && chown --recursive admin: /home/admin/.ssh
"""
"""From here on nobody comes in as root."""


@dataclass(frozen=True)
class Machines:
    """Two machines that nobody of the stack has made, and the key that opens them."""

    stack: str
    key: Path
    states: list[nodes.NodeState]

    def on(self, number: int, *argv: str) -> str:
        """What a command printed on a machine."""
        return said("podman", "exec", f"cw-{self.stack}-machine-{number}", *argv)


@pytest.fixture(scope="module")
def machines(checkout: Checkout) -> Iterator[Machines]:
    stack = f"{checkout.stack}-machines"
    key = checkout.folder.parent / "key"
    said("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    home = network.RegionNetwork(stack, "hall", IPv4Network(checkout.cidr(0)), 1500)
    network.ensure(home, [])
    desired = [
        nodes.Node(
            stack=stack,
            region="hall",
            pool="row",
            name=f"machine-{number}",
            address=home.cidr[256 + number],
            gateway=home.gateway.ip,
            prefixlen=home.cidr.prefixlen,
            mtu_bytes=1500,
            image=image.ensure_image(print),
            public_key=key.with_suffix(".pub").read_text(),
            urn="urn:pulumi:machines::test",
            shm_gib=None,
        )
        for number in range(2)
    ]
    made = Machines(stack, key, nodes.reconcile(stack, "hall", "row", desired, print))
    for number in range(2):  # a machine's own file; podman's is mounted there and cannot be replaced
        made.on(number, "umount", "/etc/hostname")
    yield made
    sweep.sweep(stack)


def declaration(checkout: Checkout, machines: Machines, **host_keys: str) -> dict[str, Any]:
    """A region of both machines; by its name, a machine may be declared with another host key."""
    hosts = [
        {
            "address": str(state.address),
            "host_key": host_keys.get(state.name.replace("-", "_"), state.host_key),
        }
        for state in machines.states
    ]
    pool = {"name": "control", "role": "control", "count": len(hosts), "hosts": hosts}
    region = {
        "name": "hall",
        "provider": {"kind": "existing", "ssh_key_file": str(machines.key)},
        "cidr": checkout.cidr(0),
        "timezone": "Asia/Tokyo",
        "pools": [pool],
    }
    return {"name": "mine", "regions": [region]}


def test_a_machine_with_another_host_key_is_refused_and_named(checkout: Checkout, machines: Machines) -> None:
    checkout.declare(declaration(checkout, machines, machine_1=OTHER_KEY))
    printed = checkout.up(expect=1)
    assert "hall-control-1: no answer by SSH: Host key verification failed." in printed
    assert "hall-control-1 unreachable" in printed
    assert machines.on(0, "date", "+%Z") == "JST", "the other one is configured"
    assert machines.on(1, "date", "+%Z") != "JST", "and nothing was sent to this one"


def test_with_the_right_keys_both_are_configured_and_proven(checkout: Checkout, machines: Machines) -> None:
    runs = len(checkout.configured())
    checkout.declare(declaration(checkout, machines))
    printed = checkout.up()
    assert "0 failed, 0 unreachable" in printed
    assert machines.on(1, "date", "+%Z") == "JST"
    assert machines.on(1, "hostname") == "hall-control-1"
    assert checkout.configured()[runs:] == [{"hall-control-1"}]
    assert checkout.changes() == {}
    assert containers(checkout.stack) == {}, "no node was made"


def test_a_user_with_sudo_configures_scans_repairs_and_proves(checkout: Checkout, machines: Machines) -> None:
    for number in range(2):
        machines.on(number, "sh", "-ec", ADMIN)
    declared = declaration(checkout, machines)
    declared["regions"][0]["provider"]["ssh_user"] = "admin"
    checkout.declare(declared | {"authorized_keys": [USERS_KEY]})
    assert "0 failed, 0 unreachable" in checkout.up()
    assert USERS_KEY in machines.on(0, "cat", "/home/admin/.ssh/authorized_keys")
    scan = ["exec", "causeway", "drift", checkout.stack]
    assert "2 clean" in checkout.run(*scan)
    machines.on(1, "sh", "-c", "chmod 0600 /etc/chrony/chrony.conf && systemctl stop chrony")
    machines.on(1, "sh", "-c", "echo '# changed' >> /etc/hosts")
    found = checkout.run(*scan, expect=3)
    assert "file /etc/hosts: its content differs" in found
    assert "mode is 0600, expected 0644" in found
    checkout.run("exec", "ansible-playbook", "playbooks/repair.yml", "-i", f"inventories/{checkout.stack}")
    assert "2 clean" in checkout.run(*scan)


def test_down_leaves_the_machines_as_they_are(checkout: Checkout, machines: Machines) -> None:
    before = containers(machines.stack)
    booted = [machines.on(number, "stat", "-c", "%y", "/proc/1") for number in range(2)]
    checkout.run("down", checkout.stack)
    assert containers(machines.stack) == before
    assert [machines.on(number, "stat", "-c", "%y", "/proc/1") for number in range(2)] == booted
    assert [machines.on(number, "date", "+%Z") for number in range(2)] == ["JST", "JST"]
    assert sweep.leftovers(checkout.stack) == []
