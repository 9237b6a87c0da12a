"""What `up` says of the checks: when they were run, and nothing of a result that is no proof."""

import argparse
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.commands import up
from infra.components import kept as kept_resources
from infra.components.verification import VerificationLifecycle
from infra.errors import CausewayError
from infra.verify import verdicts
from infra.verify.verdicts import Check, Verdict, VerificationResult

NOW = datetime(2026, 5, 1, 12, 0, 0, 500, UTC)
PROVEN = Check("a", "base", "time", Verdict.EFFECTIVE)
FAILED = Check("b", "base", "time", Verdict.FAILED)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(verdicts, "ROOT", tmp_path)
    path = verdicts.kept_file("s")
    path.parent.mkdir(parents=True)
    return path


def test_counts_are_said_to_be_of_now_only_where_they_are() -> None:
    assert up._age(VerificationResult((PROVEN,), NOW.replace(microsecond=0)), NOW) == "verified now"
    older = up._age(VerificationResult((PROVEN,), NOW - timedelta(hours=1)), NOW)
    assert older == f"verified at {(NOW - timedelta(hours=1)).astimezone():%Y-%m-%d %H:%M:%S}"


def test_the_time_of_a_result_is_kept_with_it(kept: Path) -> None:
    kept.write_text(VerificationResult((PROVEN,), NOW).dump())
    assert verdicts.read_result("s") == VerificationResult((PROVEN,), NOW.replace(microsecond=0))
    kept.write_text('{"counts": {}, "checks": []}')
    assert verdicts.read_result("s").at is None, "another version's"


UNREADABLE = (
    *("", "[]", "7", '{"checks": 7}', '{"checks": [{}]}', '{"checks": [], "at": 7}', '{"checks": ["x"]}'),
    '{"checks": [{"host": "a", "role": "b", "name": "c", "verdict": "fine", "message": ""}]}',
)


@pytest.mark.parametrize("said", UNREADABLE)
def test_a_result_that_nobody_can_read_is_none_and_stops_no_refresh(kept: Path, said: str) -> None:
    kept.write_text(said)
    assert verdicts.read_result("s") == VerificationResult()


def test_a_result_of_a_part_makes_the_rest_no_younger() -> None:
    whole = VerificationResult((PROVEN, FAILED), NOW)
    part = VerificationResult((Check("b", "base", "time", Verdict.EFFECTIVE),), NOW + timedelta(hours=1))
    assert (part.over(whole).at, part.over(whole).since) == (part.at, NOW)
    assert (part.over(VerificationResult()).at, part.over(VerificationResult()).since) == (part.at, None)
    later = VerificationResult(part.checks, NOW + timedelta(hours=2))
    assert later.over(part.over(whole)).since == NOW
    older = f"{NOW.astimezone():%Y-%m-%d %H:%M:%S}"
    said = up._age(part.over(whole), NOW + timedelta(minutes=30))
    assert said == f"what changed verified now, the rest since {older}"
    assert up._age(part.over(whole), NOW + timedelta(days=1)).endswith(f", the rest since {older}")


def test_what_was_not_proven_last_is_looked_at_again(kept: Path) -> None:
    lifecycle = VerificationLifecycle()
    kept.write_text(VerificationResult((PROVEN,), NOW).dump())
    assert lifecycle.observe({"stack": "s"}) == []
    kept.write_text(VerificationResult((PROVEN, FAILED), NOW).dump())
    assert "1 failed" in str(lifecycle.observe({"stack": "s"}))
    kept.unlink()
    assert lifecycle.observe({"stack": "s"}), "there is no result"


def test_pulumi_knows_the_stack_before_its_secrets_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And the key is made before that, for a file with Pulumi's salt makes none."""
    done = list[str]()

    def noting(name: str) -> Any:
        return lambda *_, **__: done.append(name)

    def fails(*_: object, **__: object) -> SimpleNamespace:
        done.append("up")
        return SimpleNamespace(returncode=1)

    declaration = SimpleNamespace(spec=None, config={}, source="")
    for name, value in {
        "load": lambda _file: declaration,
        "require_valid": lambda *_: (),
        "check_given": lambda *_: (),
        "only_one": lambda _stack: nullcontext(),
        "declaration_of": lambda _stack: tmp_path,
        "Declared": lambda *_: None,
        "make_key": noting("key"),
        "select_stack": noting("select"),
        "look_before": noting("look"),
        "pulumi": fails,
    }.items():
        monkeypatch.setattr(up, name, value)
    monkeypatch.setattr(kept_resources, "put_back", lambda _stack: None)
    with pytest.raises(CausewayError, match="does not stand as declared"):
        up.run(argparse.Namespace(stack="s", dry_run=False, measure=None))
    assert done == ["key", "select", "look", "up"]
