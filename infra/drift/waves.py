"""What becomes of a repair when nodes fail: each of them is set aside, and what stops all of them stops it.

Ansible by itself ends a run once every node of a wave has failed, and the first wave is a single node: so one
disk that is full kept all other nodes from being repaired. The strategy plugin asks this instead.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

COMMON = 3
"""So many nodes in a row without one that got through: what stops them in the same task is no node's own."""
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

    @property
    def what_to_do(self) -> str:
        """The next step, as far as the words tell."""
        if self.unreachable:
            return "bring it back"
        return next(
            (advice for words, advice in WHAT_TO_DO if words in self.message), "mend that on the node"
        )


@dataclass
class Waves:
    """The waves of one run, as they end. A failed node is left alone by all plays that follow."""

    aside: dict[str, Stop | None] = field(default_factory=dict)
    """Node → where it failed; None where the play that it failed in has named it."""
    common: str = ""
    """The task that stopped the repair."""
    _play: str = ""
    _in_a_row: Counter[str] = field(default_factory=Counter)
    """Task → nodes that failed there since one got through."""

    def ended(self, play: str, ran: Collection[str], failed: Mapping[str, Stop]) -> bool:
        """Take down what became of a wave; whether the repair goes on."""
        if play != self._play:
            self._play, self._in_a_row = play, Counter()
        self.aside |= failed
        if len(failed) < len(ran):
            self._in_a_row.clear()
        self._in_a_row.update(stop.task for stop in failed.values() if len(failed) == len(ran))
        task, nodes = next(iter(self._in_a_row.most_common(1)), ("", 0))
        self.common = task if nodes >= COMMON else ""
        return not self.common

    def in_words(self) -> Iterator[str]:
        """What a repair says last: each node that it could not repair, what is in the way, and what to do."""
        for name, stop in sorted(self.aside.items()):
            if stop:
                yield (
                    f"{name} was not repaired: {stop.task}: {stop.message}\n"
                    f"  → {stop.what_to_do}, then repair it again"
                )
        if self.common:
            yield (
                f"the repair was stopped: {self._in_a_row[self.common]} nodes failed in the task"
                f" {self.common}, and none got through it."
                " What comes after it was not done, and nothing was proven\n"
                "  → look whether the role is at fault before you repair again; where it is those nodes,"
                f" repair the others: --limit 'all:{':'.join(f'!{name}' for name in sorted(self.aside))}'"
            )


current = Waves()
"""Of this run; lives in ansible-playbook's own process."""
