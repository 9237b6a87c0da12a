"""Roles that leave: what they governed alone is given back, and nothing else is touched."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from infra import ROOT
from infra.drift.leave import host_plan, leaving_roles
from infra.drift.looks import shown_key
from infra.drift.manifest import Entry, Manifest, RoleManifest
from tests.loaded import load

Modules = tuple[ModuleType, ModuleType, ModuleType, ModuleType]


@pytest.fixture(scope="module")
def modules() -> Modules:
    """The look, where things are put aside, the module that looks, and the one that gives back."""
    prior, shared = (import_module(f"ansible.module_utils.causeway_{name}") for name in ("prior", "node"))
    before, undo = (load(ROOT / f"playbooks/library/causeway_{name}.py") for name in ("before", "undo"))
    return prior, shared, before, undo


class Node:
    """A folder that stands for a node's file system: `etc` is looked at whole, `data` holds data."""

    def __init__(self, modules: Modules, folder: Path) -> None:
        self.prior, self.shared, self.before, self.undo = modules
        self.paths = import_module("ansible.module_utils.causeway_paths")
        self.folder, self.etc, self.data = folder, folder / "etc", folder / "data"
        self.manifest = folder / "manifest.json"
        self.etc.mkdir(parents=True)
        self.data.mkdir()
        self.kept = folder / "kept"
        self.homes: list[str] = []
        self.places = [
            patch.multiple(
                self.paths,
                LOOKED_AT={str(folder): 12},
                KEPT_WHOLE=(str(folder),),
                PASSED_OVER=(str(self.kept),),
            ),
            patch.multiple(self.prior, KEPT=self.kept, RECORD=self.manifest),
            patch.multiple(self.before, KEPT=self.kept, RECORD=self.manifest),
            patch.multiple(self.shared, ASIDE=folder / "aside"),
            patch.multiple(self.undo, NO_DATA=(f"{self.etc}/",)),
        ]

    def __enter__(self) -> "Node":
        for place in self.places:
            place.start()
        return self

    def __exit__(self, *_: object) -> None:
        for place in self.places:
            place.stop()

    def look(self, *roles: str) -> None:
        """Run `causeway_before`, which sees files only."""
        params = {"roles": list(roles), "services": {}}
        module = SimpleNamespace(params=params, check_mode=False, exit_json=lambda **_: None)
        facts = self.paths.look_at_paths(self.homes)
        with patch.multiple(self.before, AnsibleModule=lambda **_: module, look=lambda: facts):
            self.before.main()

    def record(self, *roles: str) -> None:
        """The node's copy of the record, as the end of a run writes it."""
        self.manifest.write_text(json.dumps({"roles": {role: {"entries": []} for role in roles}}))

    def leave(self, *things: dict[str, Any], killed: bool = False, **more: Any) -> Any:
        """Give back what the role `ours` had; the module's own object. KILLED: before it is forgotten."""
        params = {
            "roles": ["ours"],
            "staying": [],
            "handed": [],
            "metrics": [],
            "salt": "",
            "purge_data": False,
            "data": [],
            **more,
        }
        params["things"] = [{"roles": ["ours"], "want": {}, "own": [], **thing} for thing in things]
        undo = self.undo.Undo(SimpleNamespace(params=params, check_mode=False))
        undo.silence()
        undo.set_aside()
        undo.give_back_paths()
        undo.note()
        undo.given["data"] = list(undo.data)  # as the playbook hands it on
        if not killed:
            undo.forget()
        return undo


@pytest.fixture
def node(modules: Modules, tmp_path: Path) -> Iterator[Node]:
    with Node(modules, tmp_path) as made:
        yield made


def tree(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Everything in a folder: kind, mode and content."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted(folder.rglob("*")):
        name, mode = str(path.relative_to(folder)), path.lstat().st_mode
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            found[name] = ("directory", mode)
        else:
            found[name] = ("file", mode, path.read_bytes())
    return found


def sealed(path: Path) -> dict[str, Any]:
    """A file as the record has it."""
    return {
        "kind": "file",
        "key": str(path),
        "want": {"digest": hashlib.sha256(path.read_bytes()).hexdigest()[:32]},
    }


def test_a_file_that_was_there_comes_back_with_its_mode(node: Node) -> None:
    file = node.etc / "hosts"
    file.write_text("another admin's\n")
    file.chmod(0o640)
    was = tree(node.etc)
    node.look("ours")
    file.write_text("ours\n")
    file.chmod(0o644)
    node.leave(sealed(file))
    assert tree(node.etc) == was
    assert not (node.folder / "aside").exists()


@pytest.mark.parametrize("there", [b"192.0.2.7 db\n# no end", None])
def test_a_block_goes_and_takes_nothing_along(node: Node, there: bytes | None) -> None:
    with_block = import_module("ansible.module_utils.causeway_block").with_block
    file = node.etc / "hosts"
    if there is not None:
        file.write_bytes(there)
    was = tree(node.etc)
    node.look("ours")
    file.write_bytes(with_block(there or b"", [b"10.0.0.1 a"]))
    node.leave({"kind": "managed_block", "key": str(file)})
    assert tree(node.etc) == was
    file.write_bytes(with_block(there or b"", [b"10.0.0.1 a"]) + b"192.0.2.8 later\n")
    node.look("ours")
    node.leave({"kind": "managed_block", "key": str(file)})
    assert file.read_bytes().endswith(b"192.0.2.8 later\n")
    assert b"10.0.0.1" not in file.read_bytes()


OURS, THEIRS, LATER = (
    f"ssh-ed25519 {base64.b64encode(name.encode() * 8).decode()} {name}@desk"
    for name in ("ours", "their", "late")
)


@pytest.mark.parametrize("there", [f"{THEIRS}\n", None])
@pytest.mark.parametrize("later", [f"{LATER}\n", f"# a comment\n{LATER} twice", ""])
@pytest.mark.parametrize("was_ours", [False, True])
def test_keys_of_others_stay_where_ours_go(node: Node, there: str | None, later: str, was_ours: bool) -> None:
    """By one of them we may have come in: a file without it lets nobody in any more."""
    file = node.etc / "ssh" / "authorized_keys"
    file.parent.mkdir()
    before = f"{OURS}\n{there or ''}" if was_ours else there
    if before is not None:
        file.write_text(before)
        file.chmod(0o600)
    was = tree(node.etc)
    node.look("ours")
    file.write_text(f"{before or ''}{OURS}\n" * (not was_ours) + (before or "") * was_ours + later)
    own = {"kind": "authorized_keys", "key": str(file), "own": [shown_key(OURS)]}
    node.leave(own, {"kind": "file", "key": str(file)}, {"kind": "authorized_keys", "key": "root"})
    if later:
        assert file.read_text() == f"{before or ''}{later}"
    else:
        assert tree(node.etc) == was


def test_nothing_is_written_through_a_link_that_an_account_has_made(node: Node) -> None:
    """It may make links in its own directory: where its keys are, and where they are written anew."""
    file, secret = node.etc / "authorized_keys", node.data / "secret"
    secret.write_text(f"{OURS}\n{THEIRS}\n")
    node.look("ours")
    own = {"kind": "authorized_keys", "key": str(file), "own": [shown_key(OURS)]}
    file.write_text(f"{OURS}\n{THEIRS}\n")
    file.with_name(f".{file.name}{node.shared.PART}").symlink_to(secret)
    node.leave(own, {"kind": "file", "key": str(file)})
    assert file.read_text() == f"{THEIRS}\n"
    node.look("ours")
    file.unlink()
    file.symlink_to(secret)
    node.leave(own)
    assert secret.read_text() == f"{OURS}\n{THEIRS}\n"


def test_what_somebody_has_changed_since_is_kept_aside(node: Node) -> None:
    file = node.etc / "ours.conf"
    node.look("ours")
    file.write_text("ours\n")
    thing = sealed(file)
    file.write_text("ours, and the work of a night\n")
    undo = node.leave(thing)
    assert not file.exists()
    (aside,) = (path for path in (node.folder / "aside").rglob("ours.conf"))
    assert aside.read_text() == "ours, and the work of a night\n"
    assert any("somebody has changed it" in line for line in undo.changes)


def test_a_link_that_somebody_has_put_there_is_kept_aside_as_well(node: Node) -> None:
    file, mine = node.etc / "ours.conf", node.data / "mine.conf"
    node.look("ours")
    file.write_text("ours\n")
    thing = sealed(file)
    mine.write_text("mine\n")
    file.unlink()
    file.symlink_to(mine)
    node.leave(thing)
    assert not file.is_symlink()
    assert mine.read_text() == "mine\n"
    (aside,) = (path for path in (node.folder / "aside").rglob("ours.conf"))
    assert aside.readlink() == mine


def test_what_cannot_be_kept_aside_stays_and_is_named(node: Node) -> None:
    """A full disk: what somebody wrote is nowhere else. All the rest goes on."""
    changed, other = node.etc / "ours.conf", node.etc / "other.conf"
    node.look("ours")
    for file in (changed, other):
        file.write_text("ours\n")
    things = [sealed(changed), sealed(other)]
    changed.write_text("the work of a night\n")

    def full(_path: str, _target: Path) -> None:
        raise OSError(28, "No space left on device")

    with patch.object(node.undo, "keep_copy", full):
        undo = node.leave(*things, killed=True)
    assert changed.read_text() == "the work of a night\n"
    assert not other.exists()
    (failed,) = undo.failed
    assert "No space left on device" in failed
    assert "ours" in node.prior.Index().roles, "the next run tries again"
    assert undo.packages().files == {str(other)}, "nor does its package take it along"


def test_data_stays_and_is_named_unless_it_may_go(node: Node) -> None:
    folder = node.data / "db"
    node.look("ours")
    folder.mkdir()
    (folder / "0001").write_text("bytes")
    thing = {"kind": "directory", "key": str(folder)}
    undo = node.leave(thing)
    assert (folder / "0001").read_text() == "bytes"
    assert undo.left == [f"{folder}: has data, which goes only with -e leave_purge_data=true"]
    node.look("ours")  # it comes again, and finds its data
    node.leave(thing, purge_data=True)
    assert not folder.exists()


def test_what_its_programs_told_is_told_no_more(node: Node) -> None:
    ours, others = node.data / "causeway_wan.prom", node.data / "causeway_drift.prom"
    for file in (ours, others):
        file.write_text("up 1")
    undo = node.leave(metrics=[str(ours), str(node.data / "never.prom")])
    assert [path.name for path in node.data.iterdir()] == [others.name]
    assert undo.changes == [f"removed {ours}"]


def test_what_others_have_below_a_directory_keeps_it(node: Node) -> None:
    folder = node.etc / "causeway"
    node.look("ours")
    folder.mkdir()
    (folder / "theirs.json").write_text("{}")
    undo = node.leave(
        {"kind": "directory", "key": str(folder)}, staying=[["file", str(folder / "theirs.json")]]
    )
    assert (folder / "theirs.json").exists()
    assert undo.left == []


def test_of_a_role_that_was_there_before_anybody_looked_everything_stays(node: Node) -> None:
    file = node.etc / "old.conf"
    file.write_text("who knows\n")
    index = node.prior.Index()
    index.roles["ours"] = None
    node.kept.mkdir()
    index.save()
    undo = node.leave(sealed(file))
    assert file.read_text() == "who knows\n"
    assert undo.left == [f"file {file}: nobody knows what was before it"]


def test_what_two_roles_had_is_given_back_by_the_last_as_it_was_before_the_first(node: Node) -> None:
    file = node.etc / "shared.conf"
    file.write_text("before both\n")
    node.look("ours")
    file.write_text("by the first\n")
    node.look("theirs")
    file.write_text("by both\n")
    node.leave(staying=[["file", str(file)]], handed=[["file", str(file), ["ours"]]])
    assert file.read_text() == "by both\n"
    node.leave({**sealed(file), "roles": ["theirs"]}, roles=["theirs"])
    assert file.read_text() == "before both\n"
    assert list(node.kept.glob("[0-9]*")) == []


def test_a_directory_goes_that_the_first_role_made_and_the_second_found(node: Node) -> None:
    folder = node.etc / "causeway"
    node.look("ours")
    (folder / "z").mkdir(parents=True)
    (folder / "z" / "first").write_text("1")
    node.look("theirs")
    (folder / "second").write_text("2")
    first, second = sealed(folder / "z" / "first"), sealed(folder / "second")
    theirs = [{**second, "roles": ["theirs"]}, {"kind": "directory", "key": str(folder), "roles": ["theirs"]}]
    node.leave(first, *theirs, roles=["ours", "theirs"])
    assert not folder.exists()


@pytest.mark.parametrize("killed", [True, False])
def test_a_role_that_had_left_and_comes_again_finds_what_is_there_now(node: Node, killed: bool) -> None:
    """Also where the run ended before it was forgotten, and before the node's own record said so."""
    file = node.etc / "edited"
    file.write_text("long ago\n")
    node.look("ours")
    file.write_text("ours\n")
    node.record("ours")
    node.leave(sealed(file), killed=killed)
    assert file.read_text() == "long ago\n"
    file.write_text("the admin's\n")
    node.look("ours")
    node.look("ours")  # as each later run does
    file.write_text("ours again\n")
    undo = node.leave(sealed(file))
    assert (undo.unknown(), file.read_text()) == (["ours"], "the admin's\n")
    index = node.prior.Index()
    assert (index.roles, index.handed) == ({}, {}), "nothing grows"


def test_who_stays_keeps_what_was_before_a_role_that_left_in_a_run_that_was_killed(node: Node) -> None:
    file = node.etc / "shared.conf"
    file.write_text("before both\n")
    node.look("ours")
    file.write_text("by the first\n")
    node.look("theirs")
    node.leave(staying=[["file", str(file)]], handed=[["file", str(file), ["ours"]]], killed=True)
    node.leave({**sealed(file), "roles": ["theirs"]}, roles=["theirs"])
    assert file.read_text() == "before both\n"


def test_a_role_that_a_repair_made_again_is_none_that_comes_back(node: Node) -> None:
    """Its record was written since: what is there now is its own, and no admin's."""
    file = node.etc / "edited"
    file.write_text("before\n")
    node.look("ours")
    node.record("ours")
    node.leave(sealed(file), killed=True)
    file.write_text("ours, by a repair\n")
    os.utime(node.manifest, ns=(1, 1))
    node.look("ours")
    node.leave(sealed(file))
    assert file.read_text() == "before\n"


def test_a_directory_is_data_by_the_look_before_its_own_role(node: Node) -> None:
    """Whatever a role that came earlier found there, or a package of it."""
    theirs, cache = node.data / "theirs", node.data / "cache"
    node.look("early")
    for folder in (theirs, cache):
        folder.mkdir()
        (folder / "file").write_text("x")
    node.look("late")
    early, late = (node.prior.Prior.load(number) for number in (1, 2))
    module = import_module("ansible.module_utils.causeway_packages")
    ours = packages_of(node)
    ours.folders = {str(theirs): late}
    with patch.multiple(module, said=lambda *argv: f"{cache}\n" * ("one" in argv), owners=lambda _: {"one"}):
        assert ours.data_of(["one", "two"], [("one", early), ("two", late)]) == ({str(cache): early}, [])
        assert ours.data_of(["one", "two"], [("two", late), ("one", early)]) == ({str(cache): early}, [])
        assert ours.data_of(["one"], [("one", late)]) == ({}, [str(cache)])


def test_data_that_stays_keeps_the_look_before_its_own_role(node: Node) -> None:
    """Of a part as well, whose role stays; so a later purge takes what nobody had before."""
    folder = node.data / "engine"
    node.look("ours")
    folder.mkdir()
    (folder / "image").write_text("x")
    thing = {"kind": "directory", "key": str(folder)}
    assert node.leave(thing, roles=[]).data == {str(folder): 1}
    node.look("theirs")
    node.leave({**thing, "roles": ["theirs"]}, roles=["theirs"], purge_data=True)
    assert not folder.exists()


def test_a_first_run_that_was_killed_is_no_role_that_has_left(node: Node) -> None:
    file = node.etc / "edited"
    file.write_text("before\n")
    node.look("ours")
    file.write_text("ours\n")
    node.look("ours")  # no record has it yet
    node.leave(sealed(file))
    assert file.read_text() == "before\n"


def test_of_two_that_left_in_a_killed_run_the_other_one_can_still_be_left(node: Node) -> None:
    one, two = node.etc / "one", node.etc / "two"
    node.look("ours", "theirs")
    for file in (one, two):
        file.write_text("ours\n")
    things = [sealed(one), {**sealed(two), "roles": ["theirs"]}]
    node.leave(*things, roles=["ours", "theirs"], killed=True)
    node.look("ours")
    undo = node.leave(things[1], roles=["theirs"], killed=True)
    assert undo.known_roles() == ["theirs"], "tried again, it is known what was before it"
    assert {*node.prior.Index().left} == {"theirs"}


def test_a_second_call_finds_nothing_to_do(node: Node) -> None:
    (node.etc / "a").write_text("before\n")
    node.look("ours", "kept")
    (node.etc / "a").write_text("ours\n")
    (node.etc / "b").write_text("ours\n")
    things = [sealed(node.etc / "a"), sealed(node.etc / "b")]
    params = {"roles": [], "staying": [], "handed": [], "salt": "", "purge_data": False, "data": []}
    for expected in (2, 0):  # as a call that was killed before it could say so
        undo = node.undo.Undo(
            SimpleNamespace(
                params={**params, "things": [{"roles": ["ours"], **one} for one in things]}, check_mode=False
            )
        )
        undo.set_aside()
        undo.give_back_paths()
        assert len(undo.changes) == expected


NAMES = st.sampled_from(["a", "b", "c/d", "c/e", "c/f/g", "h"])
STATES = st.one_of(
    st.tuples(st.just("file"), st.binary(max_size=8), st.sampled_from([0o600, 0o644, 0o4755])),
    st.tuples(st.just("directory"), st.just(b""), st.sampled_from([0o700, 0o755])),
    st.tuples(st.just("link"), st.sampled_from([b"a", b"/nowhere"]), st.just(0)),
    st.tuples(st.just("absent"), st.just(b""), st.just(0)),
)


def become(path: Path, state: tuple[str, bytes, int]) -> None:
    """Whatever is there, in place of it; a directory with something in it stays."""
    kind, content, mode = state
    if path.is_dir() and not path.is_symlink():
        if any(path.iterdir()):
            return
        path.rmdir()
    path.unlink(missing_ok=True)
    if kind == "absent":
        return
    for above in reversed(path.parents):
        if above.is_symlink() or above.is_file():
            return
        above.mkdir(exist_ok=True)
    if kind == "link":
        path.symlink_to(content.decode())
    elif kind == "directory":
        path.mkdir(mode=mode)
        path.chmod(mode)
    else:
        path.write_bytes(content)
        path.chmod(mode)


@settings(max_examples=60, deadline=None)
@given(
    before=st.lists(st.tuples(NAMES, STATES), max_size=6),
    ours=st.dictionaries(NAMES, STATES, max_size=5),
    data=st.data(),
)
def test_whatever_a_role_did_to_paths_is_undone(
    modules: Modules,
    tmp_path_factory: pytest.TempPathFactory,
    before: list[tuple[str, tuple[str, bytes, int]]],
    ours: dict[str, tuple[str, bytes, int]],
    data: st.DataObject,
) -> None:
    with Node(modules, tmp_path_factory.mktemp("node")) as node:
        for name, state in before:
            become(node.etc / name, state)
        was = tree(node.etc)
        node.look("ours")
        things = []
        for name, state in ours.items():
            path = node.etc / name
            become(path, state)
            made = [path, *path.parents] if path.exists() or path.is_symlink() else [path]
            for each in made:
                if node.etc in each.parents and {"key": str(each)} not in things:
                    things.append({"key": str(each)})
        node.leave(
            *({"kind": data.draw(st.sampled_from(["file", "directory"])), **thing} for thing in things)
        )
        assert tree(node.etc) == was
        shutil.rmtree(node.folder)


def entries(*keys: str) -> list[Entry]:
    return [Entry(kind="file", key=key, task="t", want={}) for key in keys]


KEYS = st.lists(st.sampled_from([f"/etc/{letter}" for letter in "abcdef"]), unique=True)


@given(parts=st.dictionaries(st.sampled_from(["base", "consul", "scratch", "roce"]), KEYS), data=st.data())
def test_what_leaves_is_what_no_other_role_has(parts: dict[str, list[str]], data: st.DataObject) -> None:
    manifest = Manifest(
        host="n", roles={role: RoleManifest(entries=entries(*keys)) for role, keys in parts.items()}
    )
    leave = data.draw(st.lists(st.sampled_from(sorted(parts)), unique=True)) if parts else []
    plan = host_plan(manifest, leave)
    others = {key for role, keys in parts.items() if role not in leave for key in keys}
    going = {key for role in leave for key in parts[role]}
    assert {thing["key"] for thing in plan["things"]} == going - others
    assert {key for _kind, key, _roles in plan["handed"]} == going & others
    assert {key for _kind, key in plan["staying"]} == others
    assert all(
        set(thing["roles"]) == {r for r in leave if thing["key"] in parts[r]} for thing in plan["things"]
    )


def test_a_part_leaves_as_its_role_had_it_and_the_role_stays() -> None:
    part = RoleManifest(entries=entries("/etc/b", "/etc/c"), declared=False)
    roles = {"consul": RoleManifest(entries=entries("/etc/a", "/etc/c")), "consul.parts": part}
    manifest = Manifest(host="n", roles=roles)
    assert leaving_roles(manifest, ["base", "consul"]) == ["consul.parts"]
    plan = host_plan(manifest, ["consul.parts"])
    assert (plan["roles"], plan["parts"], plan["polite"]) == ([], ["consul.parts"], [])
    assert [(thing["key"], thing["roles"]) for thing in plan["things"]] == [("/etc/b", ["consul"])]
    assert leaving_roles(manifest, ["base"]) == ["consul.parts", "consul"]
    assert leaving_roles(manifest, ["base", "consul"], ["consul"]) == ["consul.parts", "consul"]


def test_the_last_in_the_order_of_roles_leaves_first_and_base_never_by_itself() -> None:
    parts = {role: RoleManifest() for role in ("base", "consul", "prometheus", "of_another_version")}
    manifest = Manifest(host="n", roles=parts)
    assert leaving_roles(manifest, ["base"]) == ["of_another_version", "prometheus", "consul"]
    assert leaving_roles(manifest, []) == ["of_another_version", "prometheus", "consul"]
    assert leaving_roles(manifest, [], ["base", "consul"]) == ["consul", "base"]


def test_a_role_of_which_nobody_knows_what_was_before_stays_until_it_is_named() -> None:
    manifest = Manifest(host="n", roles={"base": RoleManifest(), "consul": RoleManifest(stays=True)})
    assert leaving_roles(manifest, ["base"]) == []
    assert leaving_roles(manifest, ["base"], ["consul"]) == ["consul"]


def test_instances_of_templates_are_enabled_by_their_links(
    modules: Modules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemctl's list of unit files has templates alone, its list of units only what is loaded."""
    (tmp_path / "multi-user.target.wants").mkdir()
    (tmp_path / "multi-user.target.wants" / "pull@one.service").symlink_to("/nowhere")
    (tmp_path / "pull@two.service.d").mkdir()
    (tmp_path / "pull@two.service.d" / "o@ne.conf").touch()
    listed = {"list-unit-files": "pull@.service disabled enabled", "list-units": ""}
    prior, *_others = modules
    monkeypatch.setattr(prior, "said", lambda *argv: listed[argv[1]])
    monkeypatch.setattr(prior, "LINKS", tmp_path)
    assert prior.units() == {
        "pull@.service": ["disabled", "inactive"],
        "pull@one.service": ["enabled", "inactive"],
    }


def test_a_directory_that_other_packages_have_is_nobodys_data(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = import_module("ansible.module_utils.causeway_packages")
    monkeypatch.setattr(packages, "said", lambda *argv: f"ceph-common, ceph-base:amd64: {argv[-1]}\n")
    assert packages.owners("/var/lib/ceph") == {"ceph-common", "ceph-base"}
    assert packages.is_below("/var/lib/ceph/mon", ["/var/lib/ceph", "/var/lib/ceph/mon"])
    assert not packages.is_below("/var/lib/cephadm", ["/var/lib/ceph"])


class Apt:
    """What apt and dpkg say of packages: name → what it depends on, and recommends."""

    def __init__(self, needs: dict[str, list[str]], likes: dict[str, list[str]], *asked_for: str) -> None:
        self.needs, self.likes, self.asked_for = needs, likes, asked_for
        self.now = {name: {"auto": name not in asked_for, "held": False} for name in needs}

    def said(self, *argv: str) -> str:
        """The answer to one of the commands that are used."""
        if argv[0] == "dpkg-query" and "Essential" in argv[-1]:
            return "".join(f"{name} {'yes' * (name in ('mke2fs', 'before'))} \n" for name in self.needs)
        if argv[0] == "dpkg-query":
            needs = {name: f" (= 1), x:any | {', '.join(self.likes.get(name, ()))}" for name in self.needs}
            return "".join(f"{name}\t\t,{','.join(self.needs[name])}{needs[name]}\n" for name in needs)
        assert argv[:2] == ("apt-get", "--simulate")
        verb = "purge" if "purge" in argv else "autoremove"
        gone = self.without(set(argv[argv.index(verb) + 1 :]))
        if verb == "autoremove" or "--autoremove" in argv:
            liked = "APT::AutoRemove::RecommendsImportant=true" in argv
            gone |= self.needless(self.needs.keys() - gone, liked=liked)
        return "".join(f"Purg {name} [1]\n" for name in sorted(gone))

    def without(self, gone: set[str]) -> set[str]:
        """These, and what depends on them."""
        more = {name for name, needs in self.needs.items() if gone & {*needs}} | gone
        return more if more == gone else self.without(more)

    def needless(self, left: set[str], *, liked: bool) -> set[str]:
        """What nobody has asked for, and nobody needs."""
        found, todo = set(), [name for name in left if name in self.asked_for]
        while todo:
            if (name := todo.pop()) in left and name not in found:
                found.add(name)
                todo += [*self.needs[name], *(self.likes.get(name, ()) if liked else ())]
        return left - found - {"mke2fs"}


def packages_of(node: Node, going: list[str] | None = None) -> Any:
    """The module's own object, which brought nothing."""
    module = import_module("ansible.module_utils.causeway_packages")
    steps = node.shared.Steps(SimpleNamespace(check_mode=False))
    given = {"wanted": set(), "folders": {}, "files": set(), "purge": False, "going": going or [], "back": {}}
    return module.Packages(steps, [], note=lambda *_: None, **given)


def test_no_package_goes_that_somebody_needs(node: Node) -> None:
    """Whoever has installed something since that stands on a package of ours keeps both."""
    needs = {"ours": ["lib"], "yaml": [], "newer": [], "lib": [], "plugin": ["ours"], "mke2fs": []}
    apt = Apt({**needs, "ansible": ["yaml"], "before": ["newer"]}, {}, "ours", "yaml", "newer", "ansible")
    ours = packages_of(node)
    with patch.object(import_module("ansible.module_utils.causeway_packages"), "said", apt.said):
        assert ours.free(["ours", "yaml", "newer"], apt.now, {"before"}) == ["ours"]
        assert ours.came_along(["ours"], apt.now, {"before"}) == ["mke2fs", "lib", "plugin"]
    assert ours.steps.left == [
        "package yaml: is needed by ansible",
        "package newer: is needed by before",
    ]


def test_what_somebody_installed_since_keeps_what_came_with_it(node: Node) -> None:
    needs = {"ours": ["lib"], "lib": [], "liked": [], "theirs": [], "build": ["gcc"], "gcc": [], "left": []}
    likes = {"ours": ["liked"], "theirs": ["build"], "before": ["liked"]}
    apt = Apt({**needs, "before": []}, likes, "ours", "theirs", "before")
    ours = packages_of(node)
    with patch.object(import_module("ansible.module_utils.causeway_packages"), "said", apt.said):
        assert {*ours.came_along(["ours"], apt.now, {"before"})} == {"lib", "liked"}


def test_what_a_killed_run_was_about_to_take_away_goes_unless_it_is_needed_again(node: Node) -> None:
    apt = Apt({"lib": [], "other": ["still"], "still": []}, {}, "other")
    with patch.object(import_module("ansible.module_utils.causeway_packages"), "said", apt.said):
        assert packages_of(node, ["ours", "lib", "still"]).begun(apt.now) == {"lib"}
        assert packages_of(node).begun(apt.now) == set()


@given(
    services=st.dictionaries(
        st.sampled_from(["consul", "ceph", "prometheus"]),
        st.lists(st.sampled_from(["consul.service", "ceph-*@*.service", "prometheus.service"]), max_size=3),
    ),
    units=st.dictionaries(
        st.sampled_from(["consul.service", "ceph-osd@1.service", "ceph.target", "prometheus.service"]),
        st.sampled_from(["active", "activating", "reloading", "inactive", "failed"]),
    ),
    new=st.lists(st.sampled_from(["consul", "ceph", "base"]), unique=True),
)
def test_a_service_of_somebodys_that_runs_stops_the_roles_that_are_new_and_no_other(
    modules: Modules, services: dict[str, list[str]], units: dict[str, str], new: list[str]
) -> None:
    _, _, before, _ = modules
    found = before.somebodys(new, services, {name: ("enabled", state) for name, state in units.items()})
    running = {name for name, state in units.items() if state not in ("inactive", "failed")}
    for role in new:
        patterns = services.get(role, ())
        meant = {
            name
            for name in running
            if name in patterns or ("ceph-*@*.service" in patterns and name.startswith("ceph-osd@"))
        }
        assert set(found.get(role, ())) == meant
    assert found.keys() <= set(new)
    if found:
        assert f"`take_over: [{', '.join(found)}]`" in before.refusal(found)


def argument(tasks: Any, name: str) -> Any:
    """What a playbook gives a module under a name; the first there is."""
    inner = [*tasks.values()] if isinstance(tasks, dict) else tasks if isinstance(tasks, list) else []
    if isinstance(tasks, dict) and name in tasks:
        return tasks[name]
    return next((found for one in inner if (found := argument(one, name)) is not None), None)


def test_what_roles_name_reaches_the_module(tmp_path: Path) -> None:
    """By the expression that stands in the playbook, as Ansible reads it."""
    named = argument(YAML(typ="safe").load(ROOT / "playbooks" / "leave.yml"), "named")
    left = {"__roce_left": ["rail0: mtu failed"], "__cuda_base_left": ["governor failed: busy"]}
    given = left | {"causeway_leaving": {"polite": ["roce", "consul", "cuda_base"]}}
    said = {"ansible.builtin.debug": {"msg": f"{named.rstrip()}"}}
    play = tmp_path / "play.yml"
    play.write_text(
        json.dumps([{"hosts": "localhost", "gather_facts": False, "vars": given, "tasks": [said]}])
    )
    done = subprocess.run(
        ["ansible-playbook", "-i", "localhost,", str(play)],
        env=os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert re.search(r"- 'rail0: mtu failed'\n +- 'governor failed: busy'\n", done.stdout), done.stdout
