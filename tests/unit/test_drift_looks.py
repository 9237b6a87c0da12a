"""Whether somebody looks for drift: how often it is set to decides when a look is missing."""

import runpy
import time
from pathlib import Path
from typing import Any

import pytest

from infra.drift import watch

CHECK = Path(__file__).resolve().parents[2] / "roles/consul/files/causeway_check.py"


def of_consul(folder: Path) -> list[str]:
    """What Consul's check says of a node whose metrics are in a folder."""
    found: dict[str, Any] = runpy.run_path(str(CHECK))
    found["drift"].__globals__["METRICS"] = str(folder / "causeway_drift.prom")
    said: list[str] = found["drift"]()
    return said


@pytest.mark.parametrize(
    ("interval_s", "age_s", "said"),
    [(60, 600, []), (60, 1000, ["nobody looks for drift"]), (3600, 1000, []), (3600, 14 * 3600, []),
     (3600, 16 * 3600, ["nobody looks for drift"])],
)  # fmt: skip
def test_a_look_is_missing_by_what_is_set(
    interval_s: int, age_s: int, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    with monkeypatch.context() as then:
        then.setattr(time, "time", lambda: now - age_s)
        assert watch.main(str(tmp_path / "no manifest"), str(tmp_path), str(interval_s)) == 0
    monkeypatch.setattr(time, "time", lambda: now)
    assert of_consul(tmp_path) == said
