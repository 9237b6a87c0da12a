"""What `causeway plan` makes of a fabric: cabling list and switch configurations, to the letter."""

from pathlib import Path

import pytest

from infra.cli import main
from tests.golden.test_declarations import compare

FABRICS = Path(__file__).parent / "fabrics"
DECLARATION = str(FABRICS / "three-tiers.yaml")
SWITCHES = ("tokyo-leaf-0", "tokyo-leaf-5", "tokyo-spine-0", "tokyo-core-1")


def test_cables(capsys: pytest.CaptureFixture[str], update_golden: bool) -> None:
    assert main(["plan", DECLARATION, "--cables"]) == 0
    compare(FABRICS / "cables.csv", capsys.readouterr().out, update_golden)


def test_switches(tmp_path: Path, capsys: pytest.CaptureFixture[str], update_golden: bool) -> None:
    assert main(["plan", DECLARATION, "--switches", str(tmp_path)]) == 0
    assert capsys.readouterr().err == f"15 switches in {tmp_path}\n"
    assert len(list(tmp_path.glob("*/config_db.json"))) == 15
    for name in SWITCHES:
        made = (tmp_path / name / "config_db.json").read_text(encoding="utf-8")
        compare(FABRICS / f"{name}.json", made, update_golden)


def test_diagram(tmp_path: Path) -> None:
    picture = tmp_path / "fabric.svg"
    assert main(["plan", DECLARATION, "--diagram", str(picture)]) == 0
    assert "tokyo-gpu-0" in picture.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("declaration", "options", "code", "said"),
    [
        ("good/one-region.yaml", ("--cables",), 2, "no region has nodes on a fabric"),
        (
            "fabrics/three-tiers.yaml",
            ("--diagram", "/nowhere/fabric.svg"),
            1,
            "/nowhere/fabric.svg cannot be written",
        ),
        ("errors/fabric-mtu.yaml", ("--cables",), 2, "regions[0].fabric.mtu_bytes"),
    ],
)
def test_what_cannot_be_written(
    declaration: str, options: tuple[str, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(FABRICS.parent / declaration), *options]) == code
    assert said in capsys.readouterr().err


def test_fabrics_without_switches_have_nothing_to_configure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    declaration = tmp_path / "plain.yaml"
    text = Path(DECLARATION).read_text(encoding="utf-8")
    declaration.write_text(text.replace(", switch: {asic: spectrum-4, cable_m: 40}", ""), encoding="utf-8")
    assert main(["plan", str(declaration), "--switches", str(tmp_path)]) == 2
    assert "no fabric has a switch" in capsys.readouterr().err
