"""Mitogen finds and sends the same, whether it compiles a source itself or Python has kept it."""

import builtins
import sys
import types
import zlib
from pathlib import Path
from typing import Any

import ansible.module_utils
import mitogen.master
import mitogen.minify
import pytest
from ansible_mitogen import module_finder

from infra.converge import compiled

ROOT = Path(__file__).resolve().parents[2]
UTILS = str(Path(ansible.module_utils.__file__).parent)
MODULES = (
    Path(UTILS).parent / "modules" / "systemd_service.py",
    ROOT / "playbooks" / "library" / "causeway_before.py",
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is this test's own."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "kept"))
    monkeypatch.setenv("CAUSEWAY_CACHE", str(tmp_path / "cache"))
    compiled.kept.cache_clear()


class Mitogen:
    """Copies of Mitogen's modules that work so, and Mitogen's own as they were."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.finder, self.master, self.minify = (
            self.copy(module, monkeypatch) for module in (module_finder, mitogen.master, mitogen.minify)
        )
        own = types.SimpleNamespace(master=self.master, minify=self.minify, __version__=mitogen.__version__)
        compiled.use(own, self.finder)

    @staticmethod
    def copy(module: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
        for name in ("open", "compile"):
            monkeypatch.delattr(module, name, raising=False)
        source = Path(module.__file__).read_text()
        made = types.ModuleType(module.__name__)
        exec(compile(source, module.__file__, "exec"), vars(made))  # noqa: S102 - Mitogen's own
        return made


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_what_a_module_imports_is_found_as_before(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = (str(ROOT / "playbooks" / "module_utils"), UTILS)
    copy = Mitogen(monkeypatch)
    expected = module_finder.scan(f"ansible.modules.{module.stem}", str(module), paths)
    assert len(expected) > 10
    for turn in ("compiled", "kept"):
        assert copy.finder.scan(f"ansible.modules.{module.stem}", str(module), paths) == expected, turn


def test_what_a_module_needs_is_found_and_sent_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "ansible_mitogen.target"
    copy = Mitogen(monkeypatch)
    assert copy.master.ModuleFinder().find_related(name) == mitogen.master.ModuleFinder().find_related(name)
    source = Path(mitogen.master.__file__).read_bytes()
    minimized = mitogen.minify.minimize_source(source)
    for turn in ("made", "known"):
        assert copy.minify.minimize_source(source) == minimized, turn
        assert zlib.decompress(copy.master.zlib.compress(source, 9)) == source, turn


def test_nothing_is_compiled_twice_and_a_file_that_changed_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "module.py"
    file.write_text("import one\n")
    names = [compiled.compiled(file.read_bytes(), str(file), "exec").co_names]
    compiled.kept.cache_clear()  # another process
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "compile", None)
        names.append(compiled.compiled(file.read_bytes(), str(file), "exec").co_names)
    compiled.kept.cache_clear()
    file.write_text("import other\n")
    names.append(compiled.compiled(file.read_bytes(), str(file), "exec").co_names)
    assert names == [("one",), ("one",), ("other",)]


def test_what_is_not_the_files_own_source_is_compiled_as_it_is(tmp_path: Path) -> None:
    """Mitogen sends some modules altered, and some that are no files."""
    file = tmp_path / "module.py"
    file.write_text("import one\n")
    for path in (str(file), str(tmp_path / "gone.py"), "<string>", "ansible.modules.command"):
        assert compiled.compiled(b"import other\n", path, "exec").co_names == ("other",)


def test_nothing_is_written_beside_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", None)
    file = tmp_path / "library" / "module.py"
    file.parent.mkdir()
    file.write_text("import one\n")
    assert compiled.compiled(file.read_bytes(), str(file), "exec").co_names == ("one",)
    assert list(file.parent.iterdir()) == [file]


def test_what_was_worked_out_is_not_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = Mitogen(monkeypatch)
    monkeypatch.setattr(zlib, "compress", lambda *_: b"made once")
    assert copy.master.zlib.compress(b"x", 9) == b"made once"
    monkeypatch.setattr(zlib, "compress", lambda *_: b"made again")
    assert copy.master.zlib.compress(b"x", 9) == b"made once"
    assert copy.master.zlib.compress(b"y", 9) == b"made again"
    assert len(list(compiled.COMPRESSED.folder.iterdir())) == 2
