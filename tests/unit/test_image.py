"""The image's tag follows what the image is made of."""

import shutil
from pathlib import Path

import pytest

from infra.errors import CausewayError
from infra.providers.local import image
from infra.providers.local.node_image import index


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


@pytest.mark.parametrize("name", ["packages.txt", "index.txt", "index.py", "setup.sh"])
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


def test_what_is_kept_of_apt_s_lists_is_all_that_is_needed_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stanzas = (
        "Package: chrony\nDepends: libc6 (>= 2.38), iproute2 | net-tools\nPre-Depends: init-helpers:any",
        "Package: libc6\nDescription: a library\n Depends: on: nothing",
        *("Package: iproute2\nDepends: mta", "Package: net-tools", "Package: init-helpers"),
        *("Package: exim\nProvides: mta (= 1), smtp", "Package: dpkg", "Package: htop\nDepends: libc6"),
    )
    (tmp_path / "a_Packages").write_text("\n\n".join(stanzas[:4]) + "\n\n")
    (tmp_path / "b_Packages").write_text("\n\n".join(stanzas[4:]) + "\n")
    for name in ("LISTS", "MARK", "HOOK"):
        monkeypatch.setattr(index, name, tmp_path if name == "LISTS" else tmp_path / name)
    monkeypatch.setattr(index, "UPDATE", f"rm -f {tmp_path}/*_Packages")
    query = tmp_path / "dpkg-query"
    query.write_text("#!/bin/sh\necho dpkg\n")
    query.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    index.main(["chrony", "no-such-package"])

    kept = "".join(path.read_text() for path in sorted(tmp_path.glob("*_Packages")))
    assert (
        kept
        == "".join(f"{stanza}\n\n" for stanza in stanzas[:4])[:-1]
        + "".join(f"{stanza}\n\n" for stanza in stanzas[4:7])[:-1]
    )
    assert (tmp_path / "MARK").exists()
    assert f'"rm -f {tmp_path}/*_Packages"' in (tmp_path / "HOOK").read_text()


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
        image._build(tmp_path / "root.tar", image.SUITE)
    assert list(tmp_path.glob("root.tar*")) == []
