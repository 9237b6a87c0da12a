"""What becomes of a repair when nodes fail: each is set aside, and a task that fails twice alike is stopped.

Ansible by itself ends a run once every node of a wave has failed, and the first wave is a single node: so one
disk that is full kept all other nodes from being repaired. The strategy plugin asks this instead.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.ground.names import some

ALIKE = 2
"""So many nodes that fail in one task in the same way: what stops them is no node's own."""
OF_A_NODE = re.compile(r"\S*(?:\d|\btmp)\S*")
"""Words that differ from node to node where the same thing is said: numbers, addresses, temporary files."""
SO_FAR = "Done so far: "
"""Where causeway_drift_prepare begins to say what it did before it failed."""
WHAT_TO_DO = (
    ("Device or resource busy", "something is mounted over it: `findmnt` shows it, `umount` takes it off"),
    ("Read-only file system", "its file system is mounted read-only: `findmnt` and `dmesg` say why"),
    ("No space left on device", "make room: `df -h` and `df -i` say where"),
    ("Disk quota exceeded", "make room, or raise the quota"),
    ("Operation not permitted", "an attribute (`lsattr`) or a security module (`dmesg`) forbids it"),
    ("Permission denied", "an attribute (`lsattr`) or a security module (`dmesg`) forbids it"),
)
"""What a system says → what its administrator does about it, on the node."""


@dataclass(frozen=True)
class Stop:
    """Where a node failed, and with which words."""

    task: str
    message: str
    unreachable: bool = False
    ansibles: Any = field(default=None, compare=False, repr=False)
    """Ansible's own object of the task."""

    @property
    def what_to_do(self) -> str:
        """The next step, as far as the words tell."""
        if self.unreachable:
            return "bring it back"
        return next(
            (advice for words, advice in WHAT_TO_DO if words in self.message), "mend that on the node"
        )

    def way(self, node: str) -> str:
        """The words without those that are the node's own."""
        return OF_A_NODE.sub("…", self.message.partition(SO_FAR)[0].replace(node, "…"))


@dataclass
class Halt:
    """A task that failed on several nodes in the same way: no further node comes to it."""

    stop: Stop
    """The first of them."""
    failed: list[str]
    role: str
    """The role that is left out on nodes with that task ahead of them; empty: their whole repair."""
    spared: list[str] = field(default_factory=list)

    def in_words(self) -> Iterator[str]:
        """The task, where and how it failed, and who was spared it."""
        yield f"the task {self.stop.task} failed on {some(self.failed)} in the same way: {self.stop.message}"
        left = f"the role {self.role} was left out" if self.role else "nothing was repaired"
        if self.spared:
            yield f"  it was not tried on {some(self.spared)}: {left} there, and nothing changed by it"
        else:
            yield "  no other node had it ahead of it"
        yield (
            f"  → look whether {f'the role {self.role}' if self.role else 'the repair'} is at fault, or what"
            " these nodes have in common, then repair again"
        )


@dataclass
class Waves:
    """The waves of one run, as they end. A failed node is left alone by all plays that follow."""

    aside: dict[str, Stop | None] = field(default_factory=dict)
    """Node → where it failed; None where something else names it: its play, or a halt."""
    spared: dict[str, set[str]] = field(default_factory=dict)
    """Node → roles that did not run on it, for a task of theirs is stopped."""
    _halts: dict[tuple[str, str], list[Halt]] = field(default_factory=dict)
    """Play and task → its halts, one for every way in which it fails."""
    _failed: dict[tuple[str, str, str], list[str]] = field(default_factory=dict)
    """Play, task and way → nodes."""

    def ended(self, play: str, role: str, failed: Mapping[str, Stop]) -> None:
        """Take down what became of a wave of a play, which is of a role, or of none."""
        self.aside |= failed
        for node, stop in failed.items():
            if stop.unreachable:  # the node is gone, whatever it was asked
                continue
            alike = self._failed.setdefault((play, stop.task, stop.way(node)), [])
            alike.append(node)
            if len(alike) == ALIKE:
                self._halts.setdefault((play, stop.task), []).append(Halt(stop, alike, role))

    def halts(self, play: str) -> list[Halt]:
        """What is stopped of a play."""
        return [halt for (of, _), halts in self._halts.items() for halt in halts if of == play]

    def spare(self, node: str, halt: Halt) -> None:
        """Leave a node out that has a stopped task ahead of it: by its role, or from here on."""
        halt.spared.append(node)
        if halt.role:
            self.spared.setdefault(node, set()).add(halt.role)
        else:
            self.aside[node] = None

    def in_words(self) -> Iterator[str]:
        """What a repair says last: each node that it could not repair, what is in the way, and what to do."""
        for name, stop in sorted(self.aside.items()):
            if stop:
                yield (
                    f"{name} was not repaired: {stop.task}: {stop.message}\n"
                    f"  → {stop.what_to_do}, then repair it again"
                )
        for halts in self._halts.values():
            yield from ("\n".join(halt.in_words()) for halt in halts)


current = Waves()
"""Of this run; lives in ansible-playbook's own process, and its workers see it as it was when they began."""
