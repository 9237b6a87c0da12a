"""The errors a user sees, the exit codes they end in, and what of a text a terminal may be given."""

import re
from enum import IntEnum

HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What moves the cursor, sets the clipboard, hides or turns round other text; a tab and a new line do not."""
SENTENCE_CHARS = 400


def shown(text: str) -> str:
    """A text that a node may have written, as it can be shown: control characters by their numbers."""
    return HARMFUL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str, most: int | None = None) -> str:
    """The same in one line, of so many characters at most: whoever wrote it cannot make up lines of ours."""
    line = shown(text if most is None else text[: most + 1]).replace("\n", "\\n")
    return line if most is None or len(line) <= most else line[: most - 1] + "…"


def sentence(text: str) -> str:
    """The same in one line that is no burden to read."""
    return one_line(text.strip(), SENTENCE_CHARS)


def why(error: Exception) -> str:
    """What went wrong, in a sentence; of an exception that nobody foresaw also its name."""
    if isinstance(error, CausewayError):
        return sentence(error.message)
    return sentence(f"{type(error).__name__}: {error}")


class ExitCode(IntEnum):
    """What a `causeway` command's exit status means; the same for every command."""

    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    DRIFT = 3


class CausewayError(Exception):
    """Something the user can act on: what is wrong, and what to do next.

    Printed as two lines without a traceback. Everything else that escapes is a bug.
    """

    exit_code = ExitCode.FAILED

    def __init__(self, message: str, hint: str = "") -> None:
        message, hint = shown(message), shown(hint)
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.hint}" if self.hint else self.message


class BadInputError(CausewayError):
    """The declaration, or a command's arguments, cannot be used as they are."""

    exit_code = ExitCode.BAD_INPUT
