"""Versions of Debian's packages, held against declared ones."""

from __future__ import annotations

import re


def is_of(version: str, wanted: str) -> bool:
    """Whether a package's version is one of the declared. Empty is any.

    Declared is its beginning, without the epoch: `12.4.131~12.4.1-2` is one of `12.4`, and `12.40` is not.
    """
    return not wanted or bool(re.match(re.escape(wanted) + r"(?![0-9])", without_epoch(version)))


def without_epoch(version: str) -> str:
    """`1:4.6.0-1` → `4.6.0-1`."""
    return version.partition(":")[2] if ":" in version else version


def numbers(version: str) -> tuple[int, ...]:
    """What a version begins with: `18.2.7+ds-1` → 18, 2, 7."""
    found = re.match(r"[0-9]+(?:[.][0-9]+)*", without_epoch(version))
    return tuple(map(int, found[0].split("."))) if found else ()
