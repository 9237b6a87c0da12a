"""What machines boot by network or from a disk: written whole or not at all, and always alike."""

import json
import re
import subprocess
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.errors import BadInputError, CausewayError
from infra.files import checksum
from infra.images import disk, forms, netboot
from infra.providers.local import baked, image, names, signing, vm_image
from infra.providers.local.baked import Baked

URL = "http://boot.example:8080/tokyo-gpu"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG1pbmltYWwta2V5LWZvci10aGUtdGVzdC1vbmx5LTEy me"
NAME = "0123456789ab"
DATE = 1_700_000_000
PACKAGE = dict.fromkeys(("version", "architecture", "source", "sha256"), "1") | {"name": "linux-image"}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Baked:
    """An image as it is kept, without podman's copy of it."""
    monkeypatch.setattr(image, "images_dir", lambda: tmp_path)
    monkeypatch.setattr(names, "RUN_DIR", tmp_path / "run")
    monkeypatch.delenv(signing.GIVEN, raising=False)
    folder = baked.folder(NAME)
    folder.mkdir()
    (folder / baked.SBOM).write_text("{}\n")
    manifest = {"pool": "tokyo-gpu", "source_date": DATE, "root": {"sha256": "0" * 64}}
    manifest["beside"] = {baked.SBOM: checksum(folder / baked.SBOM)}
    (folder / baked.MANIFEST).write_text(json.dumps(manifest))
    signing.sign(folder / baked.MANIFEST)
    return Baked(NAME, manifest, 0.0, signed=True)


def ran(root: Path, beside: Path, argv: list[str], script: str, source_date: int) -> str:
    """What runs in a root, without one: the disk says all that it was made of."""
    assert root.is_dir()
    if argv[-1] == "list":
        return json.dumps([PACKAGE])
    if script == disk.SCRIPT.read_text():
        definitions = {file.name: file.read_text() for file in sorted((beside / "repart.d").iterdir())}
        keys = (root / "root/.ssh/authorized_keys").read_text()
        (beside / disk.RAW).write_text(json.dumps([argv, definitions, keys, source_date], sort_keys=True))
    return ""


@pytest.fixture
def _made(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the kernel had been added, which takes a minute and a mirror."""

    def unpacked(_: Baked, work: Path) -> Path:
        work.mkdir()
        return work

    def with_kernel(_base: Path, form: str, folder: Path, source_date: int) -> Path:
        assert form in ("netboot", "disk")
        assert source_date == DATE
        (folder / "vmlinuz").write_text("kernel")
        (folder / "initrd").write_text("initrd")
        (folder / "root/root/.ssh").mkdir(parents=True)
        (folder / "root" / "file").write_text("text")
        return folder / "root"

    monkeypatch.setattr(forms, "unpack", unpacked)
    monkeypatch.setattr(forms, "within", ran)
    monkeypatch.setattr(vm_image, "with_kernel", with_kernel)
    monkeypatch.setattr(netboot, "_pack", lambda root, file, _: file.write_text((root / "file").read_text()))


def to_disk(kept: Baked, folder: Path, key: str = KEY, console: str = "ttyS0") -> dict[str, bytes]:
    """A disk's folder: file → what it holds."""
    disk.export(kept, folder, key, console, "raw", print)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


FORMS = {
    "netboot": (
        lambda kept, folder: netboot.export(kept, folder, URL, KEY, print),
        {"vmlinuz", "initrd", "root.squashfs", "boot.ipxe"},
    ),
    "disk": (to_disk, {"disk.raw"}),
}
FORM = pytest.mark.parametrize(("export", "own"), FORMS.values(), ids=FORMS)


@FORM
@pytest.mark.usefixtures("_made")
def test_all_that_is_handed_out_is_listed_and_the_list_is_signed(
    kept: Baked, tmp_path: Path, export: Callable[[Baked, Path], object], own: set[str]
) -> None:
    folder = tmp_path / "www"
    export(kept, folder)
    files = {file.name for file in folder.iterdir()}
    known = {"manifest.json", "manifest.json.sig", "sbom.spdx.json", forms.BILL, forms.SUMS}
    assert files == own | known | {f"{forms.SUMS}.sig"}
    sums = (folder / forms.SUMS).read_text()
    assert {line.split()[1] for line in sums.splitlines()} == files - {"SHA256SUMS", "SHA256SUMS.sig"}
    subprocess.run(["sha256sum", "--check", "--quiet", forms.SUMS], cwd=folder, check=True, timeout=60)
    assert signing.is_signed(folder / forms.SUMS)
    assert signing.is_signed(folder / baked.MANIFEST)
    bill = (folder / forms.BILL).read_text()
    assert PACKAGE["name"] in bill, "the kernel is no package of the image"
    digests = {line.split()[1]: line.split()[0] for line in sums.splitlines()}
    assert any(digests[name] in bill for name in own)
    assert not list(tmp_path.glob(".www*"))


@FORM
@pytest.mark.usefixtures("_made")
def test_two_exports_are_equal_in_every_byte_wherever_they_are_written(
    kept: Baked, tmp_path: Path, export: Callable[[Baked, Path], object], own: set[str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    found = []
    for folder in (tmp_path / "one", tmp_path / "elsewhere" / "two"):
        export(kept, folder)
        found.append({name: (folder / name).read_bytes() for name in (*own, forms.SUMS, forms.BILL)})
    assert found[0] == found[1]


@pytest.mark.usefixtures("_made")
def test_the_script_tells_the_initrd_where_the_root_is_and_who_gets_in(kept: Baked, tmp_path: Path) -> None:
    netboot.export(kept, tmp_path / "www", f"{URL}/", KEY, print)
    script = (tmp_path / "www" / netboot.IPXE).read_text().splitlines()
    assert script[0] == "#!ipxe"
    words = script[1].split()
    assert words[:2] == ["kernel", "vmlinuz"]
    assert f"fetch={URL}/root.squashfs" in words
    (credential,) = [word for word in words if word.startswith("systemd.set_credential_binary=")]
    assert b64decode(credential.rpartition(":")[2]).decode() == f"{KEY}\n"


@pytest.mark.parametrize("url", ["https://boot.example/", "boot.example", "http://a b/", "http://h/$(x)", ""])
def test_a_url_that_no_initrd_understands_is_refused(kept: Baked, tmp_path: Path, url: str) -> None:
    with pytest.raises(BadInputError, match="no URL from which an initrd fetches"):
        netboot.export(kept, tmp_path / "www", url, KEY, print)
    assert not (tmp_path / "www").exists()


@FORM
def test_a_folder_that_is_there_is_left_alone(
    kept: Baked, tmp_path: Path, export: Callable[[Baked, Path], object], own: set[str]
) -> None:
    assert own
    (tmp_path / "www").mkdir()
    with pytest.raises(BadInputError, match="is there already"):
        export(kept, tmp_path / "www")
    with pytest.raises(BadInputError, match="there is no folder"):
        export(kept, tmp_path / "none" / "www")


@FORM
@pytest.mark.usefixtures("_made")
def test_nothing_half_made_is_left(
    kept: Baked,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    export: Callable[[Baked, Path], object],
    own: set[str],
) -> None:
    def full(*_: object) -> None:
        raise CausewayError("no space left on device")

    assert own
    monkeypatch.setattr(netboot, "_pack", full)
    monkeypatch.setattr(disk, "_pack", full)
    with pytest.raises(CausewayError, match="no space left"):
        export(kept, tmp_path / "www")
    assert not list(tmp_path.glob("*www*"))


@pytest.mark.usefixtures("_made")
def test_a_disk_of_other_inputs_has_other_names(kept: Baked, tmp_path: Path) -> None:
    """Two disks of one name in a machine would be taken for each other."""
    other = Baked(NAME, kept.manifest | {"root": {"sha256": "1" * 64}}, 0.0, signed=True)
    found = [
        to_disk(kept, tmp_path / "a"),
        to_disk(other, tmp_path / "b"),
        to_disk(kept, tmp_path / "c", key=f"{KEY}2"),
        to_disk(kept, tmp_path / "d", console="ttyS1,115200n8"),
    ]
    uuids = [re.findall(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", each[disk.RAW]) for each in found]
    assert len({uuid for each in uuids for uuid in each}) == len(found) * 4


def test_a_disk_s_partitions_are_told_to_the_loader_as_they_are_called() -> None:
    layout = disk.Layout("seed", 1000)
    esp, root = (layout.definitions()[name] for name in ("10-esp.conf", "50-root.conf"))
    console, whole, *parts = layout.words("ttyS1,9600")
    assert console == "console=tty0 console=ttyS1,9600"
    assert f"Type=esp\nLabel=ESP\nUUID={parts[0]}\n" in esp
    assert f"Type=root\nLabel=root\nUUID={parts[1]}\nSizeMinBytes=1000M\nSizeMaxBytes=1000M\n" in root
    assert len({whole, *parts[:3]}) == 4
    assert re.fullmatch("[0-9a-f]{8}", parts[3]), "FAT has room for no more"
    assert layout.words("ttyS1,9600") == disk.Layout("seed", 1000).words("ttyS1,9600")
    assert sorted(layout.definitions()) == ["10-esp.conf", "50-root.conf"], "nothing stands behind what grows"


def test_a_root_has_room_for_its_files_whatever_they_take_here(tmp_path: Path) -> None:
    empty = disk.root_mib(tmp_path)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(100 * disk.MIB)
    (tmp_path / "again").hardlink_to(tmp_path / "sparse")
    assert 100 <= disk.root_mib(tmp_path) - empty <= 120, "by what is in them, each once"
    for number in range(1000):
        (tmp_path / f"link-{number}").symlink_to("x")
    assert disk.root_mib(tmp_path) - empty >= 104, "each has an inode"


@pytest.mark.parametrize(
    "console", ["", "ttyS0 init=/bin/sh", "serial", "ttyS0,fast", "/dev/tty1", "ttyS0\n"]
)
def test_a_console_that_no_kernel_knows_is_refused(kept: Baked, tmp_path: Path, console: str) -> None:
    with pytest.raises(BadInputError, match="no console of a kernel's"):
        to_disk(kept, tmp_path / "disk", console=console)
    assert not (tmp_path / "disk").exists()


@pytest.mark.usefixtures("_made")
def test_a_disk_for_a_cloud_is_the_same_one_packed(kept: Baked, tmp_path: Path) -> None:
    disk.export(kept, tmp_path / "one", KEY, "ttyS0", "qcow2", print)
    files = {file.name for file in (tmp_path / "one").iterdir()}
    assert disk.QCOW2 in files
    assert disk.RAW not in files
    command = ["qemu-img", "convert", "-O", "raw", disk.QCOW2, "back"]
    subprocess.run(command, cwd=tmp_path / "one", check=True, timeout=60)
    raw = to_disk(kept, tmp_path / "raw")[disk.RAW]
    assert (tmp_path / "one" / "back").read_bytes()[: len(raw)] == raw


@FORM
@pytest.mark.usefixtures("_made")
@pytest.mark.parametrize("name", [baked.SBOM, baked.MANIFEST])
def test_nothing_is_signed_anew_that_is_not_as_it_was_signed(
    kept: Baked, tmp_path: Path, name: str, export: Callable[[Baked, Path], object], own: set[str]
) -> None:
    assert own
    with (kept.folder / name).open("a") as file:
        file.write(" ")
    with pytest.raises(CausewayError, match="signed"):
        export(kept, tmp_path / "www")
    assert not list(tmp_path.glob("*www*"))
