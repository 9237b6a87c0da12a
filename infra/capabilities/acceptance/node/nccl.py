"""Reads the output of nccl-tests (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md and src/common.cu).

Python 3.8, standard library: a node reads it, and the controller.
"""

from __future__ import annotations

import re

RANK = re.compile(r"^#\s+Rank\s+[0-9]+ .*?\bon\s+(\S+)\s+device\s+[0-9]+", re.MULTILINE)
GROUPED = re.compile(r"^#\s+(?:nccl-tests version|Collective test starting: (\w+))", re.MULTILINE)
NUMBER = r"([0-9]{1,9}(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,2})?)"
ROW = re.compile(
    rf"^\s*([0-9]{{1,15}})\s+[0-9]+\s+\w+\s+\w+\s+-?[0-9]+\s+{NUMBER}\s+{NUMBER}\s+{NUMBER}\s+(\S+)"
    rf"\s+{NUMBER}\s+{NUMBER}\s+{NUMBER}\s+(\S+)\s*$",
    re.MULTILINE,
)
SHOWN_AFTER_BYTES = 1 << 28
"""Smaller messages tell of latency; where a run has none as large, its largest counts."""


class Result:
    """One run: its hosts with how many GPUs each has, GB/s, and whether every number was right."""

    def __init__(self, text: str) -> None:
        self.gpus = {}  # type: dict[str, int]
        for host in RANK.findall(text):
            name = host[:64]
            self.gpus[name] = self.gpus.get(name, 0) + 1
        rows = ROW.findall(text)
        if not rows or not self.gpus:
            raise ValueError("it is no output of nccl-tests: it has no rank, or no row of results")
        largest = max(int(row[0]) for row in rows)
        counted = [row for row in rows if int(row[0]) >= min(SHOWN_AFTER_BYTES, largest)]
        self.bus_gbs = max(float(row[column]) for row in counted for column in (3, 7))
        """The most of bus bandwidth, out of place or in place."""
        wrong = [row[column] for row in rows for column in (4, 8)]
        self.right = all(word in ("0", "0e+00", "N/A") for word in wrong)
        named = [name for name in GROUPED.findall(text) if name]
        self.collective = named[0] if named else ""
        """As newer versions name it; empty where the output does not tell."""
