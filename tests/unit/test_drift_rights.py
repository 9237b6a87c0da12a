"""What others than root may do to the files and folders by which one becomes root."""

import os
import stat
import struct
import subprocess
from pathlib import Path

import pytest

from infra.drift.looks import Look
from roles.base.drift import rights
from tests.unit.test_drift_repair import plan_for

RIGHTS = {
    "as it was": ("folder", 0o1777, 0, 0, ""),
    "without its sticky bit": ("folder", 0o777, 0, 0, "folder 0777 root root"),
    "for everybody to write": ("file", 0o646, 0, 0, "file 0646 root root"),
    "for a group to write": ("file", 0o664, 0, 1, "file 0664 root daemon"),
    "somebody's": ("file", 0o644, 1, 0, "file 0644 daemon root"),
    "root's": ("file", 0o664, 0, 0, ""),
    "a secret for everybody": ("secret", 0o644, 0, 0, "secret 0644 root root"),
    "a secret of a group": ("secret", 0o640, 0, 1, "secret 0640 root daemon"),
    "a secret": ("secret", 0o640, 0, 0, ""),
    "a role's": ("own", 0o666, 0, 0, ""),
}


ACLS = {
    "a file for somebody to write": ("file", 0o644, "user", 7, 6, "file user:1"),
    "a file for somebody to read": ("file", 0o644, "user", 7, 4, ""),
    "a file for a group to write, but for the mask": ("file", 0o644, "group", 4, 6, ""),
    "a file for root": ("file", 0o644, "root", 7, 6, ""),
    "a secret for a group to read": ("secret", 0o640, "group", 7, 4, "secret group:1"),
    "what is new in a folder": ("folder", 0o755, "new", 7, 7, "folder new:user:1"),
}


@pytest.mark.parametrize("what", ACLS)
def test_an_acl_lets_others_in_and_is_taken_away(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, mode, whom, mask, given, shown = ACLS[what]
    paths = {x: tmp_path / x for x in ("folder", "file", "secret")}
    paths["folder"].mkdir(0o755)
    for other in ("file", "secret"):
        paths[other].touch(0o600)
    monkeypatch.setattr(rights, "ROOTS_FILES", (str(paths["file"]),))
    monkeypatch.setattr(rights, "ROOTS_FOLDERS", (str(paths["folder"]),))
    monkeypatch.setattr(rights, "SECRETS", (str(paths["secret"]),))
    for other in ("sudo_files", "unit_files", "matching", "files_below"):
        monkeypatch.setattr(rights, other, lambda *_: [])
    paths[name].chmod(mode)
    tag, number = (8 if whom == "group" else 2), int(whom != "root")
    own = (mode >> 6 & 7, mode >> 3 & 7, mode & 7)
    no = 0xFFFFFFFF
    rows = [(1, own[0], no), (4, own[1], no), (0x10, mask & (given | 4), no), (0x20, own[2], no)]
    rows.insert(1 if tag == 2 else 2, (tag, given, number))
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in rows)
    os.setxattr(paths[name], rights.ACL_OF_NEW if whom == "new" else rights.ACL, acl)
    node = Look("5a17", "scan", [], {})
    lines = rights.look_at_rights(node, "all", {})["acls"]
    assert lines == ([f"{tmp_path}/{shown}"] if shown else [])
    for line in lines:
        (undo,) = plan_for("rights", "all", {"acls": []}, {"acls": [line]}).obstacles.undone
        subprocess.run(undo["argv"], check=True)
    assert rights.look_at_rights(node, "all", {}) == {"open": [], "acls": []}
    if shown:
        assert stat.S_IMODE(paths[name].stat().st_mode) == mode


@pytest.mark.parametrize("what", RIGHTS)
def test_what_others_than_root_may_do_to_files_by_which_one_becomes_root(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, mode, user, group, shown = RIGHTS[what]
    paths = {x: f"{tmp_path}/{x}" for x in ("folder", "file", "secret", "own")}
    Path(paths["folder"]).mkdir(0o755)
    for path in list(paths.values())[1:]:
        Path(path).touch(0o600)
    monkeypatch.setattr(rights, "ROOTS_FILES", (paths["file"], paths["own"], f"{tmp_path}/none"))
    monkeypatch.setattr(rights, "ROOTS_FOLDERS", (paths["folder"],))
    monkeypatch.setattr(rights, "SECRETS", (paths["secret"],))
    for other in ("sudo_files", "unit_files", "matching", "files_below"):
        monkeypatch.setattr(rights, other, lambda *_: [])
    sealed = f"{paths['folder']} 1777 root root"
    os.chown(paths[name], user, group)
    Path(paths[name]).chmod(mode)
    node = Look("5a17", "scan", [], {"file": [paths["own"]]})

    def looked() -> list[str]:
        return [line for line in rights.look_at_rights(node, "all", {})["open"] if line != sealed]

    lines = looked()
    assert lines == ([f"{tmp_path}/{shown}"] if shown else [])
    for line in lines:
        plan = plan_for("rights", "all", {"open": [sealed]}, {"open": [sealed, line]})
        (undo,) = plan.obstacles.undone
        subprocess.run([word.replace(":shadow", ":root") for word in undo["argv"]], check=True)
    assert looked() == []
