"""What a daemon does beside what its files say: most can be told things while they run, and any can hang.

A daemon is a file of its role's `drift/`, with a kind made from `Live` and a look that calls `in_force`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infra.drift.kind import Claim, Found, Kind, is_flag, is_list, new_or_gone
from infra.drift.looks import Look

if TYPE_CHECKING:
    from infra.drift.findings import Difference
    from infra.drift.manifest import Manifest
    from infra.drift.repair import Obstacles

LIVE_LIMIT_S = 4
"""Longest that a daemon may take to answer a question that it answers out of its memory."""
STARTING_S, AGAIN_S = 3, 0.3
"""For so long a daemon is asked again, and how soon, that refuses to answer: it may just be starting. Less
than LIVE_LIMIT_S: one that says nothing in its time, as on a busy node, is asked once more, then it hangs."""


def in_force(
    node: Look,
    read: Callable[[], list[str]],
    holds: Callable[[list[str]], bool] = lambda _: True,
    starting_s: float = STARTING_S,
) -> Found:
    """Whether a daemon answers, and in which lines it and its files differ.

    What differed when it was sealed is the way in which it prints its defaults; that less differs than then
    is no difference. What else does not hold may be of one that is starting: it is read again, as after a
    refusal.
    """
    known = node.want.get("differs") or []
    try:
        lines = patiently(node, read, lambda found: set(found) <= set(known) or holds(found), starting_s)
    except TimeoutError:
        if node.mode == "seal":
            raise
        return {"answers": False, "differs": known}
    return {"answers": True, "differs": known if set(lines) <= set(known) else sorted(set(lines))}


def patiently(
    node: Look, read: Callable[[], list[str]], holds: Callable[[list[str]], bool], starting_s: float
) -> list[str]:
    """What a daemon says once that holds, or at the last; why it refuses, or TimeoutError where it hangs.

    What does not hold is read again for starting_s, a refusal answered for STARTING_S: then in STARTING_S +
    AGAIN_S + 2 * LIVE_LIMIT_S at most. Where several hang, the later ones are asked once.
    """
    began = time.monotonic()
    try:
        while True:
            passed = time.monotonic() - began
            try:
                lines = read()
                if passed >= min(starting_s, node.grace_s) or holds(lines):
                    return lines
            except (TimeoutError, ValueError):
                if passed >= min(STARTING_S, node.grace_s):
                    raise
            time.sleep(AGAIN_S)
    finally:
        node.grace_s = max(0, node.grace_s - (time.monotonic() - began))


def differing_lines(now: list[str], kept: list[str]) -> list[str]:
    """What a daemon has in force and its files do not say, and the other way round."""
    more = [f"only in force: {line}" for line in now if line not in kept]
    return more + [f"only in its files: {line}" for line in kept if line not in now]


def dns_answer(port: int, name: str, kind: int, group: int) -> None:
    """Ask a name server on this node, and wait for any answer (RFC 1035). TimeoutError without one."""
    from _socket import AF_INET, SOCK_DGRAM, socket

    words = b"".join(bytes([len(word)]) + word.encode() for word in name.split("."))
    asked = b"CW\1\0\0\1\0\0\0\0\0\0" + words + bytes([0, 0, kind, 0, group])
    until = time.monotonic() + LIVE_LIMIT_S
    while time.monotonic() < until:
        link = socket(AF_INET, SOCK_DGRAM)
        link.settimeout(1)
        try:
            link.connect(("127.0.0.1", port))
            link.send(asked)
            if link.recv(512)[:2] == b"CW":
                return
        except OSError:  # nobody listens yet, or it takes its time
            time.sleep(0.1)
        finally:
            link.close()
    raise TimeoutError(f"no answer from port {port}")


# On the controller


@dataclass(frozen=True, eq=False)
class Live(Kind):
    """A daemon in force. Its key is its unit."""

    unit: str = ""
    """The unit, or with a `@` at its end the template of several."""
    again: str = "restart"
    """What systemctl does to have it read its files again."""

    def following(self, claim: Claim) -> Iterator[Claim]:
        """What it does, from the unit that is to run."""
        ours = claim.key == self.unit or (self.unit.endswith("@") and claim.key.startswith(self.unit))
        if claim.kind == "unit" and ours and claim.reported.get("active") == "active":
            yield Claim(self.name, claim.key)

    def explain(self, expected: Mapping[str, Any], found: Mapping[str, Any]) -> str:
        """That it hangs, or what it was told."""
        if found.get("answers") is False:
            return f"runs and does not answer within {LIVE_LIMIT_S} s"
        return new_or_gone(expected.get("differs"), found.get("differs"))

    def obstacle(self, found: Obstacles, difference: Difference, manifest: Manifest) -> None:
        """A daemon has read its files, and no task makes it read them again."""
        hangs = difference.found.get("answers") is False or "error" in difference.found
        verb = "restart" if hangs else self.again
        found.run(f"had {difference.key} {verb}ed", "systemctl", verb, difference.key)


LIVE_ASPECTS = {"answers": is_flag, "differs": is_list}
LIVE: Mapping[str, Any] = {"always": ("answers", "differs"), "stands_alone": True}
KINDS = ()
