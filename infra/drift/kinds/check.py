"""check: what a program that a role left on the node says of settings only it can read."""

from __future__ import annotations

from infra.drift.kind import Found, How, Kind, is_list
from infra.drift.looks import Look
from infra.drift.node import run


def look_at_check(node: Look, key: str, how: How) -> Found:
    """What `how["argv"]` says, line by line."""
    return {"output": run(how["argv"]).splitlines()}


KINDS = (Kind("check", look_at_check, {"output": is_list}, list_aspect="output"),)
