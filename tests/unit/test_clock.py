"""A clock that jumps makes nothing old: scratch and images keep their days."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import ROOT
from tests.loaded import load

PROGRAM = load(ROOT / "roles/scratch/files/causeway_clock.py")
HOUR, DAY = 3600.0, 86_400.0


@dataclass
class Machine:
    """Its clock, and the time that really passes; `looks` as what cleans does, and returns the clock."""

    file: Path
    clock: float = 1.8e9
    running_s: float = 500.0
    boot: int = 0

    def passes(self, seconds: float) -> None:
        """Time."""
        self.clock += seconds
        self.running_s += seconds

    def boots(self, off_s: float) -> None:
        """After it was off for so long."""
        self.clock += off_s
        self.running_s, self.boot = 60.0, self.boot + 1
        self.clock += self.running_s

    def looks(self) -> PROGRAM.Clock:  # type: ignore[name-defined] # of a module without types
        """As at each cleaning."""
        found = PROGRAM.compared(self.file, self.clock, self.running_s, str(self.boot))
        text = {"running_s": self.running_s, "boot": str(self.boot), **found._asdict()}
        self.file.write_text(PROGRAM.json.dumps(text))
        return found


@pytest.fixture(name="machine")
def _machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "clock.json")


def test_time_that_passes_is_no_jump(machine: Machine) -> None:
    written = machine.clock
    for seconds in (600, 40 * DAY, 0.1):
        machine.looks()
        machine.passes(seconds)
    machine.boots(off_s=DAY)
    clock = machine.looks()
    assert clock.steady_since == 0
    assert clock.age_s(written) == machine.clock - written


@pytest.mark.parametrize("jump_s", [60 * DAY, -60 * DAY, 2 * HOUR, -2 * HOUR])
def test_ages_count_from_a_jump_on(machine: Machine, jump_s: float) -> None:
    machine.looks()
    written = machine.clock
    machine.passes(600)
    machine.clock += jump_s
    assert machine.looks().age_s(written) <= 0
    machine.passes(3 * DAY)
    assert machine.looks().age_s(min(written, machine.clock - 3 * DAY)) == 3 * DAY


@pytest.mark.parametrize(("off_s", "jump_s", "steady"), [
    (HOUR, 0, True), (-HOUR / 2, 0, True), (DAY, 0, True),
    (HOUR, 30 * DAY, False), (HOUR, -30 * DAY, False), (20 * DAY, 0, False),
])  # fmt: skip
def test_a_machine_that_was_off_for_long_or_comes_back_with_another_time_has_jumped(
    machine: Machine, off_s: float, jump_s: float, steady: bool
) -> None:
    machine.looks()
    machine.boots(off_s + jump_s)
    assert (machine.looks().steady_since == 0) == steady


@pytest.mark.parametrize("said", ["", "{", "[]", '{"now": "soon"}', "null", '{"now": 1, "steady_since": 0}'])
def test_what_cannot_be_read_counts_as_a_jump(machine: Machine, said: str) -> None:
    machine.file.write_text(said)
    assert machine.looks().steady_since == machine.clock


def test_a_look_is_written_and_a_full_disk_ends_none(tmp_path: Path) -> None:
    file = tmp_path / "clock.json"
    assert PROGRAM.look(file).steady_since == 0
    written = file.read_text()
    assert PROGRAM.look(file).steady_since == 0
    file.with_name("clock.json.part").mkdir()
    kept = file.read_text()
    assert kept != written
    assert PROGRAM.look(file).now > 0
    assert file.read_text() == kept


STEPS = st.lists(
    st.tuples(st.sampled_from(["passes", "jumps", "looks", "boots"]), st.floats(-90 * DAY, 90 * DAY)),
    max_size=30,
)


@given(STEPS)
def test_nothing_is_ever_older_than_it_is(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, float]]
) -> None:
    """Whatever the clock does, but for what it may do in small steps without being seen."""
    file = tmp_path_factory.getbasetemp() / "jumping.json"
    file.unlink(missing_ok=True)
    machine, passed_s = Machine(file), 0.0
    machine.looks()
    written: list[tuple[float, float]] = []
    for step, seconds in steps:
        written.append((machine.clock, passed_s))
        if step == "passes":
            machine.passes(abs(seconds) / 30)
            passed_s += abs(seconds) / 30
        elif step == "boots":
            machine.boots(abs(seconds) / 60)
            passed_s += abs(seconds) / 60 + machine.running_s
        elif step == "jumps":
            machine.clock += seconds
        clock, unseen_s = machine.looks(), len(steps) * HOUR
        assert all(clock.age_s(stamp) <= passed_s - then_s + unseen_s for stamp, then_s in written)
