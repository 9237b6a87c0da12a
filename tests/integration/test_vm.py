"""Virtual machines as nodes, from a baked image: what stands, what only a kernel of one's own can show, and
what faults leave.
"""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import pytest

from infra.providers.local import daemons, names, netns, nodes, sweep, vms
from tests.integration import rdma
from tests.integration.checkout import Checkout, commit, two_regions
from tests.patience import wait_for

PROVES = ("local", "fabric", "roce", "images")

A, B, CONTAINER = "tokyo-gpu-0", "tokyo-gpu-1", "tokyo-control-0"
POOL = "tokyo-gpu"
RAILS = ("rail0", "rail1")
FABRIC = {"kind": "rail_optimized", "radix": 64, "rails": len(RAILS), "link_gbps": 400}
TOS = 26 << 2 | 2
"""DSCP 26, and ECT(0)."""
SETTINGS = ("mtu", "up", "address", "route", "soft_device", "tos")
BOOT_S = 900
"""Without KVM, beside other tests."""


@pytest.fixture(scope="module")
def machines(checkout: Checkout) -> Checkout:
    """Tokyo: a container, and two virtual machines on a fabric of two rails. Shanghai: a container."""
    cluster = two_regions(checkout)
    tokyo = cluster["regions"][0]
    tokyo["fabric"] = FABRIC
    tokyo["pools"][1] |= {"count": 2, "node_kind": "vm", "nics": len(RAILS)}
    checkout.declare(cluster)
    checkout.override("perftest", roce_extra_packages=["ibverbs-utils", "perftest"])
    commit(checkout.folder)
    checkout.run("exec", "causeway", "image", "build", POOL, "--stack", checkout.stack)
    checkout.up()
    return checkout


def image_of(checkout: Checkout) -> str:
    """The name of the baked image that the machines' disks are overlays of."""
    (folder,) = set(vms.images(checkout.stack, "tokyo", "gpu").values())
    return Path(folder).parent.name


def process_of(checkout: Checkout, node: str) -> list[int]:
    return daemons.processes(names.vm_dir(checkout.stack, node) / vms.PID)


def left_running(checkout: Checkout, node: str) -> bool:
    """Whether the node's process is the one that outlives whoever started it."""
    file = names.vm_dir(checkout.stack, node) / vms.PID
    return file.exists() and [file.read_text().strip()] == [str(pid) for pid in process_of(checkout, node)]


def instance_of(checkout: Checkout, node: str) -> str:
    return nodes.inspect(checkout.stack, "tokyo", "gpu")[node].instance_id


def boot_of(checkout: Checkout, node: str) -> str:
    """Which boot a node is in; "" while it does not answer."""
    with suppress(CalledProcessError):
        return checkout.ssh(node, "cat", "/proc/sys/kernel/random/boot_id")
    return ""


def verdicts(checkout: Checkout, host: str) -> dict[tuple[str, str], str]:
    """(role, check) → verdict of the verification that `up` ended with."""
    checks: list[dict[str, Any]] = json.loads((checkout.files / "verification.json").read_text())["checks"]
    return {(check["role"], check["name"]): check["verdict"] for check in checks if check["host"] == host}


def test_machines_and_containers_stand_side_by_side(machines: Checkout) -> None:
    baked_image = image_of(machines)
    assert {machines.ssh(node, "cat", "/usr/lib/causeway-image") for node in (A, B)} == {baked_image}
    for node in (A, B):
        assert machines.ssh(node, "systemd-detect-virt", "--vm") in ("qemu", "kvm")
        assert machines.ssh(node, "hostname") == node
        links = json.loads(machines.ssh(node, "ip", "-j", "link", "show"))
        assert {"eth0", *RAILS} <= {link["ifname"] for link in links}
    address = machines.ssh(A, "ip -4 -br addr show eth0").split()[2].split("/")[0]
    assert "1 received" in machines.on_node(CONTAINER, "ping", "-c", "1", "-W", "5", address)


def test_what_a_container_cannot_have_is_effective_in_a_machine(machines: Checkout) -> None:
    shared = verdicts(machines, CONTAINER)
    lacking = {check for check, verdict in shared.items() if verdict == "unsupported"}
    for node in (A, B):
        found = verdicts(machines, node)
        assert {check for check in lacking if found[check] != "effective"} == set()
    said = " ".join(name for _, name in lacking)
    for words in ("net.core", "default_qdisc", "locked memory", "clock"):
        assert words in said, f"{words}: now proven in a container as well?"
    print("effective in machines alone:", *sorted(f"{role}: {name}" for role, name in lacking), sep="\n  ")


def address_of(checkout: Checkout, node: str, interface: str) -> str:
    return checkout.ssh(node, f"ip -4 -br addr show {interface}").split()[2].split("/")[0]


def has_its_settings(checkout: Checkout, node: str) -> bool:
    """Whether every fabric interface of a node has what is declared, as far as its kernel knows of it."""
    said = checkout.ssh(node, "causeway-roce check || true").splitlines()
    states = {tuple(line.split(maxsplit=3)[:2]): line.split(maxsplit=3)[2] for line in said}
    effective = all(states.get((rail, one)) == "effective" for rail in RAILS for one in SETTINGS)
    return effective and not {"differs", "failed", "missing", "refused"} & set(states.values())


def marks(checkout: Checkout) -> dict[int, int]:
    """ToS → packets seen on the fabric while one machine writes to the other."""
    with rdma.watched(checkout.stack, "tokyo") as seen:
        rate = rdma.write(checkout, B, A, "rxe_rail0", address_of(checkout, A, "rail0"))
    print(f"ib_write_bw -R: {rate} MiB/s on average; ToS of the packets: {seen}")
    return seen


def test_what_is_written_by_rdma_carries_the_declared_marking(machines: Checkout) -> None:
    assert "4096" in machines.ssh(A, "ibv_devinfo -d rxe_rail0 | grep active_mtu")
    seen = marks(machines)
    # The connection manager's own datagrams come before a connection has a type of service.
    assert seen[TOS] > 0.99 * sum(seen.values()) > 0


@pytest.mark.parametrize(
    "fault",
    [
        "ip link set rail0 mtu 1500; ip link set rail0 down",
        "rdma link delete rxe_rail0; rdma link delete rxe_rail1; modprobe -r rdma_rxe; modprobe rdma_rxe",
        "cd /sys/bus/virtio/drivers/virtio_net; nic=$(basename $(readlink -f /sys/class/net/rail0/device));"
        " echo $nic >unbind; sleep 1; echo $nic >bind",
    ],
    ids=["link down", "RDMA driver reloaded", "network driver reloaded"],
)
def test_the_settings_come_back(machines: Checkout, fault: str) -> None:
    assert has_its_settings(machines, A)
    machines.ssh(A, fault)
    wait_for(lambda: has_its_settings(machines, A), f"the settings after: {fault}")


def test_after_a_power_cut_a_killed_run_s_machine_is_adopted(machines: Checkout) -> None:
    instance, other = instance_of(machines, B), (process_of(machines, A), boot_of(machines, A))
    machines.ssh(B, "echo kept > /root/mark && sync")
    os.kill(process_of(machines, B)[0], signal.SIGKILL)
    wait_for(lambda: not process_of(machines, B), "the power is off")
    killed = machines.start("up", machines.stack)
    wait_for(lambda: left_running(machines, B), "the machine is switched on again")
    process = process_of(machines, B)
    machines.kill(killed)
    # While it boots, an `up` ends with 1 and its name.
    wait_for(lambda: boot_of(machines, B), "the machine to answer", BOOT_S)
    machines.up()
    assert (process_of(machines, B), instance_of(machines, B)) == (process, instance)
    assert machines.ssh(B, "cat", "/root/mark") == "kept"
    assert (process_of(machines, A), boot_of(machines, A)) == other, "nobody touched the other one"


def test_the_settings_and_the_marking_are_there_after_a_boot(machines: Checkout) -> None:
    wait_for(lambda: has_its_settings(machines, B), "the settings after the boot")
    seen = marks(machines)
    assert seen[TOS] > 0.99 * sum(seen.values()) > 0


def test_a_clock_that_steps_is_no_drift(machines: Checkout) -> None:
    """A scan goes by times of answers that are kept, of files, and of services' starts."""
    for step in ("-3 days", "+6 days"):
        machines.ssh(B, f"date --set='{step}'")
        machines.run("exec", "causeway", "drift", machines.stack)
    machines.ssh(B, f"date --set=@{time.time():.0f}")
    machines.run("exec", "causeway", "drift", machines.stack)


def test_a_reboot_from_inside_loses_nothing(machines: Checkout) -> None:
    before, process, instance = (
        boot_of(machines, A),
        process_of(machines, A),
        instance_of(machines, A),
    )
    with suppress(CalledProcessError):  # the connection may end before the command does
        machines.ssh(A, "systemctl", "reboot")
    wait_for(lambda: boot_of(machines, A) not in ("", before), "the machine is back", BOOT_S)
    machines.ssh(A, "systemctl is-system-running --wait || true")
    assert (process_of(machines, A), instance_of(machines, A)) == (process, instance)
    machines.run("exec", "causeway", "drift", machines.stack)
    assert machines.changes() == {}


def test_taking_it_down_leaves_nothing(machines: Checkout) -> None:
    folder, image = names.vms_dir(machines.stack), ("exec", "causeway", "image", "remove", image_of(machines))
    assert "nodes are made from image" in machines.run(*image, expect=2)
    assert set(vms.standing(machines.stack)) == {A, B}
    assert {f"virtual machine {A}", f"virtual machine {B}"} <= set(sweep.leftovers(machines.stack))
    machines.run("down", machines.stack)
    assert sweep.leftovers(machines.stack) == []
    machines.run(*image)
    assert not folder.exists()
    assert daemons.processes(folder) == []
    assert not netns.exists(names.router_netns(machines.stack, "tokyo"))
