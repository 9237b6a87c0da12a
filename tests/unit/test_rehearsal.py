"""What a dry run says of a task's result: a diff, that there is none, or that it may not be shown."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.commands.rehearsal import HIDDEN, UNSAID, Changes, in_words
from infra.errors import HARMFUL

TEXT = {"before": "one\ntwo\n", "after": "one\nthree\n", "before_header": "/etc/a", "after_header": "/etc/a"}
CASES: list[tuple[dict[str, Any], str]] = [
    ({"diff": TEXT}, "--- /etc/a\n+++ /etc/a\n@@ -1,2 +1,2 @@\n one\n-two\n+three"),
    ({"diff": [TEXT, {"prepared": "psmisc\n"}]}, "+three\npsmisc"),
    ({"diff": {"before": {"state": "absent"}, "after": {"state": "link"}}}, "-state: absent\n+state: link"),
    ({"diff": [{}]}, UNSAID),
    (
        {"diff": {"before": "", "after": "a", "after_header": "/controller/x.j2"}, "dest": "/etc/a"},
        "--- /etc/a\n+++ /etc/a\n@@ -0,0 +1 @@\n+a",
    ),
    ({}, UNSAID),
    ({"censored": "the output has been hidden", "changed": True}, HIDDEN),
    (
        {"results": [{"changed": True, "diff": TEXT}, {"changed": False, "diff": {"prepared": "no"}}]},
        "+three",
    ),
    ({"results": [{"changed": True, "censored": "hidden", "diff": TEXT}]}, HIDDEN),
]


@pytest.mark.parametrize(("result", "said"), CASES)
def test_a_result_in_words(result: dict[str, Any], said: str) -> None:
    assert in_words(result).endswith(said)


def test_hosts_with_the_same_change_stand_together() -> None:
    changes = Changes()
    for number in range(4):
        changes.take(f"gpu-{number}", "base: Write", {"diff": TEXT})
    changes.take("head", "base: Write", {})
    first, *_, last, unsaid = changes.lines()
    assert (first, last, unsaid) == ("base: Write: gpu-0…3", "base: Write: head", f"  {UNSAID}")
    assert changes.hosts() == {"head", *(f"gpu-{number}" for number in range(4))}


def test_what_cannot_be_told_is_no_change() -> None:
    changes = Changes()
    changes.take("a", "base: Run", {"failed": True, "msg": "there is no such unit"})
    assert list(changes.lines()) == ["not told: base: Run: a: there is no such unit"]
    assert changes.hosts() == set()


@given(st.text(), st.text())
def test_a_machines_words_do_nothing_to_a_terminal(before: str, after: str) -> None:
    changes = Changes()
    changes.take("a", "task", {"diff": {"before": before, "after": after}})
    assert not [line for line in changes.lines() if HARMFUL.search(line)]
