"""What a kind of governed thing is: everything that recording, sealing, scanning and repairing ask of it.

Each file of `infra/drift/kinds/` and of a role's `drift/` has the tuple `KINDS`, of this class or of one made
from it. `look` runs on nodes: it, and what it calls, travel there as source, written for Python 3.8 and
its standard library; what is below them in such a file stays on the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infra.drift.findings import Difference
    from infra.drift.looks import Look
    from infra.drift.manifest import Entry, Manifest
    from infra.drift.merge import HostSeal, Turn
    from infra.drift.repair import Obstacles

Value = Any
"""A JSON value: what the probe reports of one aspect."""
Found = dict[str, Any]
"""Aspect → value. Names that begin with an underscore are not compared."""
How = dict[str, Any]
"""What the probe must know beyond the key."""
Shape = Callable[[Any], bool]
"""Whether a value that a node answered is one that an aspect may have."""
DEEPEST = 4
SHOWN_CHARS = 200


@dataclass(frozen=True)
class Task:
    """A finished task on one host: resolved module name, final arguments, result."""

    name: str
    module: str
    args: Mapping[str, Any]
    result: Mapping[str, Any]
    changed: bool = False
    handler: bool = False
    declared: bool = False
    """What it makes depends on the declaration alone: what it makes no more goes."""


@dataclass(frozen=True)
class Claim:
    """Something a task made true. `reported`: aspect → value that the task itself gave."""

    kind: str
    key: str
    reported: Mapping[str, Value] = field(default_factory=dict)
    how: Mapping[str, Value] = field(default_factory=dict)
    """What the probe must know beyond the key."""
    aspects: tuple[str, ...] | None = None
    """Restricts what is compared to these; None for all that the kind has."""


class Uncovered(Exception):  # noqa: N818 - not an error: the answer that no record can say this
    """The module is known, but what this call of it did cannot be told from its result."""


Recorder = Callable[[Task], Iterator[Claim]]
"""Finished task → what it made true, of whichever kinds. Raises Uncovered."""


def is_text(value: Any) -> bool:
    """A text."""
    return isinstance(value, str)


def is_flag(value: Any) -> bool:
    """A truth value."""
    return isinstance(value, bool)


def is_number(value: Any) -> bool:
    """A number that fits 64 bits; neither NaN nor a truth value, which Python takes for one."""
    return type(value) in (int, float) and abs(value) < 1 << 64


def is_list(value: Any) -> bool:
    """A list of texts."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def is_plain(value: Any, depth: int = DEEPEST) -> bool:
    """A JSON value that can be compared, kept and sent again."""
    if isinstance(value, list | dict):
        parts = value.values() if isinstance(value, dict) else value
        return depth > 0 and all(is_plain(part, depth - 1) for part in parts)
    return value is None or isinstance(value, str | bool) or is_number(value)


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind of thing. What is given says what it is; methods, how it is recorded, sealed and repaired."""

    name: str
    """As manifests have it. `KIND KEY` for one key of another kind, as `effective sshd -T`."""
    look: Callable[[Look, str, How], Found] | None
    """Reads the thing on a node: its aspects; `_since` (seconds since 1970), `_text` (only what every user
    may read). Errors are findings. None for a kind that this version does not have."""
    aspects: Mapping[str, Shape]
    """What is sealed and compared → what a value of it has to be, where it is not None."""
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    """Of what its look says beyond its aspects."""
    modules: Mapping[str, Recorder] = field(default_factory=dict)
    """Resolved name of an Ansible module → what records its tasks."""
    always: tuple[str, ...] = ()
    """What there is always to be said of it, and sealing counts on."""
    never_none: tuple[str, ...] = ()
    """Aspects of these that always have a value."""
    what_it_is: str = ""
    """The aspect with which all others change: a file or a link, an account or none."""
    list_aspect: str = ""
    """The aspect that is a list: what was added and what is missing says more than both lists."""
    said: Mapping[str, str] = field(default_factory=dict)
    """Aspect → how a difference of it is said, where its values say nothing."""
    stands_alone: bool = False
    """A task brings it back without a change to what other tasks made: a package's installation writes files
    and starts units, an interface that goes down takes its routes with it."""
    is_sum: bool = False
    """It says what several things are together: sealed after them, and as far as they count."""
    one_of: frozenset[str] = frozenset()
    """Kinds of which a key is one at a time."""
    gathered: tuple[str, ...] = ()
    """Lists in `how` to which each task adds its own."""
    in_part: tuple[str, ...] = ()
    """What `how` says only as long as no task governs the whole of it."""
    knows_others: bool = False
    """Its look is told the keys of all sealed things of this kind, also where only some are looked at."""
    folders: tuple[str, ...] = ()
    """Directories (regular expressions) of files whose meaning is their sum: their names are listed."""

    # Recording

    def completed(self, claim: Claim) -> Claim:
        """A claim of this kind with what every one of them has to say."""
        return claim

    def following(self, claim: Claim) -> Iterator[Claim]:
        """What of this kind follows from a claim of another, as a directory's listing from a file in it."""
        yield from ()

    # Whether a task answers for what it met

    def asked(self, task: Task, what: str, known: bool) -> bool:
        """Whether the task was asked for what it reported, and so compared it.

        KNOWN: its module is one that a kind records. Modules of ours, and what a task says it governs, report
        on purpose only.
        """
        return True

    def compared(self, task: Task, claim: Claim) -> dict[str, Value]:
        """What a task of a recorded module compares beyond what it reports: aspect → value it asked for."""
        return {}

    def untouched(self, task: Task) -> set[str]:
        """What a change by the task leaves as it was: a file written anew keeps the owner it was given."""
        return set()

    def shown_as(self, what: str) -> str:
        """The sealed aspect that shows what a task reported."""
        return what

    def value(self, what: str, found: Mapping[str, Any]) -> Value:
        """Of the values found, the one that shows what a task reported."""
        return found.get(self.shown_as(what))

    def holds(self, what: str, value: Value, found: Mapping[str, Any]) -> bool:
        """Whether the values found are as a task reported."""
        return bool(self.value(what, found) == value)

    # Sealing

    def asking(self, claim: Mapping[str, Any]) -> How:
        """`how` for the look that seals a recorded claim."""
        return dict(claim["how"])

    def check(self, found: Mapping[str, Any]) -> None:
        """Beyond the shapes of its aspects, whether an answer makes sense. ValueError says what does not."""

    def meaningless(self, found: Mapping[str, Any]) -> set[str]:
        """Aspects that mean nothing as things stand."""
        return set()

    def replaced(self, before: Entry, entry: Entry) -> bool:
        """Whether another thing stands in its place, which no task put there."""
        return False

    def allowed(self, entry: Entry) -> set[str]:
        """Aspects whose new value counts whoever set it."""
        return set()

    def known_before(
        self, run: HostSeal, role: str, claim: Mapping[str, Any], found: Mapping[str, Any]
    ) -> Entry | None:
        """What was sealed of a thing under another key."""

    def settled(self, run: HostSeal, before: Entry, entry: Entry, turn: Turn) -> Entry:
        """The entry to seal, with what was sealed before wherever it would bless what no task made."""
        return entry if before.want == entry.want else run.accounted(before, entry, turn)

    def inherited(self, run: HostSeal, entry: Entry, gone: list[Entry]) -> dict[str, Any]:
        """What is sealed of a thing, with what it is to know of those that are no entries any more."""
        return dict(entry.want)

    # Saying and repairing

    def reads(self, path: str) -> bool:
        """Whether tasks of things of this kind also have something else read what a role writes there."""
        return False

    def explain(self, expected: Mapping[str, Any], found: Mapping[str, Any]) -> str:
        """How `found` differs from `expected`, in words."""
        if self.list_aspect:
            return new_or_gone(expected.get(self.list_aspect), found.get(self.list_aspect))
        return "; ".join(
            self.said.get(aspect)
            or f"{aspect} is {in_words(value)}, expected {in_words(expected.get(aspect))}"
            for aspect, value in found.items()
        )

    def obstacle(self, found: Obstacles, difference: Difference, manifest: Manifest) -> None:
        """Note what a role's tasks cannot do about a difference."""


def governed_aspects(kind: Kind, claim: Mapping[str, Any]) -> list[str]:
    """What of the thing the tasks of a run govern."""
    return list(claim["aspects"] or kind.aspects)


def added(difference: Difference, aspect: str) -> list[str]:
    """What a list has more than was sealed."""
    expected = set(difference.expected.get(aspect) or ())
    return [str(item) for item in difference.found.get(aspect) or () if item not in expected]


def new_or_gone(expected: Any, found: Any) -> str:
    """How two lists differ, in words; None for one that is not there."""
    if expected is None or found is None:
        return "is gone" if found is None else "is there, expected absent"
    old, new = set(expected), set(found)
    more = [line for line in found if line not in old]
    missing = [line for line in expected if line not in new]
    parts = [f"added: {in_words(more)}"] if more else []
    parts += [f"missing: {in_words(missing)}"] if missing else []
    return "; ".join(parts) or "the order changed"


def in_words(value: Any) -> str:
    """A value as it is shown, shortened."""
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        value = ", ".join(str(item) for item in value) or "none"
    text = str(value)
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"
