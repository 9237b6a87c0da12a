"""YAML text → plain values, with the line of every path. Refuses what a declaration never needs."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, ReusedAnchorWarning, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from infra.ground.problem import DeclarationError, Problem

DEEPEST = 30
MOST_VALUES = 500_000
"""Values after aliases are expanded: 100,000 machines fit, a few lines that multiply themselves do not."""
TAG = "tag:yaml.org,2002:"
NUMBERS_AND_WORDS = {TAG + kind for kind in ("null", "bool", "int", "float")}
COLLECTIONS = {TAG + "map", TAG + "seq"}
TEXTS = {TAG + "str", TAG + "timestamp", TAG + "merge", TAG + "value", "!"}

IN_PLAIN_WORDS = {
    "found character '\\t'": "a tab: YAML is indented with spaces",
    "mapping values are not allowed": "a second ': ' in one line: quote the value, or check the indentation",
    "expected ',' or ']'": "a list opened with [ is not closed, or lacks a comma",
    "expected ',' or '}'": "a mapping opened with { is not closed, or lacks a comma",
    "expected <block end>": "this line's indentation does not fit the lines above it",
    "could not find expected ':'": "a key without ': ' after it",
    "found unexpected end of stream": "a quote is not closed",
    "but found another document": "a second document (---): a declaration is one document",
    "found undefined alias": "an alias (*name) to an anchor (&name) that does not stand above it",
}


@dataclass
class Tree:
    """Values of one file; `lines` by path, `problems` for what had to be left out."""

    value: Any = None
    lines: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_yaml(text: str, file: str) -> Tree:
    """Values and lines of a YAML text.

    Raises DeclarationError for text that is no YAML, and for one that is nested or multiplied
    beyond any declaration. Duplicate keys and tags are collected in `problems`.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReusedAnchorWarning)
            root = YAML(typ="safe", pure=True).compose(text)
        builder = _Builder()
        if root is not None:
            builder.tree.value = builder.build(root, "", 0)
    except YAMLError as error:
        raise DeclarationError([_syntax_problem(error, text, file)]) from None
    except RecursionError:
        raise DeclarationError([_file_problem(file, "nested too deeply")]) from None
    except _TooMuchError as error:
        raise DeclarationError([_file_problem(file, str(error))]) from None
    return builder.tree


class _TooMuchError(Exception):
    """The text is YAML, but no declaration."""


class _Builder:
    def __init__(self) -> None:
        self.tree = Tree()
        self.constructor: SafeConstructor = YAML(typ="safe", pure=True).constructor
        self.values = 0

    def build(self, node: Node, path: str, depth: int) -> Any:
        self.values += 1
        if depth > DEEPEST:
            raise _TooMuchError(f"nested more than {DEEPEST} levels deep, or an anchor contains itself")
        if self.values > MOST_VALUES:
            raise _TooMuchError(f"more than {MOST_VALUES:,} values once its aliases are expanded")
        self.tree.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, (MappingNode, SequenceNode)) and node.tag not in COLLECTIONS:
            self.foreign_tag(node, path)
        if isinstance(node, MappingNode):
            return self.mapping(node, path, depth)
        if isinstance(node, SequenceNode):
            return [self.build(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(node.value)]
        return self.scalar(node, path)

    def mapping(self, node: MappingNode, path: str, depth: int) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == TAG + "merge":
                merged |= self.merge(value_node, path, depth)
                continue
            key = key_node.value if isinstance(key_node, ScalarNode) else "?"
            child = f"{path}.{key}" if path else key
            if key in own:
                line = key_node.start_mark.line + 1
                first = self.tree.lines[child]
                self.problem(child, f"stands twice in one mapping: first in line {first}", line)
                continue
            self.tree.lines[child] = key_node.start_mark.line + 1
            own[key] = self.build(value_node, child, depth + 1)
        return {**merged, **own}

    def merge(self, node: Node, path: str, depth: int) -> dict[str, Any]:
        """What `<<: *anchor` or `<<: [*a, *b]` brings in; the first of several wins."""
        parts = node.value if isinstance(node, SequenceNode) else [node]
        result: dict[str, Any] = {}
        for part in parts:
            if not isinstance(part, MappingNode):
                self.problem(path, "<< merges mappings only", node.start_mark.line + 1)
                continue
            result = {**self.build(part, path, depth + 1), **result}
        return result

    def scalar(self, node: Node, path: str) -> Any:
        tag = str(node.tag)
        if tag in NUMBERS_AND_WORDS:
            try:
                return self.constructor.construct_object(node)
            except (ValueError, KeyError, YAMLError):
                return node.value
        if tag not in TEXTS:
            self.foreign_tag(node, path)
        return node.value

    def foreign_tag(self, node: Node, path: str) -> None:
        tag = str(node.tag).replace(TAG, "!!")
        self.problem(path, f"the YAML tag {tag} has no meaning here", node.start_mark.line + 1)

    def problem(self, path: str, message: str, line: int) -> None:
        self.tree.problems.append(Problem(path, message, rule="yaml", line=line))


def _syntax_problem(error: YAMLError, text: str, file: str) -> Problem:
    if isinstance(error, ReaderError):
        line = text.count("\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        return _file_problem(file, f"not text: the control character U+{code:04X} is in it", line)
    mark = error.problem_mark or error.context_mark if isinstance(error, MarkedYAMLError) else None
    told = " ".join(_told(error))
    message = next((words for jargon, words in IN_PLAIN_WORDS.items() if jargon in told), told)
    if mark is None:
        return _file_problem(file, f"not YAML: {message}")
    return _file_problem(file, f"not YAML: {message}", mark.line + 1, mark.column + 1)


def _told(error: YAMLError) -> Iterator[str]:
    """What the parser says, without the excerpt of the file."""
    for part in (getattr(error, "context", None), getattr(error, "problem", None)):
        if part:
            yield " ".join(str(part).split())


def _file_problem(file: str, message: str, line: int | None = None, column: int | None = None) -> Problem:
    return Problem("", message, rule="yaml", file=file, line=line, column=column)
