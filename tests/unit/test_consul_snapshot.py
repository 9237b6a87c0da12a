"""The role's own script forgets old snapshots of a datacenter, and of no other."""

import os
import subprocess
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

SCRIPT = Path(__file__).resolve().parents[2] / "roles" / "consul" / "files" / "consul-snapshot"
CONSUL = '#!/bin/sh\nfor file in "$@"; do :; done\necho saved >"$file"\n'
"""Stands in for Consul: writes the file it is asked for."""
ODD = "us-*", "us-?", "us-[a-z]", "us-.", "us-20260101T000000Z.snap", "us east", "us-\\*"

words = st.sampled_from(["us", "east", "1", "20260101", "20260101T000000Z", "snap", "a"])
labels = st.lists(words, min_size=1, max_size=4).map("-".join)
names = labels | st.sampled_from(ODD)


def stamps(count: int) -> list[str]:
    """Moments of the past as the script writes them, over ends of days and years; the oldest first."""
    return sorted(f"20{20 + n % 3}123{n % 2}T{n % 24:02}0000Z" for n in range(count))


def snapshots(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def run(base: Path, kept: int, asked: list[str], before: str = "", status: int = 0) -> Path:
    """One run with Consul's stand-in, which does BEFORE first; the folder with the snapshots."""
    consul = base / "bin" / "consul"
    consul.parent.mkdir(exist_ok=True)
    consul.write_text(CONSUL.replace("\n", f"\n{before}", 1))
    consul.chmod(0o755)
    path = f"{consul.parent}{os.pathsep}{os.environ['PATH']}"
    words = ["sh", str(SCRIPT), str(kept), str(base / "snapshots"), *asked]
    done = subprocess.run(words, env={"PATH": path}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, "")
    return base / "snapshots"


@given(
    st.lists(names, min_size=1, max_size=4, unique=True),
    st.lists(names, max_size=3, unique=True),
    st.integers(1, 5),
    st.integers(0, 7),
)
def test_each_datacenter_keeps_its_newest_and_no_other_is_touched(
    asked: list[str], others: list[str], kept: int, before: int
) -> None:
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / "snapshots"
        folder.mkdir()
        for name in {*asked, *others}:
            for stamp in stamps(before):
                (folder / f"{name}-{stamp}.snap").touch()
        (folder / f"{asked[0]}-notes.snap").touch()
        old = snapshots(folder)
        left = snapshots(run(Path(base), kept, asked))
        expected = {f"{asked[0]}-notes.snap"}
        expected |= {f"{name}-{stamp}.snap" for name in others for stamp in stamps(before)}
        for name in asked:
            expected -= {f"{name}-{stamp}.snap" for stamp in stamps(before)}
            expected |= {f"{name}-{stamp}.snap" for stamp in stamps(before)[max(before - kept + 1, 0) :]}
        assert left & old == expected
        assert len(left - old) == len(asked)


def test_a_prefix_is_another_datacenter(tmp_path: Path) -> None:
    regions = ["us-east", "us-east-1", "us-east-3"]
    (tmp_path / "snapshots").mkdir()
    for name in regions:
        for stamp in stamps(24):
            (tmp_path / "snapshots" / f"{name}-{stamp}.snap").touch()
    left = snapshots(run(tmp_path, 24, regions))
    newest = {
        name: [file for file in left if file.removeprefix(f"{name}-").count("-") == 0] for name in regions
    }
    assert {name: len(files) for name, files in newest.items()} == dict.fromkeys(regions, 24)


def test_one_that_breaks_off_is_asked_again_and_the_others_are_saved(tmp_path: Path) -> None:
    """By a stand-in that breaks off four times, and for good where the datacenter is called so."""
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sleep").write_text(f"#!/bin/sh\necho $1 >>{tmp_path}/slept\n")
    (tmp_path / "bin" / "sleep").chmod(0o755)
    often = f'echo x >>{tmp_path}/"$3"; [ "$(wc -l <{tmp_path}/"$3")" -gt 4 ] || exit 1'
    breaks_off = f'case "$3" in *gone) exit 1 ;; *west) {often} ;; esac\n'
    saved = run(tmp_path, 3, ["us-gone", "us-west", "us-east"], breaks_off, status=1)
    assert sorted(name.partition("-2")[0] for name in snapshots(saved)) == ["us-east", "us-west"]
    assert (tmp_path / "slept").read_text().split() == ["0", "1", "2", "5", "10"] * 2 + ["0"]
