"""nft: the rules of an nftables table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.drift.kind import Found, How, Kind, is_list
from infra.drift.looks import Look
from infra.drift.node import run

if TYPE_CHECKING:
    from infra.drift.findings import Difference
    from infra.drift.manifest import Manifest
    from infra.drift.repair import Obstacles


def look_at_nft(node: Look, key: str, how: How) -> Found:
    """The rules of a table (`inet filter`), without counters."""
    try:
        text = run(["nft", "--stateless", "list", "table", *key.split()])
    except ValueError as error:
        if "No such file" in str(error):
            return {"rules": None}
        raise
    return {"rules": [line.strip() for line in text.splitlines() if line.strip()]}


# On the controller


class Nft(Kind):
    """A table of nftables."""

    def obstacle(self, found: Obstacles, difference: Difference, manifest: Manifest) -> None:
        """Rules in force that are not the file's: that says of itself that it replaces the table."""
        sealed = manifest.entry(difference.kind, difference.key)
        if file := sealed and sealed.how.get("file"):
            found.run(f"made the table {difference.key} again", "nft", "-f", str(file))


KINDS = (Nft("nft", look_at_nft, {"rules": is_list}, list_aspect="rules", knows_others=True),)
