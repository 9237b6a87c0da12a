"""The forms of images that virtual machines start from: held against what they were when they were made."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.providers.local import image, names, signing, vm_image, vm_notes
from infra.providers.local.baked import Baked, DamagedError

ONE = Baked("0123456789ab", {"root": {"sha256": "0" * 64}}, 0.0, signed=True)
SMALL_BYTES = 4096
"""In place of a mebibyte: what is tried is where blocks begin and end."""
BLOCKS = st.dictionaries(st.integers(0, 9), st.sampled_from(["data", "zeros"]), max_size=5)


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each time that a kernel was installed, which takes a minute and a mirror."""
    made: list[str] = []

    def build(_base: Path, folder: Path) -> None:
        made.append("build")
        for name in (vm_image.KERNEL, vm_image.INITRD, vm_image.ROOT, vm_image.BUILD):
            (folder / name).write_text(name)

    monkeypatch.setattr(image, "images_dir", lambda: tmp_path)
    monkeypatch.setattr(names, "VM_DIR", tmp_path / "vms")
    monkeypatch.delenv(signing.GIVEN, raising=False)
    monkeypatch.setattr(vm_image, "unpack", lambda _, work: work)
    monkeypatch.setattr(vm_image, "_build", build)
    ONE.folder.mkdir()
    return made


@pytest.mark.parametrize(
    "name", [vm_image.KERNEL, vm_image.INITRD, vm_image.ROOT, vm_image.BUILD, vm_image.SUMS]
)
@pytest.mark.parametrize("harm", ["changed", "gone"])
def test_a_damaged_form_is_made_again_unless_machines_stand_on_it(
    builds: list[str], monkeypatch: pytest.MonkeyPatch, name: str, harm: str
) -> None:
    folder = vm_image.ensure_image(print, ONE)
    assert vm_image.ensure_image(print, ONE) == folder
    assert len(builds) == 1
    (folder / name).write_text("{}") if harm == "changed" else (folder / name).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(vm_notes, "made_from", lambda _: ["cw-lab-tokyo-gpu-0"])
        with pytest.raises(DamagedError, match=f"{name} is not what was signed") as caught:
            vm_image.ensure_image(print, ONE)
        assert "cw-lab-tokyo-gpu-0" in caught.value.hint
        assert folder.exists()
    vm_image.ensure_image(print, ONE)
    assert len(builds) == 2


def test_a_form_that_nobody_signed_is_another_one(builds: list[str]) -> None:
    """Those of before there were signatures: machines that stand on them keep them."""
    assert builds == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vm_image, "SUMS", "")
        before = vm_image.image_dir(ONE)
    assert vm_image.image_dir(ONE) != before


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(one=BLOCKS, other=BLOCKS)
def test_a_disk_is_known_by_what_is_not_zeros_and_where(tmp_path: Path, one: Any, other: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vm_image, "BLOCK_BYTES", SMALL_BYTES)
        found = [vm_image._sparse_checksum(disk(tmp_path / "disk", blocks)) for blocks in (one, other)]
    data = [{at for at, what in blocks.items() if what == "data"} for blocks in (one, other)]
    assert (found[0] == found[1]) == (data[0] == data[1])


def disk(path: Path, blocks: dict[int, str]) -> Path:
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(10 * SMALL_BYTES)
        for at, what in blocks.items():
            file.seek(at * SMALL_BYTES + 7)
            file.write(b"\1" if what == "data" else bytes(SMALL_BYTES - 7))
    return path
