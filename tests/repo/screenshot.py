"""Draws the end of what a command prints on a terminal, as an SVG for the README.

python -m tests.repo.screenshot docs/up.svg Cluster GPUs ./run up    → from the last line that begins with the
                                                                       one word to the last one with the other
"""

import os
import pty
import re
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

COLUMNS = 120
FETCHED = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Rich's picture asks another site for its font. Ours is looked at without one, in the reader's own."""


def printed(argv: list[str]) -> str:
    """What a command prints on a terminal of `COLUMNS`; SystemExit with its status where it failed."""
    found = bytearray()

    def kept(file: int) -> bytes:
        found.extend(data := os.read(file, 1 << 16))
        return data

    terminal = ("env", f"COLUMNS={COLUMNS}", "TERM=xterm-256color")
    if status := os.waitstatus_to_exitcode(pty.spawn([*terminal, *argv], kept)):
        sys.exit(status)
    return found.decode(errors="replace").replace("\r\n", "\n")


def end_of(text: str, first: str, last: str) -> list[Text]:
    """From the last line that begins with `first` to the last with `last`; each as it stood in the end."""
    lines = [Text.from_ansi(line.rpartition("\r")[2]) for line in text.rstrip().split("\n")]
    at = []
    for word in (first, last):
        begins = [number for number, line in enumerate(lines) if line.plain.startswith(word)]
        if not begins:
            sys.exit(f"no line begins with {word!r}")
        at.append(begins[-1])
    return lines[at[0] : at[1] + 1]


def drawn(lines: list[Text], title: str) -> str:
    """The picture of a terminal with these lines."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    for line in lines:
        console.print(line)
    return FETCHED.sub("", console.export_svg(title=title, theme=SVG_EXPORT_THEME, unique_id="terminal"))


if __name__ == "__main__":
    target, first, last, *command = sys.argv[1:]
    Path(target).write_text(drawn(end_of(printed(command), first, last), " ".join(command)))
