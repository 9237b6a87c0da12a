"""The file systems of NFS exports, really made, grown and mounted, in a mount namespace of their own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from infra import ROOT

PROVES = ("storage", "nfs_server")
PROGRAM = ROOT / "roles" / "nfs_server" / "files" / "causeway-nfs-volumes"
MIB = 1 << 20
# The program with paths of the test's, in one process, for with it the mounts go.
STORY = """
import json, os, sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
loader = SourceFileLoader("volumes", sys.argv[1])
volumes = module_from_spec(spec_from_loader("volumes", loader))
loader.exec_module(volumes)
place, steps = Path(sys.argv[2]), json.loads(sys.argv[3])
volumes.FILES = place / "files"
path = str(place / "export")
file = volumes.file_of(path)

def settings(size):
    return {"volumes": [{"path": path, "size_bytes": size}], "folders": []}

def room():
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize

for verb, *words in steps:
    try:
        if verb == "up":
            wanted = volumes.Volumes(settings(words[0]), dry_run="dry" in words, served="served" in words)
            wanted.up()
            said = [change.partition(path)[2] or change.rpartition(" ")[2] for change in wanted.changes]
        elif verb == "write":
            said = (Path(path) / "kept").write_text(words[0])
        elif verb == "read":
            said = (Path(path) / "kept").read_text()
        elif verb == "room":
            said = room() >> 20
        elif verb == "unmount":
            said = volumes.run("umount", path)
        elif verb == "begin":  # as a run that was killed after the file grew leaves it
            volumes.growing(file).touch()
            said = os.truncate(file, words[0])
        elif verb == "over":
            said = volumes.run("mount", "-t", "tmpfs", "tmpfs", path)
    except volumes.RefusedError as error:
        said = f"refused: {error}"
    print(json.dumps(said))
"""


def story(place: Path, *steps: tuple[object, ...]) -> list[object]:
    """What each step said."""
    words = [sys.executable, "-c", STORY, str(PROGRAM), str(place), json.dumps(steps)]
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", *words],
        check=True, text=True, stdout=subprocess.PIPE, timeout=120,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_it_is_made_once_and_mounted_again(tmp_path: Path) -> None:
    size = 32 * MIB
    said = story(
        tmp_path,
        *(("up", size, "dry"), ("up", size), ("up", size), ("write", "hello")),
        *(("unmount",), ("up", size), ("read",)),
    )
    assert said[0] == said[1] == ["made", " mounted"]
    assert said[2] == []
    assert said[5:] == [[" mounted"], "hello"]


@pytest.mark.parametrize("size", [64 * MIB, 100_000_000])
def test_it_grows_with_what_is_in_it(tmp_path: Path, size: int) -> None:
    said = story(
        tmp_path,
        *(("up", 32 * MIB), ("write", "hello"), ("room",), ("unmount",)),
        *(("up", size), ("up", size), ("room",), ("read",)),
    )
    assert said[4] == [f" grown to {size} bytes", " mounted"]
    assert said[5] == []
    assert int(str(said[6])) > 1.5 * int(str(said[2]))
    assert said[7] == "hello"


def test_a_growth_that_was_killed_is_completed(tmp_path: Path) -> None:
    size = 64 * MIB
    said = story(
        tmp_path,
        *(("up", 32 * MIB), ("room",), ("write", "hello"), ("unmount",), ("begin", size)),
        *(("up", size), ("room",), ("read",), ("up", size)),
    )
    assert said[5] == [f" grown to {size} bytes", " mounted"]
    assert int(str(said[6])) > 1.5 * int(str(said[1]))
    assert said[7:] == ["hello", []]


def test_it_is_never_made_smaller(tmp_path: Path) -> None:
    said = story(tmp_path, ("up", 64 * MIB), ("write", "hello"), ("up", 32 * MIB), ("read",))
    assert "not made smaller" in str(said[2])
    assert said[3] == "hello"


def test_something_else_in_its_place_is_named(tmp_path: Path) -> None:
    said = story(tmp_path, ("up", 32 * MIB), ("over",), ("up", 32 * MIB))
    assert "something else is mounted" in str(said[2])
