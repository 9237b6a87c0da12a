"""Questions that cost more than they are worth at every scan: the timer on the node asks them.

Of what takes long (`slow`) a scan reads what the timer found, some ten minutes before. A seal and a thorough
scan ask anew. What is quick and still most of a look's work (`watched`) the timer asks at each of its looks:
a scan believes its answer as long as it is what was sealed, and asks by itself otherwise.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from infra.drift.looks import Look
from infra.drift.node import text_of

ANSWERS = "/run/causeway-drift"
"""For root only, and gone with the next boot."""
OLD_S = 600
LATELY_S = 180
"""Longest that a scan believes that nothing changed: three looks of the timer."""


def slow(node: Look, name: str, read: Callable[[], list[str]]) -> list[str] | None:
    """The lines that `read()` gives; None where nobody has asked yet.

    A question that comes to mean something else takes another name: an older timer may have answered it.
    """
    if node.mode in ("seal", "thorough"):
        return read()
    path = f"{ANSWERS}/{name}"
    if node.patient and not is_recent(path, OLD_S):
        keep_answer(path, read())
    return text_of(path, "").splitlines() if os.path.exists(path) else None


def watched(node: Look, name: str, read: Callable[[], list[str]], sealed: list[str] | None) -> list[str]:
    """The lines that `read()` gives, or lately gave to the timer if they are those sealed.

    So a difference is never an old one: what was repaired a moment before is as sealed again.
    """
    path = f"{ANSWERS}/{name}"
    believes = not (node.asks_anew or node.patient) and is_recent(path, LATELY_S)
    if believes and text_of(path, "").splitlines() == sealed:
        return sealed
    if not (node.patient or node.mode == "seal"):
        return read()  # a scan writes nothing
    if os.path.exists(path):
        os.unlink(path)  # there may be no answer any more
    lines = read()
    try:
        keep_answer(path, lines)
    except OSError:
        return lines  # no room: scans ask by themselves
    return lines


def keep_answer(path: str, lines: list[str]) -> None:
    """Whole or not at all."""
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    with open(path + ".part", "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write("\n".join([*lines, ""]))
    os.replace(path + ".part", path)


def is_recent(path: str, limit_s: float) -> bool:
    """Whether an answer is there and young enough, also one that nothing was found."""
    try:
        return 0 <= time.time() - os.stat(path).st_mtime < limit_s
    except OSError:
        return False


KINDS = ()
