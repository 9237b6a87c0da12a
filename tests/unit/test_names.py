"""Names of hosts as ranges: shorter, and no name lost or made up."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.ground.names import ranges, some

NAMES = st.lists(st.builds("{}{}".format, st.sampled_from(["a-", "a-b", "n1-", ""]), st.integers(0, 120)))
PADDED = st.lists(st.integers(0, 1200).map("gpu-{:04}".format))


def spelled_out(text: str) -> list[str]:
    """The names that a range stands for."""
    first, _, last = text.partition("…")
    prefix, number = re.fullmatch(r"(.*?)([0-9]*)", first).groups()  # type: ignore[union-attr]
    return [f"{prefix}{n:0{len(number)}}" for n in range(int(number), int(last) + 1)] if last else [first]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], ""),
        (["a"], "a"),
        ([f"tokyo-gpu-{n:04}" for n in range(1, 1001)], "tokyo-gpu-0001…1000"),
        (["gpu-10", "gpu-9", "gpu-8", "gpu-2", "gpu-1"], "gpu-1, gpu-2, gpu-8…10"),
        (["n-09", "n-10", "n-11", "n-013"], "n-09…11, n-013"),
        (["login", "a-1", "b-2", "a-3"], "a-1, a-3, b-2, login"),
        ([f"a-{n}" for n in range(0, 40, 2)], ", ".join(f"a-{n}" for n in range(0, 24, 2)) + " and 8 more"),
    ],
)
def test_names_are_said_as_ranges(names: list[str], said: str) -> None:
    assert some(names) == said


@given(NAMES | PADDED | st.lists(st.text(max_size=5)))
def test_ranges_stand_for_every_name_and_no_other(names: list[str]) -> None:
    found = ranges(names)
    assert sum(count for _, count in found) == len(set(names))
    if not any("…" in name for name in names):
        told = [name for text, _ in found for name in spelled_out(text)]
        assert sorted(told) == sorted(set(names))
