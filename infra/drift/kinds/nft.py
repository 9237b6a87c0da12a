"""nft: the rules of an nftables table."""

from __future__ import annotations

from infra.drift.kind import Found, How, Kind, is_list
from infra.drift.looks import Look
from infra.drift.node import run


def look_at_nft(node: Look, key: str, how: How) -> Found:
    """The rules of a table (`inet filter`), without counters."""
    try:
        text = run(["nft", "--stateless", "list", "table", *key.split()])
    except ValueError as error:
        if "No such file" in str(error):
            return {"rules": None}
        raise
    return {"rules": [line.strip() for line in text.splitlines() if line.strip()]}


KINDS = (Kind("nft", look_at_nft, {"rules": is_list}, list_aspect="rules"),)
