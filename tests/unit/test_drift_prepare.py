"""What a repair does before the roles run, where no role of today needs it on a live node."""

import os
import subprocess
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from infra.drift.kinds.package import at_least
from infra.drift.kinds.sysctl import setting_path
from tests.loaded import load

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The Ansible module, to which `/proc/sys` is a folder of the test's own."""
    path = ROOT / "playbooks" / "library" / "causeway_drift_prepare.py"
    loaded = load(path)
    own = tmp_path / "sys"
    monkeypatch.setattr(
        loaded, "Path", lambda root, *parts: own.joinpath(*parts) if root == "/proc/sys" else 0
    )
    return loaded


def prepared(
    module: ModuleType,
    ran: list[list[str]] | None = None,
    *,
    check_mode: bool = False,
    consent: bool = False,
    fails: str = "",
    **obstacles: Any,
) -> list[str]:
    """What was done, in words, and what was left; `ran` takes what would have been run."""

    def run_command(argv: list[str], **_options: Any) -> tuple[int, str, str]:
        assert ran is not None
        ran.append(argv)
        return (1, "", fails) if fails else (0, "", "")

    parameters = {"obstacles": obstacles, "remove_added": consent}
    ansible = SimpleNamespace(params=parameters, check_mode=check_mode, run_command=run_command)
    preparation = module.Preparation(ansible)
    preparation.all()
    return [*preparation.changes, *preparation.failed, *preparation.left]


NAMES = {
    "net.ipv4.ip_forward": "net/ipv4/ip_forward",
    "net.ipv4.conf.eth0/5.rp_filter": "net/ipv4/conf/eth0.5/rp_filter",
    "net/ipv4/conf/eth0.7/rp_filter": "net/ipv4/conf/eth0.7/rp_filter",
}
"""Names of settings → their paths (sysctl.d(5))."""


@pytest.mark.parametrize(("name", "path"), NAMES.items())
def test_a_sysctl_gets_its_sealed_value(module: ModuleType, tmp_path: Path, name: str, path: str) -> None:
    setting = tmp_path / "sys" / path
    setting.parent.mkdir(parents=True)
    setting.write_text("9")
    assert prepared(module, check_mode=True, sysctls={name: "1"}) == [f"set {name} to 1"]
    assert setting.read_text() == "9", "in check mode it is only said"
    assert prepared(module, sysctls={name: "1"}) == [f"set {name} to 1"]
    assert setting.read_text() == "1"
    assert setting_path(name) == path, "where the probe reads it"


def test_a_kinds_own_command_clears_the_way_and_is_only_said_in_check_mode(module: ModuleType) -> None:
    commands: list[list[str]] = []
    unmask = {"what": "unmasked x.service", "argv": ["systemctl", "unmask", "x.service"]}
    assert prepared(module, commands, check_mode=True, commands=[unmask]) == ["unmasked x.service"]
    assert commands == []
    assert prepared(module, commands, commands=[unmask]) == ["unmasked x.service"]
    assert commands == [["systemctl", "unmask", "x.service"]]


def test_what_somebody_added_goes_with_consent_and_is_named_without(module: ModuleType) -> None:
    commands: list[list[str]] = []
    undone = [{"what": "rule x", "argv": ["ip", "rule", "del", "a b"]}]
    assert prepared(module, commands, undone=undone) == ["rule x (ip rule del 'a b')"]
    assert commands == []
    assert prepared(module, commands, consent=True, undone=undone) == ["took away: rule x"]
    assert commands == [["ip", "rule", "del", "a b"]]
    cover = [{"what": "mount /x", "argv": ["umount", "/x"], "first": True}]
    unmask = [{"what": "unmasked y", "argv": ["systemctl", "unmask", "y"]}]
    assert prepared(module, commands, undone=undone + cover)[0] == "mount /x (umount /x)"
    done = ["took away: mount /x", "took away: rule x", "unmasked y"]
    assert prepared(module, commands, consent=True, undone=undone + cover, commands=unmask) == done


@pytest.mark.parametrize(
    ("found", "brought"), [("p", ["p"]), ("p:amd64", ["p:amd64"]), ("p, q", []), ("diversion by q from", [])]
)
def test_a_packages_edited_file_is_moved_away_and_brought_again(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str, brought: list[str]
) -> None:
    monkeypatch.setattr(module.Preparation, "put_aside", lambda _self, _path: tmp_path / "aside")
    monkeypatch.setattr(module, "move", lambda path, target: Path(path).rename(target))
    file, ran = tmp_path / "gai.conf", []
    file.write_text("edited")

    def run_command(argv: list[str], **_options: Any) -> tuple[int, str, str]:
        ran.append(argv)
        return 0, f"{found}: {file}\n", ""

    parameters = {"obstacles": {"added": [str(file)]}, "remove_added": True}
    module.Preparation(SimpleNamespace(params=parameters, check_mode=False, run_command=run_command)).all()
    assert not file.exists()
    assert [argv[-1] for argv in ran[1:]] == brought
    assert all({"--reinstall", "Dpkg::Options::=--force-confmiss"} <= set(argv) for argv in ran[1:])


@pytest.mark.parametrize(
    ("obstacles", "said"),
    [
        ({"commands": [{"what": "unmasked x.service", "argv": ["systemctl"]}]}, "unmasked x.service"),
        ({"undone": [{"what": "route 192.0.2.0/24", "argv": ["ip"]}]}, "took away: route 192.0.2.0/24"),
        ({"packages": {"openssl": "3"}}, "installed openssl=3"),
        ({"updates": {"openssl": "3"}}, "installed openssl, 3 or newer"),
        ({"restart": ["x.service"]}, "restarted x.service"),
    ],
)
def test_a_command_that_fails_is_told_as_what_it_is(
    obstacles: dict[str, Any], said: str, module: ModuleType
) -> None:
    """It had been told as done."""
    told = prepared(module, [], consent=True, fails="E: no such thing\n", **obstacles)
    assert told == [f"{said}: failed: E: no such thing"]


def test_a_unit_starts_again_as_its_files_now_say(module: ModuleType) -> None:
    commands: list[list[str]] = []
    assert prepared(module, commands, restart=["x.service"]) == ["restarted x.service"]
    assert commands == [["systemctl", "daemon-reload"], ["systemctl", "try-restart", "x.service"]]


def test_an_attribute_is_taken_away_and_no_other(module: ModuleType, tmp_path: Path) -> None:
    for name in ("user.ours", "user.strange"):
        os.setxattr(tmp_path, name, b"1")
    said = prepared(module, [], attributes={str(tmp_path): ["user.strange", "user.gone"]})
    assert said == [f"{tmp_path}: without user.strange", f"{tmp_path}: without user.gone"]
    assert os.listxattr(tmp_path) == ["user.ours"]


class Archive:
    """A node's packages and what `apt-get` would do about them: names and versions, nothing real."""

    def __init__(self, installed: str | None, *offered: str, listed: tuple[str, ...] = ()) -> None:
        self.installed, self.offered, self.listed = installed, offered, listed or offered

    def run_command(self, argv: list[str], **_options: Any) -> tuple[int, str, str]:
        """dpkg itself compares; the rest as apt-get's manual says."""
        if argv[0] == "dpkg":
            return subprocess.run(argv, check=False).returncode, "", ""
        if argv[0] == "dpkg-query":
            return (0, f"installed {self.installed}", "") if self.installed else (1, "", "no packages found")
        if argv[1] == "update":
            self.listed = self.offered
            return 0, "", ""
        version = argv[-1].partition("=")[2] or self.listed[-1]
        older = self.installed and not at_least(version, self.installed)
        if version not in self.listed or (older and "--allow-downgrades" not in argv):
            return 100, "", "E: it cannot be done"
        if "--simulate" in argv:
            return 0, "", ""
        if version not in self.offered:
            fetch = "E: Unable to fetch some archives, maybe run apt-get update or try with --fix-missing?"
            return 100, "", fetch
        self.installed = version
        return 0, "", ""


def after(module: ModuleType, archive: Archive, **obstacles: Any) -> tuple[list[str], str | None]:
    """What was done, and the version that is installed then."""
    parameters = {"obstacles": obstacles, "remove_added": False}
    ansible = SimpleNamespace(params=parameters, check_mode=False, run_command=archive.run_command)
    preparation = module.Preparation(ansible)
    preparation.all()
    return list(preparation.changes), archive.installed


def test_an_update_is_never_taken_back(module: ModuleType) -> None:
    updated_since = Archive("1:9.2-10", "1:9.2-3", "1:9.2-10")
    assert after(module, updated_since, updates={"x": "1:9.2-3"}) == ([], "1:9.2-10")


@pytest.mark.parametrize("before", [None, "1:9.2-2"])
def test_an_older_or_missing_package_is_brought_to_the_sealed_version_or_beyond(
    module: ModuleType, before: str | None
) -> None:
    said = ["installed x, 1:9.2-3 or newer"]
    assert after(module, Archive(before, "1:9.2-3"), updates={"x": "1:9.2-3"}) == (said, "1:9.2-3")
    newer_only = Archive(before, "1:9.2-10")
    assert after(module, newer_only, updates={"x": "1:9.2-3"}) == (said, "1:9.2-10")


def test_a_version_that_a_task_names_comes_back_exactly(module: ModuleType) -> None:
    done, version = after(module, Archive("2", "1", "2"), packages={"x": "1"})
    assert (done, version) == (["installed x=1"], "1")


@pytest.mark.parametrize("before", [None, "1"])
def test_where_lists_name_what_the_archive_has_no_more_they_are_fetched(
    module: ModuleType, before: str | None
) -> None:
    outdated = Archive(before, "3", listed=("2",))
    assert after(module, outdated, updates={"x": "2"}) == (["installed x, 2 or newer"], "3")
    gone = Archive(before, "3", listed=("2",))
    assert after(module, gone, packages={"x": "2"}) == ([], before), "the role decides"


@pytest.mark.parametrize("lists", ["old", "gone"])
def test_apt_says_that_it_did_nothing_and_ends_well(module: ModuleType, lists: str) -> None:
    """Without lists a program of a package would stay as it is, and nobody would hear of it."""
    words, ran = ["apt-get", "install", "--reinstall", "x"], list[list[str]]()
    no = "Reinstallation of x is not possible, it cannot be downloaded."

    def run_command(argv: list[str], **_options: Any) -> tuple[int, str, str]:
        ran.append(argv)
        fetched = lists == "old" and ["update"] in [one[1:2] for one in ran]
        return 0, "" if fetched or argv[1] == "update" else f"Reading state\n{no}\n{'0 upgraded' * 40}", ""

    parameters = {"obstacles": {"undone": [{"what": "a program", "argv": words}]}, "remove_added": True}
    ansible = SimpleNamespace(params=parameters, check_mode=False, run_command=run_command)
    preparation = module.Preparation(ansible)
    preparation.all()
    assert [argv[1] for argv in ran] == ["install", "update", "install"]
    if lists == "old":
        assert (preparation.changes, preparation.failed) == (["took away: a program"], [])
    else:
        assert preparation.changes == []
        assert preparation.failed == [f"took away: a program: failed: {no}"]


def test_what_apt_reads_goes_before_what_it_is_asked_for(module: ModuleType) -> None:
    paths = ["/etc/gai.conf", "/etc/apt/preferences.d/x", "/etc/b"]
    assert sorted(paths, key=module.apt_first) == ["/etc/apt/preferences.d/x", "/etc/gai.conf", "/etc/b"]
