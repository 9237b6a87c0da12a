"""Whose a difference is: a task answers for what it changed and what it compared; nothing else is sealed."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.drift import manifest as manifests
from infra.drift import merge as merges
from infra.drift.claims import claims_of
from infra.drift.compared import compared
from infra.drift.journal import (
    forget_changes,
    journal_path,
    keep_changes,
    note_changes,
    noted_changes,
    record_of,
)
from infra.drift.kind import Task
from infra.drift.kinds import KINDS
from infra.drift.kinds.known import Known
from infra.drift.leave import host_plan, leaving_roles
from infra.drift.manifest import Entry, Manifest, RoleManifest, save_manifest
from infra.drift.merge import HostSeal
from infra.drift.record import Recorder, as_json
from tests.unit.test_drift_seal import FOUND, claim, record
from tests.unit.test_drift_seal import checkout as checkout

SECOND = {
    "mode": "4755", "owner": "evil", "group": "evil", "digest": "d2", "immutable": True, "target": "/evil",
    "version": "1", "hold": True, "installed": False, "active": "inactive", "enabled": "disabled",
    "load": "masked", "reload_needed": True, "fragment": "/etc/systemd/system/x.service",
    "dropins": ["/etc/systemd/system/x.service.d/evil.conf"], "live": "evil", "kept": "evil", "value": "evil",
    "output": ["evil"], "loaded": False, "fstab": "evil", "mounted": "evil", "mtu_bytes": 1, "up": False,
    "qdisc": "evil", "route": "evil", "rules": ["evil"], "uid": "0", "gid": "0", "home": "/evil",
    "shell": "/bin/evil", "groups": ["sudo"], "password": "evil", "members": ["evil"], "available": False,
    "aging": ["0", "9999", "7", "", "40000"],
    "lasts": False, "attributes": ["system.posix_acl_access evil"],
    "contents": ["/usr/lib/systemd/system/x.service evil"], "halted": ["evil"], "running": ["nice 19"],
    "answers": False, "differs": ["only in force: evil"], "lines": ["evil"],
    "leads": "evil",
}  # fmt: skip
"""Aspect → what somebody made of it."""
FIRST: dict[str, Any] = {
    **dict.fromkeys(SECOND, "ours"), "dropins": [], "fragment": "/usr/lib/systemd/system/x.service",
    "enabled": "enabled", "load": "loaded", "active": "active", "type": "file", "exists": True,
    "installed": True, "hold": False, "immutable": False, "reload_needed": False,
    "lasts": True, "attributes": [], "aging": ["0", "99999", "7", "", ""],
    "contents": ["/usr/lib/systemd/system/x.service as its package brought it"], "halted": [],
    "running": ["nice 0", "as set"],
    "answers": True, "differs": [], "lines": ["ours"],
}  # fmt: skip
REPORT = {"digest": ("sha1", "s2"), "enabled": ("enabled", False), "load": ("masked", True)}
"""Aspect → what a task that compares it says, where that is not the aspect's value."""
OWN_RULE = {
    *("absent", "listing", "effective", "authorized_keys"),
    *(name for name, kind in KINDS.items() if isinstance(kind, Known)),
}
"""Kinds of which single names count, not values: tried by tests of their own."""
ASPECTS = {name: tuple(kind.aspects) for name, kind in KINDS.items() if " " not in name}
BY_ITSELF = {"unit": {"dropins", "fragment", "contents"}, "package": {"hold"}}
"""Kind → aspects that are not a task's only because it changed something there."""


@st.composite
def tampered(draw: st.DrawFn) -> tuple[str, set[str], set[str]]:
    """A kind, the aspects somebody changed, and those of them that a task compares."""
    kind = draw(st.sampled_from([kind for kind in ASPECTS if kind not in OWN_RULE]))
    aspects = [aspect for aspect in ASPECTS[kind] if aspect in SECOND]
    changed = draw(st.sets(st.sampled_from(aspects), min_size=1))
    return kind, changed, draw(st.sets(st.sampled_from(sorted(changed))))


@pytest.fixture(autouse=True, scope="module")
def nothing_is_written() -> Any:
    """Manifests are handed from one seal to the next."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merges, "load_manifest", lambda _stack, _host: None)
        yield


def again(known: Manifest, records: dict[str, Any], inputs: str, *values: dict[str, Any]) -> HostSeal:
    """A run after which the manifest was KNOWN."""
    made = HostSeal("s", "node", records, dict.fromkeys(records, inputs))
    made.manifest = known.model_copy(deep=True)
    made.merge({"machine": "m1", "values": list(values)})
    return made


def entry_of(made: HostSeal, role: str, kind: str) -> dict[str, Any]:
    return next(entry.want for entry in made.manifest.roles[role].entries if entry.kind == kind)


@given(tampered(), st.booleans(), st.sampled_from(["not", "compared", "changed"]), st.booleans())
@settings(max_examples=4 * settings().max_examples)
def test_only_what_a_task_changed_or_compared_is_sealed(
    what: tuple[str, set[str], set[str]], same_inputs: bool, how: str, same_role: bool
) -> None:
    kind, evil, compares = what
    key = "x.service" if kind == "unit" else "/etc/x"
    before = {aspect: FIRST[aspect] for aspect in ASPECTS[kind]}
    found = before | {aspect: SECOND[aspect] for aspect in evil}
    found["_sha1"] = "s2" if "digest" in evil else "s1"
    first = again(Manifest(host="node"), {"base": record(claim(kind, key))}, "i1", before)
    compares = compares if how == "compared" else set()
    own = (evil if how == "changed" else compares) - BY_ITSELF.get(kind, set())
    own |= {"hold"} & compares
    if kind == "unit" and "load" in own:
        own |= {"fragment"} & evil  # a mask is a link where a unit's file would be
    if "installed" in evil and how != "changed":
        own = evil if "installed" in own else set()  # a package that is not there has no version
    said = dict(REPORT.get(aspect, (aspect, SECOND[aspect])) for aspect in compares)
    then = claim(kind, key, changed=how == "changed", compared=said)
    role = "base" if same_role else "other"
    made = again(first.manifest, {role: record(then)}, "i1" if same_inputs else "i2", found)
    assert entry_of(made, role, kind) == before | {aspect: SECOND[aspect] for aspect in own}
    assert bool(made.not_repaired) == bool(evil - own)
    assert all(key in line for line in made.not_repaired)


@pytest.mark.parametrize("inputs", ["i1", "i2"])
@pytest.mark.parametrize(
    ("kind", "before", "found"),
    [
        ("file", FOUND, {"type": "special", "mode": "0644", "owner": "root", "group": "root"}),
        ("file", FOUND, {"type": "absent"}),
        ("directory", {**FOUND, "type": "directory"}, {**FOUND, "type": "link", "target": "/evil"}),
        ("absent", {"type": "absent"}, FOUND),
        ("user", {"exists": True, "uid": "1", "shell": "/bin/sh"}, {"exists": False}),
        ("group", {"exists": False}, {"exists": True, "gid": "0", "members": ["evil"]}),
    ],
)
def test_a_thing_that_is_another_one_is_named_and_not_sealed(
    kind: str, before: dict[str, Any], found: dict[str, Any], inputs: str
) -> None:
    first = again(Manifest(host="node"), {"base": record(claim(kind, "/etc/x"))}, "i1", before)
    made = again(first.manifest, {"base": record(claim(kind, "/etc/x"))}, inputs, found)
    assert made.manifest.roles["base"].entries[0].want == first.manifest.roles["base"].entries[0].want
    assert len(made.not_repaired) == 1


def test_what_a_task_compared_may_be_another_thing_than_before() -> None:
    was = {"type": "link", "target": "/a", "mode": "0777", "owner": "root", "group": "root"}
    first = again(Manifest(host="node"), {"base": record(claim("directory", "/srv"))}, "i1", was)
    now = {"type": "directory", "mode": "0755", "owner": "root", "group": "root"}
    made = again(
        first.manifest,
        {"base": record(claim("directory", "/srv", compared={"type": "directory"}))},
        "i2",
        now,
    )
    assert (made.manifest.roles["base"].entries[0].want, made.not_repaired) == (now, [])


def test_what_a_role_governs_anew_is_sealed_and_what_it_gives_up_is_not() -> None:
    mode_only = claim("file", "/etc/x", aspects=("type", "mode", "owner", "group"))
    first = again(Manifest(host="node"), {"base": record(mode_only)}, "i1", FOUND)
    whole = again(first.manifest, {"base": record(claim("file", "/etc/x"))}, "i2", FOUND)
    assert (entry_of(whole, "base", "file"), whole.not_repaired) == (FOUND, [])
    less = again(whole.manifest, {"base": record(mode_only)}, "i3", {**FOUND, "digest": "d2"})
    assert "digest" not in entry_of(less, "base", "file")
    assert less.not_repaired == []


def test_the_text_of_a_file_stays_with_its_hash() -> None:
    known = again(
        Manifest(host="node"),
        {"base": record(claim("file", "/etc/x"))},
        "i1",
        {**FOUND, "_text": "ours\n", "_inputs": [1, "d1"]},
    )
    entry = known.manifest.roles["base"].entries[0]
    found = {**FOUND, "digest": "d2", "_text": "evil\n", "_inputs": [2, "d2"]}
    kept = again(known.manifest, {"base": record(claim("file", "/etc/x"))}, "i2", found)
    after = kept.manifest.roles["base"].entries[0]
    assert (after.want, after.text, after.how) == (entry.want, entry.text, entry.how)


def test_two_roles_answer_together_for_what_one_of_them_changed() -> None:
    first = again(Manifest(host="node"), {"base": record(claim("directory", "/srv"))}, "i1", FOUND)
    mine, yours = claim("directory", "/srv", changed=True), claim("directory", "/srv")
    found = {**FOUND, "mode": "0700"}
    made = again(first.manifest, {"base": record(mine), "other": record(yours)}, "i2", found, found)
    assert entry_of(made, "base", "directory") == entry_of(made, "other", "directory")
    assert entry_of(made, "base", "directory")["mode"] == "0700"
    assert made.not_repaired == []


def test_what_could_not_be_sealed_is_compared_with_what_it_was() -> None:
    """Else a thing that contradicts its task once would be a new one to the next run, and blessed by it."""
    first = again(
        Manifest(host="node"), {"base": record(claim("user", "ops"))}, "i1", {"exists": True, "shell": "a"}
    )
    gone = again(
        first.manifest,
        {"base": record(claim("user", "ops", reported={"exists": True}))},
        "i1",
        {"exists": False},
    )
    assert gone.manifest.roles["base"].sealed_at is None
    made = again(
        gone.manifest, {"base": record(claim("user", "ops"))}, "i1", {"exists": True, "shell": "evil"}
    )
    assert entry_of(made, "base", "user")["shell"] == "a"
    assert made.not_repaired == ["user ops: shell is evil, expected a"]


def test_definitions_that_were_read_again_are_no_difference() -> None:
    unit = {"active": "active", "load": "loaded", "dropins": [], "reload_needed": True}
    first = again(Manifest(host="node"), {"base": record(claim("unit", "x.service"))}, "i1", unit)
    found = unit | {"reload_needed": False}
    made = again(first.manifest, {"base": record(claim("unit", "x.service"))}, "i1", found)
    assert (entry_of(made, "base", "unit"), made.not_repaired) == (found, [])


def test_a_node_that_says_a_unit_is_over_is_not_believed_where_a_stranger_says_it() -> None:
    unit = {"active": "active", "enabled": "enabled", "load": "loaded", "dropins": []}
    first = again(Manifest(host="node"), {"base": record(claim("unit", "x.service"))}, "i1", unit)
    found = unit | {
        "active": "inactive",
        "dropins": ["/run/systemd/system/x.service.d/e.conf"],
        "_type": "oneshot",
    }
    for changed in (False, True):
        restarted = record(claim("unit", "x.service", changed=changed))
        made = again(first.manifest, {"base": restarted}, "i2", found)
        assert entry_of(made, "base", "unit") == unit


USER = {"exists": True, "uid": "1", "shell": "a", "groups": [], "password": "p", "aging": ["0"] * 5}
PARTLY = [
    ("template", {}, "file", FOUND, {"digest"}),
    ("template", {"owner": "root", "group": "root"}, "file", FOUND, {"digest", "owner", "group"}),
    ("lineinfile", {"mode": "0644"}, "file", FOUND, {"digest", "mode"}),
    ("user", {"groups": ["sudo"]}, "user", USER, {"groups"}),
    ("user", {"password": "x", "update_password": "on_create"}, "user", USER, set()),
    ("user", {"password": "x", "uid": 0}, "user", USER, {"password", "uid"}),
    ("user", {"password_expire_max": 99}, "user", USER, {"aging"}),
]


@pytest.mark.parametrize(("module", "args", "kind", "before", "own"), PARTLY)
def test_a_task_that_changed_a_thing_answers_for_what_it_can_have_changed(
    module: str, args: dict[str, Any], kind: str, before: dict[str, Any], own: set[str]
) -> None:
    recorder = Recorder()
    name = f"ansible.builtin.{module}"
    recorder.take("node", "base", Task("do it", name, {"path": "/etc/x", "name": "x", **args}, {}, True))
    ran = as_json(recorder.hosts["node"]["base"]) | {"whole": True, "handlers": []}
    kinds = [made["kind"] for made in ran["claims"]]
    assert kinds == [kind]
    first = again(Manifest(host="node"), {"base": ran}, "i1", before)
    found = {what: SECOND.get(what, value) for what, value in before.items()}
    made = again(first.manifest, {"base": ran}, "i1", found)
    assert entry_of(made, "base", kind) == before | {what: SECOND[what] for what in own}
    assert len(made.not_repaired) == 1
    recorder.take(
        "node",
        "base",
        Task("more", "causeway_own", {}, {"governs": [{"kind": kind, "key": key_of(ran)}]}, True),
    )
    ran = as_json(recorder.hosts["node"]["base"]) | {"whole": True, "handlers": []}
    made = again(first.manifest, {"base": ran}, "i1", found)
    assert entry_of(made, "base", kind) == found, "a module that says no more may have changed all of it"


def key_of(ran: dict[str, Any]) -> str:
    return str(ran["claims"][0]["key"])


def test_what_a_unit_makes_is_changed_by_its_restart() -> None:
    """A handler restarts it; the task that says what the unit makes found it running."""
    recorder = Recorder()
    nft = [{"kind": "nft", "key": "ip ours"}]
    start = Task("Run it", "ansible.builtin.systemd_service", {"name": "x", "state": "started"}, {})
    recorder.take("node", "role", start, declared=nft)
    assert changed_by(recorder) == set()
    restart = {"name": "x", "state": "restarted"}
    recorder.take(
        "node", "role", Task("Restart it", "ansible.builtin.systemd_service", restart, {}, True, True)
    )
    assert changed_by(recorder) == {("nft", "ip ours"), ("unit", "x.service")}


def changed_by(recorder: Recorder) -> set[tuple[str, str]]:
    ran = as_json(recorder.hosts["node"]["role"]) | {"whole": True, "handlers": []}
    return HostSeal("s", "node", {"role": ran}, {}).changed


@pytest.mark.parametrize("whole", [True, False])
def test_what_a_run_changed_that_was_never_sealed_is_its_own(whole: bool) -> None:
    """It was killed, or its seal did not get through; the next run finds its work done."""
    lines, evil = claim("file", "/etc/x"), claim("file", "/etc/y")
    known = again(Manifest(host="node"), {"base": record(lines, evil)}, "i1", FOUND, FOUND).manifest
    note_changes("s", "node", [("base", "file", "/etc/x"), ("other", "file", "/etc/z")])
    with journal_path("s", "node").open("a") as file:
        file.write('["base", "fi')
    found = {**FOUND, "digest": "d2"}
    made = again(known, {"base": record(lines, evil, whole=whole)}, "i2", found, found)
    assert {entry.key: entry.want["digest"] for entry in made.manifest.roles["base"].entries} == {
        "/etc/x": "d2",
        "/etc/y": "d1",
    }
    keep_changes("s", "node", made.is_unsealed)
    assert noted_changes("s", "node") == {("other", "file", "/etc/z")}
    keep_changes("s", "node", lambda _change: False)
    assert not journal_path("s", "node").exists()


def test_a_role_that_was_killed_before_its_seal_can_leave() -> None:
    assert record_of("s", "node") is None
    note_changes("s", "node", [("consul", "unit", "consul.service"), ("base", "file", "/etc/x")])
    made = record_of("s", "node")
    assert made
    assert leaving_roles(made, ["base"]) == ["consul"]
    sealed = Manifest(host="node", roles={"base": RoleManifest(entries=[entry("/etc/x"), entry("/etc/y")])})
    save_manifest("s", sealed)
    note_changes("s", "node", [("consul", "file", "/etc/y"), ("consul", "file", "/etc/c")])
    made = record_of("s", "node")
    assert made
    assert [one.key for one in made.roles["base"].entries] == ["/etc/x", "/etc/y"], "each once"
    plan = host_plan(made, leaving_roles(made, ["base"]))
    assert [thing["key"] for thing in plan["things"]] == ["/etc/c", "consul.service"]
    assert plan["handed"] == [["file", "/etc/y", ["consul"]]]
    forget_changes("s", "node", ["consul"])
    assert record_of("s", "node") == sealed
    assert noted_changes("s", "node") == {("base", "file", "/etc/x")}


def entry(key: str) -> Entry:
    return Entry(kind="file", key=key, task="t", want={})


def test_what_all_nodes_share_counts_as_it_was_sealed_on_the_node_that_changed_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check = claim("check", "rights", how={"argv": ["rights"], "shared": True})
    first = again(Manifest(host="node"), {"base": record(check)}, "i1", {"output": ["old"]})
    made = again(first.manifest, {"base": record(check)}, "i2", {"output": ["new"]})
    assert entry_of(made, "base", "check") == {"output": ["old"]}
    assert made.not_repaired
    other = HostSeal("s", "other", {"base": record({**check, "changed": True})}, {"base": "i2"})
    other.merge({"machine": "m2", "values": [{"output": ["new"]}]})
    manifests.save_manifest("s", other.manifest)
    monkeypatch.setattr(merges, "load_manifest", manifests.load_manifest)
    made = again(first.manifest, {"base": record(check)}, "i2", {"output": ["new"]})
    assert (entry_of(made, "base", "check"), made.not_repaired) == ({"output": ["new"]}, [])


def test_nobody_seals_twice_what_another_role_has_sealed() -> None:
    """A role that claims a thing anew finds what another one sealed of it."""
    first = again(Manifest(host="node"), {"base": record(claim("file", "/etc/x"))}, "i1", FOUND)
    made = again(first.manifest, {"more": record(claim("file", "/etc/x"))}, "i1", {**FOUND, "digest": "d2"})
    assert entry_of(made, "base", "file") == entry_of(made, "more", "file") == FOUND
    assert made.not_repaired == ["file /etc/x: its content differs"]


FILE = {"mode": "0644", "owner": "root", "group": "root", "checksum": "s1", "dest": "/etc/x"}
COMPARED = [
    ("copy", FILE, {"dest": "/etc/x"}, "file", {"sha1": "s1"}),
    ("template", FILE, {"dest": "/etc/x", "mode": "0644"}, "file", {"sha1": "s1", "mode": "0644"}),
    ("lineinfile", FILE, {"path": "/etc/x"}, "file", {}),
    ("blockinfile", FILE, {"path": "/etc/x", "owner": "root"}, "file", {"owner": "root"}),
    ("get_url", FILE, {"dest": "/etc/x"}, "file", {}),
    ("file", FILE | {"state": "file"}, {"path": "/etc/x", "group": "root"}, "file", {"group": "root"}),
    ("file", FILE | {"state": "directory"}, {"path": "/etc/x", "mode": "0644"}, "directory",
     {"type": "directory", "mode": "0644"}),
    ("file", {"state": "absent", "path": "/etc/x"}, {"state": "absent"}, "absent", {"type": "absent"}),
    ("file", {"state": "link", "dest": "/etc/x", "src": "/a"}, {}, "link", {"type": "link", "target": "/a"}),
    ("apt", {}, {"name": "x", "state": "present"}, "package", {"installed": True}),
    ("dpkg_selections", {}, {"name": "x", "selection": "hold"}, "package", {"hold": True}),
    ("systemd_service", {}, {"name": "x", "state": "started"}, "unit",
     {"active": "active", "load": "loaded"}),
    ("systemd_service", {}, {"name": "x", "enabled": True}, "unit",
     {"enabled": True, "load": "loaded"}),
    ("systemd_service", {}, {"name": "x", "enabled": False}, "unit", {"enabled": False}),
    ("systemd_service", {}, {"name": "x", "masked": True}, "unit", {"masked": True}),
    ("ansible.posix.sysctl", {}, {"name": "a", "value": "1  2"}, "sysctl", {"kept": "1 2"}),
    ("ansible.posix.sysctl", {}, {"name": "a", "value": "1", "sysctl_set": True}, "sysctl",
     {"kept": "1", "live": "1"}),
    ("ansible.posix.mount", {}, {"path": "/m", "src": "t", "fstype": "tmpfs", "state": "mounted"}, "mount",
     {"fstab": "t /m tmpfs defaults 0 0"}),
    ("user", {}, {"name": "u", "shell": "/bin/sh"}, "user", {"exists": True, "shell": "/bin/sh"}),
    ("user", {}, {"name": "u", "groups": "b,a"}, "user", {"exists": True, "groups": ["a", "b"]}),
    ("user", {}, {"name": "u", "groups": ["a"], "append": True}, "user", {"exists": True}),
    ("group", {}, {"name": "g"}, "group", {"exists": True}),
    ("hostname", {}, {"name": "n"}, "hostname", {"live": "n", "kept": "n"}),
]  # fmt: skip


@pytest.mark.parametrize(("module", "result", "args", "kind", "expected"), COMPARED)
def test_a_task_compares_what_it_was_asked_for(
    module: str, result: dict[str, Any], args: dict[str, Any], kind: str, expected: dict[str, Any]
) -> None:
    name = module if "." in module else f"ansible.builtin.{module}"
    task = Task("do it", name, args, result)
    made = {claim.kind: compared(task, claim) for claim in claims_of(task, [])}
    assert made[kind] == expected


def test_what_a_task_failed_at_leaves_with_its_role_and_is_no_seals_reason() -> None:
    """It may be changed or not: a seal that went by it would bless what somebody else did."""
    known = again(Manifest(host="node"), {"base": record(claim("file", "/etc/x"))}, "i1", FOUND).manifest
    note_changes("s", "node", [("base", "file", "/etc/x"), ("base", "file", "/etc/y")], tried=True)
    note_changes("s", "node", [("consul", "unit", "consul.service")], tried=True)
    note_changes("s", "node", [("consul", "file", "/etc/c")])
    note_changes("s", "node", [("consul", "file", "/etc/c")], tried=True)
    assert noted_changes("s", "node") == {("consul", "file", "/etc/c")}, "it was changed before it failed"
    evil = {**FOUND, "digest": "d2"}
    made = again(known, {"base": record(claim("file", "/etc/x"), whole=False)}, "i1", evil)
    assert entry_of(made, "base", "file")["digest"] == "d1"
    keep_changes("s", "node", made.is_unsealed)
    save_manifest("s", made.manifest)
    kept = record_of("s", "node")
    assert kept
    assert {one.key for one in kept.roles["base"].entries} == {"/etc/x", "/etc/y"}
    plan = host_plan(kept, leaving_roles(kept, ["base"]))
    assert [thing["key"] for thing in plan["things"]] == ["/etc/c", "consul.service"]
    made = again(known, {"base": record(claim("file", "/etc/x"))}, "i1", FOUND)
    keep_changes("s", "node", made.is_unsealed)
    forget_changes("s", "node", ["consul"])
    assert not journal_path("s", "node").exists(), "a run that came to its end has it on record"
