"""Baked images beside podman: what killed runs left of them is cleared, and no more than that."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from infra.providers.local import baked, image, names, signing

NAME, OTHER = "0123456789ab", "ba9876543210"


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """What podman was asked, instead of a real one that has nothing; the images' folder is the test's."""
    commands: list[Sequence[str]] = []

    def run(argv: Sequence[str], **_: Any) -> str:
        commands.append(argv[1:])
        return ""

    monkeypatch.setattr(image, "images_dir", lambda: tmp_path)
    monkeypatch.setattr(names, "VM_DIR", tmp_path / "vms")
    monkeypatch.setattr(baked, "run", run)
    return commands


def folder_of(name: str) -> Path:
    """A folder beside the images, with a file in it."""
    path = baked.folders() / name
    path.mkdir()
    (path / baked.FILES).touch()
    return path


def killed_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin to remove an image, and be killed before podman's copy is gone."""
    folder_of(NAME)
    with monkeypatch.context() as patch:
        patch.setattr(baked, "_remove_rest", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            baked.remove(NAME)


def test_a_killed_removal_is_finished_and_half_made_things_go(
    asked: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_removal(monkeypatch)
    kept = folder_of(OTHER)
    folder_of(f".{OTHER}{baked.PART}")
    assert len(list(baked.folders().iterdir())) == 3
    with baked.locked(print):
        assert {path.name for path in baked.folders().iterdir()} == {kept.name, "lock"}
    assert ["rmi", "--ignore", baked.tag_of(NAME)] in asked


def test_an_image_that_was_built_anew_stays(
    asked: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_removal(monkeypatch)
    again = folder_of(NAME)
    monkeypatch.setattr(baked, "users", lambda _: ["local-tokyo-gpu-0"])
    with baked.locked(print):
        assert {path.name for path in baked.folders().iterdir()} == {again.name, "lock"}
    assert not any(command[0] == "rmi" for command in asked)


@pytest.mark.usefixtures("asked")
def test_forms_that_machines_stand_on_stay_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image that podman lost and that is built anew; killed anywhere, the disks' ground is there."""
    form = folder_of(NAME) / "vm-1" / "root.ext4"
    form.parent.mkdir()
    form.touch()
    monkeypatch.setattr(signing, "sign", lambda file: Path(f"{file}{signing.SUFFIX}").touch())
    known = tmp_path / "known"
    for files in ("ab", "c"):
        known.mkdir(exist_ok=True)
        for name in (*files, baked.MANIFEST):
            (known / name).write_text(files)
        seen = list[bool]()
        monkeypatch.setattr(Path, "rename", lambda *_, seen=seen: seen.append(False))
        baked.keep(NAME, tmp_path / "root.tar", known)
        assert form.exists()
        assert seen == []
    assert (baked.folder(NAME) / baked.MANIFEST).read_text() == "c"


@pytest.mark.usefixtures("asked")
def test_what_a_node_is_made_from_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    killed_removal(monkeypatch)
    monkeypatch.setattr(baked, "users", lambda _: ["local-tokyo-gpu-0"])
    with baked.locked(print):
        assert (baked.folders() / f".{NAME}{baked.GONE}").exists()
