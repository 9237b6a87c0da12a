"""XIDs in the kernel's log: counted once each, with what they ask for, whatever else stands there."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loaded import load

PROGRAM = Path(__file__).resolve().parents[2] / "roles/node_exporter/files/causeway_xid.py"
xid = load(PROGRAM)
FALLEN = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
ASKS = "NVRM: Xid (PCI:0000:5E:00): 154, GPU recovery action changed from 0x0 (None) to 0x{} (…)"
JOURNALCTL = """#!/usr/bin/python3
import json, os, sys
lines = open(os.environ["JOURNAL"]).read().splitlines()
after = [word.partition("=")[2] for word in sys.argv if word.startswith("--after-cursor=")]
if after and int(after[0]) > len(lines):
    sys.exit("Failed to seek to cursor")
for number, line in enumerate(lines, 1):
    if number > int(after[0] if after else 0):
        print(json.dumps({"__CURSOR": str(number), "MESSAGE": line}))
"""


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (FALLEN, "0000:3b:00 79 reboot_node"),
        ("NVRM: Xid (PCI:0000:01:00): 31, pid=1234, name=python, Ch 00000008", "0000:01:00 31 restart_app"),
        ("NVRM: Xid (PCI:0000:01:00): 63, Row Remapper: New row", "0000:01:00 63 none"),
        ("NVRM: Xid (PCI:0000:01:00): 94, Contained", "0000:01:00 94 restart_app"),
        ("NVRM: Xid (PCI:0000:01:00): 9999, new", "0000:01:00 9999 workflow"),
        (ASKS.format("2"), "0000:5e:00 154 reboot_node"),
        (ASKS.format("1"), "0000:5e:00 154 reset_gpu"),
        (ASKS.format("ff"), "0000:5e:00 154 workflow"),
        ("NVRM: Xid (PCI:0000:5E:00): 154, without a word", "0000:5e:00 154 workflow"),
        ("NVRM: Xid (PCI:0000:01:00): 45, pid=1, name=python, Ch 00000008", "0000:01:00 45 none"),
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:02): 94, Contained", "0000:3b:00 94 restart_app"),
        ("NVRM: Xid (PCI:0000:3B:00 GPU-I:13 GPU-CI:00): 95, Uncontained", "0000:3b:00 95 reset_gpu"),
        ("NVRM: Xid (PCI:0000:3b:00.0): 79, GPU has fallen off the bus.", "0000:3b:00 79 reboot_node"),
    ],
)
def test_each_asks_for_what_the_catalog_says(line: str, key: str) -> None:
    entry = json.dumps({"__CURSOR": "c", "MESSAGE": line})
    assert xid.counted(entry, {}) == {"cursor": "c", "counts": {key: 1}}


def test_the_name_of_a_program_hides_nothing() -> None:
    said = b"NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=\xff\xfe, GPU has fallen off the bus."
    entry = json.dumps({"__CURSOR": "c", "MESSAGE": list(said)})
    assert xid.counted(entry, {})["counts"] == {"0000:3b:00 79 reboot_node": 1}


ENTRIES = st.fixed_dictionaries(
    {"__CURSOR": st.text(min_size=1)},
    optional={"MESSAGE": st.text() | st.lists(st.integers()) | st.just(FALLEN)},
)


@given(st.lists(ENTRIES.map(json.dumps) | st.text()), st.integers(0, 20))
def test_lines_in_two_portions_count_as_in_one(lines: list[str], at: int) -> None:
    whole = xid.counted("\n".join(lines), {})
    assert xid.counted("\n".join(lines[at:]), xid.counted("\n".join(lines[:at]), {})) == whole
    for line in xid.metrics(whole, 1).splitlines():
        assert line.startswith("#") or len(line.rsplit(" ", 1)) == 2


def test_a_look_is_never_told_to_be_in_the_future() -> None:
    assert f"{xid.READ} 1\n" in xid.metrics({"cursor": "", "counts": {}}, 1.9)


@pytest.fixture
def node(tmp_path: Path) -> Any:
    """Runs the program with a journal of these lines; the metrics it left."""
    program = tmp_path / "bin" / "journalctl"
    program.parent.mkdir()
    program.write_text(JOURNALCTL)
    program.chmod(0o755)
    (tmp_path / "metrics").mkdir()

    def look(*lines: str) -> dict[str, int]:
        (tmp_path / "journal").write_text("".join(f"{line}\n" for line in lines))
        path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
        environment = {"PATH": path, "JOURNAL": str(tmp_path / "journal")}
        words = ["python3", str(PROGRAM), str(tmp_path / "state.json"), str(tmp_path / "metrics")]
        subprocess.run(words, env=environment, check=True, timeout=60)
        text = (tmp_path / "metrics" / "causeway_xid.prom").read_text()
        found = (
            line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("causeway_gpu_xid_total")
        )
        return {name.partition('xid="')[2].partition('"')[0]: int(count) for name, count in found}

    look.folder = tmp_path  # type: ignore[attr-defined] # where it left things
    return look


def test_none_is_lost_and_none_counted_twice(node: Any) -> None:
    assert node() == {}
    assert node("usb 1-1: new device", FALLEN) == {"79": 1}
    assert node("usb 1-1: new device", FALLEN) == {"79": 1}
    assert node("usb 1-1: new device", FALLEN, FALLEN, ASKS.format("1")) == {"79": 2, "154": 1}
    assert node(FALLEN) == {"79": 3, "154": 1}, "the journal was emptied, and begins anew"
    (node.folder / "state.json").write_text("{")
    assert node(FALLEN) == {"79": 1}, "what is nonsense is begun anew"


def test_nothing_is_written_through_a_link(node: Any) -> None:
    target = node.folder / "target"
    target.write_text("mine")
    (node.folder / "metrics" / ".causeway_xid.prom.part").symlink_to(target)
    (node.folder / "metrics" / "causeway_xid.prom").symlink_to(target)
    assert node(FALLEN) == {"79": 1}
    assert target.read_text() == "mine"
