"""Waiting for what comes about by itself: a condition and a deadline, never a time that should do."""

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], what: str, limit_s: float = 300) -> None:
    """Come back once `condition` holds; AssertionError after `limit_s` seconds.

    Five minutes are for what takes seconds: the machine may do much else. Twice as long as a look takes is
    rested: one into a node costs a quarter of a second of a core, of which what is waited for has two.
    """
    deadline = time.monotonic() + limit_s
    while True:
        began = time.monotonic()
        if condition():
            return
        looked = time.monotonic()
        assert looked < deadline, f"waited {limit_s:g} s in vain for: {what}"
        time.sleep(min(max(0.05, 2 * (looked - began)), 1))
