"""Disks of OSDs: whose data is on one decides what may be done with it, and no key lies beside its disk."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.loaded import load

FILES = Path(__file__).resolve().parents[2] / "roles/ceph/files/causeway_ceph"
KNOWN, OTHER = "6a7d3c1e-1f0b-4c55-9f0e-2b8f0c3d4e5f", "00000000-0000-4000-8000-000000000000"
PATH = "/dev/disk/by-id/nvme-A"


@pytest.fixture(scope="module")
def disks() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FILES))
        yield load(FILES / "disks.py")


class Machine:
    """A disk, the device mapper and the monitors, as far as `disks.py` asks them."""

    def __init__(self, disks: ModuleType, patch: pytest.MonkeyPatch, root: Path) -> None:
        self.disks, self.root = disks, root
        self.header = ""
        """The UUID in the disk's header; empty where it is not encrypted."""
        self.header_key = ""
        self.label = ""
        """The UUID of the OSD whose data is there in the clear."""
        self.keys: dict[str, str] = {}
        """UUID → the key that the monitors have."""
        self.status = 2
        """With which a program ends that refuses."""
        self.done: list[str] = []
        self.killed_before = ""
        """What the machine does not come to any more."""
        (root / "osd/ceph-3").mkdir(parents=True)
        (root / "mapper").mkdir()
        patch.setattr(disks, "OSDS", root / "osd")
        patch.setattr(disks, "MAPPED", root / "mapper")
        patch.setattr(disks, "run", self._run)
        patch.setattr(disks, "cluster", self._cluster)
        patch.setattr(disks.shutil, "chown", lambda *_: None)

    def _run(self, *argv: str, stdin: str = "") -> str:
        if self.killed_before and self.killed_before in argv:
            raise KeyboardInterrupt
        assert not any(key in argv for key in self.keys.values()), "a key is on no command line"
        refused = self.disks.RefusedError("refused")
        refused.status = self.status
        if "luksUUID" in argv:
            if not self.header:
                raise refused
            return self.header + "\n"
        if "show-label" in argv:
            return json.dumps({argv[-1]: {"osd_uuid": self.label}})
        if "--test-passphrase" in argv:
            if stdin != self.header_key:
                raise refused
            return ""
        self.done.append(argv[0] if argv[0] != "cryptsetup" else argv[1])
        mapped = self.root / "mapper" / Path(argv[-1]).name
        if argv[1] in ("open", "close"):
            (mapped.touch if argv[1] == "open" else mapped.unlink)()
        if argv[0] == "wipefs":
            self.header = self.header_key = self.label = ""
        elif argv[1] == "luksFormat":
            self.header, self.header_key = argv[argv.index("--uuid") + 1], stdin
        return ""

    @contextmanager
    def _cluster(self, entity: str, _keyring: str) -> Iterator[Any]:
        known = entity.removeprefix("client.osd-lockbox.")
        if known not in self.keys:
            raise self.disks.OtherKeyError("the monitors do not answer")
        yield lambda _prefix, key: self.keys[key.split("/")[2]]

    def make(self, **osd: Any) -> None:
        """As `node.py` makes an OSD, until the daemon's turn."""
        pending = self.root / "osd/new"
        wanted = {"path": PATH, **osd}
        told = self.disks.secrets(pending, KNOWN, bool(wanted.get("encrypted")))
        if key := told.get("dmcrypt_key"):
            assert self.keys.get(KNOWN, key) == key, "`osd new` takes no other key of an OSD that is known"
            self.keys[KNOWN] = key
        folder = self.root / "osd/ceph-3"
        for name in (self.disks.LINK, "block"):
            (folder / name).unlink(missing_ok=True)
        (folder / "block").symlink_to(self.disks.prepare(wanted, KNOWN, 3, told))
        (folder / "fsid").write_text(KNOWN)

    def files(self) -> str:
        return "".join(path.read_text() for path in self.root.rglob("*") if path.is_file())


@pytest.fixture
def machine(disks: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(disks, monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("declared_gib", "size", "refused"),
    [
        (15360, 15_360_950_534_144, True),
        (14306, 15_360_950_534_144, False),
        (14400, "15360950534144", False),
        (None, 1, False),
        (3.5, 4 << 30, False),
    ],
    ids=["a vendor's number", "as it is", "rounded", "not said", "larger"],
)
def test_a_disk_is_as_large_as_the_plan_counts_with(
    disks: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    declared_gib: float | None,
    size: int | str,
    *,
    refused: bool,
) -> None:
    shown = {
        "blockdevices": [{"serial": "A", "size": size, "mountpoints": [None], "fstype": None, "pttype": None}]
    }

    def run(*argv: str) -> str:
        assert "--bytes" in argv
        return json.dumps(shown)

    monkeypatch.setattr(disks, "run", run)
    monkeypatch.setattr(Path, "is_block_device", lambda _path: True)
    osd = {"path": PATH, "serial": "A", "size_gib": declared_gib}
    if refused:
        with pytest.raises(disks.RefusedError, match=r"has 14306\.0 GiB, declared are 15360"):
            disks.check_device(osd, KNOWN)
    else:
        disks.check_device(osd, KNOWN)


def test_the_key_of_a_disk_is_on_no_disk(machine: Machine) -> None:
    machine.make(encrypted=True)
    assert machine.done == ["luksFormat", "open"]
    assert (machine.header, machine.header_key) == (KNOWN, machine.keys[KNOWN])
    assert len(machine.keys[KNOWN]) > 128
    assert machine.keys[KNOWN] not in machine.files()
    assert machine.disks.is_encrypted(machine.root / "osd/ceph-3")


def test_an_osd_opens_its_disk_and_closes_it(machine: Machine) -> None:
    machine.make(encrypted=True)
    machine.disks.close_disk(3)
    assert not (machine.root / "mapper/ceph-osd-3").exists()
    machine.disks.open_disk(3)
    assert (machine.root / "mapper/ceph-osd-3").exists()
    machine.disks.open_disk(3)
    assert machine.done == ["luksFormat", "open", "close", "open"]
    machine.disks.close_disk(3)
    machine.keys.clear()
    with pytest.raises(machine.disks.RefusedError, match=f"forgotten the OSD on {PATH}"):
        machine.disks.open_disk(3)


@given(st.sampled_from(["luksFormat", "open", "luksUUID"]), st.booleans())
@settings(max_examples=12)
def test_what_was_killed_goes_on_with_the_same_key(disks: ModuleType, where: str, wipe: bool) -> None:
    with pytest.MonkeyPatch.context() as patch, temporary() as root:
        machine = Machine(disks, patch, root)
        machine.killed_before = where
        with pytest.raises(KeyboardInterrupt):
            machine.make(encrypted=True, wipe=wipe)
        before = dict(machine.keys)
        machine.killed_before = ""
        machine.make(encrypted=True, wipe=wipe)
        assert machine.keys == before or not before
        assert machine.header_key == machine.keys[KNOWN]


@contextmanager
def temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize("wipe", [False, True])
def test_a_disk_whose_key_is_gone_is_wiped_only_by_leave(machine: Machine, wipe: bool) -> None:
    machine.header, machine.header_key = KNOWN, "of an OSD that was forgotten"
    if wipe:
        machine.make(encrypted=True, wipe=True)
        assert machine.done == ["wipefs", "luksFormat", "open"]
    else:
        with pytest.raises(machine.disks.RefusedError, match="wipefs --all"):
            machine.make(encrypted=True)
        assert machine.header_key == "of an OSD that was forgotten"


def test_a_disk_that_does_not_answer_is_nobodys_to_wipe(machine: Machine) -> None:
    machine.make(encrypted=True)
    machine.disks.close_disk(3)
    machine.header_key, machine.status = "as if it could not be read", 4
    with pytest.raises(machine.disks.RefusedError) as said:
        machine.make(encrypted=True, wipe=True)
    assert "wipefs" not in str(said.value)
    assert "wipefs" not in machine.done


@pytest.mark.parametrize(("label", "wiped"), [("", True), (OTHER, True), (KNOWN, False)])
def test_a_disk_in_the_clear_is_wiped_unless_it_is_its_own(machine: Machine, label: str, wiped: bool) -> None:
    machine.label = label
    machine.make(wipe=True)
    assert machine.done == (["wipefs"] if wiped else [])
    assert not machine.disks.is_encrypted(machine.root / "osd/ceph-3")


def test_an_own_disk_of_the_other_form_is_wiped_by_leave(machine: Machine) -> None:
    machine.label = KNOWN
    machine.make(wipe=True, encrypted=True)
    assert machine.done == ["wipefs", "luksFormat", "open"]
