"""What the processes that verify leave behind, also where one was ended in the middle."""

import json
from dataclasses import asdict
from pathlib import Path

from infra.verify import verification as verify
from infra.verify.verdicts import Check, Verdict


def test_a_line_that_was_cut_off_takes_no_other_check_with_it(tmp_path: Path) -> None:
    check = Check("n", "base", "c", Verdict.EFFECTIVE)
    line = json.dumps(asdict(check))
    results = tmp_path / "results"
    results.write_text(f"{line}\n{line[:-9]}")
    assert list(verify._read_checks(results)) == [check]
    assert list(verify._read_checks(tmp_path / "none")) == []
