"""Packages of roles that leave: their own data stays if it may, what was there before them always does."""

import hashlib
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import loaded  # noqa: F401 - roles' modules are found with it

Shipped = dict[str, list[Path]]
"""Package → the directories it brings, which its purge takes with all that is in them."""


def md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()  # noqa: S324 - dpkg's own choice


class Node:
    """Packages with their directories, of which those below `top` are really there."""

    def __init__(self, top: Path, shipped: Shipped, patch: Callable[..., None]) -> None:
        self.modules = import_module("ansible.module_utils.causeway_packages")
        self.top, self.shipped = top, shipped
        self.settings: dict[Path, str] = {}
        """Files of settings, with what their package brought."""
        self.governed: set[str] = set()
        self.aside, self.said_of_settings = top.with_name("aside"), list[str]()
        self.failed: list[str] = []
        self.noted: list[list[str]] = []
        """What each call was about to take away."""
        patch(self.modules, "keep_copy", self.keep_copy)
        patch(self.modules, "said", self.said)
        patch(self.modules, "packages", lambda: {name: {"auto": False} for name in shipped})
        patch(self.modules, "TOPS", (str(top),))

    def said(self, *words: str) -> str:
        """What dpkg and apt would say."""
        if "--showformat=${Conffiles}\n" in words:
            lines = (f" {path} {md5(text)}\n" for path, text in self.settings.items())
            return "\n" + "".join(lines)
        if "--listfiles" in words:
            names = [name for name in words if name in self.shipped]
            paths = [self.top, *self.settings, *(path for name in names for path in self.shipped[name])]
            return "\n".join(map(str, paths))
        if "--search" in words:
            found = {path: self.owners(Path(path)) for path in words if path.startswith("/")}
            return "".join(f"{', '.join(names)}: {path}\n" for path, names in found.items() if names)
        return ""

    def owners(self, path: Path) -> list[str]:
        return [name for name, paths in self.shipped.items() if path in [self.top, *paths]]

    def keep_copy(self, path: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)

    def run(self, _said: str, *command: str) -> None:
        """`apt-get purge`: postrm takes directories whole, but for what another package has."""
        for name in command:
            others = [path for other, paths in self.shipped.items() if other != name for path in paths]
            for path in self.shipped.get(name, ()):
                if not any(path in (other, *other.parents) for other in others):
                    shutil.rmtree(path, ignore_errors=True)

    def leave(self, brought: str, before: set[Path], folders: set[Path], *, purge: bool) -> list[str]:
        """One package leaves that its role brought; `before`: the paths that were there then."""
        prior = SimpleNamespace(
            number=1,
            facts={"packages": {name: {} for name in self.shipped if name != brought}},
            path=lambda path: [0] if Path(path) in before else None,
        )
        steps = SimpleNamespace(
            module=SimpleNamespace(check_mode=False),
            run=self.run,
            leave=lambda *_: None,
            fail=lambda what, why: self.failed.append(f"{what}: {why}"),
            changes=self.said_of_settings,
            put_aside=lambda path: self.aside / path.lstrip("/"),
        )
        things = [({"kind": "package", "key": brought}, prior)]
        given = {"wanted": set(), "files": self.governed, "purge": purge, "going": (), "back": {}}
        given |= {"note": lambda going, _back: self.noted.append(going)}
        own = {str(path): prior for path in folders}
        return [*self.modules.Packages(steps, things, folders=own, **given).uninstall()]


def fill(*folders: Path) -> None:
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "series").write_text(str(folder))


def tree(top: Path) -> set[str]:
    return {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}


@pytest.mark.parametrize("purge", [False, True])
def test_what_was_there_before_a_package_outlives_its_purge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, purge: bool
) -> None:
    kept, deep, new = tmp_path / "exporter" / "metrics", tmp_path / "a" / "b" / "c", tmp_path / "wal"
    fill(kept, deep, new)
    node = Node(tmp_path, {"exporter": [kept, deep, new], "shell": []}, monkeypatch.setattr)
    before = {tmp_path, kept, deep}
    data = node.leave("exporter", before, set(), purge=purge)
    assert data == [str(new)]
    assert tree(tmp_path) == {"exporter/metrics/series", "a/b/c/series", *([] if purge else ["wal/series"])}


def test_a_killed_run_left_data_aside_and_the_next_brings_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "exporter"
    fill(kept)
    node = Node(tmp_path, {"exporter": [kept], "shell": []}, monkeypatch.setattr)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(node, "run", killed)
        with pytest.raises(KeyboardInterrupt):
            node.leave("exporter", {tmp_path, kept}, set(), purge=False)
    assert tree(tmp_path) == {"exporter.causeway-stays/series"}
    assert node.noted == [["exporter"]]
    kept.mkdir()  # its unit made it anew
    node.leave("exporter", {tmp_path, kept}, set(), purge=False)
    assert tree(tmp_path) == {"exporter/series"}


FOLDERS = ("a", "a/b", "a/b/c", "d", "d/e", "f")


@given(
    shipped=st.sets(st.sampled_from(FOLDERS)),
    others=st.sets(st.sampled_from(FOLDERS)),
    before=st.sets(st.sampled_from(FOLDERS)),
    purge=st.booleans(),
)
def test_nothing_that_was_there_before_goes(
    tmp_path_factory: pytest.TempPathFactory,
    shipped: set[str],
    others: set[str],
    before: set[str],
    purge: bool,
) -> None:
    """Whatever is whose: what a purge takes is what came since, below what only the package has."""
    top = tmp_path_factory.mktemp("node")
    fill(*(top / name for name in FOLDERS))
    was = {top, *(top / name for name in before)}
    was |= {
        above for path in was for above in path.parents
    }  # a directory was there if something below it was
    with pytest.MonkeyPatch.context() as patch:
        ours, theirs = ([top / name for name in sorted(names)] for names in (shipped, others))
        Node(top, {"ours": ours, "theirs": theirs}, patch.setattr).leave("ours", was, set(), purge=purge)
    assert tree(top) >= {f"{name}/series" for name in (before if purge else FOLDERS)}


def test_what_somebody_wrote_and_the_purge_takes_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package's settings that were edited, and a file beside them; not what is as it came, or a role's."""
    etc, other = tmp_path / "etc" / "exporter", tmp_path / "etc" / "conf.d"
    fill(etc, other)
    names = ("plain", "edited", "ours", "gone", "extra")
    node = Node(tmp_path / "etc", {"exporter": [etc, other], "shell": [other]}, monkeypatch.setattr)
    for name in names:
        node.settings[etc / name] = "as it came"
        (etc / name).write_text("as it came" if name == "plain" else "mine")
    (etc / "gone").unlink()
    del node.settings[etc / "extra"]
    (etc / "series").unlink()
    node.governed = {str(etc / "ours")}
    monkeypatch.setattr(node.modules, "NO_DATA", (str(tmp_path),))
    monkeypatch.setattr(node.modules, "SETTINGS", f"{tmp_path}/etc/")
    node.leave("exporter", {tmp_path}, set(), purge=False)
    kept = {path.name for path in node.aside.rglob("*") if path.is_file()}
    assert kept == {"edited", "extra"}
    assert [line.partition(": went with")[0] for line in node.said_of_settings] == [
        str(etc / name) for name in ("edited", "extra")
    ]
    assert (other / "series").exists(), "another package has its directory"


def test_no_package_takes_along_what_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    etc = tmp_path / "etc" / "exporter"
    fill(etc)
    node = Node(tmp_path / "etc", {"exporter": [etc], "shell": []}, monkeypatch.setattr)
    monkeypatch.setattr(node.modules, "NO_DATA", (str(tmp_path),))
    monkeypatch.setattr(node.modules, "SETTINGS", f"{tmp_path}/etc/")

    def full(_path: str, _target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(node.modules, "keep_copy", full)
    node.leave("exporter", {tmp_path}, set(), purge=False)
    assert (etc / "series").exists()
    (failed,) = node.failed
    assert "could not be kept: [Errno 28]" in failed


class Daemons:
    """A node on which packages that conflict drive each other out, as apt has them."""

    def __init__(self, patch: Callable[..., None], there: dict[str, dict[str, Any]], *one_of: str) -> None:
        self.modules = import_module("ansible.module_utils.causeway_packages")
        self.there, self.one_of, self.done = there, {*one_of}, list[tuple[str, ...]]()
        self.known: tuple[list[str], dict[str, Any]] = [], {}
        self.dies_at = ""
        patch(self.modules, "said", self.said)
        patch(self.modules, "packages", lambda: self.there)

    def said(self, *words: str) -> str:
        """What apt would take away."""
        gone = {words[-1]} if "purge" in words else set()
        if "install" in words and words[-1] in self.one_of:
            gone = self.one_of & self.there.keys()
        return "".join(f"Remv {name} [1]\n" for name in gone)

    def run(self, _said: str, *command: str) -> None:
        if self.dies_at in command:
            raise KeyboardInterrupt
        self.done.append(tuple(word for word in command if not word.startswith("-") and "::" not in word))
        names = self.done[-1][2:]
        for name in names:
            if "install" in command:
                self.there[name] = {"version": "2", "held": False, "auto": False}
            elif command[0] == "apt-get":
                del self.there[name]

    def leave(self, brought: list[str], **facts: Any) -> None:
        prior = SimpleNamespace(number=1, facts=facts, path=lambda _path: None)
        steps = SimpleNamespace(
            module=SimpleNamespace(check_mode=False),
            run=self.run,
            command=lambda *_: (0, "", ""),
            leave=lambda *_: None,
            changes=[],
            put_aside=Path,
        )
        things = [({"kind": "package", "key": name}, prior) for name in brought]
        given = {"wanted": set(), "folders": {}, "files": set(), "purge": False}
        given |= {"going": self.known[0], "back": self.known[1]}
        note = lambda going, back: setattr(self, "known", (going, dict(back)))  # noqa: E731 - one line
        self.modules.Packages(steps, things, note=note, **given).uninstall()


ASKED_FOR = {"version": "1", "held": False, "auto": False}


@pytest.mark.parametrize("killed_at", ["", "purge", "install"])
def test_what_a_package_drove_out_comes_back_when_it_goes(
    monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    """A machine that had systemd-timesyncd would have no clock set any more once chrony leaves."""
    was = {"timesyncd": ASKED_FOR | {"auto": True, "held": True}, "gone-since": ASKED_FOR, "shell": ASKED_FOR}
    node = Daemons(monkeypatch.setattr, {"chrony": ASKED_FOR, "shell": ASKED_FOR}, "chrony", "timesyncd")
    node.dies_at = killed_at or "never"
    if killed_at:
        with pytest.raises(KeyboardInterrupt):
            node.leave(["chrony"], packages=was)
        node.dies_at = "never"
    node.leave(["chrony"], packages=was)
    assert node.there.keys() == {"timesyncd", "shell"}
    assert node.done == [
        ("apt-get", "purge", "chrony"),
        ("apt-get", "install", "timesyncd"),
        ("apt-mark", "auto", "timesyncd"),
        ("apt-mark", "hold", "timesyncd"),
    ]


def test_a_package_that_came_for_others_does_so_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A role that names it has apt take it for somebody's own, which nothing would take away any more."""
    there = {"lib": ASKED_FOR, "own": ASKED_FOR}
    node = Daemons(monkeypatch.setattr, there)
    node.leave(["lib", "own"], packages={"lib": ASKED_FOR | {"auto": True}, "own": ASKED_FOR})
    assert node.done == [("apt-mark", "auto", "lib")]


def test_settings_of_a_package_that_was_removed_before_outlive_the_role(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Daemons(monkeypatch.setattr, {"had": ASKED_FOR, "new": ASKED_FOR})
    node.leave(["had", "new"], packages={}, removed=["had"])
    assert node.done == [("apt-get", "remove", "had"), ("apt-get", "purge", "new")]


def test_a_look_knows_what_is_removed_and_not_purged(monkeypatch: pytest.MonkeyPatch) -> None:
    prior = import_module("ansible.module_utils.causeway_prior")
    lines = ["a\t1\thold\tinstalled", "b\t2\tdeinstall\tconfig-files", "c\t\tunknown\tnot-installed"]
    monkeypatch.setattr(prior, "said", lambda *_: "\n".join(lines) + "\n")
    monkeypatch.setattr(prior, "came_for_others", lambda: {"a"})
    assert prior.packages() == {"a": {"version": "1", "held": True, "auto": True}}
    assert prior.removed() == ["b"]
