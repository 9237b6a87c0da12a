"""Daemons of Ceph's on a node that comes back: what the cluster still knows stays, the rest is made anew."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.loaded import load

FILES = Path(__file__).resolve().parents[2] / "roles/ceph/files/causeway_ceph"
FSID = str(uuid.uuid5(uuid.NAMESPACE_DNS, "cluster"))
HOST, PLACE = "tokyo-storage-2", "a"
KNOWN = str(uuid.uuid5(uuid.UUID(FSID), f"{HOST}/{PLACE}"))
LOCATION = ["root=default", "rack=r1", f"host={HOST}"]
MONS = [{"name": f"tokyo-storage-{number}", "address": f"10.0.0.{number}"} for number in range(3)]


@pytest.fixture(scope="module")
def programs() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FILES))
        return load(FILES / "node.py")


class Back:
    """A node with the folders that its daemons had; `told` is what was run."""

    def __init__(self, programs: ModuleType, patch: pytest.MonkeyPatch, root: Path) -> None:
        self.root, self.running = root, False
        self.mons: list[str] | None = [mon["name"] for mon in MONS]
        """Which monitors the others count; None where no majority answers."""
        self.osds = [KNOWN]
        self.place: dict[str, str] = {}
        """What OSD 3 lies in."""
        self.put: list[dict[str, Any]] = []
        self._refused = programs.RefusedError
        patch.setattr(programs, "DATA", root)
        patch.setattr(programs, "OSDS", root / "osd")
        patch.setattr(programs, "cluster", self._cluster)
        patch.setattr(programs, "is_active", lambda _unit: self.running)
        patch.setattr(programs.Node, "started", lambda _node, unit: unit)
        patch.setattr(programs.Node, "make_osd", lambda *_: 7)
        patch.setattr(programs.Node, "make_mon", lambda _node, folder: folder.mkdir(parents=True))
        for name in ("osd/ceph-3/fsid", "osd/ceph-3/mkfs_done", f"mon/ceph-{HOST}/store.db"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(KNOWN)
        for keyring in (root / "ceph.mon.keyring", root / f"mon/ceph-{HOST}/keyring"):
            keyring.write_text('[mon.]\n\tkey = first\n\tcaps mon = "allow *"\n')
        patch.setattr(programs, "MON_KEYRING", str(root / "ceph.mon.keyring"))
        patch.setattr(programs.shutil, "chown", lambda *_: None)
        self.programs = programs

    @contextmanager
    def _cluster(self, *_: str) -> Iterator[Any]:
        if self.mons is None:
            raise self._refused("no majority")
        mons = [{"name": name} for name in self.mons]
        osds = [{"uuid": one, "osd": 3, "up": 1} for one in self.osds]

        def ask(prefix: str, **fields: Any) -> Any:
            if prefix == "osd crush create-or-move":
                self.put.append(fields)
                self.place = dict(word.split("=") for word in fields["args"])
            answers = {"mon dump": {"mons": mons}, "osd dump": {"osds": osds}}
            answers["osd find"] = {"crush_location": self.place}
            return answers.get(prefix, {"bluestore_bdev_size": str(2 << 30)})

        yield ask

    def node(self, *, dry_run: bool = False, **more: Any) -> Any:
        wanted = {"host": HOST, "fsid": FSID, "mons": MONS, "osds": [], "daemons": [], "location": LOCATION}
        return self.programs.Node(wanted | more, dry_run)

    def aside(self) -> list[str]:
        return sorted(path.name.rpartition("-")[0] for path in self.root.glob("aside/*"))


@pytest.fixture
def back(programs: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Back:
    return Back(programs, monkeypatch, tmp_path)


def test_an_osd_that_the_cluster_has_forgotten_is_made_anew_and_kept_aside(back: Back) -> None:
    osd = {"kind": "file", "place": PLACE, "size_gib": 1}
    assert back.node().osd(osd) == "ceph-osd@3"
    back.osds = []
    back.running = True
    assert back.node().osd(osd) == "ceph-osd@3", "nobody is asked about one that runs"
    back.running = False
    assert back.node(dry_run=True).osd(osd) == "ceph-osd@new"
    assert not (back.root / "aside").exists(), "a look writes nothing"
    assert back.node().osd(osd) == "ceph-osd@7"
    assert back.aside() == ["osd-ceph-3"]
    assert (next(back.root.glob("aside/*")) / "mkfs_done").exists()


def test_a_disk_that_the_cluster_has_forgotten_is_left_as_it_is(back: Back) -> None:
    back.osds = []
    with pytest.raises(back.programs.RefusedError, match="wipefs --all /dev/sdz && rm -r "):
        back.node().osd({"kind": "device", "place": PLACE, "path": "/dev/sdz"})
    assert back.aside() == []


def test_an_osd_that_is_there_is_not_encrypted_afterwards(back: Back) -> None:
    osd = {"kind": "device", "place": PLACE, "path": "/dev/sdz"}
    assert back.node().osd(osd) == "ceph-osd@3"
    with pytest.raises(back.programs.RefusedError, match=r"/dev/sdz is declared encrypted\. To make it anew"):
        back.node().osd({**osd, "encrypted": True})
    (back.root / "osd/ceph-3/block").symlink_to("/dev/mapper/ceph-osd-3")
    assert back.node().osd({**osd, "encrypted": True}) == "ceph-osd@3"
    with pytest.raises(back.programs.RefusedError, match="declared in the clear"):
        back.node().osd(osd)


@pytest.mark.parametrize("dry_run", [False, True])
def test_the_file_of_an_osd_keeps_its_size(back: Back, *, dry_run: bool) -> None:
    """Said by the first step: the next one tells monitors how full an OSD may be, by the declared size."""
    osd = {"kind": "file", "place": PLACE, "size_gib": 1.3}
    block = back.root / "osd/ceph-3/block"
    block.touch()
    os.truncate(block, int(1.3 * 1024**3))
    back.running = True
    back.node(osds=[osd], dry_run=dry_run).mons()
    for other in (1.2, 4, 100):
        said = rf"made with 1\.3 GiB .* with {other:g}\. .*purge 3 "
        declared = [{**osd, "size_gib": other}]
        with pytest.raises(back.programs.RefusedError, match=said):
            back.node(osds=declared, dry_run=dry_run).mons()
    back.node(osds=[{**osd, "place": "another", "size_gib": 4}]).mons()
    back.running, back.osds = False, []
    back.node(osds=declared, dry_run=dry_run).mons()  # purged, as it was told to be: it is made anew


@pytest.mark.parametrize(("free_gib", "refused"), [(5.9, True), (6.1, False)])
@pytest.mark.parametrize("dry_run", [False, True])
def test_files_of_osds_have_room_for_all_that_they_may_hold(
    back: Back, monkeypatch: pytest.MonkeyPatch, free_gib: float, *, refused: bool, dry_run: bool
) -> None:
    """An OSD that was made has taken of its part what it has written; where all were, nothing is asked."""
    osds = [{"kind": "file", "place": place, "size_gib": 2} for place in (PLACE, "b", "c")]
    (back.root / "osd/ceph-3/block").write_bytes(bytes(1 << 20))
    free = SimpleNamespace(free=int(free_gib * 1024**3))
    monkeypatch.setattr(back.programs.shutil, "disk_usage", lambda _: free)
    back.node(osds=osds[:1], dry_run=dry_run).require_room()
    node = back.node(osds=osds, dry_run=dry_run)
    if refused:
        with pytest.raises(back.programs.RefusedError, match=r"6\.0 GiB more .* 5\.9 are free"):
            node.daemons()
        assert node.changes == []
    else:
        node.require_room()
    free.free = 0
    back.node(osds=osds[:1], dry_run=dry_run).require_room()
    back.node(osds=[{"kind": "device", "place": "d"}], dry_run=dry_run).require_room()


def test_a_monitor_that_was_taken_out_is_made_anew_only_where_a_majority_says_so(back: Back) -> None:
    store = back.root / f"mon/ceph-{HOST}/store.db"
    others = [mon["name"] for mon in MONS if mon["name"] != HOST]
    for mons, wanted, running in ((None, MONS, False), (others, MONS, True), (others, MONS[2:], False)):
        back.mons, back.running = mons, running
        assert back.node(mons=wanted).mons() == [f"ceph-mon@{HOST}"]
        assert store.exists()
    back.mons, back.running = others, False
    node = back.node()
    assert node.mons() == [f"ceph-mon@{HOST}"]
    assert "monitor made" in node.changes
    assert not store.exists()
    assert back.aside() == [f"mon-ceph-{HOST}"]


def test_a_monitor_has_the_key_that_replaced_its_own(back: Back) -> None:
    own, given = back.root / f"mon/ceph-{HOST}/keyring", back.root / "ceph.mon.keyring"
    back.running = True
    given.write_text(given.read_text().replace("first", "second"))
    assert back.node(dry_run=True).told()
    assert "first" in own.read_text()
    for changes in (["key of the monitors replaced"], []):
        node = back.node()
        assert node.told() == [f"ceph-mon@{HOST}"]
        assert node.changes == changes
        assert own.read_text() == given.read_text()
        assert own.stat().st_mode & 0o777 == 0o600
    assert own in back.programs.files_of(f"ceph-mon@{HOST}"), "it is started again for it"


@pytest.mark.parametrize(
    "place", [{}, {"root": "default", "host": HOST}, {"root": "default", "host": "other"}]
)
def test_an_osd_that_lies_elsewhere_or_nowhere_is_put_back(back: Back, place: dict[str, str]) -> None:
    osds = [{"kind": "file", "place": PLACE, "size_gib": 2}]
    back.place = place
    look = back.node(osds=osds, dry_run=True)
    assert look.daemons() == [f"ceph-mon@{HOST}", "ceph-osd@3"]
    assert (back.put, look.changes) == ([], ["OSD 3 put back to its host"])
    node = back.node(osds=osds)
    before = node.state()
    assert node.daemons() == look.daemons()
    assert back.put == [{"id": 3, "weight": 0.002, "args": LOCATION}]
    assert node.state() == [f"OSD 3: host={HOST} rack=r1 root=default"] != before
    again = back.node(osds=osds)
    again.daemons()
    assert (again.changes, len(back.put)) == ([], 1)


@pytest.mark.parametrize(("dry_run", "change"), [(False, "restarted"), (False, ""), (True, "started")])
def test_a_gateway_that_was_started_is_waited_for(
    back: Back, monkeypatch: pytest.MonkeyPatch, dry_run: bool, change: str
) -> None:
    """Its unit is active before it listens."""
    programs, asked = back.programs, list[tuple[str, int]]()
    (back.root / "gateway.conf").write_text("rgw_frontends = beast ssl_endpoint=10.0.0.2:7480 ssl_x=y\n")
    monkeypatch.setattr(programs, "GATEWAY_CONFIG", back.root / "gateway.conf")
    monkeypatch.setattr(programs.Node, "restart", lambda *_: None)
    node = back.node(dry_run=dry_run)
    node.changes += [change] * bool(change)
    monkeypatch.setattr(programs.time, "sleep", lambda _: None)

    def answers(place: tuple[str, int]) -> bool:
        asked.append(place)
        return len(asked) == 3

    monkeypatch.setattr(programs, "answers", answers)
    assert node.gateways() == [f"ceph-radosgw@rgw.{HOST}"]
    assert asked == ([("10.0.0.2", 7480)] * 3 if change and not dry_run else [])


READ = {
    "ceph.conf": ["ceph-mon@x", "ceph-osd@3", "ceph-mgr@x"],
    "units/ceph-mgr@.service.d/causeway.conf": ["ceph-mgr@x"],
    "mgr/ceph-x/keyring": ["ceph-mgr@x"],
    "gateway/ceph.conf": ["ceph-radosgw@rgw.x"],
    "gateway/certificate.pem": ["ceph-radosgw@rgw.x"],
}
"""File → who is started again when it is written anew."""


@pytest.mark.parametrize("newer", READ)
def test_a_daemon_is_started_again_for_what_it_reads_and_nothing_else(
    back: Back, monkeypatch: pytest.MonkeyPatch, newer: str
) -> None:
    programs, root, began = back.programs, back.root, 1000
    places = {"CONFIG": "ceph.conf", "GATEWAY": "gateway", "GATEWAY_CONFIG": "gateway/ceph.conf"}
    for name, place in {**places, "DROP_INS": "units"}.items():
        monkeypatch.setattr(programs, name, root / place)
    for name in READ:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
        os.utime(root / name, (began + 100 * (name == newer),) * 2)
    monkeypatch.setattr(programs, "run", lambda *_: f"@{began}\n")
    units = ["ceph-mon@x", "ceph-osd@3", "ceph-mgr@x", "ceph-radosgw@rgw.x"]
    assert back.node().stale(units) == READ[newer]


def test_a_clock_that_was_set_back_starts_no_daemon_again_at_each_run(
    back: Back, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file stays younger than its start; that it was started again for it is remembered."""
    programs, root, starts = back.programs, back.root, ["first"]
    for name, place in {"CONFIG": "ceph.conf", "DROP_INS": "units", "STARTED": "started"}.items():
        monkeypatch.setattr(programs, name, root / place)
    (root / "ceph.conf").write_text("before")
    os.utime(root / "ceph.conf", (5000, 5000))

    def run(*argv: str) -> str:
        if argv[1] == "restart":
            starts.append(f"start {len(starts)}")
        return starts[-1] if "--property=InvocationID" in argv else "@1000\n"

    monkeypatch.setattr(programs, "run", run)
    units = ["ceph-mon@x"]
    for text, number in (("before", 2), ("after", 3)):
        (root / "ceph.conf").write_text(text)
        os.utime(root / "ceph.conf", (5000, 5000))
        for _ in range(3):
            back.node().restart(units)
            assert len(starts) == number, "once for what was written, and not again"
    starts.append("somebody's, before it was written")
    assert back.node().stale(units) == units
