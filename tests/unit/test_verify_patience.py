"""How long the verification waits for a check, and that a host that hangs costs the others nothing."""

import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.verify import side_by_side
from tests.verify.patience import ENOUGH, LIMIT_S, SHORT_S, SLOW_S, WAITED_S, Patience
from tests.verify.side_by_side import Hung, SideBySide, deadline

LONG_S = 60.0
"""What hangs in these tests: nothing here may come near it."""


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.floats(0, 300), st.booleans()), max_size=60
    )
)
def test_what_a_role_that_hangs_costs_is_bounded(checks: list[tuple[str, str, float, bool]]) -> None:
    """Whatever they would take: once one has hung, a file of the role has a few short deadlines left, and a
    role in which nothing hangs keeps its whole ones.
    """
    patience, slow, lost_s = Patience(), Counter[tuple[str, str]](), {"a": 0.0, "b": 0.0}
    for number, (role, file, would_take, fails) in enumerate(checks):
        limit_s = patience.limit_s(role, file)
        if not any(slow[role, each] for each in "xy"):
            assert limit_s == LIMIT_S
        elif slow[role, file] >= ENOUGH:
            assert limit_s == 0
        else:
            assert limit_s in (SHORT_S, WAITED_S)
        took_s, hung = min(would_take, limit_s), would_take >= limit_s > 0
        patience.took(
            role, file, f"check {number}", took_s, failed=hung or (fails and limit_s > 0), hung=hung
        )
        if hung or (fails and limit_s and took_s >= SLOW_S):
            slow[role, file] += 1
            lost_s[role] += took_s
    assert max(lost_s.values()) <= LIMIT_S + 2 * ENOUGH * WAITED_S


def test_what_is_not_tried_names_the_check_that_hung_first() -> None:
    patience = Patience()
    patience.took("consul", "test_a", "names resolve", 10.0, failed=True)
    assert patience.limit_s("consul", "test_a", 100) == WAITED_S, (
        "it may be that what it waited for is far off"
    )
    patience.took("consul", "test_a", "a leader is there", 10.0, failed=True, hung=True)
    assert patience.limit_s("consul", "test_a", 100) == SHORT_S
    assert patience.limit_s("consul", "test_a", 1) == 1, "never longer than it asks for"
    assert patience.limit_s("consul", "test_a", 100, experiment=True) == 0, "whole or not at all"
    patience.took("consul", "test_a", "a third", 3.0, failed=True, hung=True)
    assert patience.limit_s("consul", "test_a") == 0
    assert patience.limit_s("consul", "test_b", 100) == SHORT_S, "another file is tried"
    assert patience.limit_s("base", "test_a", 100, experiment=True) == 100
    assert "“names resolve” did not answer in time" in patience.why_not("consul")


def test_a_deadline_ends_what_a_check_waits_for() -> None:
    started = subprocess.Popen(["sh", "-c", f"sleep {LONG_S}; true"], stdout=subprocess.PIPE)

    def check() -> None:
        with deadline(0.3), suppress(Exception):
            started.communicate()  # deadline: above

    with pytest.raises(Hung, match=r"not done within 0\.3 s"):
        check()
    assert started.wait(LONG_S / 2) == -signal.SIGKILL
    with deadline(LONG_S):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0), "it does not ring afterwards"


def run(hosts: list[str], look: Callable[[str, Callable[[str, float], None]], None]) -> dict[str, str]:
    """Look at hosts; those whose process was killed, with the check."""
    told, tell = os.pipe()
    os.write(tell, "".join(json.dumps(host) + "\n" for host in hosts).encode())
    os.close(tell)
    all_hosts = SideBySide(look)
    all_hosts.run(told)
    os.close(told)
    return all_hosts.killed


def test_hosts_that_hang_hold_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several of them, and first: the last of the others is done while they hang still."""
    monkeypatch.setattr(side_by_side, "SLOW_S", 0.1)
    names = ["hangs-0", "hangs-1", *(f"fine-{number}" for number in range(6)), "hangs-2"]

    def look(host: str, tell: Callable[[str, float], None]) -> None:
        tell("a check", LONG_S)
        if host.startswith("hangs"):
            done = [f"fine-{number}" for number in range(6)]
            while not all((tmp_path / name).exists() for name in done):
                time.sleep(0.02)
        (tmp_path / host).touch()

    assert run(names, look) == {}
    assert {file.name for file in tmp_path.iterdir()} == set(names)


def test_one_at_a_time_has_a_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "SLOW_S", LONG_S)  # none waits, however slow this machine is

    def look(host: str, tell: Callable[[str, float], None]) -> None:
        tell("a check", LONG_S)
        (tmp_path / "at work").mkdir()  # fails where another is at work
        time.sleep(0.05)
        (tmp_path / "at work").rmdir()
        (tmp_path / host).touch()

    assert run(["a", "b", "c"], look) == {}
    assert {file.name for file in tmp_path.iterdir()} == {"a", "b", "c"}


def test_who_does_not_end_by_its_deadline_is_killed_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_by_side, "GRACE_S", 0.2)

    def look(host: str, tell: Callable[[str, float], None]) -> None:
        tell("the first", LONG_S)
        tell("base: the second", 0.1 if host == "deaf" else LONG_S)
        if host == "deaf":
            time.sleep(LONG_S)
        (tmp_path / host).touch()

    assert run(["deaf", "fine"], look) == {"deaf": "base: the second"}
    assert [file.name for file in tmp_path.iterdir()] == ["fine"]


def test_a_host_is_looked_at_as_soon_as_it_is_told(tmp_path: Path) -> None:
    """Who answers late is told late."""

    def look(host: str, tell: Callable[[str, float], None]) -> None:
        tell("a check", LONG_S)
        (tmp_path / host).touch()

    told, tell = os.pipe()
    running = threading.Thread(target=SideBySide(look).run, args=(told,))
    running.start()
    os.write(tell, b'"early"\n"la')
    while not (tmp_path / "early").exists():
        time.sleep(0.01)
    os.write(tell, b'te"\n')
    os.close(tell)
    running.join(LONG_S)
    assert (tmp_path / "late").exists()
