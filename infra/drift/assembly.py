"""Makes the one file that looks at a node: the probe, and of the kinds only what their looks need.

What travels has one name space: what two files call by one name, and mean two things, cannot travel together.
"""

import ast
import marshal
import shlex
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from infra import ROOT
from infra.cached import Cached
from infra.drift.kinds import KINDS, kind_files, named_kinds
from infra.errors import CausewayError
from infra.files import tree_hash, value_hash

PROBE_LIMIT_S = 20
"""Longest that one look may take."""
# Reads the probe and its request from standard input: Python is slow in parsing long literals.
BOOTSTRAP = (
    "import os,zlib,marshal;d=os.fdopen(0,'rb').read();n=int.from_bytes(d[:4],'big');"
    "exec(zlib.decompress(d[4:n+4]));serve(*marshal.loads(zlib.decompress(d[n+4:])))"
)
OPTIONS = f"-ISBc {shlex.quote(BOOTSTRAP)}"
PYTHON = f"python3 {OPTIONS}"
LOADER = ROOT / "infra" / "drift" / "loader.py"
ENGINE = tuple(ROOT / "infra" / "drift" / name for name in ("node.py", "looks.py", "probe.py"))
NOT_THERE = ("infra", "roles", "__future__")
"""Packages of which a node has nothing."""
PROBES = Cached("probes")


_ONE_AT_A_TIME = Lock()
"""The parsed files are shared, and pruned while they are read; Pulumi scans regions beside each other."""


def probe_source(kinds: frozenset[str] | None = None) -> str:
    """The probe as one file. With `kinds` (their names) as it travels through ssh, to look at no others.

    Without, as the timer runs it. CausewayError where two things of one name would travel.
    """
    with _ONE_AT_A_TIME:
        return _probe_source(kinds)


@cache
def _probe_source(kinds: frozenset[str] | None) -> str:
    """Worked out once on a machine, for reading these files as Python takes longer than a node's answer."""
    wanted = sorted(kinds) if kinds is not None else None
    return PROBES.known_text(value_hash([_files_hash(), wanted]), lambda: _assembled(kinds))


@cache
def _files_hash() -> str:
    files = (Path(__file__), *ENGINE, *kind_files())
    return value_hash([sys.version, tree_hash(*(str(file.relative_to(ROOT)) for file in files))])


def _assembled(kinds: frozenset[str] | None) -> str:
    known = _names()
    looks = {name: kind.look for name, kind in KINDS.items() if kind.look and (not kinds or name in kinds)}
    names = {name: look.__name__ for name, look in sorted(looks.items())}
    roots = {"serve"} if kinds is not None else known.engine
    body = known.reached({*roots, *names.values()})
    table = f"LOOKS = {{{', '.join(f'{name!r}: {look}' for name, look in names.items())}}}"
    start = [] if kinds is not None else ["if __name__ == '__main__':\n    os._exit(main(*sys.argv[1:]))"]
    return "\n".join([*body, table, *start])


class _Statement:
    """A statement at the top of a file, and what it binds."""

    def __init__(self, node: ast.stmt, path: Path, binds: set[str]) -> None:
        self.node, self.path, self.binds = node, path, binds

    @cached_property
    def needs(self) -> set[str]:
        """The names that it needs: none for the class, of which only methods are needed one by one."""
        self.node = _bare(self.node)
        return set() if isinstance(self.node, ast.ClassDef) else _needed(self.node)


class _Names:
    """What all files of the probe and the kinds have at their top, by name; or other files that travel."""

    def __init__(self, files: Iterable[Path] = ()) -> None:
        self.statements: list[_Statement] = []
        self.by_name: dict[str, list[_Statement]] = {}
        self.methods: dict[str, ast.FunctionDef] = {}
        """Methods of the probe's classes, with a dot; a kind's class stays on the controller."""
        for path in files or (*ENGINE, *kind_files()):
            for node in ast.parse(path.read_bytes()).body:
                if not (binds := _bound(node)) or (isinstance(node, ast.ClassDef) and path not in ENGINE):
                    continue
                self.statements.append(_Statement(node, path, binds))
                for name in binds:
                    self.by_name.setdefault(name, []).append(self.statements[-1])
                if isinstance(node, ast.ClassDef):
                    _bare(node)  # before anybody asks what a method needs: annotations are no need
                    methods = (part for part in node.body if isinstance(part, ast.FunctionDef))
                    self.methods |= {f".{part.name}": part for part in methods}

    @property
    def engine(self) -> set[str]:
        """All functions and methods of the probe itself."""
        own = (s for s in self.statements if s.path in ENGINE and isinstance(s.node, ast.FunctionDef))
        return set(self.methods).union(*(statement.binds for statement in own))

    def reached(self, todo: set[str]) -> Iterator[str]:
        """The source of all statements that these names need, in the order of the files."""
        names: set[str] = set()
        todo = todo | {".__init__"}
        while todo:
            names |= todo
            found = [statement.needs for name in todo for statement in self.by_name.get(name, ())]
            found += [_needed(self.methods[name]) for name in todo & self.methods.keys()]
            todo = set().union(*found) - names
        there: dict[str, str] = {}
        for statement in self.statements:
            if wanted := statement.binds & names - {"LOOKS"}:
                text = _source(statement.node, names)
                for name in sorted(wanted):
                    if there.setdefault(name, text) != text:
                        files = " and ".join(str(s.path.relative_to(ROOT)) for s in self.by_name[name])
                        raise CausewayError(f"{name} is two things in {files}: both would travel to a node")
        return iter(dict.fromkeys(there.values()))


@cache
def _names() -> _Names:
    return _Names()


def _source(node: ast.stmt, names: set[str]) -> str:
    """Its source; of the class only the methods that are needed."""
    if isinstance(node, ast.ClassDef):
        body = [part for part in node.body if f".{getattr(part, 'name', '')}" in names]
        node = ast.ClassDef(node.name, node.bases, node.keywords, body, node.decorator_list)
    return ast.unparse(node)


def _bound(node: ast.stmt) -> set[str]:
    """The names that a statement at the top of a file binds; none where it is of no use on a node."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        if module.partition(".")[0] in NOT_THERE:
            return set()
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] * bool(node.value)
        return {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    if isinstance(node, ast.Try):
        return set().union(*(_bound(part) for part in [*node.body, *node.handlers[0].body]))
    return set()


def _needed(node: ast.AST) -> set[str]:
    """The names of others that it needs, and with a dot those of methods; not those that it binds itself."""
    needed: set[str] = set()
    own: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            (needed if isinstance(part.ctx, ast.Load) else own).add(part.id)
        elif isinstance(part, ast.Attribute):
            needed.add(f".{part.attr}")
        elif isinstance(part, ast.arg):
            own.add(part.arg)
    return needed - own


def _bare(statement: ast.stmt) -> ast.stmt:
    """It without docstrings and annotations: a node compiles what it gets at every scan."""
    for part in ast.walk(statement):
        for name in ("body", "orelse", "finalbody"):
            if isinstance(inner := getattr(part, name, None), list):
                setattr(part, name, [_plain(each) for each in inner if not _says_nothing(each)])
        if isinstance(part, ast.FunctionDef):
            part.returns, part.body = None, part.body or [ast.Pass()]
        elif isinstance(part, ast.arg):
            part.annotation = None
    return _plain(statement)


def _plain(statement: ast.stmt) -> ast.stmt:
    if isinstance(statement, ast.AnnAssign) and statement.value:
        return ast.Assign([statement.target], statement.value, lineno=statement.lineno)
    return statement


def _says_nothing(statement: ast.stmt) -> bool:
    """A docstring, or the type of what comes later."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.AnnAssign) and not statement.value


@cache
def _packed_probe(kinds: frozenset[str]) -> bytes:
    return _compressed(probe_source(kinds))


@cache
def packed_files(files: tuple[Path, ...]) -> bytes:
    """What of other files their function `serve` needs, as `PYTHON` on the node reads it before a request."""
    with _ONE_AT_A_TIME:
        return _packed("\n".join(_Names(files).reached({"serve"})))


def _packed(source: str) -> bytes:
    packed = _compressed(source)
    return len(packed).to_bytes(4, "big") + packed


def _compressed(source: str) -> bytes:
    return zlib.compress(source.encode(), 9)


def with_request(packed: bytes, request: Mapping[str, Any], *others: Any) -> bytes:
    """What `PYTHON` reads: a program and what its `serve` is given; marshal 2 is alike in every Python 3."""
    return packed + zlib.compress(marshal.dumps((dict(request), *others), 2), 1)


def script(request: Mapping[str, Any], limit_s: int = PROBE_LIMIT_S, kept: str = "") -> bytes:
    """What `PYTHON` on the node reads: the probe and its request.

    KEPT: the node's folder for compiled probes; without one it compiles what it gets.
    """
    kinds = named_kinds((kind, key) for kind, key, *_ in request["entries"])
    probe = _packed_probe(frozenset(kinds.union(request.get("kinds", ()))))
    return with_request(packed_files((LOADER,)), request, limit_s, probe, kept)
