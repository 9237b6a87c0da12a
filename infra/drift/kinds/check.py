"""check: what a program that a role left on the node says of settings only it can read.

What such a program finds beside what the role made, it says in lines that begin with `BESIDE_START`. They are
of a kind of the role's own (`Known`) that looks by `look_at_beside`: what was there at the seal is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from infra.drift.kind import Found, How, Kind, is_list
from infra.drift.kinds.known import with_known
from infra.drift.kinds.slow import watched
from infra.drift.looks import Look, sha256
from infra.drift.node import run

BESIDE_START = "beside "


def look_at_check(node: Look, key: str, how: How) -> Found:
    """What `how["argv"]` says, line by line; what costs much (`how["watched"]`) as the timer last saw it."""

    def read() -> list[str]:
        return [line for line in told_by(node, how["argv"]) if not line.startswith(BESIDE_START)]

    return {"output": told_lately(node, "output", [key, how["argv"]], how, read)}


def look_at_beside(node: Look, key: str, how: How) -> Found:
    """What the same program says of what is there beside it, with what was sealed and is gone."""

    def read() -> list[str]:
        lines = [line for line in told_by(node, how["argv"]) if line.startswith(BESIDE_START)]
        found = with_known(node, {"beside": [line[len(BESIDE_START) :] for line in lines]})
        return list(found["beside"])

    return {"beside": told_lately(node, "beside", ["beside", key, how["argv"]], how, read)}


def told_by(node: Look, argv: list[str]) -> list[str]:
    """A program's lines. It is asked once, also where two kinds take their lines from it."""
    lines: list[str] = node.once(f"told by {argv}", lambda: run(argv).splitlines())
    return lines


def told_lately(
    node: Look, aspect: str, what: list[Any], how: How, read: Callable[[], list[str]]
) -> list[str]:
    """The lines that `read()` gives, or the timer's where it asks for them as well (`how["watched"]`)."""
    if not how.get("watched"):
        return read()
    name = f"check-{sha256(repr(what).encode()).hexdigest()[:16]}"
    return watched(node, name, read, node.want.get(aspect))


BESIDE_ASPECTS = {"beside": is_list}
BESIDE_OURS: Mapping[str, Any] = {
    "always": ("beside",),
    "never_none": ("beside",),
    "said": {"beside": "beside ours"},
    "stands_alone": True,
}
KINDS = (Kind("check", look_at_check, {"output": is_list}, list_aspect="output"),)
