"""What is there beside what the roles made: known at its first seal, and a difference when it comes later.

A kind made from `Known` lists such things, each as a line. One that goes away is no difference, for no task
put it there: a link that flaps takes its routes along, and brings them back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from infra.drift.kind import Found, Kind, added, in_words
from infra.drift.looks import Look

if TYPE_CHECKING:
    from infra.drift.findings import Difference
    from infra.drift.manifest import Entry, Manifest
    from infra.drift.merge import HostSeal, Turn
    from infra.drift.repair import Obstacles


def with_known(node: Look, lines: dict[str, list[str]]) -> Found:
    """Aspect → lines, with those that were sealed and are gone."""
    return {what: sorted({*found, *(node.want.get(what) or ())}) for what, found in lines.items()}


# On the controller


class Known(Kind):
    """Lists of what nobody but the roles may add to."""

    def ours(self, run: HostSeal, aspect: str, line: str) -> bool:
        """Whether tasks account for something new."""
        return False

    def comes_along(self, before: Entry, aspect: str, line: str) -> bool:
        """Whether something new is of what was not there at the seal BEFORE, as a new link's address."""
        return False

    def key_of(self, aspect: str, line: str) -> str:
        """By what a line is known when it says something else; most are by all that they say."""
        return line

    def undo(self, found: Obstacles, aspect: str, line: str, manifest: Manifest) -> None:
        """Note how something added is taken away; with consent only."""

    def set_back(self, found: Obstacles, aspect: str, line: str, before: str) -> None:
        """Note how what was known as BEFORE, and says LINE now, says that again; with consent only."""

    def settled(self, run: HostSeal, before: Entry, entry: Entry, turn: Turn) -> Entry:
        """What was known, and what is new by tasks."""
        if before.want == entry.want:
            return entry
        want: dict[str, Any] = dict(entry.want)
        for aspect in entry.want.keys() & before.want.keys():
            known = set(before.want[aspect] or ())
            new = set(entry.want[aspect] or ()) - known
            new_too = {line for line in new if self.comes_along(before, aspect, line)}
            strangers = {line for line in new - new_too if not self.ours(run, aspect, line)}
            want[aspect] = sorted(known | new - strangers)
            if strangers:
                run.not_repaired.append(f"{entry.kind} {entry.key}: {aspect}: {', '.join(sorted(strangers))}")
        return entry.model_copy(update={"want": want})

    def explain(self, expected: Mapping[str, Any], found: Mapping[str, Any]) -> str:
        """What was added to which list."""
        said = []
        for aspect, lines in found.items():
            known = set(expected.get(aspect) or ())
            more = [line for line in lines or () if line not in known]
            said.append(f"{self.said.get(aspect, aspect)} added: {in_words(more)}")
        return "; ".join(said)

    def obstacle(self, found: Obstacles, difference: Difference, manifest: Manifest) -> None:
        """What was added, with the command that takes it away; what was changed, with one to set it back."""
        for aspect in difference.found:
            known = map(str, difference.expected.get(aspect) or ())
            sealed = {self.key_of(aspect, line): line for line in known}
            for line in added(difference, aspect) if aspect != "error" else ():
                if before := sealed.get(self.key_of(aspect, line)):
                    self.set_back(found, aspect, line, before)
                else:
                    self.undo(found, aspect, line, manifest)


KINDS = ()
