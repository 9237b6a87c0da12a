"""Looks at a whole node, which every node has: they come with root's keys, that are governed always."""

from __future__ import annotations

from collections.abc import Iterator

from infra.drift.kind import Claim
from infra.drift.kinds.known import Known


class Everywhere(Known):
    """Has one claim on every node."""

    key = "all"

    def following(self, claim: Claim) -> Iterator[Claim]:
        """That one."""
        if (claim.kind, claim.key) == ("authorized_keys", "root"):
            yield Claim(self.name, self.key)


def escaped(text: str) -> str:
    """A text for `sed` to find as it is, between bars."""
    return text.translate({ord(x): f"\\{x}" for x in "\\.*[]^$|"})


def replaced(text: str) -> str:
    """A text for `sed` to put somewhere as it is, between bars."""
    return text.translate({ord(x): f"\\{x}" for x in "\\&|"})


KINDS = ()
