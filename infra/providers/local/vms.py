"""Virtual machines as nodes: QEMU in the region's network namespace, with KVM where that works.

A machine's folder holds its disk (an overlay of the image), its host key, its console's log and, in
`note.json`, whose it is. Names, addresses and keys go in as systemd credentials through files (`-fw_cfg`), so
nothing secret is on a command line. The host key is made here: it is known before the first connection.
"""

import json
import shutil
import socket
import time
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from infra.errors import CausewayError
from infra.process import run
from infra.providers.local import daemons, names, netns, vm_image, vm_notes
from infra.providers.local.node import (
    Cable,
    Node,
    NodeState,
    await_ssh,
    nameservers,
    plug_in,
    router_of,
    unplug,
)

Accelerator = Literal["kvm", "tcg"]
ACCELERATOR = "accelerator"
"""Where it is kept which one machines run under, of this machine's run directory."""

PROGRAM = "qemu-system-x86_64"
READY_TIMEOUT_S = 600.0
"""Without KVM a machine boots in half a minute on a free core, and in minutes beside others."""
SHUTDOWN_TIMEOUT_S = 120.0
TRIAL_S = 20.0
CPUS: Mapping[Accelerator, int] = {
    "kvm": 2,
    # With a second one QEMU takes care that both see memory alike: a boot or an install costs 40 % more.
    "tcg": 1,
}
TRANSLATION_MIB = 256
"""Room for what TCG has translated."""
OVERHEAD_MIB = TRANSLATION_MIB + 64
"""What QEMU takes on top of a machine's memory."""
TCG_CPU = "qemu64,svm=off,+ssse3,+sse4.1,+sse4.2,+popcnt"
ACCELERATION: Mapping[Accelerator, tuple[str, ...]] = {
    "kvm": ("-accel", "kvm", "-cpu", "host"),
    # Emulating newer instructions costs more than programs gain by them; without those up to SSE4.2 Ceph's
    # daemons are killed by SIGILL. For SVM each boot would load KVM.
    "tcg": ("-accel", f"tcg,thread=multi,tb-size={TRANSLATION_MIB}", "-cpu", TCG_CPU),
}
KERNEL_OPTIONS: Mapping[Accelerator, str] = {
    "kvm": "",
    # QEMU keeps what it has translated by address: libc at another one in each process is translated for each
    # anew, and a boot or an install costs half as much again.
    "tcg": " norandmaps",
}
MACHINE = "q35,sata=off,smbus=off"
"""Without the buses that nothing hangs on: a kernel loads their drivers and looks."""
COMMON = (PROGRAM, "-nodefaults", "-no-user-config", "-display", "none", "-machine", MACHINE)
RECIPE = 1
"""Counted up when what a disk is made with changes in a way that needs nodes to be made anew."""

PID, DISK, HOST_KEY, CREDENTIALS = "qemu.pid", "disk.qcow2", "host_key", "credentials"
CONSOLE, MONITOR = "console.log", "monitor.sock"


def records(stack: str, region: str, pool: str) -> dict[str, dict[str, Any]]:
    """The note of every machine of the pool whose disk was made, by node name."""
    return {
        note["node"]: {**note, "folder": str(folder)}
        for folder, note in vm_notes.of_stack(stack)
        if (note.get("region"), note.get("pool")) == (region, pool) and (folder / DISK).exists()
    }


def images(stack: str, region: str, pool: str) -> dict[str, str]:
    """Node name → the folder of the image that its disk is an overlay of; none where that is gone."""
    noted = {name: record.get("image", "") for name, record in records(stack, region, pool).items()}
    return {name: image for name, image in noted.items() if image and Path(image, vm_image.BUILD).exists()}


def begun(stack: str, region: str, pool: str) -> set[str]:
    """The node names of the pool that have a folder."""
    notes = (note for _, note in vm_notes.of_stack(stack))
    return {note["node"] for note in notes if (note.get("region"), note.get("pool")) == (region, pool)}


def standing(stack: str) -> list[str]:
    """Every machine of a stack, also half-made ones: the node's name, or the folder's where no note is."""
    return [note.get("node", folder.name) for folder, note in vm_notes.of_stack(stack)]


def running(stack: str) -> set[str]:
    """The node names of a stack's machines that run."""
    notes = vm_notes.of_stack(stack)
    return {note["node"] for folder, note in notes if note and daemons.processes(folder / PID)}


def remove_all(stack: str) -> None:
    """Remove every machine of a stack; their cables go with the regions' namespaces."""
    daemons.stop_all(names.vms_dir(stack))
    shutil.rmtree(names.vms_dir(stack), ignore_errors=True)


def state(name: str, record: dict[str, Any]) -> NodeState:
    """What a machine is; it counts as running while its process does."""
    folder = Path(record["folder"])
    running = bool(daemons.processes(folder / PID))
    key = (folder / HOST_KEY).with_suffix(".pub")
    return NodeState(
        name=name,
        address=IPv4Address(record["address"]),
        instance_id=record["instance"],
        host_key=" ".join(key.read_text().split()[:2]) if running else "",
        running=running,
    )


def remove(stack: str, name: str) -> None:
    """Stop a machine as if unplugged, and remove its folder and its cables."""
    folder = names.vm_dir(stack, name)
    region = vm_notes.read(folder).get("region", "")
    daemons.stop_all(folder)
    with netns.locked():
        unplug(stack, region, name)
    shutil.rmtree(folder, ignore_errors=True)
    with netns.locked(), suppress(OSError):  # the stack's other machines lie there
        folder.parent.rmdir()


def bring_up(node: Node, record: dict[str, Any] | None) -> None:
    """Adopt, start or make the machine, and wait until it answers by SSH.

    One whose hardware or settings have changed is shut down and started again; its disk stays.
    """
    folder = names.vm_dir(node.stack, node.name)
    if record is None or record["definition"] != _definition(node):
        remove(node.stack, node.name)
        _make(node, folder)
    changed = _hand_in(node, folder)
    command = _command(node, folder, vm_notes.read(folder)["instance"])
    if changed or not daemons.running(folder / PID, command):
        _shut_down(folder)
    with netns.locked():
        router = router_of(node)
        ports = netns.links(router)
        taps = [cable.port for cable in node.cables if cable.port not in ports]
        netns.batch(router, [f"tuntap add dev {tap} mode tap" for tap in taps])
        plug_in(node, router)
    if not daemons.running(folder / PID, command):
        daemons.start(netns.inside(router, command), command, folder / PID)
    await_ssh(node, READY_TIMEOUT_S, f"the machine did not boot: see {folder / CONSOLE}")


def _definition(node: Node) -> str:
    build = Path(node.image, vm_image.BUILD).read_text()
    return node.definition(RECIPE, build, node.public_key.strip())


def _make(node: Node, folder: Path) -> None:
    """The note first, so that a half-made machine is found; the disk last, so that a whole one is known."""
    with netns.locked():  # beside it a machine may be removed, and with the last one the folder of all
        folder.mkdir(parents=True, mode=0o700)
    note = {
        **node.note,
        "address": str(node.address),
        "urn": node.urn,
        "checkout": str(names.CHECKOUT),
        "definition": _definition(node),
        "image": node.image,
        "instance": str(uuid4()),
    }
    (folder / vm_notes.FILE).write_text(json.dumps(note))
    key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", node.name, "-f", str(folder / HOST_KEY)]
    run(key, hint="install openssh-client")
    part = folder / f"{DISK}.part"
    base = Path(node.image, vm_image.ROOT)
    run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(base), str(part)])
    part.rename(folder / DISK)


def _hand_in(node: Node, folder: Path) -> bool:
    """Write the credentials the machine reads at boot; whether any differs from what it has read."""
    place = folder / CREDENTIALS
    place.mkdir(mode=0o700, exist_ok=True)
    wanted = _credentials(node, folder)
    present = {file.name: file.read_text() for file in place.iterdir()}
    for name in present.keys() - wanted.keys():
        (place / name).unlink()
    for name, text in wanted.items():
        (place / name).touch(mode=0o600)
        (place / name).write_text(text)
    return present != wanted


def _credentials(node: Node, folder: Path) -> dict[str, str]:
    """What systemd takes in, by credential: the host name, the first boot's files, the network."""
    return {
        "system.hostname": node.name,
        "tmpfiles.extra": _first_files(node, folder),
        # Numbered, because the names of such files are short.
        "network.network.0": _management_network(node),
        **{f"network.link.{number}": _link(cable) for number, cable in enumerate(node.cables)},
    }


def _first_files(node: Node, folder: Path) -> str:
    """tmpfiles.d lines; `f` writes a file that is not there, so roles may change it for good."""
    key = folder / HOST_KEY
    resolv = "".join(f"nameserver {server}\n" for server in nameservers())
    files = {
        "/root/.ssh/authorized_keys 0600": node.public_key.strip() + "\n",
        "/etc/ssh/ssh_host_ed25519_key 0600": key.read_text(),
        "/etc/ssh/ssh_host_ed25519_key.pub 0644": key.with_suffix(".pub").read_text(),
        "/etc/hostname 0644": node.name + "\n",
        "/etc/resolv.conf 0644": resolv,
    }
    return "".join(
        f"f~ {path} root root - {b64encode(text.encode()).decode()}\n" for path, text in files.items()
    )


def _link(cable: Cable) -> str:
    return f"[Match]\nPermanentMACAddress={cable.mac}\n[Link]\nName={cable.device}\n"


def _management_network(node: Node) -> str:
    """Routes and rules that roles set are not networkd's to remove."""
    return (
        f"[Match]\nName={names.NODE_INTERFACE}\n[Link]\nMTUBytes={node.mtu_bytes}\n"
        f"[Network]\nAddress={node.address}/{node.prefixlen}\nGateway={node.gateway}\n"
        "LinkLocalAddressing=no\nIPv6AcceptRA=no\n"
    )


def _command(node: Node, folder: Path, instance: str) -> list[str]:
    """What runs as this machine; a changed one shows as a changed command."""
    image = Path(node.image)
    accelerator = accelerator_for(image)
    return [
        *COMMON,
        *ACCELERATION[accelerator],
        *("-name", node.container, "-uuid", instance, "-m", f"{node.memory_mib}M"),
        *("-smp", str(CPUS[accelerator])),
        *("-kernel", str(image / vm_image.KERNEL), "-initrd", str(image / vm_image.INITRD)),
        *("-append", f"root=/dev/vda rootfstype=ext4 rw console=ttyS0 panic=10{KERNEL_OPTIONS[accelerator]}"),
        # The host's memory holds what is written until the host goes down: enough for a node of a test bed.
        *("-drive", f"file={folder / DISK},if=virtio,cache=unsafe,discard=unmap"),
        *("-device", "virtio-rng-pci"),
        *("-chardev", f"file,id=console,path={folder / CONSOLE},append=on", "-serial", "chardev:console"),
        *("-monitor", f"unix:{folder / MONITOR},server=on,wait=off"),
        *(word for cable in node.cables for word in _nic(cable, accelerator)),
        *(word for name in sorted(_credentials(node, folder)) for word in _credential(folder, name)),
        *("-daemonize", "-pidfile", str(folder / PID)),
    ]


def _nic(cable: Cable, accelerator: Accelerator) -> list[str]:
    vhost = ",vhost=on" if accelerator == "kvm" and Path("/dev/vhost-net").exists() else ""
    return [
        *("-netdev", f"tap,id={cable.port},ifname={cable.port},script=no,downscript=no{vhost}"),
        *("-device", f"virtio-net-pci,netdev={cable.port},mac={cable.mac}"),
    ]


def _credential(folder: Path, name: str) -> list[str]:
    return ["-fw_cfg", f"name=opt/io.systemd.credentials/{name},file={folder / CREDENTIALS / name}"]


def _shut_down(folder: Path) -> None:
    """Press the power button, then pull the plug."""
    if daemons.processes(folder / PID):
        with suppress(OSError), socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(str(folder / MONITOR))
            monitor.sendall(b"system_powerdown\n")
        deadline = time.monotonic() + SHUTDOWN_TIMEOUT_S
        while daemons.processes(folder / PID) and time.monotonic() < deadline:
            time.sleep(0.2)
    daemons.stop_all(folder)


def known_accelerator() -> Accelerator | None:
    """What machines run under here; None where none was made since this machine's start."""
    known = names.RUN_DIR / ACCELERATOR
    if not known.exists():
        return None
    return "kvm" if known.read_text() == "kvm" else "tcg"


def accelerator_for(image: Path) -> Accelerator:
    """KVM where a kernel gets to its first process under it, else TCG; tried once per boot of this machine.

    /dev/kvm alone proves nothing: where the machine is virtual itself, guests may crash or stand still.
    """
    if known := known_accelerator():
        return known
    file, found = names.RUN_DIR / ACCELERATOR, _kvm_works(image)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{uuid4().hex}")
    part.write_text("kvm" if found else "tcg")
    part.rename(file)
    return "kvm" if found else "tcg"


def _kvm_works(image: Path) -> bool:
    """Boot the image's kernel to a first process that ends at once: it panics, and the machine stops."""
    if not Path("/dev/kvm").exists():
        return False
    command = [
        *(*COMMON, *ACCELERATION["kvm"], "-smp", str(CPUS["kvm"]), "-m", "512M", "-no-reboot"),
        *("-serial", "stdio"),
        *("-kernel", str(image / vm_image.KERNEL), "-initrd", str(image / vm_image.INITRD)),
        *("-append", "console=ttyS0 panic=-1 rdinit=/bin/true"),
    ]
    try:
        # Where it hangs, it ends with us at the latest: nothing else knows of it.
        return "as init process" in run(["setpriv", "--pdeathsig", "KILL", *command], timeout_s=TRIAL_S)
    except CausewayError:
        return False
