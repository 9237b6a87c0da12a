"""What Ansible's modules import and how they travel, without working it out anew in each run.

Mitogen sends a node what a module imports. To find that it compiles the module and, once more for each
module, everything below it; its own sources lose their comments first, and each goes compressed. That was
more than a third of the controller's CPU in a run that changes nothing. Python itself keeps what it has
compiled and knows when a file has changed, and the rest depends on nothing but the source.
"""

import builtins
import sys
import zlib
from contextlib import suppress
from functools import cache
from importlib.machinery import SourceFileLoader
from io import BytesIO
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

from infra.cached import Cached, name_of

MINIMIZED, COMPRESSED = Cached("minimized"), Cached("compressed")


class Source(bytes):
    """What stands in a file, and which one that is."""

    path: str


class Opened(BytesIO):
    """A file that is read as a whole."""

    def __init__(self, path: str) -> None:
        self.source = Source(Path(path).read_bytes())
        self.source.path = path
        super().__init__(self.source)

    def read(self, size: int | None = -1, /) -> bytes:
        """All of it."""
        del size
        return self.source


class Kept(SourceFileLoader):
    """Writes nothing beside sources, which may be somebody's roles."""

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        """Keep it where Python keeps all, if that is elsewhere."""
        if sys.pycache_prefix:
            super().set_data(path, data, _mode=_mode)


@cache
def kept(path: str) -> CodeType | None:
    """A file as Python has compiled it, now or before; a run stands on the files that it began with."""
    return Kept("module", path).get_code("module")


def compiled(source: bytes | str, name: str, mode: str) -> CodeType:
    """`compile` for Mitogen, which names what it has opened, or the file that the source comes from."""
    path = source.path if isinstance(source, Source) else name
    with suppress(OSError):
        is_whole = isinstance(source, Source) or Path(path).read_bytes() == source
        if path.endswith(".py") and is_whole and (code := kept(path)):
            return code
    return builtins.compile(source, name, mode)


def use(mitogen: Any, finder: Any) -> None:
    """Have Mitogen, and its module that looks for what Ansible's modules import, work so."""
    finder.open = lambda path, _mode: Opened(path)
    finder.compile = mitogen.master.compile = compiled
    minimize = mitogen.minify.minimize_source
    by = f"{mitogen.__version__} {sys.version}"

    @cache
    def minimized(source: bytes | str) -> str:
        return MINIMIZED.known_text(name_of(source, by), lambda: str(minimize(source)))

    def compress(source: bytes, level: int) -> bytes:
        return COMPRESSED.known(name_of(source, level), lambda: zlib.compress(source, level))

    mitogen.minify.minimize_source = minimized
    mitogen.master.zlib = SimpleNamespace(compress=compress)
