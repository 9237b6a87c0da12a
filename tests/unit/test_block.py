"""A block of ours in somebody's file: whatever the file says, the rest of it is the same byte for byte."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from infra import ROOT
from roles.base.drift.block import BLOCK_BEGIN, BLOCK_END, look_at_block
from tests.loaded import UTILS

block = import_module("ansible.module_utils.causeway_block")  # found by what tests.loaded has said
BEGIN, CUT, END, with_block = block.BEGIN, block.CUT, block.END, block.with_block
without_block = block.without_block
MARKS = (BEGIN, BEGIN + CUT, END)
WORDS = st.sampled_from([b"192.0.2.7 db", b"# mine", b"", b"\r", b"\xff", b" " + BEGIN, END + b".", b"a\rb"])
FOREIGN = st.builds(
    lambda lines, end: b"\n".join(lines) + end, st.lists(WORDS, max_size=5), st.sampled_from([b"", b"\n"])
)
ANY = st.builds(b"\n".join, st.lists(WORDS | st.sampled_from(MARKS), max_size=8))
OURS = st.lists(st.sampled_from([b"10.0.0.1 a", b"10.0.0.2 b"]), max_size=3)


def foreign(text: bytes) -> list[bytes]:
    """The lines that are neither a mark nor ours."""
    return [line for line in text.split(b"\n") if line and line not in MARKS and not line.startswith(b"10.")]


def outside(text: bytes) -> list[bytes]:
    """The lines that are in no whole block: from a first mark to an end mark, with no mark between them."""
    lines, kept, number = text.split(b"\n"), [], 0
    while number < len(lines):
        after = lines[number + 1 :]
        mark = next((place for place, line in enumerate(after) if line in MARKS), None)
        if lines[number] in MARKS[:2] and mark is not None and after[mark] == END:
            number += mark + 1
        else:
            kept.append(lines[number])
        number += 1
    return kept


@given(FOREIGN, OURS, OURS)
def test_a_block_comes_and_goes_and_leaves_what_was_there(
    text: bytes, ours: list[bytes], more: list[bytes]
) -> None:
    once = with_block(text, ours)
    assert once.startswith(text)
    assert once.count(END) == text.count(END) + 1
    assert with_block(once, more) == with_block(text, more)
    assert without_block(once) == text


@given(FOREIGN, FOREIGN.filter(bool), OURS, OURS)
def test_what_is_written_around_it_later_stays(
    before: bytes, later: bytes, ours: list[bytes], more: list[bytes]
) -> None:
    text = with_block(before, ours) + later
    again = with_block(text, more)
    assert again == with_block(before, more) + later
    assert without_block(text).startswith(before)
    assert without_block(text).endswith(later)


@given(ANY, OURS)
@example(b"\n".join([BEGIN, b"192.0.2.7 db", b"# mine"]), [])
@example(b"\n".join([BEGIN, b"192.0.2.7 db", BEGIN, b"10.0.0.1 a", END, b"# mine"]), [])
def test_broken_marks_take_no_line_of_somebodys_along(text: bytes, ours: list[bytes]) -> None:
    kept = foreign(b"\n".join(outside(text)))
    assert foreign(with_block(text, ours)) == kept
    assert foreign(without_block(text)) == kept
    settled = with_block(text, ours)
    assert with_block(settled, ours) == settled


def call(path: Path, *lines: str, check: bool = False) -> dict[str, Any]:
    """The module as Ansible runs it."""
    program = f"""
import ansible.module_utils, runpy, sys
ansible.module_utils.__path__ += {[str(folder) for folder in UTILS]}
sys.argv = sys.argv[1:]
runpy.run_path({str(ROOT / "roles/base/library/causeway_block.py")!r}, run_name="__main__")
"""
    given = {"path": str(path), "lines": list(lines), "_ansible_check_mode": check, "_ansible_diff": True}
    arguments = json.dumps({"ANSIBLE_MODULE_ARGS": given})
    done = subprocess.run(
        [sys.executable, "-c", program, "module", arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_the_module_writes_once_and_leaves_owner_mode_and_link(tmp_path: Path) -> None:
    file, link = tmp_path / "hosts", tmp_path / "link"
    file.write_bytes(b"192.0.2.7 db\r\n# ours to keep")
    file.chmod(0o640)
    link.symlink_to(file)
    assert call(link, "10.0.0.1 a", check=True)["changed"] is True
    assert file.read_bytes() == b"192.0.2.7 db\r\n# ours to keep"
    first = call(link, "10.0.0.1 a")
    assert first["governs"] == [
        {"kind": "managed_block", "key": str(link), "want": {"lines": ["10.0.0.1 a"]}}
    ]
    assert "+" not in first["diff"]["before"]
    assert file.read_bytes().startswith(b"192.0.2.7 db\r\n# ours to keep\n# BEGIN Causeway")
    assert (link.is_symlink(), file.stat().st_mode & 0o777) == (True, 0o640)
    assert call(link, "10.0.0.1 a")["changed"] is False
    assert call(link, "10.0.0.2 b")["changed"] is True


@given(FOREIGN, st.lists(st.sampled_from(["10.0.0.1 a", "10.0.0.2 b"])))
def test_drift_looks_at_the_block_alone(text: bytes, lines: list[str]) -> None:
    with_ours = with_block(text, [line.encode() for line in lines])
    assert MARKS[0].decode().startswith(BLOCK_BEGIN)
    assert END.decode() == BLOCK_END
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("roles.base.drift.block.text_of", lambda *_: with_ours.decode(errors="replace"))
        found = look_at_block(None, "/etc/hosts", {})  # type: ignore[arg-type] # it asks the node nothing
    assert found == {"lines": lines}
