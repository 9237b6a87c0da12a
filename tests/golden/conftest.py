"""`pytest tests/golden --update-golden` rewrites what the commands print; read the diff then."""

from datetime import date

import pytest

from infra.capabilities.gpu import rules


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(autouse=True)
def one_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said of branches' ends is of one day, or the files would be right for a while."""
    monkeypatch.setattr(rules, "today", lambda: date(2026, 11, 1))
