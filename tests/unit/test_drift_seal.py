"""What of a run is sealed: the values found, checked against what the tasks reported, and nothing blessed."""

import os
from pathlib import Path
from typing import Any

import pytest

from infra.components.leaving import leaving_roles_of
from infra.drift import manifest as manifests
from infra.drift.manifest import (
    Manifest,
    drift_dir,
    keep_text,
    load_manifest,
    manifest_path,
    not_sealed,
    remember_identity,
    save_manifest,
    sweep_texts,
)
from infra.drift.merge import HostSeal
from infra.drift.seal import mark_unsealed
from infra.drift.trip import TripError
from infra.errors import CausewayError

FOUND = {"type": "file", "digest": "d1", "mode": "0644", "owner": "root", "group": "root", "immutable": False}
Claims = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(manifests, "ROOT", tmp_path)
    return tmp_path


def claim(kind: str, key: str, **changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "kind": kind,
        "key": key,
        "task": f"make {key}",
        "tasks": [f"make {key}"],
        "reported": {},
        "compared": {},
        "stated_by": [],
        "untouched": [],
        "how": {},
        "aspects": None,
    }
    return made | {"changed": False, "handler": False} | changes


def record(*claims: dict[str, Any], whole: bool = True, **changes: Any) -> dict[str, Any]:
    return {
        "claims": list(claims),
        "whole": whole,
        "uncovered": {},
        "errors": [],
        "handlers": [],
    } | changes


def seal(
    records: dict[str, dict[str, Any]],
    *values: dict[str, Any],
    inputs: str = "i1",
    machine: str = "m1",
    identity: str = "instance 1",
    way_in: str = "",
) -> HostSeal:
    """One run of the roles in `records`, whose claims the probe answers with `values`, in order."""
    made = HostSeal("s", "node", records, dict.fromkeys(records, inputs), identity, way_in=way_in)
    made.merge({"machine": machine, "values": list(values)})
    save_manifest("s", made.manifest)
    return made


def wants(role: str = "base") -> Claims:
    manifest = load_manifest("s", "node")
    assert manifest is not None
    return {(entry.kind, entry.key): entry.want for entry in manifest.roles[role].entries}


def problems(role: str = "base") -> list[str]:
    manifest = load_manifest("s", "node")
    assert manifest is not None
    return manifest.roles[role].problems


def test_what_was_found_is_sealed_and_what_is_no_aspect_is_not() -> None:
    seal({"base": record(claim("file", "/etc/x"))}, {**FOUND, "_since": 1.0, "_text": "hello\n"})
    assert wants() == {("file", "/etc/x"): FOUND}
    manifest = load_manifest("s", "node")
    assert manifest is not None
    entry = manifest.roles["base"].entries[0]
    assert manifest.roles["base"].sealed_at
    assert manifest.roles["base"].inputs == "i1"
    assert manifests.kept_text("s", entry.text or "") == "hello\n"
    assert b"text" not in manifest.node_copy()
    assert manifest_path("s", "node").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("kind", "reported", "found"),
    [
        ("file", {"sha1": "s1"}, {**FOUND, "_sha1": "s2"}),
        ("file", {"mode": "0600"}, FOUND),
        ("package", {"installed": True}, {"installed": False, "version": None, "hold": False}),
        ("unit", {"active": "active"}, {"active": "failed", "enabled": "enabled", "load": "loaded"}),
        ("unit", {"enabled": True}, {"active": "active", "enabled": "disabled", "load": "loaded"}),
        ("link", {"target": "/a"}, {"type": "link", "target": "/b"}),
        ("file", {}, {"error": "Permission denied"}),
    ],
)
def test_a_value_that_contradicts_the_task_is_named_and_not_sealed(
    kind: str, reported: dict[str, Any], found: dict[str, Any]
) -> None:
    seal({"base": record(claim(kind, "/etc/x", reported=reported))}, found)
    assert wants() == {}
    assert "/etc/x" in problems()[0]
    assert next(not_sealed("s", ["node"])).startswith("drift: node: base is not sealed")


def test_values_that_agree_are_sealed() -> None:
    unit = {"active": "inactive", "enabled": "static", "load": "loaded", "_type": "oneshot"}
    seal(
        {
            "base": record(
                claim("file", "/etc/x", reported={"sha1": "s1", "mode": "0644"}),
                claim("unit", "x.service", reported={"active": "active", "enabled": True}),
            )
        },
        {**FOUND, "_sha1": "s1"},
        unit,
    )
    assert problems() == []
    assert wants()["unit", "x.service"] == {"enabled": "static", "load": "loaded"}, "a oneshot is over by now"


def test_a_whole_run_replaces_the_role_and_a_partial_one_completes_it() -> None:
    seal({"base": record(claim("file", "/a"), claim("file", "/b"))}, FOUND, FOUND)
    seal(
        {"base": record(claim("file", "/b", changed=True), whole=False)},
        {**FOUND, "digest": "d2"},
        inputs="i2",
    )
    assert wants()["file", "/a"] == FOUND
    assert wants()["file", "/b"]["digest"] == "d2"
    manifest = load_manifest("s", "node")
    assert manifest is not None
    assert manifest.roles["base"].inputs == "i1", "in part it is still what the old role made"
    seal({"base": record(claim("file", "/b"))}, {**FOUND, "digest": "d2"}, inputs="i2")
    assert set(wants()) == {("file", "/b")}


def test_a_record_that_cannot_be_read_is_its_hosts_failure_alone() -> None:
    """A wave ended over it, and nobody's roles came."""
    seal({"base": record(claim("file", "/a"), whole=False)}, FOUND)
    manifest_path("s", "broken").write_text("{")
    lines = list(not_sealed("s", ["broken", "node"]))
    assert "broken: nothing is sealed: " in lines[0]
    assert "node: base is not sealed" in lines[1]
    remember_identity("s", "broken", "instance:1")
    declared = {"broken": ["base"], "node": []}
    assert leaving_roles_of("s", declared, {}) == ({}, {}), "base leaves with its node only"
    assert manifest_path("s", "broken").read_text() == "{"


def test_a_partial_run_alone_does_not_make_a_role_sealed() -> None:
    seal({"base": record(claim("file", "/a"), whole=False)}, FOUND)
    assert "it ran in part only" in next(not_sealed("s", ["node"]))


def test_what_a_handler_keeps_stays_sealed_while_the_role_has_the_handler() -> None:
    unit = {"active": "active", "enabled": "enabled", "load": "loaded"}
    handler = claim("unit", "ssh.service", handler=True, task="Reload sshd")
    seal({"base": record(handler, handlers=["Reload sshd"])}, unit)
    seal({"base": record(handlers=["Reload sshd"])})
    assert ("unit", "ssh.service") in wants()
    seal({"base": record(handlers=["Another"])})
    assert wants() == {}


def test_a_difference_that_no_task_made_is_not_sealed_away() -> None:
    package = {"installed": True, "version": "2", "hold": False}
    seal({"base": record(claim("package", "x"))}, package)
    made = seal({"base": record(claim("package", "x"))}, {**package, "version": "1"})
    assert wants()["package", "x"]["version"] == "2"
    assert made.not_repaired == ["package x: version is 1, expected 2"]
    seal({"base": record(claim("package", "x", changed=True))}, {**package, "version": "3"})
    assert wants()["package", "x"]["version"] == "3", "this time a task did it"
    seal({"base": record(claim("package", "x"))}, {**package, "version": "1"}, inputs="i2")
    assert wants()["package", "x"]["version"] == "3", "that the role is another one by now does not matter"


def test_a_strangers_file_beside_ours_is_never_blessed() -> None:
    ours, listing = claim("file", "/etc/sysctl.d/90.conf"), claim("listing", "/etc/sysctl.d")
    seal({"base": record(ours, listing)}, FOUND, {"names": ["10-image.conf", "90.conf"]})
    found = {"names": ["10-image.conf", "90.conf", "99-evil.conf"]}
    made = seal({"base": record(ours, listing)}, FOUND, found, inputs="i2")
    assert wants()["listing", "/etc/sysctl.d"] == {"names": ["10-image.conf", "90.conf"]}
    assert "99-evil.conf" in made.not_repaired[0]
    other = claim("file", "/etc/sysctl.d/95.conf", changed=True)
    found = {"names": ["10-image.conf", "90.conf", "95.conf"]}
    seal({"more": record(other, listing)}, FOUND, found)
    assert wants()["listing", "/etc/sysctl.d"] == found, "the other role's file is accounted for"


def test_a_packaged_unit_that_was_edited_stays_as_it_was_sealed_and_its_update_does_not() -> None:
    path = "/usr/lib/systemd/system/x.service"
    found = {"active": "active", "enabled": "enabled", "load": "loaded", "reload_needed": False}
    found |= {"fragment": path, "dropins": []}
    restarted = claim("unit", "x.service", reported={"active": "active"}, changed=True)

    def run(content: str) -> list[str]:
        values = found | {"contents": [f"{path} {content}"], "_inputs": {path: "x.md5sums"}}
        return seal({"base": record(restarted)}, values).not_repaired

    assert run("as its package brought it") == []
    assert run("1f") == [f"x.service: {path} was edited"]
    assert wants()["unit", "x.service"]["contents"] == [f"{path} as its package brought it"]
    assert run("as its package brought it") == []


def test_new_effective_settings_count_only_when_our_files_made_them() -> None:
    ours = claim("file", "/etc/ssh/sshd_config.d/00.conf")
    program = claim("effective", "sshd -T", how={"inputs": ["/etc/ssh"], "argv": ["sshd", "-T"]})

    def found(output: str, **files: str) -> dict[str, Any]:
        names = {
            "main": "/etc/ssh/sshd_config",
            "ours": "/etc/ssh/sshd_config.d/00.conf",
            "evil": "/etc/ssh/evil",
        }
        return {"output": [output], "_inputs": {names[name]: digest for name, digest in files.items()}}

    seal({"base": record(ours, program)}, FOUND, found("a", main="1", ours="d1"))
    made = seal(
        {"base": record(ours, program)}, FOUND, found("b", main="1", ours="d1", evil="1"), inputs="i2"
    )
    assert wants()["effective", "sshd -T"] == {"output": ["a"]}
    assert "/etc/ssh/evil" in made.not_repaired[0]
    made = seal({"base": record(ours, program)}, {**FOUND, "digest": "d2"}, found("c", main="1", ours="d2"))
    assert wants()["effective", "sshd -T"] == {"output": ["a"]}, "somebody wrote into ours"
    assert len(made.not_repaired) == 2
    written = claim("file", "/etc/ssh/sshd_config.d/00.conf", changed=True)
    seal({"base": record(written, program)}, {**FOUND, "digest": "d2"}, found("c", main="1", ours="d2"))
    assert wants()["effective", "sshd -T"] == {"output": ["c"]}


MAIN, OURS, INCLUDED = "/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d/00.conf", "/etc/ssh/more.conf"
SSHD = {"inputs": [MAIN, "/etc/ssh/sshd_config.d"], "argv": ["sshd", "-T"]}


def settings(lines: str, inputs: dict[str, str], *packaged: str) -> dict[str, Any]:
    """What the probe finds of sshd's settings."""
    return {"output": ["a"], "lines": [lines], "_inputs": inputs, "_packaged": list(packaged)}


def test_an_older_manifest_learns_of_included_files_and_of_the_lines_in_all() -> None:
    ours, old = claim("file", OURS), claim("effective", "sshd -T", how=SSHD)
    seal({"base": record(ours, old)}, FOUND, {"output": ["a"], "_inputs": {MAIN: "1", OURS: "1"}})
    new = claim("effective", "sshd -T", how=SSHD | {"lines": True, "include": ["include"]})
    now = settings("x", {MAIN: "1", OURS: "1", INCLUDED: "1"})
    made = seal({"base": record(ours, new)}, FOUND, now)
    assert (made.not_repaired, wants()["effective", "sshd -T"]["lines"]) == ([], ["x"])
    for inputs in ({MAIN: "2", OURS: "1", INCLUDED: "1"}, {MAIN: "1", OURS: "1", INCLUDED: "2"}):
        made = seal({"base": record(ours, new)}, FOUND, settings("evil", inputs))
        assert len(made.not_repaired) == 1
        assert wants()["effective", "sshd -T"]["lines"] == ["x"]


def test_settings_that_an_update_brought_are_sealed_and_those_that_somebody_put_there_are_not() -> None:
    program = claim("effective", "sshd -T", how=SSHD | {"lines": True, "include": ["include"]})
    seal({"base": record(program)}, settings("1", {MAIN: "1", "openssh-server": "1"}, MAIN))
    made = seal({"base": record(program)}, settings("2", {MAIN: "2", "openssh-server": "2"}, MAIN))
    assert (made.not_repaired, wants()["effective", "sshd -T"]["lines"]) == ([], ["2"])
    made = seal({"base": record(program)}, settings("evil", {MAIN: "3", "openssh-server": "2"}))
    assert (len(made.not_repaired), wants()["effective", "sshd -T"]["lines"]) == (1, ["2"])


KEYS = "/root/.ssh/authorized_keys"


def keys(*own: str, taken: tuple[str, ...] = (), **changes: Any) -> dict[str, Any]:
    return record(claim("authorized_keys", KEYS, how={"own": list(own), "taken": list(taken)}, **changes))


def test_a_strangers_key_is_never_blessed_and_a_tasks_own_is() -> None:
    seal({"base": keys("a")}, {"keys": ["a", "stack"]})
    made = seal({"base": keys("a", "b", changed=True)}, {"keys": ["a", "b", "evil", "stack"]}, inputs="i2")
    assert wants()["authorized_keys", KEYS] == {"keys": ["a", "b", "stack"]}
    assert made.not_repaired == [f"evil in {KEYS}"]


def test_a_key_that_is_gone_is_still_missed_unless_a_task_took_it_out() -> None:
    seal({"base": keys("a")}, {"keys": ["a", "colleague", "leaver"]})
    seal({"base": keys("a", taken=("leaver",), changed=True)}, {"keys": ["a"]}, inputs="i2")
    assert wants()["authorized_keys", KEYS] == {"keys": ["a", "colleague"]}


def test_a_key_that_is_no_longer_declared_is_drift_as_long_as_it_is_there() -> None:
    seal({"base": keys("a", "leaver")}, {"keys": ["a", "leaver", "stack"]})
    seal({"base": keys("a")}, {"keys": ["a", "leaver", "stack"]}, inputs="i2")
    assert wants()["authorized_keys", KEYS] == {"keys": ["a", "stack"]}
    seal({"base": keys("a")}, {"keys": ["a", "leaver", "stack"]}, inputs="i2")
    assert wants()["authorized_keys", KEYS] == {"keys": ["a", "stack"]}, "and stays it"


ROOTS = claim("authorized_keys", "root", how={"own": [], "taken": [], "inputs": []})


def test_a_strangers_key_in_another_file_of_the_account_is_never_blessed_and_none_is_missed() -> None:
    seal({"base": record(ROOTS)}, {"keys": [f"{KEYS}: colleague", f"{KEYS}: leaver"]})
    made = seal({"base": record(ROOTS)}, {"keys": [f"{KEYS}2: evil", f"{KEYS}: colleague"]}, inputs="i2")
    assert wants()["authorized_keys", "root"] == {"keys": [f"{KEYS}: colleague"]}
    assert made.not_repaired == [f"{KEYS}2: evil in root"]


def test_keys_that_were_known_stay_known_when_no_task_has_their_file_any_more() -> None:
    file = claim("authorized_keys", KEYS, how={"own": ["a"], "taken": []})
    made = HostSeal("s", "node", {"base": record(ROOTS, file)}, {"base": "i1"})
    assert made.request()["known"] == {}
    seal({"base": record(ROOTS, file)}, {"keys": []}, {"keys": ["a", "stack"]})
    again = HostSeal("s", "node", {"base": record(ROOTS, whole=False)}, {"base": "i2"})
    assert again.request()["known"] == {"authorized_keys": ["root", KEYS]}, (
        "the file is still an entry of its own"
    )
    again = HostSeal("s", "node", {"base": record(ROOTS)}, {"base": "i2"})
    assert again.request()["known"] == {}
    made = seal({"base": record(ROOTS)}, {"keys": [f"{KEYS}: a", f"{KEYS}: stack"]}, inputs="i2")
    assert wants() == {("authorized_keys", "root"): {"keys": [f"{KEYS}: stack"]}}
    assert made.not_repaired == [f"{KEYS}: a in root"], "it was taken out of the declaration"


ADMINS = "/home/admin/.ssh/authorized_keys"
HARDEN, LET_IN = "base : Harden sshd", "base : Let keys in"
OTHERS = claim("privilege", "root", aspects=["keys"], task=HARDEN, tasks=[HARDEN])
GIVEN = claim("authorized_keys", ADMINS, how={"own": ["revoked"], "taken": []}, task=LET_IN, tasks=[LET_IN])
BEFORE: tuple[dict[str, Any], ...] = ({"keys": []}, {"keys": ["SHA256:stack", "colleague", "revoked"]})
"""What is found while the login user is given keys: none in files that are no entries."""


@pytest.mark.parametrize("looked_anew", [True, False])
def test_a_login_users_keys_stay_known_when_no_task_gives_it_keys_any_more(*, looked_anew: bool) -> None:
    """Whether or not the run looked at all other keys anew: the roll-out may have left that task out."""
    seal({"base": record(OTHERS, GIVEN)}, *BEFORE)
    found = [f"{ADMINS}: {key}" for key in ("SHA256:stack", "colleague", "revoked", "stranger")]
    if looked_anew:
        made = seal({"base": record(OTHERS)}, {"keys": found}, inputs="i2")
        told = f"{ADMINS}: revoked, {ADMINS}: stranger"
        assert made.not_repaired == [f"privilege root: keys: {told}"]
    else:
        seal({"base": record(left_out=[HARDEN])}, inputs="i2")
    assert wants()["privilege", "root"] == {"keys": [f"{ADMINS}: SHA256:stack", f"{ADMINS}: colleague"]}


def test_the_key_by_which_the_stack_gets_in_is_nobody_elses_wherever_it_comes_to_stand() -> None:
    line = f"{ADMINS}: ssh-ed25519 SHA256:stack causeway s"
    seal({"base": record(OTHERS)}, {"keys": []}, way_in="SHA256:stack")
    found = {"keys": [f"{ADMINS}: ssh-ed25519 SHA256:stacks eve", line]}
    made = seal({"base": record(OTHERS)}, found, inputs="i2", way_in="SHA256:stack")
    assert wants()["privilege", "root"] == {"keys": [line]}
    assert made.not_repaired == [f"privilege root: keys: {found['keys'][0]}"]


def test_the_key_by_which_the_stack_gets_in_is_known_when_it_is_declared_no_more() -> None:
    seal(
        {"base": keys("SHA256:stack", "leaver")}, {"keys": ["SHA256:stack", "leaver"]}, way_in="SHA256:stack"
    )
    seal({"base": keys()}, {"keys": ["SHA256:stack", "leaver"]}, inputs="i2", way_in="SHA256:stack")
    assert wants()["authorized_keys", KEYS] == {"keys": ["SHA256:stack"]}


def test_a_strangers_drop_in_is_not_blessed_by_a_restart() -> None:
    unit = {"active": "active", "enabled": "enabled", "load": "loaded", "dropins": ["/etc/x.d/ours.conf"]}
    ours = claim("file", "/etc/x.d/ours.conf")
    seal({"base": record(ours, claim("unit", "x.service"))}, FOUND, unit)
    found = unit | {"dropins": ["/etc/x.d/evil.conf", "/etc/x.d/ours.conf"]}
    made = seal({"base": record(ours, claim("unit", "x.service", changed=True))}, FOUND, found)
    assert wants()["unit", "x.service"] == unit
    assert "evil.conf" in made.not_repaired[0]


def test_a_strangers_unit_file_is_not_blessed_by_a_restart_and_a_tasks_own_is() -> None:
    unit = {"active": "active", "load": "loaded", "fragment": "/usr/lib/systemd/system/x.service"}
    over = unit | {"fragment": "/etc/systemd/system/x.service"}
    restarted = claim("unit", "x.service", changed=True)
    seal({"base": record(restarted)}, unit)
    made = seal({"base": record(restarted)}, over)
    assert wants()["unit", "x.service"] == unit
    assert made.not_repaired == ["x.service is changed by /etc/systemd/system/x.service"]
    seal({"base": record(restarted)}, over | {"load": "masked"})
    assert wants()["unit", "x.service"] == over | {"load": "masked"}, "a mask is no unit file"
    seal({"base": record(restarted)}, unit)
    seal({"base": record(claim("file", str(over["fragment"])), restarted)}, FOUND, over)
    assert wants()["unit", "x.service"] == over


def test_a_link_in_a_files_place_is_not_blessed_by_an_edit_through_it() -> None:
    edited = claim("file", "/etc/x", changed=True)
    seal({"base": record(edited)}, FOUND)
    made = seal({"base": record(edited)}, {"type": "link", "target": "/srv/x", "mode": "0777"}, inputs="i2")
    assert wants()["file", "/etc/x"] == FOUND
    assert made.not_repaired == ["file /etc/x: is a link, expected a file"]


def test_a_hold_is_not_blessed_by_the_installation_of_another_package() -> None:
    package = {"installed": True, "version": "2", "hold": False}
    installed = claim("package", "x", changed=True, reported={"installed": True})
    seal({"base": record(installed)}, package)
    made = seal({"base": record(installed)}, package | {"version": "3", "hold": True})
    assert wants()["package", "x"] == package | {"version": "3"}
    assert made.not_repaired == ["x is held"]
    held = claim("package", "x", changed=True, reported={"installed": True, "hold": True})
    seal({"base": record(held)}, package | {"hold": True})
    assert wants()["package", "x"]["hold"] is True, "a task set it"


def test_another_machine_under_the_same_name_starts_afresh() -> None:
    seal({"base": record(claim("file", "/a")), "more": record(claim("file", "/b"))}, FOUND, FOUND)
    seal(
        {"base": record(claim("file", "/a"))}, {**FOUND, "digest": "d9"}, machine="m2", identity="instance 2"
    )
    manifest = load_manifest("s", "node")
    assert manifest is not None
    assert set(manifest.roles) == {"base"}
    assert wants()["file", "/a"]["digest"] == "d9"


def test_a_seal_that_fails_is_said_by_the_next_scan() -> None:
    seal({"base": record(claim("file", "/a"))}, FOUND)
    again = HostSeal("s", "node", {"base": record(claim("file", "/a"))}, {"base": "i1"})
    mark_unsealed(again, "no answer within 10 s")
    assert "no answer within 10 s" in next(not_sealed("s", ["node"]))


def test_a_look_that_hangs_is_named() -> None:
    made = HostSeal("s", "node", {"base": record(claim("file", "/mnt/dead"))}, {"base": "i1"})
    with pytest.raises(TripError, match="/mnt/dead hangs"):
        made.merge({"hangs": 0})


def test_a_manifest_that_is_none_is_an_error_with_a_next_step() -> None:
    save_manifest("s", Manifest(host="node"))
    manifest_path("s", "node").write_text("{}")
    with pytest.raises(CausewayError, match="converge the host again"):
        load_manifest("s", "node")


def tasks_of(key: str) -> list[str]:
    manifest = load_manifest("s", "node")
    assert manifest is not None
    return next(entry.tasks for entry in manifest.roles["base"].entries if entry.key == key)


def test_a_run_in_part_knows_of_the_tasks_that_did_not_run() -> None:
    both = claim("file", "/etc/x", tasks=["write it", "set its mode"])
    seal({"base": record(both)}, FOUND)
    seal({"base": record(claim("file", "/etc/x", tasks=["write it"]), whole=False)}, FOUND)
    assert tasks_of("/etc/x") == ["write it", "set its mode"]
    seal({"base": record(claim("file", "/etc/x", tasks=["write it"]))}, FOUND)
    assert tasks_of("/etc/x") == ["write it"], "all tasks had their turn"


def test_a_whole_run_keeps_what_it_left_out_and_nothing_else_that_it_did_not_meet() -> None:
    kept, shared, gone = (
        claim("file", "/a"),
        claim("listing", "/d", tasks=["make /a", "make /b"]),
        claim("file", "/b"),
    )
    seal({"base": record(kept, shared, gone)}, FOUND, {"names": ["a", "b"]}, FOUND)
    now = claim("listing", "/d", tasks=["make /c"])
    made = HostSeal(
        "s",
        "node",
        {"base": record(now, left_out=["make /a"])},
        {"base": "i2"},
        "instance 1",
        lambda _: {"make /a": "1"},
    )
    assert made.request()["known"] == {"file": ["/a"]}
    made.merge({"machine": "m1", "values": [{"names": ["a", "b"]}]})
    save_manifest("s", made.manifest)
    assert wants() == {("file", "/a"): FOUND, ("listing", "/d"): {"names": ["a", "b"]}}
    assert tasks_of("/d") == ["make /a", "make /c"]
    part = made.manifest.roles["base"]
    assert (part.inputs, part.tasks, bool(part.sealed_at)) == ("i2", {"make /a": "1"}, True)
    assert b"make /a" not in made.manifest.node_copy().replace(b'"task":"make /a"', b"")


def test_what_a_marked_task_makes_no_more_waits_to_leave_unless_a_role_has_it_again() -> None:
    marked = {key: claim("file", key, part=True) for key in ("/b", "/c")}
    every = (claim("file", "/a"), claim("file", "/d"), *marked.values())
    seal({"base": record(*every)}, *[FOUND] * len(every))
    seal({"base": record(claim("file", "/a"), whole=False)}, FOUND)
    assert ("file", "/b") in wants(), "a run in part says nothing of the rest"
    made = seal({"base": record(claim("file", "/a"))}, FOUND)
    assert wants() == {("file", "/a"): FOUND}
    assert wants("base.parts") == {("file", "/b"): FOUND, ("file", "/c"): FOUND}
    assert b"/b" not in made.manifest.node_copy()
    assert list(not_sealed("s", ["node"])) == []
    seal({"more": record(marked["/c"])}, FOUND)
    assert wants("base.parts") == {("file", "/b"): FOUND}
    made = seal({"base": record(claim("file", "/a"), marked["/b"])}, FOUND, FOUND)
    assert "base.parts" not in made.manifest.roles


def test_a_run_in_part_does_not_make_up_what_an_older_manifest_does_not_know() -> None:
    seal({"base": record(claim("file", "/etc/x", tasks=[]))}, FOUND)
    seal({"base": record(claim("file", "/etc/x"), whole=False)}, FOUND)
    assert tasks_of("/etc/x") == []


def test_what_is_not_repaired_keeps_its_value_and_learns_its_tasks() -> None:
    seal({"base": record(claim("file", "/etc/x", tasks=[]))}, FOUND)
    made = seal({"base": record(claim("file", "/etc/x"))}, {**FOUND, "digest": "other"})
    assert made.not_repaired == ["file /etc/x: its content differs"]
    assert (tasks_of("/etc/x"), wants()["file", "/etc/x"]) == (["make /etc/x"], FOUND)


def test_a_role_that_was_given_up_is_kept_by_the_controller_and_not_by_the_node() -> None:
    seal({"base": record(claim("file", "/etc/x")), "consul": record(claim("file", "/etc/y"))}, FOUND, FOUND)
    made = seal({"base": record(claim("file", "/etc/x"))}, FOUND)
    assert wants("consul") == {("file", "/etc/y"): FOUND}
    assert b"/etc/x" in made.manifest.node_copy()
    assert b"/etc/y" not in made.manifest.node_copy()
    made.manifest.roles["consul"].sealed_at = None
    save_manifest("s", made.manifest)
    assert list(not_sealed("s", ["node"])) == []


PACKAGE = {"installed": True, "version": "1:9.2-3", "hold": False}


def test_an_update_that_no_task_made_is_sealed_and_a_downgrade_is_not() -> None:
    installed = record(claim("package", "x", reported={"installed": True}))
    seal({"base": installed}, PACKAGE)
    made = seal({"base": installed}, PACKAGE | {"version": "1:9.2-10"})
    assert (made.not_repaired, wants()["package", "x"]["version"]) == ([], "1:9.2-10")
    made = seal({"base": installed}, PACKAGE | {"version": "1:9.2-3"})
    assert (made.not_repaired, wants()["package", "x"]["version"]) == (
        ["package x: version is 1:9.2-3, expected 1:9.2-10"],
        "1:9.2-10",
    )


def test_an_update_blesses_no_hold_and_does_not_pass_one() -> None:
    installed = record(claim("package", "x", reported={"installed": True}))
    seal({"base": installed}, PACKAGE)
    made = seal({"base": installed}, PACKAGE | {"version": "2:1", "hold": True})
    assert (made.not_repaired, wants()["package", "x"]) == (["x is held"], PACKAGE | {"version": "2:1"})
    held = record(claim("package", "y", reported={"hold": True}))
    seal({"base": held}, PACKAGE | {"hold": True})
    made = seal({"base": held}, PACKAGE | {"hold": True, "version": "2:1"})
    assert made.not_repaired == ["package y: version is 2:1, expected 1:9.2-3"]
    assert wants()["package", "y"]["version"] == "1:9.2-3"


def test_what_one_role_pins_stays_pinned_when_another_role_seals_it() -> None:
    seal({"more": record(claim("package", "x", how={"pinned": True}))}, PACKAGE)
    seal({"base": record(claim("package", "x"))}, PACKAGE)
    manifest = load_manifest("s", "node")
    assert manifest is not None
    assert manifest.roles["more"].entries[0].how == {"pinned": True}


def test_a_text_that_no_manifest_names_any_more_goes_after_a_day() -> None:
    """Of every content that a file ever had one would stay, on a controller for years."""
    folder = drift_dir("s") / "texts"
    for text in ("first\n", "second\n", "third\n"):
        seal({"base": record(claim("file", "/etc/x", changed=True))}, FOUND | {"_text": text})
    sweep_texts("s")
    assert {path.read_text() for path in folder.glob("[!.]*")} == {"first\n", "second\n", "third\n"}
    (folder / ".half.7.part").touch()
    for path in (*folder.iterdir(), folder / ".swept"):
        os.utime(path, (1, 1))
    keep_text("s", "second\n")  # by a run that has yet to write its manifest
    sweep_texts("s")
    assert {path.read_text() for path in folder.glob("[!.]*")} == {"second\n", "third\n"}
    assert {path.name for path in folder.glob(".*")} == {".swept"}
    for path in folder.glob("[!.]*"):
        os.utime(path, (1, 1))
    sweep_texts("s")
    assert len([*folder.glob("[!.]*")]) == 2, "once a day: all manifests are read for it"
