"""Time zones by the names that nodes have."""

import zoneinfo
from collections.abc import Iterator

import pytest
from pydantic import TypeAdapter, ValidationError

from infra.declaration import timezones
from infra.declaration.base import Timezone

TAKEN = TypeAdapter(Timezone)


@pytest.fixture(autouse=True)
def _read_anew() -> Iterator[None]:
    yield
    timezones.names.cache_clear()
    timezones._links.cache_clear()


def refused(name: str) -> bool:
    try:
        TAKEN.validate_python(name)
    except ValidationError:
        return True
    return False


@pytest.mark.parametrize("name", ["Asia/Tokyo", "Europe/Kyiv", "Europe/Oslo", "UTC", "Etc/UTC", "Etc/GMT+5"])
def test_what_nodes_have_is_taken(name: str) -> None:
    assert not refused(name)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Europe/Kiev", "Europe/Kyiv"),
        ("US/Eastern", "America/New_York"),
        ("Asia/Calcutta", "Asia/Kolkata"),
        ("Japan", "Asia/Tokyo"),
        ("posix/Asia/Tokyo", "Asia/Tokyo"),
        ("localtime", None),
        ("Factory", None),
    ],
)
def test_an_old_name_is_refused_for_the_new_one(old: str, new: str | None) -> None:
    assert refused(old)
    assert timezones.today(old) == new


def test_an_old_name_leads_to_one_that_is_taken_or_to_none() -> None:
    old = zoneinfo.available_timezones() - timezones.names()
    assert len(old) > 50
    assert {timezones.today(name) for name in old} - {None} <= timezones.names()


def test_without_tables_what_this_machine_has_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezones, "_text", lambda _: "")
    timezones.names.cache_clear()
    assert not refused("US/Eastern")
    monkeypatch.setattr(zoneinfo, "available_timezones", set)
    timezones.names.cache_clear()
    assert not refused("Asia/Anywhere")
    assert refused("../etc")
