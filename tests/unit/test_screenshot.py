"""The picture in the README: what a terminal shows at the end, and nothing fetched from elsewhere."""

import re
import sys
from xml.etree import ElementTree

import pytest

from infra import ROOT
from tests.repo import screenshot

SAYS = r"print('first\nstands: 1\n 10 %\r\033[32mstands\033[0m: 2\n\033[1mlast <é>\033[0m\nmore')"


def words(svg: str) -> str:
    """The text of a picture, a space for each that keeps its width."""
    return " ".join("".join(ElementTree.fromstring(svg).itertext()).replace("\xa0", " ").split())  # noqa: S314


def test_the_last_lines_are_drawn_as_they_stood_in_the_end() -> None:
    lines = screenshot.end_of(screenshot.printed([sys.executable, "-c", SAYS]), "stands", "last")
    assert [line.plain for line in lines] == ["stands: 2", "last <é>"]
    svg = screenshot.drawn(lines, "./run up")
    assert words(svg).endswith("./run up stands: 2 last <é>")
    assert "font-face" not in svg
    assert svg == screenshot.drawn(lines, "./run up")


def test_a_command_that_fails_or_says_something_else_draws_nothing() -> None:
    with pytest.raises(SystemExit) as ended:
        screenshot.printed([sys.executable, "-c", "raise SystemExit(3)"])
    assert ended.value.code == 3
    with pytest.raises(SystemExit, match="no line begins with 'stands'"):
        screenshot.end_of("last\n", "stands", "last")


def test_the_readmes_picture_fetches_nothing_and_names_no_machine() -> None:
    (place,) = re.findall(r"\]\((.*\.svg)\)", (ROOT / "README.md").read_text())
    svg = (ROOT / place).read_text()
    assert "WAN: measured (declared)" in words(svg)
    assert {*re.findall(r"https?://[^\"\s]+", svg)} <= {
        "http://www.w3.org/2000/svg",
        "https://www.textualize.io",
    }
    assert not re.search(r"/(root|home|tmp)/", svg)
