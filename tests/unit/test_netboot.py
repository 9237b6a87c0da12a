"""What machines boot from the network: written whole or not at all, and the script that iPXE runs."""

import json
import subprocess
from base64 import b64decode
from pathlib import Path

import pytest

from infra.errors import BadInputError, CausewayError
from infra.files import checksum
from infra.images import netboot
from infra.providers.local import baked, image, signing, vm_image
from infra.providers.local.baked import Baked

URL = "http://boot.example:8080/tokyo-gpu"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG1pbmltYWwta2V5LWZvci10aGUtdGVzdC1vbmx5LTEy me"
NAME = "0123456789ab"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Baked:
    """An image as it is kept, without podman's copy of it."""
    monkeypatch.setattr(image, "images_dir", lambda: tmp_path)
    monkeypatch.delenv(signing.GIVEN, raising=False)
    folder = baked.folder(NAME)
    folder.mkdir()
    (folder / baked.SBOM).write_text("{}\n")
    manifest = {"pool": "tokyo-gpu", "source_date": 1_700_000_000, "root": {"sha256": "0" * 64}}
    manifest["beside"] = {baked.SBOM: checksum(folder / baked.SBOM)}
    (folder / baked.MANIFEST).write_text(json.dumps(manifest))
    signing.sign(folder / baked.MANIFEST)
    return Baked(NAME, manifest, 0.0, signed=True)


@pytest.fixture
def _made(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the kernel had been added, which takes a minute and a mirror."""

    def unpacked(_: Baked, work: Path) -> Path:
        work.mkdir()
        return work

    def with_kernel(_base: Path, form: str, folder: Path) -> Path:
        assert form == "netboot"
        (folder / "vmlinuz").write_text("kernel")
        (folder / "initrd").write_text("initrd")
        (folder / "root").mkdir()
        (folder / "root" / "file").write_text("text")
        return folder / "root"

    monkeypatch.setattr(netboot, "unpack", unpacked)
    monkeypatch.setattr(vm_image, "with_kernel", with_kernel)
    monkeypatch.setattr(netboot, "_pack", lambda root, file, _: file.write_text((root / "file").read_text()))


@pytest.mark.usefixtures("_made")
def test_all_that_is_handed_out_is_listed_and_the_list_is_signed(kept: Baked, tmp_path: Path) -> None:
    folder = tmp_path / "www"
    netboot.export(kept, folder, f"{URL}/", KEY, print)
    files = {file.name for file in folder.iterdir()}
    assert {"vmlinuz", "initrd", "root.squashfs", "boot.ipxe", "manifest.json", "manifest.json.sig"} < files
    sums = (folder / netboot.SUMS).read_text()
    assert {line.split()[1] for line in sums.splitlines()} == files - {"SHA256SUMS", "SHA256SUMS.sig"}
    subprocess.run(["sha256sum", "--check", "--quiet", netboot.SUMS], cwd=folder, check=True, timeout=60)
    assert signing.is_signed(folder / netboot.SUMS)
    assert signing.is_signed(folder / baked.MANIFEST)
    assert not list(tmp_path.glob(".www*"))


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


def test_a_folder_that_is_there_is_left_alone(kept: Baked, tmp_path: Path) -> None:
    (tmp_path / "www").mkdir()
    with pytest.raises(BadInputError, match="is there already"):
        netboot.export(kept, tmp_path / "www", URL, KEY, print)
    with pytest.raises(BadInputError, match="there is no folder"):
        netboot.export(kept, tmp_path / "none" / "www", URL, KEY, print)


@pytest.mark.usefixtures("_made")
def test_nothing_half_made_is_left(kept: Baked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise CausewayError("mksquashfs: no space left on device")

    monkeypatch.setattr(netboot, "_pack", full)
    with pytest.raises(CausewayError, match="no space left"):
        netboot.export(kept, tmp_path / "www", URL, KEY, print)
    assert not list(tmp_path.glob("*www*"))


@pytest.mark.usefixtures("_made")
@pytest.mark.parametrize("name", [baked.SBOM, baked.MANIFEST])
def test_nothing_is_signed_anew_that_is_not_as_it_was_signed(kept: Baked, tmp_path: Path, name: str) -> None:
    with (kept.folder / name).open("a") as file:
        file.write(" ")
    with pytest.raises(CausewayError, match="signed"):
        netboot.export(kept, tmp_path / "www", URL, KEY, print)
    assert not list(tmp_path.glob("*www*"))
