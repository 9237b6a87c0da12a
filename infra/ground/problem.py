"""What is wrong with a declaration, in the form every command and golden file shows it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from infra.errors import BadInputError

Severity = Literal["error", "warning"]
LONGEST_SHOWN = 60
LONGEST_WORD = 200
"""Keys and names may be as long as somebody likes; a line that is longer than any screen tells nobody."""


@dataclass(frozen=True)
class Problem:
    """One finding. `path` is empty when the file as a whole is meant.

    `message` reads on after the path; `suggestion` is a value that would be right, `hint` a sentence
    that says what to do where no single value would.
    """

    path: str
    message: str
    found: str = ""
    allowed: str = ""
    suggestion: str | None = None
    hint: str = ""
    severity: Severity = "error"
    rule: str = "schema"
    file: str | None = None
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        position = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        place = _shown(self.path) or position or "declaration"
        where = f" ({position})" if self.path and self.file else ""
        closing = f" {self.hint[:1].upper()}{self.hint[1:]}." if self.hint else ""
        if self.suggestion is not None:
            closing += f" Did you mean {self.suggestion}?"
        prefix = "warning: " if self.severity == "warning" else ""
        end = f"{'.' if closing else ''}{_shown(closing)}"
        return f"{prefix}{in_one_line(place)}: {_shown(self.message)}{in_one_line(where)}{end}"

    def as_json(self) -> dict[str, Any]:
        """Every field, and the line of text as `text`."""
        return {**asdict(self), "text": str(self)}


class DeclarationError(BadInputError):
    """The declaration cannot be used; `problems` says everything one phase found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(frozen=True)
class Source:
    """Where a declaration was read: the file's name and the line of each path in it."""

    file: str | None = None
    lines: Mapping[str, int] = field(default_factory=dict)

    def locate(self, problem: Problem) -> Problem:
        """The problem with file and line; a path that is missing in the file gets its parent's line."""
        return replace(problem, file=self.file, line=self.line_of(problem.path))

    def line_of(self, path: str) -> int | None:
        """The line of a path or of the nearest parent that the file has; counted from 1."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path)

    def sort(self, problems: Iterable[Problem]) -> list[Problem]:
        """The problems with their lines, in the order of the file."""
        located = [self.locate(problem) for problem in problems]
        return sorted(located, key=lambda problem: problem.line or 0)


def show(value: object) -> str:
    """A value as the user wrote it, short enough for one line: text in quotes, numbers bare."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple, set)):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return _shorten(_digits(value))
    return json.dumps(_shorten(str(value)), ensure_ascii=False)


def _digits(value: float) -> str:
    """A number without exponent where that is short, also one longer than Python agrees to print."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else str(value)
    return str(value) if value.bit_length() < 10_000 else "a huge number"


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"


def in_one_line(text: str) -> str:
    """A text in which nothing ends a line, moves a cursor or is invisible: its number stands there."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _shown(text: str) -> str:
    """In one line, in which no word is longer than a line."""
    words = in_one_line(text).split(" ")
    return " ".join(word if len(word) <= LONGEST_WORD else f"{word[: LONGEST_WORD - 1]}…" for word in words)


def listing(values: Iterable[object]) -> str:
    """`1, 2, 4, 8`."""
    return ", ".join(str(value) for value in values)


def nearest(value: object, known: Iterable[str]) -> str | None:
    """The known name most like `value`, or None: also where a unit was left off (`mtu` → `mtu_bytes`)."""
    import difflib

    names, text = list(known), str(value)[:100]
    close = difflib.get_close_matches(text, names, n=1, cutoff=0.7)
    prefixed = [name for name in names if name.startswith(f"{text}_") or text.startswith(f"{name}_")]
    return next(iter(close or prefixed or difflib.get_close_matches(text, names, n=1)), None)
