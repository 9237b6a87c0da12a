"""Rules that say where the copies of a pool go, whatever became of them, and whenever the work was ended."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import ROOT
from tests.loaded import load

FOLDER = ROOT / "roles/ceph/files/causeway_ceph"
BESIDE = "a.causeway-new"
rules = st.none() | st.sampled_from(["default/osd", "default/host", "default~ssd/host", "default/rack"])


class KilledError(Exception):
    """The program was ended before its next command."""


class Monitors:
    """Rules and one pool, as far as monitors of Ceph 18.2 let them change (src/mon/OSDMonitor.cc)."""

    def __init__(self, profile: dict[str, str], used: str | None, **names: str | None) -> None:
        self.profile, self.used = profile, used
        self.rules = {name: said for name, said in names.items() if said}
        self.left = 99
        """How many changes there will be before the program is killed."""

    def __call__(self, prefix: str, _inbuf: bytes = b"", **fields: Any) -> Any:
        answers = {
            "osd crush rule dump": list(self.dump()),
            "osd erasure-code-profile ls": ["a"] * bool(self.profile),
            "osd erasure-code-profile get": self.profile,
        }
        if prefix in answers:
            return answers[prefix]
        if not self.left:
            raise KilledError
        self.left -= 1
        if prefix == "osd erasure-code-profile set":
            assert not self.profile or fields["force"]
            self.profile = dict(word.split("=") for word in fields["profile"])
        elif prefix == "osd pool set":
            assert fields["val"] in self.rules
            self.used = fields["val"]
        else:
            self.tell(prefix.removeprefix("osd crush rule "), **fields)
        return None

    def tell(self, what: str, **fields: Any) -> None:
        if what == "rm":
            assert fields["name"] != self.used, "EBUSY: the rule is in use"
            del self.rules[fields["name"]]
        elif what == "rename":
            assert fields["dstname"] not in self.rules, "EEXIST"
            self.rules[fields["dstname"]] = self.rules.pop(fields["srcname"])
            self.used = fields["dstname"] if self.used == fields["srcname"] else self.used
        else:
            assert fields["name"] not in self.rules, "EEXIST"
            shadow = self.profile.get("crush-device-class") or fields.get("class")
            domain = self.profile.get("crush-failure-domain") or fields["type"]
            assert self.profile or what == "create-replicated"
            self.rules[fields["name"]] = f"default{'~' + shadow if shadow else ''}/{domain}"

    def pool(self) -> dict[str, Any] | None:
        return {"crush_rule": [*self.rules].index(self.used)} if self.used else None

    def dump(self) -> Iterator[dict[str, Any]]:
        for name, said in self.rules.items():
            root, kind = said.split("/")
            steps = [{"op": "take", "item_name": root}, {"op": "chooseleaf_indep", "type": kind}]
            rule = {"rule_id": list(self.rules).index(name), "rule_name": name}
            yield rule | {"steps": [{"op": "set_chooseleaf_tries"}, *steps, {"op": "emit"}]}


@pytest.fixture(scope="module")
def pools() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        return load(FOLDER / "pools.py")


@given(
    own=rules,
    beside=rules,
    there=st.booleans(),
    uses_new=st.booleans(),
    parts=st.sampled_from(["", "host", "osd"]),
    ssd=st.booleans(),
    killed=st.integers(0, 5),
)
def test_the_rule_of_a_pool_is_as_declared_whatever_there_was(
    pools: Any, own: str, beside: str, there: bool, uses_new: bool, parts: str, ssd: bool, killed: int
) -> None:
    """PARTS: where those of an erasure-coded pool went before; USES_NEW: as a killed run leaves it."""
    used = (BESIDE if uses_new and beside else "a" if own else BESIDE if beside else None) if there else None
    profile = {"k": "2", "m": "1", "crush-failure-domain": parts} if parts else {}
    monitors = Monitors(profile, used, **{"a": own, BESIDE: beside})
    pool = {"name": "a"} | ({"k": 2, "m": 1} if parts else {}) | ({"device_class": "ssd"} if ssd else {})
    there = used is not None

    def once() -> list[str]:
        wanted = pools.Pools(monitors, {"failure_domain": "host"})
        wanted.rule(pool, monitors.pool())
        return list(wanted.changes)

    monitors.left = killed
    with suppress(KilledError):
        once()
    monitors.left = 99
    once()
    assert once() == [], "and then nothing is left to be done"
    said = "default~ssd/host" if ssd else "default/host"
    if parts and not there and not own and not beside:
        assert monitors.rules == {}, "Ceph makes it with the pool"
    else:
        assert monitors.rules == {"a": said}
    assert not there or monitors.used == "a"
    if parts:
        assert monitors.profile["crush-failure-domain"] == "host"


def test_a_check_changes_nothing(pools: Any) -> None:
    monitors = Monitors({}, "a", a="default/osd")
    monitors.left = 0
    wanted = pools.Pools(monitors, {"failure_domain": "host"}, dry_run=True)
    wanted.rule({"name": "a"}, monitors.pool())
    assert "rule a removed: default/osd, not default/host" in wanted.changes


def test_a_pool_with_other_parts_than_declared_keeps_its_profile(pools: Any) -> None:
    """What is written in four parts is never read in two."""
    monitors = Monitors({"k": "4", "m": "2", "crush-failure-domain": "osd"}, None)
    pools.Pools(monitors, {"failure_domain": "host"}).profile({"name": "a", "k": 2, "m": 1})
    assert monitors.profile["crush-failure-domain"] == "osd"


COPIES, PARTS = {"replicas": 3, "min_replicas": 2}, {"k": 4, "m": 2}


@given(st.integers(1, 5) | st.tuples(st.integers(2, 8), st.integers(1, 4)))
def test_a_domain_that_is_away_stops_no_writes_and_what_is_written_can_be_read(
    pools: Any, form: int | tuple[int, int]
) -> None:
    """Of what has anything to spare; where there is more, what is written meanwhile has one to spare, too."""
    told = dict[str, int]()
    k, m = (1, form - 1) if isinstance(form, int) else form
    pool = (
        {"k": k, "m": m} if isinstance(form, tuple) else {"replicas": form, "min_replicas": max(form - 1, 1)}
    )
    found = {"pool_name": "a", "size": 0, "min_size": 0, "pg_autoscale_mode": "off", "pg_num_target": 8}
    found |= {"application_metadata": {"cephfs": {}}, "quota_max_bytes": 0, "crush_rule": 0}

    def ask(prefix: str, _inbuf: bytes = b"", **fields: Any) -> Any:
        if prefix == "osd pool set" and fields["var"] in ("size", "min_size"):
            told[fields["var"]] = int(fields["val"])
        return []

    pools.Pools(ask, {}).tune(
        {"name": "a", "application": "cephfs", "pg_num": 8, **pool}, found | {"flags_names": "ec_overwrites"}
    )
    assert told["size"] == k + m
    assert k + min(1, m - 1) <= told["min_size"] <= max(k + m - 1, k)


@pytest.mark.parametrize(
    ("was", "declared", "said"),
    [
        (COPIES, COPIES, ""),
        (COPIES, {"replicas": 2, "min_replicas": 1}, ""),
        (PARTS, PARTS, ""),
        (COPIES, PARTS, "is kept in copies and declared in 4 \\+ 2 parts"),
        (PARTS, COPIES, "is kept in 4 \\+ 2 parts and declared in copies"),
        (PARTS, {"k": 3, "m": 3}, "is kept in 4 \\+ 2 parts and declared in 3 \\+ 3 parts"),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_pool_keeps_the_form_that_it_was_made_in(
    pools: Any, was: dict[str, int], declared: dict[str, int], said: str, *, dry_run: bool
) -> None:
    """Nothing is changed, of no pool, before that is said."""
    told = []

    def ask(prefix: str, _inbuf: bytes = b"", **fields: Any) -> Any:
        is_coded = "k" in was
        pool = {"pool_name": "train.cold", "type": 3 if is_coded else 1, "erasure_code_profile": "own"}
        if prefix == "osd pool ls":
            return [pool]
        if prefix == "osd erasure-code-profile get":
            assert is_coded
            assert fields["name"] == "own"
            return {key: str(value) for key, value in was.items()} | {"plugin": "isa"}
        return told.append(prefix)

    wanted = pools.Pools(ask, {"pools": [{"name": "new"}, {"name": "train.cold", **declared}]}, dry_run)
    wanted.pool = lambda pool, _there: told.append(pool["name"])
    if said:
        with pytest.raises(pools.RefusedError, match=f"pool train.cold {said}"):
            wanted.pools()
        assert told == []
    else:
        wanted.pools()
        assert sorted(told) == ["new", "train.cold"]
