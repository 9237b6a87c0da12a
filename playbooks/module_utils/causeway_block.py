"""A block of ours in a file of somebody's: the rest of it stays as it is, byte for byte. Python 3.8."""

from __future__ import annotations

import re
from collections.abc import Sequence

BEGIN = b"# BEGIN Causeway: a role writes this block, the rest of the file is yours"
CUT = b" (its last line had no end)"
END = b"# END Causeway"
FIRST = b"^%s(%s)?\n" % (re.escape(BEGIN), re.escape(CUT))
LAST = b"^%s(?:\n|\\Z)" % re.escape(END)
BLOCK = re.compile(b"%s(?:(?!%s)[^\n]*\n)*?%s" % (FIRST, re.escape(BEGIN), LAST), re.MULTILINE)
LONE = re.compile(b"%s|%s" % (FIRST.replace(b"\n", b"(?:\n|\\Z)"), LAST), re.MULTILINE)


def with_block(text: bytes, lines: Sequence[bytes]) -> bytes:
    """A file with these lines in a block: where one stands, else at its end."""
    before, after, cut = _around(text)
    if before and not before.endswith(b"\n"):
        before, cut = before + b"\n", CUT
    first = BEGIN + cut
    return before + b"\n".join([first, *lines, END, b""]) + after


def without_block(text: bytes) -> bytes:
    """A file as it is without."""
    before, after, _cut = _around(text)
    return before + after


def _around(text: bytes) -> tuple[bytes, bytes, bytes]:
    """What is before and after the first block, without another one; whether that had to end a line first.

    Where the end of a block is missing, its first line alone is ours: what follows may be somebody's by now.
    """
    block = BLOCK.search(text)
    if block is None:
        return LONE.sub(b"", text), b"", b""
    before, after = text[: block.start()], BLOCK.sub(b"", text[block.end() :])
    if block[1] and not after:
        before = before[:-1]
    return LONE.sub(b"", before), LONE.sub(b"", after), block[1] or b""
