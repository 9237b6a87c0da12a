"""The directories above what roles made, and what is mounted over either."""

import os
import subprocess
from pathlib import Path

import pytest

from infra.drift.kinds import KINDS
from roles.base.drift import folders
from tests.unit.test_drift_live import look
from tests.unit.test_drift_repair import plan_for
from tests.unit.test_drift_seal import checkout as checkout
from tests.unit.test_drift_surroundings import node_with, sealed_again


def test_a_new_directory_above_is_sealed_and_a_changed_one_is_not() -> None:
    old = {"folders": ["/etc 0755 root root"]}
    new = {"folders": ["/etc 0755 root root", "/opt 0700 root root"], "mounts": ["/opt tmpfs"]}
    want, said = sealed_again("folders", old, new)
    assert want["mounts"] == ["/opt tmpfs"], "a role has come that writes below it"
    assert want["folders"] == ["/etc 0755 root root", "/opt 0700 root root"]
    assert not said
    want, said = sealed_again("folders", old, {"folders": ["/etc 0777 root root"], "mounts": ["/etc tmpfs"]})
    assert want == {"folders": ["/etc 0755 root root", "/opt 0700 root root"], "mounts": ["/opt tmpfs"]}
    assert len(said) == 2


def test_directories_above_and_mounts_over_governed_paths_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a").chmod(0o755)
    (tmp_path / "a" / "b").chmod(0o700)
    (tmp_path / "l").symlink_to("a")
    above = folders.above({f"{tmp_path}/a/b/file"})
    assert {str(tmp_path / "a" / "b"), str(tmp_path / "a"), str(tmp_path)} <= above
    assert not above & {"", "/", f"{tmp_path}/a/b/file"}
    node = look()
    owner = f"{node.name_of('passwd', os.getuid())} {node.name_of('group', os.getgid())}"
    assert folders.folder_line(node, f"{tmp_path}/a/b") == [f"{tmp_path}/a/b 0700 {owner}"]
    assert folders.folder_line(node, f"{tmp_path}/l") == [f"{tmp_path}/l is a link of {owner} to a"]
    assert folders.folder_line(node, f"{tmp_path}/none") == []
    mounts = ["1 0 0:1 / / rw - overlay o rw", *2 * [f"2 1 0:2 / {tmp_path}/a rw - tmpfs t rw"]]
    monkeypatch.setattr(folders, "text_of", lambda _: "\n".join([*mounts, "3 1 0:3 / /srv rw - ext4 d rw"]))
    node = node_with(file=[f"{tmp_path}/a/b/file"], directory=[f"{tmp_path}/a/b"])
    node.mode = "seal"
    found = folders.look_at_folders(node, "all", {})
    assert found.keys() == KINDS["folders"].aspects.keys()
    assert {f"{tmp_path}/a 0755 {owner}", f"{tmp_path}/a/b governed"} <= set(found["folders"])
    assert found["mounts"] == ["/srv ext4", f"{tmp_path}/a tmpfs", f"{tmp_path}/a tmpfs 2"]
    node.mode, node.want = "scan", {"folders": [f"{tmp_path} 0700 {owner}"], "mounts": []}
    assert folders.look_at_folders(node, "all", {}) == node.want, "what was governed since counts later"
    (tmp_path / "a" / "b").chmod(0o777)
    node.want = {what: list(lines) for what, lines in found.items()}
    assert folders.look_at_folders(node, "all", {}) == found, "that one is compared by itself"
    (tmp_path / "a").chmod(0o777)
    now = folders.look_at_folders(node, "all", {})["folders"]
    assert set(now) - set(found["folders"]) == {f"{tmp_path}/a 0777 {owner}"}
    node = node_with(file=[f"{tmp_path}/a/b/file"], mount=[f"{tmp_path}/a"])
    node.mode = "seal"
    assert folders.look_at_folders(node, "all", {})["mounts"] == ["/srv ext4"]


def test_what_a_role_comes_to_later_was_there_at_the_seal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only that role runs then: what base sealed says nothing else than before."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    mounts = f"1 0 0:1 / {tmp_path}/a/resolv.conf rw - ext4 d rw\n2 0 0:2 / /run/user/0 rw - tmpfs t rw"
    monkeypatch.setattr(folders, "text_of", lambda _: mounts)
    node = node_with(file=[f"{tmp_path}/a/b/file"])
    node.mode = "seal"
    sealed = folders.look_at_folders(node, "all", {})
    assert f"{tmp_path}/a/resolv.conf ext4" in sealed["mounts"]
    assert "/run/user/0 tmpfs" not in sealed["mounts"]
    later = node_with(
        file=[f"{tmp_path}/a/b/file", f"{tmp_path}/a/resolv.conf"], directory=[f"{tmp_path}/a/b"]
    )
    later.want = {what: list(lines) for what, lines in sealed.items()}
    assert folders.look_at_folders(later, "all", {}) == sealed
    later.mode, later.want = "seal", {}
    want, said = sealed_again("folders", dict(sealed), dict(folders.look_at_folders(later, "all", {})))
    assert not said
    assert f"{tmp_path}/a/b governed" in want["folders"]


def test_a_directory_is_brought_back_and_a_mount_named_with_its_command() -> None:
    expected = {"folders": ["/etc 0755 root root", "/l 0755 root root"], "mounts": []}
    found = {"folders": ["/etc 0777 eve root", "/l is a link of root root to /x"], "mounts": ["/etc tmpfs"]}
    obstacles = plan_for("folders", "all", expected, found).obstacles
    assert obstacles.ownership == {"/etc": {"mode": "0755", "owner": "root", "group": "root"}}
    assert [command["argv"][0] for command in obstacles.undone] == ["sh", "umount"]
    assert all(command["first"] for command in obstacles.undone), "what is below is what is brought back"


def test_a_link_in_a_directorys_place_becomes_one_again(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("x")
    (tmp_path / "place").symlink_to("real")
    subprocess.run(["sh", "-c", folders.PUT_BACK, "folder", tmp_path / "place"], check=True)
    assert not (tmp_path / "place").is_symlink()
    assert (tmp_path / "place" / "file").read_text() == "x"
