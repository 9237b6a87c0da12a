"""Upgrades of Ceph: which packages, and in which order daemons start again, whenever it is killed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loaded import load

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "roles" / "ceph"
KINDS = ("mon", "mgr", "osd", "mds", "rgw")
OLD, NEW = (
    f"ceph version {number} (0ff) {name} (stable)"
    for number, name in (("18.2.7", "reef"), ("19.2.3", "squid"))
)
WHOLE = "active+clean"


def program(name: str) -> ModuleType:
    """One of the programs on nodes, with its neighbours beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROLE / "files/causeway_ceph"))
        return load(ROLE / f"files/causeway_ceph/{name}.py")


upgrade = program("upgrade")
node = program("node")
version = load(ROLE / "library/causeway_ceph_version.py")


class KilledError(Exception):
    """The run was ended here."""


@dataclass
class Cluster:
    """A cluster whose daemons run OLD or NEW: host → kind → version; it notes what is done to it.

    What was started again is back only after it was asked for a few times, and managers tell it later still.
    """

    hosts: dict[str, dict[str, str]]
    operators_noout: bool = False
    lag: int = 0
    flags: set[str] = field(default_factory=set)
    store: set[str] = field(default_factory=set)
    release: str = "reef"
    away: dict[tuple[str, str], int] = field(default_factory=dict)
    epoch: int = 1
    up_from: dict[str, int] = field(default_factory=dict)
    reported: dict[str, int] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    steps: list[str] = field(default_factory=list)
    kill_at: int | None = None
    gid: int = 1
    gids: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.flags |= {"noout"} if self.operators_noout else set()

    def of(self, kind: str) -> list[str]:
        """The hosts that have a kind."""
        return sorted(host for host, kinds in self.hosts.items() if kind in kinds)

    def tick(self, what: str) -> None:
        """Something is about to be changed, or was just: here a run may be killed."""
        self.steps.append(what)
        if self.kill_at is not None:
            self.kill_at -= 1
            if self.kill_at < 0:
                self.kill_at = None
                raise KilledError

    def back(self, kind: str) -> list[str]:
        """Those of a kind that are there; asking is what time passes by here."""
        found = []
        for host in self.of(kind):
            left = self.away.get((kind, host), 0)
            if left:
                self.away[kind, host] = left - 1
            else:
                found.append(host)
        return found

    def known(self, kind: str) -> list[dict[str, Any]]:
        """Managers or metadata servers, with their numbers: one that is away is missed late, if at all."""
        there = self.back(kind)
        for host in there:
            if self.hosts[host][kind] == NEW and (kind, host) not in self.gids:
                self.gid += 1
                self.gids[kind, host] = self.gid
        return [{"name": host, "gid": self.gids.get((kind, host), 1)} for host in self.of(kind)]

    def restart(self, kind: str, host: str) -> None:
        """What `node.py renew` does; what the cluster may not do without then is an error."""
        for earlier in KINDS[: KINDS.index(kind)]:
            assert all(self.hosts[one][earlier] == NEW for one in self.of(earlier)), (kind, host, earlier)
        assert not any(self.away.values()), "another one is still away"
        assert kind != "osd" or "noout" in self.flags
        self.tick(f"before {kind} of {host}")
        self.hosts[host][kind] = NEW
        # The node waits for its own monitor and gateway; others the cluster goes on to call there.
        self.away[kind, host] = 0 if kind in ("mon", "rgw") else self.lag
        if kind == "osd":
            assert all(self.told.get(one, 0) >= since for one, since in self.up_from.items()), "not heard of"
            self.epoch += 1
            self.up_from[host] = self.epoch
            self.silent.add(host)
        self.tick(f"{kind} of {host}")

    def __call__(self, prefix: str, **fields: Any) -> Any:
        if prefix in ("osd set", "osd unset"):
            self.tick(prefix)
            (self.flags.add if prefix == "osd set" else self.flags.remove)(fields["key"])
            self.tick(f"{prefix} done")
        elif prefix in ("config-key set", "config-key rm"):
            self.tick(prefix)
            (self.store.add if prefix == "config-key set" else self.store.remove)(fields["key"])
            self.tick(f"{prefix} done")
        elif prefix == "osd require-osd-release":
            assert all(self.hosts[host]["osd"] == NEW for host in self.of("osd"))
            self.release = fields["release"]
        return self.answer(prefix)

    def answer(self, prefix: str) -> Any:
        numbers = {host: number for number, host in enumerate(self.of("osd"))}
        if prefix == "quorum_status":
            mons, voices = self.of("mon"), self.back("mon")
            leader = {"quorum_leader_name": (voices or mons)[0], "quorum_names": voices}
            return {"monmap": {"mons": [{"name": name} for name in mons]}, **leader}
        if prefix == "mgr dump":
            active, *standbys = self.known("mgr")
            return {
                "active_name": active["name"],
                "active_gid": active["gid"],
                "available": True,
                "standbys": standbys,
            }
        if prefix == "fs dump":
            active, *standbys = self.known("mds") or [{}]
            info = {"1": {**active, "state": "up:active"}} if active else {}
            return {"filesystems": [{"mdsmap": {"info": info}}], "standbys": standbys}
        if prefix == "status":
            # What managers have last heard is whole, also where it is no longer true.
            return {"pgmap": {"pgs_by_state": [{"state_name": WHOLE, "count": 8}]}}
        if prefix == "osd dump":
            up = self.back("osd")
            osds = [
                {"osd": number, "up": host in up, "in": 1, "up_from": self.up_from.get(host, 0)}
                for host, number in numbers.items()
            ]
            return {"osds": osds, "flags_set": sorted(self.flags), "require_osd_release": self.release}
        if prefix == "osd tree":
            return {"nodes": [
                {"id": -number - 1, "name": host, "type": "host", "children": [number]}
                for host, number in numbers.items()
            ]}  # fmt: skip
        if prefix == "versions":
            return {
                kind: {one: [self.hosts[host][kind] for host in self.of(kind)].count(one) for one in found}
                for kind in KINDS
                if (found := {self.hosts[host][kind] for host in self.of(kind)})
            }
        return sorted(self.store) if prefix == "config-key ls" else None

    def mgr(self, prefix: str, osd: int) -> Any:
        """Placement groups are heard of one question after their OSD is up."""
        assert prefix == "pg ls-by-osd"
        host = self.of("osd")[osd]
        if host in self.silent:
            self.silent.remove(host)
            return {"pg_ready": False}
        self.told[host], self.reported[host] = self.reported.get(host, 0), self.epoch
        return {"pg_stats": [{"reported_epoch": self.told[host]}]}

    def outdated(self) -> dict[str, list[str]]:
        return {
            host: left
            for host, kinds in self.hosts.items()
            if (left := [k for k, one in kinds.items() if one != NEW])
        }


def run(cluster: Cluster) -> None:
    """One run of the role, as tasks/upgrade.yml has it."""
    one = upgrade.Upgrade(cluster, {"filesystem": {"name": "f"} if cluster.of("mds") else {}}, NEW)
    order = upgrade.turns(cluster.outdated(), one.leads())
    last = None
    for kind, host in order:
        last = upgrade.Last.read(str(one.ready(kind, host, last)))
        cluster.restart(kind, host)
    if order or one.noted(upgrade.BEGUN):
        one.finish(last)


@pytest.fixture(autouse=True)
def _no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade.time, "sleep", lambda _s: None)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Any mix of kinds and versions over up to five hosts, as a kill between steps may have left it."""
    names = [f"storage-{number}" for number in range(draw(st.integers(1, 5)))]
    places = {
        "mon": names[: max(n for n in (1, 3, 5) if n <= len(names))],
        "mgr": names[:2],
        "osd": names,
        "mds": draw(st.sampled_from([[], names[-2:]])),
        "rgw": draw(st.sampled_from([[], names[:2]])),
    }
    hosts: dict[str, dict[str, str]] = {name: {} for name in names}
    # As many are done as an earlier run came to: the kinds in order, of the last one some.
    done = draw(st.integers(0, 3))
    for turn, kind in enumerate(KINDS):
        for host in places[kind]:
            new = turn < done or (turn == done and draw(st.booleans()))
            hosts[host][kind] = NEW if new else OLD
    return Cluster(hosts, operators_noout=draw(st.booleans()), lag=draw(st.integers(0, 20)))


@given(cluster=clusters(), kills=st.lists(st.integers(0, 40), max_size=4))
def test_every_upgrade_goes_in_order_and_ends_whenever_it_is_killed(
    cluster: Cluster, kills: list[int]
) -> None:
    before = set(cluster.flags)
    for kill_at in [*kills, None]:
        cluster.kill_at = kill_at
        try:
            run(cluster)
        except KilledError:
            # Until somebody runs it again, the others have missed who is away, and heard from who is not.
            cluster.away.clear()
            cluster.reported.update(cluster.up_from)
            cluster.told.update(cluster.up_from)
    assert cluster.outdated() == {}
    assert (cluster.flags, cluster.store) == (before, set()), "noout is as somebody had it before"
    assert cluster.release == ("squid" if cluster.steps else "reef")
    again = len(cluster.steps)
    run(cluster)
    assert len(cluster.steps) == again, "a second time there is nothing to do"


@given(
    outdated=st.dictionaries(st.sampled_from("abcde"), st.sets(st.sampled_from(KINDS))),
    leader=st.sampled_from("abcde"),
)
def test_who_leads_goes_last_of_its_kind_and_nobody_twice(
    outdated: Mapping[str, set[str]], leader: str
) -> None:
    order = upgrade.turns({host: sorted(kinds) for host, kinds in outdated.items()}, {"mon": [leader]})
    assert sorted(order) == sorted((kind, host) for host, kinds in outdated.items() for kind in kinds)
    assert [kind for kind, _ in order] == sorted((kind for kind, _ in order), key=KINDS.index)
    mons = [host for kind, host in order if kind == "mon"]
    assert leader not in mons or mons[-1] == leader


@pytest.mark.parametrize(
    ("state", "whole"),
    [
        ("active+clean", True),
        ("active+clean+scrubbing+deep", True),
        ("active+clean+snaptrim_wait", True),
        ("active+undersized+degraded", False),
        ("active+clean+inconsistent", False),
        ("active+remapped+backfilling", False),
        ("peering", False),
        ("unknown", False),
        ("stale+active+clean", False),
    ],
)
def test_only_whole_groups_let_the_next_one_go(state: str, whole: bool) -> None:
    assert upgrade.is_whole(state) is whole


class Broken(Cluster):
    """One of which something is not as it has to be, and stays so."""

    said: ClassVar[dict[str, Any]] = {}

    def answer(self, prefix: str) -> Any:
        return self.said[prefix] if prefix in self.said else super().answer(prefix)


@pytest.mark.parametrize(
    ("prefix", "answer", "why"),
    [
        (
            "quorum_status",
            {
                "monmap": {"mons": [{"name": "s-0"}, {"name": "s-1"}]},
                "quorum_names": ["s-0"],
                "quorum_leader_name": "s-0",
            },
            "monitors without a voice: s-1",
        ),
        (
            "mgr dump",
            {"active_name": "", "active_gid": 0, "available": False, "standbys": []},
            "no manager is active",
        ),
        (
            "status",
            {"pgmap": {"pgs_by_state": [{"state_name": "active+undersized", "count": 3}]}},
            "placement groups: 3 active[+]undersized",
        ),
        ("fs dump", {"filesystems": [], "standbys": []}, "the file system is not served"),
    ],
)
def test_nothing_is_started_again_while_the_cluster_cannot_do_without(
    prefix: str, answer: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrade, "PATIENCE_S", -1)
    monkeypatch.setattr(Broken, "said", {prefix: answer})
    for done in (OLD, NEW):
        hosts = {f"s-{n}": {"mon": done, "mgr": done, "osd": OLD, "mds": OLD} for n in range(3)}
        cluster = Broken(hosts)
        with pytest.raises(upgrade.RefusedError, match=why):
            run(cluster)
        assert cluster.steps == []


def test_a_kind_waits_for_daemons_of_the_one_before_on_nodes_that_nobody_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upgrade, "PATIENCE_S", -1)
    cluster = Cluster({f"s-{n}": {"mon": NEW if n else OLD, "mgr": OLD} for n in range(3)})
    one = upgrade.Upgrade(cluster, {}, NEW)
    with pytest.raises(
        upgrade.RefusedError, match=r"mgr of s-1 is not started.*1 mon run .*18\.2\.7.*, and .*19\.2\.3"
    ):
        one.ready("mgr", "s-1", None)


# Packages

NUMBERS = st.tuples(st.integers(16, 21), st.just(2), st.integers(0, 12))
PARTS = ("ceph-mon", "ceph-osd", "librados2")


def text(number: tuple[int, ...]) -> str:
    return f"{'.'.join(map(str, number))}+ds-1"


def parsed(one: str) -> tuple[int, ...]:
    return tuple(map(int, one.partition("+")[0].split(".")))


@given(
    there=st.lists(NUMBERS, max_size=3), offered=st.lists(NUMBERS, max_size=4, unique=True), wanted=NUMBERS
)
def test_no_package_goes_back_or_too_far_and_all_go_together(
    there: list[tuple[int, ...]], offered: list[tuple[int, ...]], wanted: tuple[int, ...]
) -> None:
    installed = {name: text(number) for name, number in zip(PARTS, there, strict=False)}
    declared = ".".join(map(str, wanted))
    may = all(number <= wanted and wanted[0] - number[0] <= 2 for number in there)
    if not may or wanted not in {*there, *offered}:
        with pytest.raises(version.RefusedError, match=r"cannot read|releases at most|no source has"):
            version.chosen(["ceph-osd", "radosgw"], declared, installed, list(map(text, offered)), is_newer)
        return
    found = version.chosen(["ceph-osd", "radosgw"], declared, installed, list(map(text, offered)), is_newer)
    assert set(found) == {f"{name}={text(wanted)}" for name in {"ceph-osd", "radosgw", *installed}}


def is_newer(one: str, other: str) -> bool:
    return (parsed(one), one) > (parsed(other), other)


@pytest.mark.parametrize(
    ("there", "wanted", "chosen"),
    [
        ("18.2.7+ds-1", "", "ceph-osd"),
        ("18.2.7+ds-1", "18.2.7", "ceph-osd=18.2.7+ds-1"),  # an update of Debian's is not asked for
        ("18.2.7+ds-1", "18.2.7+ds-1+deb13u1", "ceph-osd=18.2.7+ds-1+deb13u1"),
        ("18.2.6+ds-1", "18.2.7", "ceph-osd=18.2.7+ds-1+deb13u1"),
    ],
)
def test_what_fits_stays_and_else_the_newest_comes(there: str, wanted: str, chosen: str) -> None:
    offered = ["18.2.7+ds-1", "18.2.7+ds-1+deb13u1"]
    assert version.chosen(["ceph-osd"], wanted, {"ceph-osd": there}, offered, is_newer) == [chosen]


def test_a_revision_of_the_distribution_does_not_go_back_either() -> None:
    with pytest.raises(version.RefusedError, match="older ones cannot read"):
        version.chosen(
            ["ceph-osd"], "18.2.7+ds-1", {"ceph-osd": "18.2.7+ds-2"}, ["18.2.7+ds-1", "18.2.7+ds-2"], is_newer
        )


@pytest.mark.parametrize(
    ("line", "replaced"),
    [
        ("7f0-7f1 r-xp 00000000 00:2d 12  /usr/bin/ceph-osd", False),
        ("7f0-7f1 r-xp 00000000 00:2d 12  /usr/bin/ceph-osd (deleted)", True),
        (
            "7f0-7f1 r-xp 00000000 00:2d 12  /usr/lib/x86_64-linux-gnu/ceph/libceph-common.so.2 (deleted)",
            True,
        ),
        ("7f0-7f1 rw-s 00000000 00:0f 12  /[aio] (deleted)", False),
        ("7f0-7f1 rw-p 00000000 00:00 0", False),
    ],
)
def test_a_daemon_is_outdated_where_its_program_was_replaced(
    line: str, replaced: bool, tmp_path: Path
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "maps").write_text(f"7e0-7e1 r--p 00000000 00:2d 11  /usr/lib/libc.so.6\n{line}\n")
    assert node.is_replaced(7, tmp_path) is replaced
    assert not node.is_replaced(8, tmp_path), "it has ended"
