"""What a node wrote reaches a terminal as text: it moves no cursor, and makes up no lines of ours."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.converge.progress import failure_log, failure_message
from infra.drift import report
from infra.drift.findings import Difference, HostReport, RoleReport, text_diff
from infra.errors import HARMFUL, CausewayError, one_line, sentence, shown
from infra.process import run
from infra.providers.existing import resources as existing
from infra.verify.verdicts import Check, Verdict, VerificationResult

EVIL = "a\x1b]52;c;eA==\x07\x1b[2J\r\u009b2Jnode: clean\u202e\udcff[/red]"
LINES = f"{EVIL}\nnode: clean"


def harmless(text: str, lines: int = 1) -> None:
    assert "clean" in text
    assert not HARMFUL.search(text)
    assert text.strip("\n").count("\n") < lines


@given(st.text(st.characters(exclude_categories=())))
def test_a_text_keeps_what_can_be_read_and_is_never_more_than_its_lines(text: str) -> None:
    assert not HARMFUL.search(shown(text))
    assert shown(text).count("\n") == text.count("\n")
    assert len(sentence(text)) <= 400
    assert len(one_line(text).splitlines()) <= 1
    if text.isprintable():
        assert one_line(text) == shown(text) or HARMFUL.search(text)


def test_what_a_scan_found_is_shown_line_by_line() -> None:
    odd = Difference(
        *("base", "t", "listing", f"/etc/{LINES}"),
        expected={"names": []},
        found={"names": [LINES]},
        diff=text_diff("/etc/x", "one\n", f"{LINES}\x0b\x85tail\n"),
    )
    found = HostReport("n", "r", "failed", {"base": RoleReport("drift", [odd], notes=[LINES])}, LINES)
    for line in report.host_lines("s", found):
        assert not HARMFUL.search(line)
        assert "\n" not in line
        assert not line.startswith("node: clean")
    harmless(str(odd))
    harmless(found.unsettled("base"))


def test_errors_of_ansible_ssh_and_checks_are_shown_as_text() -> None:
    result = {"msg": LINES, "stdout": LINES}
    harmless(failure_message(result))
    harmless(failure_message({"msg": "MODULE FAILURE", "stderr": EVIL}))
    harmless(failure_log("t", "p", result), lines=7)
    checks = (Check("n", "base", "c", Verdict.FAILED, EVIL),)
    harmless(VerificationResult(checks).report().splitlines()[1])
    harmless(str(CausewayError(LINES, LINES)), lines=4)
    with pytest.raises(CausewayError) as caught:
        run(["sh", "-c", r"printf 'a\033[2J clean \377' >&2; exit 1"])
    harmless(caught.value.message)


def test_a_machine_that_answers_with_garbage_is_silent_and_the_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nprintf 'clean\\033[2J\\377\\n' >&2\nexit 255\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    host = {"address": "192.0.2.1", "port": 22, "host_key": "ssh-ed25519 AAAA"}
    inputs = {"hosts": {"n": host}, "ssh_user": "root", "ssh_key_file": "/key"}
    made = existing.ExistingPoolLifecycle().ensure(inputs, {})
    assert made["instances"]["n"]["id"] == ""
    harmless(capsys.readouterr().out)
