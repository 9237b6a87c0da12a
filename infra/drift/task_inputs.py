"""What one task of a role depends on, as one hash: a roll-out leaves out a task whose hash is as sealed.

Told from what is written: the task, what stands around it, the role's variables that it names and those that
these name, with their values, and the files of the role that any of that names. What a task asks for that is
known only while the role runs is not in it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from infra import ROOT
from infra.drift.inputs import Inputs, sources_of
from infra.files import tree_hash, value_hash
from infra.inventory.roles import roles_within
from infra.inventory.steps import Step, steps, texts_in, values, words_in

OF_TASKS = frozenset(("tasks", "templates", "files", "defaults", "vars", "handlers"))
"""Folders of a role of which each task depends on what it names; what else changes there, all tasks do."""
QUOTED = re.compile(r"'([^'\n]+)'|\"([^\"\n]+)\"")
IN_FOLDER = re.compile(r"[\w.@-][\w./@-]{0,200}")
READS_FILES = frozenset(("lookup", "query", "q", "role_path"))
NAMED_LOOKUP = re.compile(r"""\b(?:lookup|query|q)\(\s*['"][\w.]+['"]\s*,\s*['"][\w./-]+['"]\s*[,)]""")
"""A lookup of what stands there by name."""
ROLES_FILE = re.compile(r"{{ role_path }}/((?!\S*\.\.)[\w.-][\w./-]*)")
"""A file of the role, by its whole path."""
READS_TEMPLATES = re.compile(r"{%[-+]?\s*(?:include|import|from|extends)\s+(?!['\"])")
"""A template that computes which others it reads."""
FACTS = "ansible.builtin.set_fact"


class TaskInputs:
    """What tasks depend on, of one contract."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self._steps: dict[str, list[Known]] = {}

    def of(self, host: str, role: str) -> dict[str, str]:
        """Task of a role → hash of what it depends on, on a host. Tasks of one name have one hash."""
        beside = self.inputs.beside_files(host, role)
        found: dict[str, list[Any]] = {}
        for step in self.known(role):
            given = self.inputs.seen.variables(host, step.names)
            found.setdefault(step.task, []).append([step.written, given])
        return {task: value_hash([beside, parts]) for task, parts in found.items()}

    def known(self, role: str) -> "list[Known]":
        """The role's steps, whatever the host."""
        if role not in self._steps:
            self._steps[role] = list(_known_steps(role))
        return self._steps[role]


@dataclass(frozen=True)
class Known:
    """One step, whatever the host."""

    task: str
    module: str
    written: str
    """One hash over all that stands in files."""
    names: frozenset[str]
    """The variables that it may be given from outside."""
    later: bool
    """It asks for what is known only while the role runs."""


def _known_steps(role: str) -> Iterator[Known]:
    every, sources, rest = steps(role, ROOT), sources_of(role), _rest(role)
    later = {name for step in every for name in _made_by(step)}
    given = {name: value for each in roles_within(role, ROOT) for name, value in values(each, ROOT).items()}
    told: _Told = {}
    for step in every:
        if "name" in step.task:
            reader = _Reader(step, given, told)
            names = sources.variables.intersection(reader.reached)
            written = value_hash([rest, sources.beside, reader.written])
            asks_later = not later.isdisjoint(reader.reached)
            yield Known(str(step.task["name"]), step.module, written, names, asks_later)


def _made_by(step: Step) -> set[str]:
    """The variables that a task makes while the role runs."""
    return {*([step.task["register"]] if "register" in step.task else ()), *step.task.get(FACTS, ())}


_Told = dict[tuple[Path, str], tuple[set[str], list[Path]]]
"""Folder of a role, variable → the words of its value in the role's files, and the files which that names."""


class _Reader:
    """Follows what a step names through the role's variables and files.

    GIVEN: variables with their values in the role's files; TOLD: what those say, kept for the role's other
    steps, most of which reach the same ones.
    """

    def __init__(self, step: Step, given: Mapping[str, Any], told: _Told) -> None:
        self.step, self.folder, self.told = step, ROOT / "roles" / step.role, told
        self.given = {**given, **step.values}
        self.files: dict[str, str] = {}

    @cached_property
    def reached(self) -> dict[str, Any]:
        """Every word that may be a variable's name → its value in the role's files, if it has one."""
        found: dict[str, Any] = {}
        todo = self._words([self.step.content, *self.step.values.values()])
        while todo:
            name = todo.pop()
            if name not in found:
                found[name] = self.given.get(name)
                if found[name] is not None:
                    todo |= self._words_of_variable(name)
        return found

    @property
    def written(self) -> str:
        """The step's own text, the values that it reaches, and the files."""
        reached = {name: value for name, value in self.reached.items() if value is not None}
        return value_hash([self.step.role, self.step.content, reached, self.files])

    def _words_of_variable(self, name: str) -> set[str]:
        value = self.given[name]
        if name in self.step.values:
            return self._words(value)
        if (key := (self.folder, name)) not in self.told:
            self.told[key] = words_in(value), list(self._named(value))
        words, files = self.told[key]
        return words | self._words_in(files)

    def _words(self, value: Any) -> set[str]:
        """The words in a value, and in the files of the role that it names."""
        return words_in(value) | self._words_in(self._named(value))

    def _words_in(self, files: Iterable[Path]) -> set[str]:
        """The words in those of the files that are new."""
        words: set[str] = set()
        for file in files:
            if (name := str(file.relative_to(ROOT))) not in self.files:
                self.files[name] = tree_hash(name)
                words |= self._words_of(file)
        return words

    def _words_of(self, file: Path) -> set[str]:
        if file.is_dir():
            within = (each for each in sorted(file.rglob("*")) if each.is_file())
            return {word for each in within for word in self._words_of(each)}
        if "templates" not in file.relative_to(self.folder).parts:
            return set()  # travels as it is
        text = file.read_text()
        return self._words([text, "lookup"] if READS_TEMPLATES.search(text) else text)

    def _named(self, value: Any) -> Iterator[Path]:
        """Files and folders that a value names; all of the role's where it computes which."""
        texts = list(texts_in(value))
        names = {*texts, *(one or other for text in texts for one, other in QUOTED.findall(text))}
        names = {name for name in names if IN_FOLDER.fullmatch(name)}
        plain = [ROLES_FILE.sub("", NAMED_LOOKUP.sub("", text)) for text in texts]
        if READS_FILES & words_in(plain) or _is_computed(value):
            names.add(".")
        yield from (
            file
            for text in texts
            for name in ROLES_FILE.findall(text)
            if (file := self.folder / name).exists()
        )
        for name in sorted(names):
            for folder in (self.folder / "files", self.folder / "templates"):
                if (folder / name).exists():
                    yield folder / name


def _is_computed(value: Any) -> bool:
    """Whether a template says which file of the role a task reads."""
    if isinstance(value, Mapping):
        if value.get("remote_src") is True:
            return False  # the node's own file
        src = ROLES_FILE.sub("/", str(value.get("src", "")))
        return ("{{" in src and not src.startswith("/")) or any(map(_is_computed, value.values()))
    return isinstance(value, list | tuple) and any(map(_is_computed, value))


def _rest(role: str) -> str:
    """What of the folders of a role, and of those that it uses, all of its tasks depend on."""
    folders = (ROOT / "roles" / each for each in roles_within(role, ROOT))
    rest = (path for folder in folders for path in sorted(folder.iterdir()) if path.name not in OF_TASKS)
    return tree_hash(*(str(path.relative_to(ROOT)) for path in rest))
