"""Questions that cost more than they are worth at every scan: the timer on the node asks them.

A scan reads what it found, some ten minutes before. A seal and a thorough scan ask anew.
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


def slow(node: Look, name: str, read: Callable[[], list[str]]) -> list[str] | None:
    """The lines that `read()` gives; None where nobody has asked yet.

    A question that comes to mean something else takes another name: an older timer may have answered it.
    """
    if node.mode in ("seal", "thorough"):
        return read()
    path = f"{ANSWERS}/{name}"
    if node.patient and not is_recent(path):
        os.makedirs(ANSWERS, 0o700, exist_ok=True)
        with open(path + ".part", "w") as file:
            file.write("\n".join([*read(), ""]))
        os.replace(path + ".part", path)
    return text_of(path, "").splitlines() if os.path.exists(path) else None


def is_recent(path: str) -> bool:
    """Whether an answer is there and young enough, also one that nothing was found."""
    try:
        return 0 <= time.time() - os.stat(path).st_mtime < OLD_S
    except FileNotFoundError:
        return False


KINDS = ()
