"""Root writes metrics into a folder that another user may own: nothing that lies there is written through."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.drift import watch
from tests.loaded import load

GATEWAY = Path(__file__).resolve().parents[2] / "roles" / "wan_gateway" / "files" / "causeway_wan_gateway.py"
SECRET, METRICS = "root:secret\n", "causeway_up 1\n"


def gateway(folder: Path) -> None:
    module = load(GATEWAY)
    module.write(folder / "causeway_wan.prom", METRICS)


def drift(folder: Path) -> None:
    watch.write(str(folder), METRICS)


Writer = Callable[[Path], None]
WRITERS: dict[Writer, tuple[str, str]] = {
    drift: (".causeway_drift.part", "causeway_drift.prom"),
    gateway: (".causeway_wan.prom.part", "causeway_wan.prom"),
}
PATHS = [(writer, name) for writer, names in WRITERS.items() for name in names]


@pytest.mark.parametrize(("writer", "name"), PATHS, ids=[name for _, name in PATHS])
@pytest.mark.parametrize(
    "plant", [os.symlink, os.link, lambda _, path: os.mkfifo(path)], ids=["symlink", "link", "fifo"]
)
def test_what_lies_there_is_replaced_and_never_written_through(
    tmp_path: Path, writer: Writer, name: str, plant: Callable[[Path, Path], None]
) -> None:
    target, folder = tmp_path / "shadow", tmp_path / "metrics"
    target.write_text(SECRET)
    target.chmod(0o600)
    folder.mkdir()
    plant(target, folder / name)
    writer(folder)
    assert (target.read_text(), target.stat().st_mode & 0o777) == (SECRET, 0o600)
    (written,) = folder.iterdir()
    assert written.name == WRITERS[writer][1]
    assert not written.is_symlink()
    assert (written.read_text(), written.stat().st_mode & 0o777) == (METRICS, 0o644)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_link_that_leads_nowhere_makes_no_file_there(tmp_path: Path, writer: Writer) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    for name in WRITERS[writer]:
        (folder / name).symlink_to(tmp_path / "new")
    writer(folder)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("writer", WRITERS)
def test_the_file_can_be_read_by_all_whatever_the_mask(tmp_path: Path, writer: Writer) -> None:
    before = os.umask(0o077)
    try:
        writer(tmp_path)
    finally:
        os.umask(before)
    assert (tmp_path / WRITERS[writer][1]).stat().st_mode & 0o777 == 0o644
