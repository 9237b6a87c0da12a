"""managed_block: lines that a role keeps in a file of somebody's; what else that says is not looked at."""

from __future__ import annotations

from infra.drift.kind import Found, How, Kind, is_list
from infra.drift.looks import Look
from infra.drift.node import text_of

BLOCK_BEGIN, BLOCK_END = "# BEGIN Causeway", "# END Causeway"


def look_at_block(node: Look, key: str, how: How) -> Found:
    """The lines between the marks; none where a mark is missing."""
    lines = text_of(key, "").splitlines()
    first = next((number for number, line in enumerate(lines) if line.startswith(BLOCK_BEGIN)), len(lines))
    last = next((number for number in range(first, len(lines)) if lines[number] == BLOCK_END), first)
    return {"lines": lines[first + 1 : last]}


# On the controller

KINDS = (
    Kind(
        "managed_block",
        look_at_block,
        {"lines": is_list},
        always=("lines",),
        never_none=("lines",),
        list_aspect="lines",
        stands_alone=True,
    ),
)
