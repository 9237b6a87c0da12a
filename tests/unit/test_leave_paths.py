"""What a look sees of a node's files: nothing that was there is taken for nothing, whatever the way to it."""

import json
import os
import tarfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.drift.looks import shown_key
from tests.unit.test_leave import OURS, THEIRS, Modules, Node, become, sealed, tree
from tests.unit.test_leave import modules as modules
from tests.unit.test_leave import node as node

PLACES = ("etc/a", "etc/b", "etc/c", "etc/c/d", "elsewhere/e", "elsewhere/e/f", "elsewhere/g")
LINKS = st.dictionaries(
    st.sampled_from(["etc/a", "etc/b", "etc/c/d", "elsewhere/g"]), st.sampled_from(PLACES), max_size=3
)
FILES = st.dictionaries(
    st.sampled_from([f"{place}/{name}" for place in PLACES for name in ("x", "y")]),
    st.binary(max_size=4),
    max_size=5,
)


@settings(max_examples=40, deadline=None)
@given(links=LINKS, relative=st.booleans(), before=FILES, ours=FILES, data=st.data())
def test_what_lies_behind_a_link_is_given_back_as_well(
    modules: Modules,
    tmp_path_factory: pytest.TempPathFactory,
    links: dict[str, str],
    relative: bool,
    before: dict[str, bytes],
    ours: dict[str, bytes],
    data: st.DataObject,
) -> None:
    """A machine has its data on another disk, and a link to it where a role writes: `elsewhere` is no place
    that is looked at.
    """
    top = tmp_path_factory.mktemp("disks")
    with Node(modules, top / "node") as node:
        (node.folder / "elsewhere").symlink_to(top / "disk")
        (top / "disk").mkdir()
        for name, target in links.items():
            link, goal = node.folder / name, str(node.folder / target)
            become(
                link, ("link", os.path.relpath(goal, link.parent).encode() if relative else goal.encode(), 0)
            )
        for name, content in before.items():
            write(node.folder / name, content)
        was = {each: tree(each) for each in (node.etc, top / "disk")}
        node.look("ours")
        things = []
        for name, content in ours.items():
            path = node.folder / name
            made = [step for step in path.parents if node.folder in step.parents and not step.exists()]
            if write(path, content):
                things += [("file", path), *(("directory", step) for step in made)]
        shown = data.draw(st.permutations(things))
        node.leave(*({"kind": kind, "key": str(path)} for kind, path in shown))
        assert {each: tree(each) for each in was} == was


def write(path: Path, content: bytes) -> bool:
    """As a role does, through all links; whether it can be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError:  # links in a circle, or to a file
        return False
    return True


@pytest.mark.parametrize("why", ["too many", "another machine's", "cannot be read"])
def test_where_nobody_could_look_everything_stays(node: Node, why: str) -> None:
    """Also nothing else becomes unknown by it."""
    full, plain = node.etc / "full", node.etc / "plain"
    full.mkdir()
    plain.mkdir()
    for name in ("a", "b", "c", "d", "e"):
        (full / name).touch()
    scandir = os.scandir

    def scanned(folder: str) -> Iterator[os.DirEntry[str]]:
        if folder == str(full):
            raise PermissionError(13, folder)  # root on somebody's file server is nobody
        return scandir(folder)

    places: dict[str, Any] = {
        "too many": patch.object(node.paths, "MOST_IN_FOLDER", 4),
        "another machine's": patch.object(node.paths, "of_others", lambda _mounts: [str(full)]),
        "cannot be read": patch.object(os, "scandir", scanned),
    }
    with places[why]:
        node.look("ours")
    for path in (full / "new", plain / "new"):
        path.write_text("ours")
    undo = node.leave(*({"kind": "file", "key": str(path)} for path in (full / "new", plain / "new")))
    assert (full / "new").read_text() == "ours"
    assert not (plain / "new").exists()
    assert undo.left == [f"{full / 'new'}: nobody has looked what was there before"]


def test_where_there_are_too_many_files_the_upper_levels_are_known(node: Node) -> None:
    (node.etc / "deep").mkdir()
    for number in range(3):
        (node.etc / f"{number}").touch()
    with patch.object(node.paths, "MOST_PATHS", 4):
        node.look("ours")
    for path in (node.etc / "new", node.etc / "deep" / "new"):
        path.write_text("ours")
    node.leave(*({"kind": "file", "key": str(node.etc / name)} for name in ("new", "deep/new")))
    assert {str(path.relative_to(node.etc)) for path in node.etc.rglob("new")} == {"deep/new"}


def test_file_systems_of_other_machines_are_told_by_their_kind() -> None:
    paths = import_module("ansible.module_utils.causeway_paths")
    lines = """\
22 1 0:20 / / rw - nfs 192.0.2.1:/root rw
23 22 0:21 / /home rw,relatime shared:1 - nfs4 192.0.2.1:/home rw,vers=4.2
24 22 8:1 / /srv/a\\040b rw - cifs //server/share rw
25 22 8:1 / /data rw master:1 shared:2 - ext4 /dev/sda1 rw
26 22 0:40 / /lustre rw - lustre 192.0.2.1@tcp:/fs rw
27 22 0:41 / /mnt/s rw - fuse.sshfs server: rw
28 22 0:42 / /auto rw - autofs systemd-1 rw
"""
    assert [*paths.of_others(lines)] == ["/home", "/srv/a b", "/lustre", "/mnt/s", "/auto"]


@pytest.mark.parametrize("where", ["beside", "behind a link", "away"])
def test_a_key_that_was_there_stays_wherever_the_home_is(
    node: Node, where: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """By that key, which is also declared, somebody came in before."""
    top = tmp_path_factory.mktemp("disk")
    home = named = top / "homes" / "ops"
    home.mkdir(parents=True)
    if where == "behind a link":
        named = top / "users" / "ops"
        named.parent.symlink_to(home.parent)
    node.homes = [str(named)]
    file = named / ".ssh" / "authorized_keys"
    file.parent.mkdir()
    file.write_text(f"{OURS}\n")
    others = [str(home.parent)] if where == "away" else []
    with patch.object(node.paths, "of_others", lambda _mounts: others):
        node.look("ours")
    file.write_text(f"{OURS}\n{THEIRS}\n")
    own = {"kind": "authorized_keys", "key": str(file), "own": [shown_key(OURS), shown_key(THEIRS)]}
    undo = node.leave(own, {"kind": "file", "key": str(file)})
    if where == "away":
        assert file.read_text() == f"{OURS}\n{THEIRS}\n"
        assert undo.left == [f"{file}: nobody knows which keys were in it before"]
    else:
        assert file.read_text() == f"{OURS}\n"
        assert undo.left == []


def test_many_files_elsewhere_leave_room_for_what_roles_replace(
    node: Node, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of an account nothing is kept but the keys by which somebody comes in."""
    home = tmp_path_factory.mktemp("homes") / "ops"
    (home / ".ssh").mkdir(parents=True)
    for name in ("authorized_keys", "id_ed25519"):
        (home / ".ssh" / name).write_text(name)
    node.homes = [str(home)]
    more = node.data / "more"
    more.mkdir()
    for number in range(9):
        (more / str(number)).write_text("x" * 9)
    (node.etc / "hosts").write_text("y" * 40)
    tops = (f"{node.etc}/", f"{node.data}/")
    with patch.object(node.paths, "KEPT_WHOLE", tops), patch.object(node.before, "MOST_BYTES", 80):
        node.look("ours")
    with tarfile.open(node.kept / "1.tar.gz") as archive:
        names = {Path(name).name for name in archive.getnames()}
    assert {"hosts", "authorized_keys", "0"} < names
    assert "id_ed25519" not in names


def test_a_look_of_an_older_version_is_read_as_it_was_made(modules: Modules) -> None:
    """It looked three levels below /home, and at nothing where it came to its end."""
    prior = modules[0]
    folder = ["directory", 0o755, 0, 0, ""]
    paths = dict.fromkeys(("/home", "/home/ops", "/etc", "/data"), folder)
    known = prior.Prior(
        1, {"paths": paths | {"/etc/x": ["link", 0o777, 0, 0, "/data/x"]}, "cut_short": False}
    )
    assert known.path("/home/ops") == folder
    assert known.path("/home/ops/.ssh/authorized_keys") is None
    assert known.path("/home/ops/a/b/c") is None, "its folder was not there"
    assert known.path("/etc/y") is None
    assert known.path("/etc/x/y") is None, "where the link led was looked at, and nothing was there"
    assert known.path("/data/z/y") is None
    assert known.path("/var/run/x") is None
    cut = prior.Prior(1, {"paths": paths, "cut_short": True})
    assert cut.path("/etc") == folder
    assert cut.path("/etc/y") == "unknown"


@pytest.mark.parametrize("left", [0, 30, -3])
def test_of_a_look_that_is_damaged_nothing_is_known(node: Node, left: int) -> None:
    (node.etc / "a").write_text("before")
    node.look("ours")
    kept = node.kept / "1.json.gz"
    kept.write_bytes(kept.read_bytes()[:left] + b"\0" * (left < 0) * 3)
    (node.etc / "a").write_text("ours")
    undo = node.leave(sealed(node.etc / "a"))
    assert (node.etc / "a").read_text() == "ours"
    assert undo.left == [f"file {node.etc / 'a'}: nobody knows what was before it"]


def test_what_a_look_says_goes_through_json(node: Node) -> None:
    facts: dict[str, Any] = node.paths.look_at_paths([])
    assert json.loads(json.dumps(facts)) == facts
