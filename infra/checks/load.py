"""Reading a declaration from a file: the only place that does."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from infra.checks.schema import parse_spec
from infra.declaration import ClusterSpec
from infra.ground.problem import DeclarationError, Problem, Source, listing, nearest, show
from infra.ground.yaml_source import Tree, read_yaml

CONFIG_KEY = "causeway:cluster"
LARGEST_FILE_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Declaration:
    """A declaration whose fields are right, and where it was read; the rules have not seen it yet."""

    spec: ClusterSpec
    source: Source
    config: Mapping[str, object] | None = None
    """What else the stack's file says, `causeway:cluster` among it; None for a bare declaration."""


def load_spec(path: Path) -> ClusterSpec:
    """The declaration in a `Pulumi.<stack>.yaml`, or in a file that holds the bare mapping.

    Raises DeclarationError with everything that is wrong in the file, a key or a field.
    """
    return load(path).spec


def load(path: Path) -> Declaration:
    """`load_spec`, with the lines that later findings point to."""
    return parse(_read_text(path), path)


def parse(text: str, path: Path) -> Declaration:
    """The same of a text that stands in that file, or is to."""
    file = str(path)
    tree = read_yaml(text, file)
    prefix, mapping = _cluster_of(tree, path)
    source = Source(file, _lines_below(tree.lines, prefix))
    try:
        spec = parse_spec(mapping, source)
    except DeclarationError as error:
        raise DeclarationError(_own_problems(tree, prefix, file) + list(error.problems)) from None
    if tree.problems:
        raise DeclarationError(_own_problems(tree, prefix, file))
    return Declaration(spec, source, _config_of(tree) if prefix else None)


def _config_of(tree: Tree) -> Mapping[str, object] | None:
    config = tree.value.get("config") if isinstance(tree.value, Mapping) else None
    return config if isinstance(config, Mapping) else None


def _read_text(path: Path) -> str:
    try:
        if path.is_dir():
            raise _unreadable(path, "a directory, not a file", _candidates(path))
        with path.open("rb") as stream:
            content = stream.read(LARGEST_FILE_BYTES + 1)
    except FileNotFoundError:
        raise _unreadable(path, "there is no such file", _candidates(path.parent)) from None
    except (OSError, ValueError) as error:
        raise _unreadable(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > LARGEST_FILE_BYTES:
        raise _unreadable(path, f"larger than {LARGEST_FILE_BYTES >> 20} MiB: no declaration is")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = Problem(
            "", f"not UTF-8 text: byte 0x{content[error.start]:02x}", rule="file", hint="save it as UTF-8"
        )
        raise DeclarationError([replace(problem, file=str(path), line=line)]) from None


def _unreadable(path: Path, message: str, hint: str = "") -> DeclarationError:
    return DeclarationError([Problem("", message, rule="file", hint=hint, file=str(path))])


def _candidates(folder: Path) -> str:
    """A hint that names the stack files which are there."""
    names = sorted(found.name for found in folder.glob("Pulumi.*.yaml")) if folder.is_dir() else []
    return f"there is {listing(names[:5])}" if names else ""


def _cluster_of(tree: Tree, path: Path) -> tuple[str, object]:
    """(path of the declaration inside the file, its value)."""
    root, file = tree.value, str(path)
    if root is None:
        raise _unreadable(path, "the file is empty", f"a declaration stands under config: {CONFIG_KEY}")
    if not isinstance(root, Mapping):
        raise _unreadable(path, f"a declaration is a mapping (key: value), this file is {show(root)}")
    if "runtime" in root:
        hint = f"declarations stand in Pulumi.<stack>.yaml under config: {CONFIG_KEY}"
        raise _unreadable(path, "this is the project file, not a stack's", hint)
    if CONFIG_KEY in root:
        line = tree.lines.get(CONFIG_KEY)
        problem = Problem(CONFIG_KEY, "stands at the top level", hint="indent it under config:", rule="file")
        raise DeclarationError([replace(problem, file=file, line=line)])
    if "config" not in root and "encryptionsalt" not in root:
        return "", root
    return _from_config(tree, root.get("config"), file)


def _from_config(tree: Tree, config: object, file: str) -> tuple[str, object]:
    prefix = f"config.{CONFIG_KEY}"
    if not isinstance(config, Mapping) or CONFIG_KEY not in config:
        raise DeclarationError([Source(file, tree.lines).locate(_no_cluster(config))])
    cluster = config[CONFIG_KEY]
    if isinstance(cluster, Mapping) and set(cluster) == {"secure"}:
        hint = "a declaration holds no secret: set it without --secret"
        problem = Problem(prefix, "is encrypted", hint=hint, rule="file")
        raise DeclarationError([Source(file, tree.lines).locate(problem)])
    return prefix, cluster


def _no_cluster(config: object) -> Problem:
    """The key is missing, or misspelt."""
    meant = nearest(CONFIG_KEY, config) if isinstance(config, Mapping) else None
    if meant is None:
        message = f"{CONFIG_KEY} is missing"
        return Problem("config", message, hint="the declaration belongs there", rule="file")
    return Problem(f"config.{meant}", "no such key is read", meant, suggestion=CONFIG_KEY, rule="file")


def _lines_below(lines: Mapping[str, int], prefix: str) -> dict[str, int]:
    """The lines of the paths inside the declaration, by their path from there."""
    if not prefix:
        return dict(lines)
    cut = len(prefix) + 1
    below = {path[cut:]: line for path, line in lines.items() if path.startswith(f"{prefix}.")}
    return {"": lines[prefix], **below}


def _own_problems(tree: Tree, prefix: str, file: str) -> list[Problem]:
    """What reading found (duplicate keys, tags), with paths as seen from the declaration."""
    return [
        replace(problem, path=problem.path.removeprefix(f"{prefix}."), file=file) for problem in tree.problems
    ]
