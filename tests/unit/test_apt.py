"""Packages are installed also where apt's lists name what the archive has no more."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.plugins.action import ActionBase
from hypothesis import given
from hypothesis import strategies as st

from infra import ROOT
from tests.loaded import load

PLUGIN = load(ROOT / "infra/plugins/action/causeway_apt.py")
MODULE = load(ROOT / "playbooks/library/causeway_apt.py")
DONE = {"changed": True, "stdout": "Setting up dnsmasq-base"}
OUTDATED = (
    {"msg": "'/usr/bin/apt-get -y install' failed: E: Failed to fetch http://a/b.deb  404  Not Found"},
    {"msg": "failed", "stderr": "E: Unable to fetch some archives, maybe run apt-get update"},
    {"msg": "No package matching 'x' is available"},
    {"msg": "no available installation candidate for x=2"},
    {"msg": "failed", "stderr": "x : Depends: y (= 1) but 2 is to be installed\nE: Unmet dependencies"},
)
OTHERWISE = (
    {"msg": "Failed to lock apt for exclusive operation"},
    {"msg": "failed", "stderr": "E: You don't have enough free space in /var/cache/apt/archives/."},
    {"msg": "failed", "stderr": "dpkg: error processing package x (--configure)"},
)

Installed = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Installed:
    """Runs the plugin where the module gives these answers: what it was asked, and the result."""
    monkeypatch.setattr(ActionBase, "run", lambda *_: {})

    def run(
        answers: list[Mapping[str, Any]], there: bool = False, looked: list[Any] | None = None, **asked: Any
    ) -> list[dict[str, Any]]:
        looked = [] if looked is None else looked
        heard: list[dict[str, Any]] = []
        plugin = PLUGIN.ActionModule.__new__(PLUGIN.ActionModule)
        plugin._task = SimpleNamespace(args=asked)

        def module(name: str, arguments: dict[str, Any], **_: Any) -> Mapping[str, Any]:
            if name == "causeway_apt":
                looked.append(arguments["name"])
                return {"there": there}
            assert name == "ansible.builtin.apt"
            heard.append(arguments)
            return answers[len(heard) - 1]

        plugin._execute_module = module
        result = plugin.run(None, {})
        return [*heard, result]

    return run


@pytest.mark.parametrize("said", OUTDATED)
def test_where_lists_are_outdated_they_are_fetched_and_what_is_said_then_counts(
    said: dict[str, Any], installed: Installed
) -> None:
    for second in (DONE, {"failed": True, "msg": "still not"}):
        asked, again, result = installed([said | {"failed": True}, second], name="x", state="latest")
        assert asked == {**PLUGIN.DEFAULTS, "name": "x", "state": "latest"}
        assert again == asked | {"update_cache": True, "cache_valid_time": 0}
        assert result == second


@pytest.mark.parametrize("said", [*({**one, "failed": True} for one in OTHERWISE), DONE])
def test_whatever_else_happens_is_said_at_once(said: dict[str, Any], installed: Installed) -> None:
    assert installed([said], name="x")[1:] == [said]


def test_lists_that_were_fetched_just_now_are_not_fetched_again(installed: Installed) -> None:
    said = OUTDATED[0] | {"failed": True, "cache_updated": True}
    assert installed([said], name="x", cache_valid_time=5, lock_timeout=7) == [
        {"name": "x", "install_recommends": False, "cache_valid_time": 5, "lock_timeout": 7},
        said,
    ]


@pytest.mark.parametrize("name", ["xz", "xz,g++", ["xz", "yq=1:2.3-4+deb13u1~rc1"]])
def test_apt_is_not_asked_where_all_is_there(name: Any, installed: Installed) -> None:
    looked: list[Any] = []
    assert installed([], there=True, looked=looked, name=name) == [{"changed": False}]
    assert looked == [name.split(",") if isinstance(name, str) else name]


@pytest.mark.parametrize(
    "asked",
    [
        {"name": "x", "state": "latest"},
        {"name": "x", "state": "absent"},
        {"name": ["x=1.*"]},
        {"name": ["x:i386"]},
        {"name": ["x", "y-"]},
        {"name": "x", "update_cache": True},
        {"name": "x", "default_release": "sid"},
        {"upgrade": "dist"},
        {"deb": "/x.deb"},
    ],
)
def test_apt_is_asked_where_it_may_have_something_to_do(asked: Any, installed: Installed) -> None:
    looked: list[Any] = []
    heard, result = installed([DONE], looked=looked, **asked)
    assert heard == {**PLUGIN.DEFAULTS, **asked}
    assert result == DONE


NAMES, VERSIONS = st.sampled_from(["a", "ab", "b"]), st.sampled_from(["1", "1-2"])
PACKAGES = st.dictionaries(NAMES, st.fixed_dictionaries({"version": VERSIONS, "auto": st.booleans()}))


@given(
    packages=PACKAGES,
    asked=st.lists(st.sampled_from(["a", "ab", "b", "a=1", "b=1-2", "c"]), min_size=1),
    unsure=st.sets(st.sampled_from(["updates/0001", "arch"])),
)
def test_they_are_there_if_each_is_installed_as_asked_and_for_its_own_sake(
    packages: dict[str, dict[str, Any]],
    asked: list[str],
    unsure: set[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("dpkg")
    (folder / "updates").mkdir()
    for name in unsure:
        (folder / name).touch()

    def is_there(wanted: str) -> bool:
        name, _, version = wanted.partition("=")
        one = packages.get(name)
        return one is not None and not one["auto"] and version in ("", one["version"])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "UPDATES", str(folder / "updates"))
        patch.setattr(MODULE, "FOREIGN", str(folder / "arch"))
        patch.setattr(MODULE, "packages", lambda: packages)
        assert MODULE.are_there(asked) == (not unsure and all(map(is_there, asked)))
