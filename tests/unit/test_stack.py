"""What a stack may be called, and that nothing is touched for one that may not."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import pulumi_cli
from infra.cli import main
from infra.errors import BadInputError
from infra.providers.local import names
from infra.stack import check_stack, stack_dir

TAKES_A_STACK = (
    ("up",),
    ("down",),
    ("drift",),
    ("drift", "--coverage"),
    ("wan", "measure"),
    ("plan", "--stack"),
    ("check", "--stack"),
)
NONSENSE = (
    *("", ".", "..", "../../README.md", "../passphrase", "a/b", "/etc/passwd", ".hidden"),
    *("a\n", "a b", "ä", "a\0b", "-s", "--yes", "s" * 41),
)
names_of_all_kinds = st.text(st.sampled_from("./\\-_~ aZ0\n\0é*"), max_size=50) | st.text(max_size=50)


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.mark.parametrize("command", TAKES_A_STACK, ids=" ".join)
@pytest.mark.parametrize("name", NONSENSE, ids=ascii)
def test_no_command_takes_such_a_name_and_none_touches_a_file_for_it(
    command: tuple[str, ...],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = tmp_path / ".causeway"
    (kept / "locks").mkdir(parents=True)
    for file in (tmp_path / "README.md", kept / "passphrase"):
        file.write_text("somebody's\n")
    monkeypatch.setattr(pulumi_cli, "CAUSEWAY_DIR", kept)
    monkeypatch.setenv("PATH", str(tmp_path))  # no pulumi: a name that passes ends in another error
    before = everything(tmp_path)
    try:
        code = main([*command, name])
    except SystemExit as ended:  # an option, to argparse
        assert name.startswith("-")
        code = int(ended.code or 0)
    said = capsys.readouterr().err
    assert code == 2
    assert name.startswith("-") or ("cannot be a stack's name" in said and "at most 40" in said)
    assert everything(tmp_path) == before


@given(names_of_all_kinds)
def test_a_name_that_passes_stays_in_its_folder(name: str) -> None:
    """Whoever makes a path of a stack's name refuses what would lead out of its folder."""
    try:
        check_stack(name)
    except BadInputError:
        for path_of in (stack_dir, names.stack_dir, names.vms_dir, check_stack):
            with pytest.raises(BadInputError):
                path_of(name)
    else:
        assert os.path.normpath(f"a/{name}/b") == f"a/{name}/b"
        assert name.isascii()
        assert name.isprintable()
        assert " " not in name
        assert not name.startswith(("-", "."))
        assert stack_dir(name).name == name


@pytest.mark.parametrize("name", ["local", "t0-3f9a", "t0-3f9a-machines", "a.b_c", "0", "s" * 40])
def test_usual_names_pass(name: str) -> None:
    assert check_stack(name) == name
