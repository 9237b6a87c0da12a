"""What stands for files that are not read again: whatever changes below a path, it says so."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra import files
from infra.drift import inputs
from infra.files import files_below, tree_hash, tree_state
from infra.ground.variable_files import variable_files
from tests.unit.contracts import checkout as checkout

TICK_S = 0.011
"""Longer than the clock of a file system takes for a step."""
NAMES = ("a", "b", "folder/c", "folder/deeper/d")


def overwrite(file: Path, _other: Path) -> None:
    """With as many bytes, and the times it had."""
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    with file.open("r+b") as opened:
        opened.write(bytes(255 - byte for byte in file.read_bytes()))
    os.utime(file, ns=times)


def replace(file: Path, _other: Path) -> None:
    """By another file of the same size and times."""
    shutil.copy2(file, file.with_name("new"))
    file.with_name("new").replace(file)


def swap(file: Path, other: Path) -> None:
    file.rename(file.with_name("aside"))
    other.rename(file)
    file.with_name("aside").rename(other)


def lead_elsewhere(file: Path, other: Path) -> None:
    """A link in its place."""
    file.unlink()
    file.symlink_to(other)


CHANGES: dict[str, Callable[[Path, Path], object]] = {
    "overwrite": overwrite,
    "replace": replace,
    "swap": swap,
    "link": lead_elsewhere,
    "mode": lambda file, _: file.chmod(file.stat().st_mode ^ 0o111),
    "remove": lambda file, _: file.unlink(),
    "add": lambda file, _: file.with_name("added").touch(),
    "add a folder": lambda file, _: file.with_name("added").mkdir(),
    "rename": lambda file, _: file.rename(file.with_name("renamed")),
    "move": lambda file, other: file.rename(other.with_name("moved")),
}


@pytest.mark.parametrize("change", CHANGES)
@settings(max_examples=10)
@given(data=st.data())
def test_every_change_below_a_path_is_seen(
    change: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    top = tmp_path_factory.mktemp("tree")
    contents = data.draw(
        st.lists(st.binary(min_size=1, max_size=3), min_size=len(NAMES), max_size=len(NAMES))
    )
    for name, content in zip(NAMES, contents, strict=True):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(content)
    file, other = (top / name for name in data.draw(st.permutations(NAMES))[:2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "SETTLED_NS", 0)
        time.sleep(TICK_S)
        before = tree_state(top)
        assert before, "it is older than now"
        assert tree_state(top) == before, "reading changes nothing"
        CHANGES[change](file, other)
        time.sleep(TICK_S)
        assert tree_state(top) != before


def test_a_target_outside_counts_as_what_leads_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SETTLED_NS", 0)
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "link").symlink_to("../outside")
    time.sleep(TICK_S)
    seen = {tree_state(tmp_path / "inside")}
    for text in ("one", "two"):
        (tmp_path / "outside").write_text(text)
        time.sleep(TICK_S)
        seen.add(tree_state(tmp_path / "inside"))
    assert len(seen) == 3


def test_what_is_only_for_tests_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SETTLED_NS", 0)
    (tmp_path / "molecule").mkdir()
    time.sleep(TICK_S)
    before = tree_state(tmp_path)
    (tmp_path / "molecule" / "file").touch()
    time.sleep(TICK_S)
    assert tree_state(tmp_path) == before


@pytest.mark.parametrize("touched_ago_s", [-3600, 0, 1])
def test_what_was_touched_just_now_may_be_once_more(
    touched_ago_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a clock that was ahead."""
    (tmp_path / "file").touch()
    now_ns = (tmp_path / "file").stat().st_ctime_ns + int(touched_ago_s * 1e9)
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    assert tree_state(tmp_path) == ""
    now_ns += 2 * 3600 * 10**9
    assert tree_state(tmp_path)
    assert tree_state(tmp_path, until_ns=now_ns)
    assert tree_state(tmp_path, until_ns=now_ns - 2 * 3600 * 10**9) == "", "it changed since"


@pytest.fixture
def settled(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A checkout as if nobody had touched it for long, and a cache of its own."""
    monkeypatch.setenv("CAUSEWAY_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(files, "SETTLED_NS", 0)
    monkeypatch.setattr(inputs, "LOADED_NS", time.time_ns() + 3600 * 10**9)
    time.sleep(TICK_S)
    return checkout


def test_a_roles_sources_are_read_again_only_once_something_changed(
    settled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def noted(*paths: str) -> str:
        read.extend(paths)
        return tree_hash(*paths)

    monkeypatch.setattr(inputs, "tree_hash", noted)
    before = inputs.sources_now()("roce")
    assert read, "nobody has read them yet"
    read.clear()
    assert inputs.sources_now()("roce") == before == inputs.sources_of("roce")
    read.clear()
    assert inputs.sources_now()("roce") == before
    assert read == []
    for path in ("roles/roce/tasks/main.yml", "playbooks/roles.yml", "ansible.cfg"):
        with (settled / path).open("a") as file:
            file.write("\n# why\n")
        time.sleep(TICK_S)
        assert inputs.sources_now()("roce") == inputs.sources_of("roce")
        assert read, path
        read.clear()


def test_code_that_changed_since_this_process_began_leaves_nothing_for_others(
    settled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del settled
    monkeypatch.setattr(inputs, "LOADED_NS", 0)
    inputs.sources_now()("roce")
    assert not inputs.SOURCES.folder.exists()


@given(names=st.frozensets(st.text()), digest=st.text(), beside=st.text())
def test_sources_are_kept_as_they_were(names: frozenset[str], digest: str, beside: str) -> None:
    sources = inputs.Sources(digest, beside, names)
    kept = json.loads(inputs._noted(sources))
    assert inputs.Sources(kept[0], kept[1], frozenset(kept[2])) == sources


def test_files_behind_links_count_wherever_these_lead(tmp_path: Path) -> None:
    """As Ansible reads them: stacks may share a folder of variables."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "all.yml").write_text("base_timezone: UTC\n")
    (shared / "back").symlink_to(shared)
    folder = tmp_path / "stack" / "group_vars"
    folder.mkdir(parents=True)
    for name in ("all", "tokyo"):
        (folder / name).symlink_to(shared)
    assert [str(path.relative_to(folder)) for path in files_below(folder)] == ["all/all.yml", "tokyo/all.yml"]
    assert [file.of for file in variable_files(tmp_path / "stack")] == ["all", "tokyo"]
