"""How long a check may take on one host, so that a daemon that hangs costs little, and is named.

A check that hangs takes its whole deadline, and one that waits for something all its patience; of the same
role the next ones get much less then, and after a few of them nothing more of the same file is asked there.
"""

from collections import Counter
from dataclasses import dataclass, field

LIMIT_S = 20.0
"""Of a check that says nothing else by `@pytest.mark.deadline(s)`. Some take a second on an idle node, and
ten where nodes and controller share busy cores."""
SLOW_S = 5.0
"""A check that fails after so long waited for somebody who does not answer, by a deadline of its own."""
WAITED_S = 10.0
"""Of a check whose role has one that waited in vain on this host."""
SHORT_S = 3.0
"""Of a check whose role has one on this host that did not end by its deadline."""
ENOUGH = 3
"""So many hang: the rest of the file's checks would, too."""


@dataclass
class Patience:
    """Of one host; asked before each check, told after it."""

    _hung: dict[str, str] = field(default_factory=dict)
    """Role → the first of its checks that hung, or waited in vain."""
    _most_s: dict[str, float] = field(default_factory=dict)
    """Role → what its other checks may take since."""
    _times: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Role and file of checks, which are about one thing → how many of them hung."""

    def limit_s(
        self, role: str, file: str, declared_s: float = LIMIT_S, *, experiment: bool = False
    ) -> float:
        """The deadline of the next check; zero where it is not to be tried at all.

        An experiment has its whole deadline or none: in the middle of one the node is not as it was.
        """
        if role not in self._hung:
            return declared_s
        return 0 if experiment or self._times[role, file] >= ENOUGH else min(declared_s, self._most_s[role])

    def why_not(self, role: str) -> str:
        """What is said of a check that is not tried."""
        return f"not looked at: “{self._hung[role]}” did not answer in time"

    def took(
        self, role: str, file: str, name: str, seconds: float, *, failed: bool, hung: bool = False
    ) -> None:
        """Take down what a check took; `hung`: it did not end by its deadline."""
        if hung or (failed and seconds >= SLOW_S):
            self._hung.setdefault(role, name)
            self._most_s[role] = min(self._most_s.get(role, LIMIT_S), SHORT_S if hung else WAITED_S)
            self._times[role, file] += 1
