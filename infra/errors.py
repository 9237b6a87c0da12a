"""The errors a user sees, and the exit codes they end in."""

from enum import IntEnum


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
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.hint}" if self.hint else self.message


class BadInputError(CausewayError):
    """The declaration, or a command's arguments, cannot be used as they are."""

    exit_code = ExitCode.BAD_INPUT
