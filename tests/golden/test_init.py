"""What `causeway init` writes of the example lists, to the letter; they say the same in two forms."""

from pathlib import Path

import pytest

from infra.checks import load_spec
from infra.cli import main
from tests.golden.test_declarations import HERE, ROOT, compare

LISTS = sorted((ROOT / "examples" / "lists").iterdir())


def golden(source: Path) -> Path:
    return HERE / "init" / f"{source.name}.yaml"


@pytest.mark.parametrize("source", LISTS, ids=lambda path: path.name)
def test_a_list_is_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update_golden: bool
) -> None:
    monkeypatch.setattr("infra.commands.arguments.ROOT", tmp_path)
    monkeypatch.chdir(source.parent)
    assert main(["init", "lab", source.name]) == 0
    compare(golden(source), (tmp_path / "Pulumi.lab.yaml").read_text(encoding="utf-8"), update_golden)


def test_each_form_says_the_same() -> None:
    assert LISTS
    first, *others = (load_spec(golden(source)) for source in LISTS)
    assert all(other == first for other in others)
