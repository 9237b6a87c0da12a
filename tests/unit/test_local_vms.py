"""What a virtual machine is started with and told, and what is known of machines that stand."""

import json
import shutil
from base64 import b64decode
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from threading import Event, Thread

import pytest

from infra.providers.local import names, vm_image, vm_notes, vms
from infra.providers.local.node import FabricPort, Node

ROUNDS = 300
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG1pbmltYWwta2V5LWZvci10aGUtdGVzdC1vbmx5LTEy tester"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node whose image and folders lie in the test's own folder."""
    monkeypatch.setattr(names, "VM_DIR", tmp_path / "vms")
    monkeypatch.setattr(names, "RUN_DIR", tmp_path / "run")
    image = tmp_path / "image"
    image.mkdir()
    (image / vm_image.BUILD).write_text("first")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "accelerator").write_text("tcg")
    return Node(
        stack="lab",
        region="tokyo",
        pool="gpu",
        name="tokyo-gpu-0",
        address=IPv4Address("10.81.32.0"),
        gateway=IPv4Address("10.81.0.1"),
        prefixlen=16,
        mtu_bytes=1500,
        image=str(image),
        public_key=KEY,
        urn="urn:a",
        shm_gib=None,
        kind="vm",
        memory_mib=1024,
        fabric=(FabricPort("rail0", "leaf-0"),),
    )


def make_folder(node: Node) -> Path:
    """The folder of a machine as a run leaves it that was killed before the disk was there."""
    folder = names.vm_dir(node.stack, node.name)
    folder.mkdir(parents=True)
    (folder / vms.HOST_KEY).write_text("PRIVATE\n")
    (folder / vms.HOST_KEY).with_suffix(".pub").write_text("ssh-ed25519 HOSTKEY tokyo-gpu-0\n")
    known = {"address": str(node.address), "instance": "i-1", "image": node.image}
    note = {**node.note, **known, "definition": vms._definition(node)}
    (folder / vm_notes.FILE).write_text(json.dumps(note))
    return folder


def test_keys_are_handed_in_by_file_and_stand_on_no_command_line(node: Node) -> None:
    folder = make_folder(node)
    assert vms._hand_in(node, folder)
    command = " ".join(vms._command(node, folder, "i-1"))
    assert "PRIVATE" not in command
    assert KEY.split()[1] not in command
    for name in vms._credentials(node, folder):
        assert f"name=opt/io.systemd.credentials/{name},file={folder}/credentials/{name}" in command
        assert (folder / "credentials" / name).stat().st_mode & 0o077 == 0
    lines = [line.split() for line in (folder / "credentials" / "tmpfiles.extra").read_text().splitlines()]
    written = {line[1]: b64decode(line[6]).decode() for line in lines}
    assert written["/root/.ssh/authorized_keys"] == KEY + "\n"
    assert written["/etc/ssh/ssh_host_ed25519_key"] == "PRIVATE\n"
    modes = {line[1]: line[2] for line in lines}
    assert modes["/etc/ssh/ssh_host_ed25519_key"] == modes["/root/.ssh/authorized_keys"] == "0600"


def test_interfaces_are_named_by_their_address(node: Node) -> None:
    told = vms._credentials(node, make_folder(node))
    for number, cable in enumerate(node.cables):
        assert (
            f"PermanentMACAddress={cable.mac}\n[Link]\nName={cable.device}" in told[f"network.link.{number}"]
        )
    assert "Address=10.81.32.0/16\nGateway=10.81.0.1" in told["network.network.0"]
    assert "rail0" not in told["network.network.0"], "a fabric port is the role's to address"


def test_a_firmware_file_has_a_name_that_fits_however_an_interface_is_called(node: Node) -> None:
    wide = replace(node, fabric=tuple(FabricPort(f"interface-{n:05}", "leaf-0") for n in range(16)))
    for name in vms._credentials(wide, make_folder(wide)):
        assert len(f"opt/io.systemd.credentials/{name}") <= 55


@pytest.mark.parametrize("change", [{"fabric": ()}, {"memory_mib": 2048}])
def test_other_hardware_is_another_command_and_the_same_disk(node: Node, change: dict[str, object]) -> None:
    folder, other = make_folder(node), replace(node, **change)  # type: ignore[arg-type]  # fields of a node
    assert vms._command(other, folder, "i-1") != vms._command(node, folder, "i-1")
    assert vms._definition(other) == vms._definition(node)


def test_a_setting_is_handed_in_once(node: Node) -> None:
    folder = make_folder(node)
    assert vms._hand_in(node, folder)
    assert not vms._hand_in(node, folder)
    assert vms._hand_in(replace(node, mtu_bytes=9000), folder)
    assert vms._hand_in(replace(node, mtu_bytes=9000, fabric=()), folder)
    assert not (folder / "credentials" / "network.link.1").exists()


def test_a_disk_belongs_to_one_build_of_the_image(node: Node) -> None:
    before = vms._definition(node)
    Path(node.image, vm_image.BUILD).write_text("second")
    assert vms._definition(node) != before


def test_a_machine_stays_on_the_image_that_its_disk_is_an_overlay_of(node: Node) -> None:
    (make_folder(node) / vms.DISK).touch()
    assert vms.images("lab", "tokyo", "gpu") == {"tokyo-gpu-0": node.image}
    assert vms.images("lab", "tokyo", "control") == {}
    assert vm_notes.made_from(Path(node.image).parent) == ["cw-lab-tokyo-gpu-0"]
    assert vm_notes.made_from(Path(node.image) / "below") == []
    (Path(node.image) / vm_image.BUILD).unlink()
    assert vms.images("lab", "tokyo", "gpu") == {}, "without it the disk is worth nothing"


def test_a_machine_without_a_disk_was_begun_and_is_none(node: Node) -> None:
    folder = make_folder(node)
    (folder.parent / "killed-before-its-note").mkdir()
    assert vms.begun("lab", "tokyo", "gpu") == {"tokyo-gpu-0"}
    assert vms.begun("lab", "tokyo", "control") == vms.begun("lab-b", "tokyo", "gpu") == set()
    assert vms.records("lab", "tokyo", "gpu") == {}
    assert set(vms.standing("lab")) == {"tokyo-gpu-0", "killed-before-its-note"}
    (folder / vms.DISK).touch()
    state = vms.state("tokyo-gpu-0", vms.records("lab", "tokyo", "gpu")["tokyo-gpu-0"])
    assert (state.instance_id, state.address, state.running) == ("i-1", IPv4Address("10.81.32.0"), False)
    assert state.host_key == "", "of a node that does not run nothing is known"
    vms.remove_all("lab")
    assert vms.standing("lab") == []


def test_a_machine_is_made_while_the_last_other_one_is_removed(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(*_: object, **__: object) -> None:
        raise InterruptedError

    monkeypatch.setattr(vms, "run", made)
    enough = Event()

    def remove_for_ever() -> None:
        while not enough.is_set():
            vms.remove(node.stack, "tokyo-gpu-1")

    remover = Thread(target=remove_for_ever)
    remover.start()
    try:
        for _ in range(ROUNDS):
            folder = names.vm_dir(node.stack, node.name)
            with pytest.raises(InterruptedError):
                vms._make(node, folder)
            shutil.rmtree(folder.parent, ignore_errors=True)
    finally:
        enough.set()
        remover.join()
