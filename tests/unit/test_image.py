"""The image's tag follows what the image is made of."""

import shutil
from pathlib import Path

import pytest

from infra.errors import CausewayError
from infra.providers.local import image


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the recipe that a test may change."""
    copy = tmp_path / "node_image"
    shutil.copytree(image.RECIPE, copy)
    monkeypatch.setattr(image, "RECIPE", copy)
    return copy


def test_tag_names_the_repository_and_twelve_hex_digits() -> None:
    repository, _, digits = image.image_tag().rpartition(":")
    assert repository == "localhost/causeway-node"
    assert len(digits) == 12
    assert set(digits) <= set("0123456789abcdef")


def test_tag_stays_the_same_for_the_same_recipe_elsewhere(recipe: Path) -> None:
    here = image.image_tag()
    shutil.copytree(recipe, recipe.parent / "other")
    image.RECIPE = recipe.parent / "other"  # undone by the fixture's monkeypatch
    assert image.image_tag() == here


@pytest.mark.parametrize("name", ["packages.txt", "setup.sh"])
def test_tag_changes_with_each_file_of_the_recipe(recipe: Path, name: str) -> None:
    before = image.image_tag()
    with (recipe / name).open("a") as file:
        file.write("zstd\n")
    assert image.image_tag() != before


def test_packages_are_sorted_and_unique_and_leave_out_what_roles_install() -> None:
    names = image.packages()
    assert names == sorted(set(names))
    assert {"systemd-sysv", "openssh-server", "python3", "iproute2"} <= set(names)
    assert "chrony" not in names


def test_comments_and_empty_lines_are_no_packages(recipe: Path) -> None:
    (recipe / "packages.txt").write_text("# why\n\nacl\n  # also why\nzstd\n")
    assert image.packages() == ["acl", "zstd"]


def test_full_disk_is_said_before_anything_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "NEEDED_GIB", 1e9)
    with pytest.raises(CausewayError) as caught:
        image.require_space(tmp_path)
    assert str(tmp_path) in caught.value.message
    assert "CAUSEWAY_CACHE" in caught.value.hint


def test_killed_build_leaves_no_archive_that_counts_as_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A builder that dies after writing half of it: what it wrote must not carry the archive's name."""
    tool = tmp_path / "bin" / "mmdebstrap"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\necho half >'{tmp_path}/root.tar.part'\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    with pytest.raises(CausewayError, match="mmdebstrap"):
        image._build(tmp_path / "root.tar")
    assert list(tmp_path.glob("root.tar*")) == []
