"""Roles that leave: what they governed alone is given back, and nothing else is touched."""

import hashlib
import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra import ROOT
from infra.drift.leave import host_plan, leaving_roles
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
        self.folder, self.etc, self.data = folder, folder / "etc", folder / "data"
        self.etc.mkdir(parents=True)
        self.data.mkdir()
        self.kept = folder / "kept"
        self.places = [
            patch.multiple(
                self.prior, KEPT=self.kept, LOOKED_AT={"/": 0, str(folder): 12}, PASSED_OVER=(str(self.kept),)
            ),
            patch.multiple(self.before, KEPT=self.kept, KEPT_WHOLE=(str(folder),)),
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
        """As `causeway_before` does, of files only."""
        index = self.prior.Index()
        number = index.next()
        above = ((str(path), path.stat()) for path in (self.folder, *self.folder.parents))
        listed = [*above, *self.prior.listed(str(self.folder))]
        facts = {
            "paths": {path: self.prior.described(path, status) for path, status in listed},
            "cut_short": False,
        }
        self.kept.mkdir(exist_ok=True)
        self.before.keep_contents(facts, self.kept / f"{number}.tar.gz")
        self.prior.keep_facts(number, facts)
        index.roles.update(dict.fromkeys(roles, number))
        index.save()

    def leave(self, *things: dict[str, Any], **more: Any) -> Any:
        """Give back what the role `ours` had; the module's own object."""
        params = {
            "roles": ["ours"],
            "staying": [],
            "handed": [],
            "salt": "",
            "purge_data": False,
            "data": [],
            **more,
        }
        params["things"] = [{"roles": ["ours"], "want": {}, **thing} for thing in things]
        undo = self.undo.Undo(SimpleNamespace(params=params, check_mode=False))
        undo.set_aside()
        undo.give_back_paths()
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


def test_no_package_goes_that_somebody_needs(node: Node) -> None:
    """Whoever has installed something since that stands on a package of ours keeps both."""
    needs = {"ours": ["ours", "plugin"], "yaml": ["yaml", "ansible"], "newer": ["newer", "before"]}
    needs |= {"mke2fs": ["mke2fs"], "plugin": ["plugin", "ansible"]}

    def said(*argv: str) -> str:
        if argv[0] == "dpkg-query":
            return "before  yes \nours   \nmke2fs   yes\nplugin   yes\n"
        assert argv[:2] == ("apt-get", "--simulate")
        taken = {gone for name in argv[argv.index("purge") + 1 :] for gone in needs[name]}
        if "--autoremove" in argv:
            taken |= {"lib", "before"}
        return "".join(f"Purg {name} [1]\n" for name in sorted(taken))

    names = ("ours", "yaml", "newer", "ansible", "lib", "plugin", "before", "mke2fs")
    auto = ("lib", "before", "plugin", "mke2fs")
    now = {name: {"auto": name in auto, "held": False} for name in names}
    steps = node.shared.Steps(SimpleNamespace(check_mode=False))
    packages = import_module("ansible.module_utils.causeway_packages")
    ours = packages.Packages(steps, [], wanted=set(), folders=set(), purge=False)
    with patch.object(packages, "said", said):
        assert ours.free(["ours", "yaml", "newer"], now, {"before"}) == ["ours"]
        assert ours.came_along(["ours"], now, {"before"}) == ["mke2fs", "lib", "plugin"]
    assert steps.left == ["package yaml: is needed by ansible", "package newer: is needed by before"]
