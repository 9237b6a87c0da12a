"""Running other programs: what is said when one fails, and what it gets to see."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from infra.errors import CausewayError
from infra.process import descendants, run


def test_a_failing_command_is_reported_with_its_last_words_and_the_next_step() -> None:
    with pytest.raises(CausewayError) as caught:
        run(["sh", "-c", "echo no space left >&2; exit 3"], hint="free some space")
    assert "status 3" in caught.value.message
    assert "no space left" in caught.value.message
    assert caught.value.hint == "free some space"


def test_a_missing_program_is_named_with_the_next_step() -> None:
    with pytest.raises(CausewayError, match="`no-such-tool` is not installed") as caught:
        run(["no-such-tool"])
    assert "./run" in caught.value.hint


def test_a_command_gets_our_environment_and_what_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS", "1")
    assert run(["sh", "-c", "echo $OURS$ADDED"], env={"ADDED": "2"}) == "12\n"


def test_a_process_may_call_itself_anything(tmp_path: Path) -> None:
    program = tmp_path / os.fsdecode(b"\xff) S 1 (")
    shutil.copy2(shutil.which("sleep") or "/bin/sleep", program)
    with subprocess.Popen([program, "600"]) as process:
        try:
            assert process.pid in descendants(os.getpid())
        finally:
            process.kill()
