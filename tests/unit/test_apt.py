"""Packages are installed also where apt's lists name what the archive has no more."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.plugins.action import ActionBase

from infra import ROOT
from tests.loaded import load

PLUGIN = load(ROOT / "infra/plugins/action/causeway_apt.py")
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

    def run(answers: list[Mapping[str, Any]], **asked: Any) -> list[dict[str, Any]]:
        heard: list[dict[str, Any]] = []
        plugin = PLUGIN.ActionModule.__new__(PLUGIN.ActionModule)
        plugin._task = SimpleNamespace(args=asked)

        def module(name: str, arguments: dict[str, Any], **_: Any) -> Mapping[str, Any]:
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
