"""What `causeway check` and `causeway plan` say about declarations, to the letter.

errors/: refused, exit 2. warnings/: taken, with a word. good/: taken in silence, and planned.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.cli import main

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FOLDERS = (("errors", ".txt"), ("warnings", ".txt"), ("good", ".json"))
CASES = HERE / "cases.txt"
"""The names of all cases, so that one that is lost is missed."""


def cases(folder: str) -> list[Path]:
    return sorted((HERE / folder).glob("*.yaml"))


def compare(golden: Path, printed: str, update: bool) -> None:
    if update:
        golden.write_text(printed, encoding="utf-8")
    assert golden.exists(), f"no {golden.name}: run pytest tests/golden --update-golden"
    assert printed == golden.read_text(encoding="utf-8")


def check(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    """(exit code, what it printed) of `causeway check`, called from the file's own folder."""
    os.chdir(path.parent)
    code = main(["check", path.name, *options])
    printed = capsys.readouterr()
    assert printed.err == ""
    return code, printed.out


@pytest.fixture(autouse=True)
def _stay_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE)


def test_no_case_is_lost_and_no_file_is_a_stray(update_golden: bool) -> None:
    names = [f"{folder}/{path.stem}" for folder, _ in FOLDERS for path in cases(folder)]
    compare(CASES, "".join(f"{name}\n" for name in names), update_golden)
    for folder, kind in FOLDERS:
        named = {path.stem for path in cases(folder)}
        assert named == {path.stem for path in (HERE / folder).glob(f"*{kind}")}


@pytest.mark.parametrize("path", cases("errors"), ids=lambda path: path.stem)
def test_error(path: Path, capsys: pytest.CaptureFixture[str], update_golden: bool) -> None:
    code, printed = check(path, capsys)
    assert code == 2
    for jargon in (
        "pydantic",
        "traceback",
        "https://",
        "should be",
        "boolean",
        "unable to",
        "tuple",
        "validat",
    ):
        assert jargon not in printed.lower()
    compare(path.with_suffix(".txt"), printed, update_golden)


@pytest.mark.parametrize("path", cases("errors"), ids=lambda path: path.stem)
def test_error_as_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = check(path, capsys, "--json")
    report = json.loads(printed)
    assert (code, report["ok"]) == (2, False)
    told = path.with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    assert [problem["text"] for problem in report["problems"]] == told[:-1]
    assert all(problem["file"] == path.name for problem in report["problems"])


@pytest.mark.parametrize("path", cases("errors"), ids=lambda path: path.stem)
def test_error_has_no_plan(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.chdir(path.parent)
    assert main(["plan", path.name]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == path.with_suffix(".txt").read_text(encoding="utf-8").splitlines()[:-1]


@pytest.mark.parametrize("path", cases("warnings"), ids=lambda path: path.stem)
def test_warning(path: Path, capsys: pytest.CaptureFixture[str], update_golden: bool) -> None:
    code, printed = check(path, capsys)
    assert code == 0
    assert printed.startswith("warning: ")
    compare(path.with_suffix(".txt"), printed, update_golden)


@pytest.mark.parametrize("path", cases("good"), ids=lambda path: path.stem)
def test_good(path: Path, capsys: pytest.CaptureFixture[str], update_golden: bool) -> None:
    code, printed = check(path, capsys)
    assert (code, printed.count("\n")) == (0, 1), printed
    assert main(["plan", path.name, "--json"]) == 0
    compare(path.with_suffix(".json"), capsys.readouterr().out, update_golden)
    assert main(["plan", path.name]) == 0


def causeway(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "infra.cli", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("name", ["gpus-seven", "yaml-tab", "not-utf8"])
def test_the_real_command_says_the_same(name: str) -> None:
    path = f"tests/golden/errors/{name}.yaml"
    done = causeway("check", path)
    golden = (ROOT / path).with_suffix(".txt").read_text(encoding="utf-8")
    assert done.returncode == 2
    assert done.stdout.replace("tests/golden/errors/", "") == golden
    assert done.stderr == ""


def test_the_embedded_declaration_is_good() -> None:
    done = causeway("check")
    assert (done.returncode, done.stderr) == (0, "")
    *warnings, summary = done.stdout.splitlines()
    assert summary == "Pulumi.local.yaml: 2 regions, 8 pools, 10 nodes, 1 WAN link: 0 errors, 2 warnings"
    assert all("keeps one copy" in warning for warning in warnings)


def test_plan_says_where_links_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(HERE / "good" / "existing-gateways.yaml")]) == 0
    assert "tokyo-edge-1 (192.0.2.1/30) – shanghai-edge-0 (192.0.2.2/30)" in capsys.readouterr().out
