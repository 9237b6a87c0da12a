"""What others than root may do to the files and folders by which one becomes root."""

import os
import subprocess
from pathlib import Path

import pytest

from infra.drift.kinds import KINDS
from infra.drift.looks import Look
from infra.drift.manifest import Entry, Manifest, RoleManifest
from infra.drift.repair import Obstacles
from roles.base.drift import rights

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
    lines = [line for line in rights.open_lines(node) if line != sealed]
    assert lines == ([f"{tmp_path}/{shown}"] if shown else [])
    entry = Entry(kind="rights", key="all", task="t", want={"open": [sealed]})
    found = Obstacles()
    manifest = Manifest(host="n", roles={"base": RoleManifest(entries=[entry])})
    for line in lines:
        KINDS["rights"].undo(found, "open", line, manifest)  # type: ignore[attr-defined]
        (undo,) = found.undone
        subprocess.run([word.replace(":shadow", ":root") for word in undo["argv"]], check=True)
    assert [line for line in rights.open_lines(node) if line != sealed] == []
