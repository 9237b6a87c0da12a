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


def run(base: Path, kept: int, asked: list[str]) -> Path:
    """One run with Consul's stand-in; the folder with the snapshots."""
    consul = base / "bin" / "consul"
    consul.parent.mkdir(exist_ok=True)
    consul.write_text(CONSUL)
    consul.chmod(0o755)
    path = f"{consul.parent}{os.pathsep}{os.environ['PATH']}"
    words = ["sh", str(SCRIPT), str(kept), str(base / "snapshots"), *asked]
    done = subprocess.run(words, env={"PATH": path}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
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
