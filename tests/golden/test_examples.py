"""Every example is good, and examples/README.md shows what `causeway plan` prints of it."""

import re
from pathlib import Path

import pytest

from infra.cli import main
from tests.golden.test_declarations import check, compare

EXAMPLES = Path(__file__).parents[2] / "examples"
README = EXAMPLES / "README.md"
PLAN = re.compile(r"(<!-- plan: (\S+) -->\n).*?(<!-- end of plan -->)", re.DOTALL)
PICTURE = re.compile(r"!\[.*\]\((\S+)\.svg\)")
DRAWN = "┌─"


@pytest.fixture(autouse=True)
def _in_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)


def planned(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["plan", name]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return "\n".join(line.rstrip() for line in printed.out.splitlines())


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_an_example_is_good(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = check(path, capsys)
    assert (code, said.count("\n")) == (0, 1), said


def test_the_page_shows_the_plans(capsys: pytest.CaptureFixture[str], update_golden: bool) -> None:
    def block(found: re.Match[str]) -> str:
        return f"{found[1]}```\n{planned(found[2], capsys)}\n```\n{found[3]}"

    compare(README, PLAN.sub(block, README.read_text(encoding="utf-8")), update_golden)


def test_every_example_has_three_sentences_and_a_picture() -> None:
    sections = README.read_text(encoding="utf-8").split("\n## ")[1:]
    assert [PLAN.findall(section)[0][1] for section in sections] == [
        re.findall(r"\[(\S+\.yaml)\]", section)[0] for section in sections
    ]
    assert {PLAN.findall(section)[0][1] for section in sections} == {p.name for p in EXAMPLES.glob("*.yaml")}
    for section in sections:
        words = section.split("\n\n")[1]
        assert len(re.findall(r"[^.]\.(?= |$)", words)) == 3, words
        assert PICTURE.search(section) or DRAWN in section.partition("<!-- plan")[0]


@pytest.mark.parametrize("name", PICTURE.findall(README.read_text(encoding="utf-8")))
def test_a_picture_is_of_its_plan(name: str, tmp_path: Path, update_golden: bool) -> None:
    made = tmp_path / "made.svg"
    assert main(["plan", f"{name}.yaml", "--diagram", str(made)]) == 0
    compare(EXAMPLES / f"{name}.svg", made.read_text(encoding="utf-8"), update_golden)


def test_24576_gpus_in_two_planes_take_two_tiers(capsys: pytest.CaptureFixture[str]) -> None:
    said = planned("training-two-planes.yaml", capsys)
    assert "24,576 GPUs" in said
    assert "2 tiers in 2 planes" in said


def test_an_edge_reaches_the_site_it_has_no_link_to(capsys: pytest.CaptureFixture[str]) -> None:
    assert "dublin – basel over north, edge" in planned("three-sites-with-an-edge.yaml", capsys)
