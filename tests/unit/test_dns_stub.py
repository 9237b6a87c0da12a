"""What the stub makes of a node's resolv.conf: itself first, and no server or domain lost."""

import subprocess
import sys
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.loaded import load

SCRIPT = Path(__file__).resolve().parents[2] / "roles" / "dns_stub" / "files" / "causeway_resolv.py"
STUB = "nameserver 127.0.0.1"
OWN = ("node.tokyo.consul", "node.shanghai.consul")

domains = st.sampled_from(["site.example", "lan", "node.example", "consul.lan"])
searches = st.builds(
    lambda word, found: " ".join([word, *found]),
    st.sampled_from(["search", "domain"]),
    st.lists(
        domains | st.sampled_from(OWN) | st.sampled_from(["node.gone.consul", "nodes.gone.internal"]),
        min_size=1,
        max_size=3,
    ),
)
others = st.sampled_from(["nameserver 10.0.0.1", "nameserver 10.0.0.2", "options timeout:1", "# by hand", ""])
files = st.lists(searches | others | st.just(STUB), max_size=6)


def run(file: Path, *words: str) -> list[str]:
    load(SCRIPT).main(str(file), *words)
    return file.read_text().splitlines()


def searched(lines: list[str]) -> list[str]:
    """What glibc makes of a file: the last list counts."""
    found = [line.split()[1:] for line in lines if line.split()[:1] in (["search"], ["domain"])]
    return found[-1] if found else []


@given(files)
def test_the_stub_is_first_and_all_else_stays(had: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "resolv.conf"
        file.write_text("".join(f"{line}\n" for line in had))
        node = file.stat().st_ino
        lines = run(file, *OWN)
        assert lines[:2] == [STUB, STUB], "asked once more before a server that knows no .consul"
        assert lines.count(STUB) == 2
        theirs = [
            domain
            for domain in searched(had)
            if not domain.startswith(("node.t", "node.s", "node.g", "nodes."))
        ]
        assert searched(lines) == [*OWN, *theirs]
        kept = [line for line in had if line != STUB and line.split()[:1] not in (["search"], ["domain"])]
        assert lines[3:] == kept
        assert run(file, *OWN) == lines, "a second time changes nothing"
        assert file.stat().st_ino == node, "a mounted file can be written, not replaced"


def test_a_file_that_is_not_there_is_made() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "resolv.conf"
        subprocess.run([sys.executable, str(SCRIPT), str(file), *OWN], check=True)
        assert file.read_text().splitlines() == [STUB, STUB, f"search {' '.join(OWN)}"]
