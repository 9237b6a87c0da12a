"""A block or keys of ours in a file of somebody's: the rest stays as it is, byte for byte. Python 3.8."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Collection, Sequence

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


def without_keys(text: bytes, own: Collection[str], before: bytes) -> bytes:
    """A file of authorised keys without the OWN ones, which the record has by their fingerprints.

    What was there BEFORE stays, and whatever others have added: by one of these somebody may come in.
    """
    there = set(map(bytes.strip, before.splitlines()))
    lines = text.splitlines(keepends=True)
    return b"".join(line for line in lines if line.strip() in there or _as_recorded(line) not in own)


def _as_recorded(line: bytes) -> str:
    """A line with the key as its fingerprint, as `ssh-keygen -l` prints it."""
    words = line.decode(errors="replace").split()
    for number, word in enumerate(words):
        try:
            raw = binascii.a2b_base64(word + "===") if word.startswith("AAAA") else b""
        except ValueError:
            raw = b""
        if raw:
            digest = base64.b64encode(hashlib.sha256(raw).digest()).decode()
            words[number] = "SHA256:" + digest.rstrip("=")
    return " ".join(words)


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
