"""What cleans scratch: old files go, those in use stay, and what is linked from elsewhere is left alone."""

import errno
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infra import ROOT
from tests.loaded import load

DAY_S = 86_400


@pytest.fixture(name="program", scope="module")
def _program() -> ModuleType:
    path = ROOT / "roles/scratch/files/causeway_scratch.py"
    return load(path)


@pytest.fixture(name="make")
def _make(tmp_path: Path) -> Callable[..., Path]:
    """Makes a file of the scratch folder that was used some days before the cleaning."""
    folder = tmp_path / "scratch"
    folder.mkdir()

    def make(name: str, days: float) -> Path:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
        used_at = LATER - days * DAY_S
        os.utime(file, (used_at, used_at))
        return file

    return make


LATER = time.time() + 100 * DAY_S
"""Nobody can set when an inode changed: the cleaning comes a hundred days later instead."""


def cleaned(program: ModuleType, make: Callable[..., Path], days: float = 14) -> list[str]:
    """What is left after cleaning by age."""
    folder = make("fresh", 0).parent
    program.Scratch(str(folder), program.Clock(LATER)).by_age(days)
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != "fresh")


def test_what_is_old_goes_with_its_folder(program: ModuleType, make: Callable[..., Path]) -> None:
    make("job/a/old", 15)
    make("job/b/new", 13)
    assert cleaned(program, make) == ["job", "job/b", "job/b/new"]


def test_what_was_made_just_now_stays_however_old_it_says_it_is(
    program: ModuleType, make: Callable[..., Path]
) -> None:
    copied = make("copied", 5000)
    program.Scratch(str(copied.parent), program.Clock(time.time())).by_age(14)
    assert copied.exists()


def test_what_a_jump_of_the_clock_made_old_stays(program: ModuleType, make: Callable[..., Path]) -> None:
    make("job/a/old", 90)
    folder = make("fresh", 0).parent
    program.Scratch(str(folder), program.Clock(LATER, LATER - 13 * DAY_S)).by_age(14)
    assert (folder / "job/a/old").exists()
    program.Scratch(str(folder), program.Clock(LATER, LATER - 15 * DAY_S)).by_age(14)
    assert not (folder / "job").exists()


def test_what_is_open_stays(program: ModuleType, make: Callable[..., Path]) -> None:
    with make("held", 30).open():
        assert cleaned(program, make) == ["held"]
    assert cleaned(program, make) == []


def test_what_is_mapped_stays(program: ModuleType, make: Callable[..., Path]) -> None:
    with make("mapped", 30).open("rb") as file:
        seen = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    with seen:
        assert cleaned(program, make) == ["mapped"]
    assert cleaned(program, make) == []


def opened_while_moved(
    program: ModuleType, file: Path, meanwhile: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> list[Any]:
    """Cleans a file that somebody opens right after it was moved aside; what they have open stands last."""
    looks = list[Any]()

    class Late(program.Used):  # type: ignore[misc, name-defined] # of a module without types
        def __init__(self) -> None:
            if len(looks) == 1:
                looks.append(next(file.parents[1].rglob("0")).open())
                meanwhile(file)
            else:
                looks.append(None)
            super().__init__()

    with monkeypatch.context() as patch:
        patch.setattr(program, "Used", Late)
        folder = program.Scratch(str(file.parents[1]), program.Clock(LATER))
        folder.remove(list(folder.tree.files(LATER)))
    assert folder.count == 0
    return looks


def test_what_is_opened_while_it_is_moved_comes_back(
    program: ModuleType, make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second look is the one that counts: the first one saw nobody."""
    file = make("job/late", 30)
    opened_while_moved(program, file, lambda _file: None, monkeypatch)
    assert file.read_text() == "job/late"


def test_what_is_open_and_has_no_place_to_go_back_to_is_kept(
    program: ModuleType, make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder went meanwhile; the next files that are moved aside do not take its place there."""
    file = make("job/late", 30)
    looks = opened_while_moved(program, file, lambda file: file.parent.rmdir(), monkeypatch)
    make("other", 30)
    cleaned(program, make)
    folder = program.Scratch(str(file.parents[1]), program.Clock(LATER))
    folder.left_aside()
    held = next(one for one in looks if one)
    assert os.fstat(held.fileno()).st_nlink == 1
    held.close()
    folder.left_aside()
    assert cleaned(program, make) == [program.ASIDE]


def test_what_cannot_be_moved_keeps_nothing_else(
    program: ModuleType, make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is immutable, or over which something was mounted meanwhile."""
    for number in range(3):
        make(f"file-{number}", 30)
    rename = Path.rename

    def refusing(self: Path, target: Path) -> Path:
        if self.name == "file-1":
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refusing)
    assert cleaned(program, make) == ["file-1"]


@pytest.mark.parametrize(("name", "deep", "goes"), [("d", 300, True), ("n" * 250, 20, False)])
def test_folders_may_lie_as_deep_as_they_like(
    program: ModuleType,
    make: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    *,
    name: str,
    deep: int,
    goes: bool,
) -> None:
    """Deeper than Python calls itself; and deeper than a path may be long, which keeps nothing else."""
    old = make("old", 30)
    monkeypatch.chdir(old.parent)
    for _ in range(deep):
        Path(name).mkdir()
        os.chdir(name)
    os.chdir(old.parent)
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(300)
        program.Scratch(str(old.parent), program.Clock(LATER)).by_age(14)
        assert not old.exists()
        assert (old.parent / name).exists() != goes
    finally:
        sys.setrecursionlimit(limit)
        subprocess.run(["rm", "--recursive", "--force", name], check=True)  # pytest's own stops at this depth


def test_a_date_in_the_future_keeps_a_file_no_longer_than_others(
    program: ModuleType, make: Callable[..., Path]
) -> None:
    """As it comes out of an archive; what was used while the cleaning goes on is none of these."""
    make("unpacked", -3650)
    make("in-use", -0.5)
    assert cleaned(program, make) == ["in-use"]


def test_each_of_a_files_names_has_its_part_of_the_room(
    program: ModuleType, make: Callable[..., Path]
) -> None:
    file = make("file", 30)
    (file.parent / "link").hardlink_to(file)
    found = program.Tree(str(file.parent)).files(LATER)
    assert sum(one.bytes for one in found) == file.stat().st_blocks * 512


def test_links_lead_nowhere_else(program: ModuleType, make: Callable[..., Path], tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    folder = make("x", 30).parent
    (folder / "link").symlink_to(outside)
    assert cleaned(program, make) == []
    assert (outside / "kept").read_text() == "kept"


def test_what_a_killed_run_had_moved_aside_goes(program: ModuleType, make: Callable[..., Path]) -> None:
    aside = make(f"{program.ASIDE}/0", 1)
    assert cleaned(program, make) == [program.ASIDE, f"{program.ASIDE}/0"], "it is nobody's to clean by age"
    program.Scratch(str(aside.parents[1]), program.Clock(LATER)).left_aside()
    assert not aside.exists()


@pytest.mark.parametrize(("hours", "left"), [(2, ["c"]), (0.5, ["a", "b", "c"])])
def test_the_oldest_go_until_there_is_room(
    program: ModuleType,
    make: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    hours: float,
    left: list[str],
) -> None:
    """As if the disk held these three and no more: it is shared with what is not ours to fill."""
    for number, name in enumerate("abc"):
        file = make(name, (hours - number / 3600) / 24)
    size = file.stat().st_blocks * 512
    monkeypatch.setattr(program, "room", lambda _folder: (3 * size, 3 * size + 1))
    program.Scratch(str(file.parent), program.Clock(LATER)).by_room(85, 40)
    assert sorted(path.name for path in file.parent.iterdir()) == left


def test_what_may_have_been_used_in_the_last_hour_stays_on_a_full_disk(
    program: ModuleType, make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after a jump of the clock nobody knows which files that is."""
    file = make("used", 60)
    monkeypatch.setattr(program, "room", lambda _folder: (100, 101))
    program.Scratch(str(file.parent), program.Clock(LATER, LATER - 1800)).by_room(85, 40)
    assert file.exists()
    program.Scratch(str(file.parent), program.Clock(LATER, LATER - 7200)).by_room(85, 40)
    assert not file.exists()


def test_what_is_mounted_below_is_left_alone(
    program: ModuleType, make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a folder of the same file system that is mounted there a second time, whose device is the same."""
    inner = make("mounted here/empty/x", 15).parent
    make("mounted here/old", 15)
    point = str(inner.parent).replace(" ", "\\040")
    mounts = program.mounts_now() + f"99 22 8:1 /home {point} rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    with monkeypatch.context() as patch:
        patch.setattr(program, "mounts_now", lambda: mounts)
        assert len(cleaned(program, make)) == 4
    assert cleaned(program, make) == []


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:40 / /mnt/home/users rw,relatime shared:2 - nfs4 10.0.0.1:/srv/nfs/home/users rw
41 22 0:41 / /mnt/train/data rw,relatime - fuse.ceph-fuse ceph-fuse rw
42 22 259:1 / /mnt/scratch rw,relatime shared:3 - xfs /dev/nvme0n1 rw
43 22 0:43 / /mnt/auto rw,relatime shared:4 - autofs systemd-1 rw
44 43 259:2 / /mnt/auto rw,relatime shared:5 - xfs /dev/nvme1n1 rw
"""


@pytest.mark.parametrize(
    ("folder", "kind", "shared"),
    [
        ("/scratch", "ext4", False),
        ("/mnt/home/users", "nfs4", True),
        ("/mnt/home/users/scratch", "nfs4", True),
        ("/mnt/home/userspace", "ext4", False),
        ("/mnt/train/data/x", "fuse.ceph-fuse", True),
        ("/mnt/scratch/jobs", "xfs", False),
        ("/mnt/auto", "xfs", False),
    ],
)
def test_a_folder_that_machines_share_is_known(
    program: ModuleType, folder: str, kind: str, shared: bool
) -> None:
    assert program.file_system(folder, MOUNTS) == kind
    assert program.is_shared(kind) == shared


def test_a_folder_that_machines_share_is_not_cleaned(
    program: ModuleType, make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = make("old", 30)
    words = (str(file.parent), "0", "85", "70", str(tmp_path / "clock"))
    monkeypatch.setattr(program, "file_system", lambda *_: "nfs4")
    with pytest.raises(SystemExit, match="nfs4"):
        program.main(*words)
    assert file.exists()
