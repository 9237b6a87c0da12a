"""A seeded simulation of a job and its repairs, event by event, for where the formulas stop being true.

Between two failures nothing happens that arithmetic could not tell, so an event is a failure or the end of a
repair, and not each checkpoint: 12,500 nodes for a year are some 17,000 events.
"""

import heapq
from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from infra.capabilities.reliability.checkpoint import SECONDS_A_DAY
from infra.capabilities.reliability.outlook import Job


@dataclass(frozen=True)
class Ways:
    """Where reality differs from the formulas; as it stands, it does not but for repairs."""

    burst_share: float = 0.0
    """Of failures that bring another one within `burst_s`; 0 to below 1."""
    burst_s: float = 600.0
    leaf_nodes: int = 1
    """Nodes that a failure of the network takes at once."""
    repairs_at_once: int | None = None
    """Hands; None where no repair waits for another."""
    spares_matter: bool = True
    """Without, the job goes on with the nodes that it has, as Daly takes it."""


@dataclass(frozen=True)
class Spread:
    """Goodput over many runs."""

    mean: float
    p5: float
    p50: float
    p95: float


def simulate(job: Job, days: float, seed: int, ways: Ways = Ways()) -> float:
    """The goodput of one run: progress that was kept, in the time of the run. 0 to 1."""
    random = Random(seed)  # noqa: S311 - no secret: the same seed gives the same run
    run = _Run(job, days * SECONDS_A_DAY, random, ways)
    return run.goodput()


def spread(job: Job, days: float, runs: int, seed: int, ways: Ways = Ways()) -> Spread:
    """The distribution over runs with seeds from SEED on."""
    found = sorted(simulate(job, days, seed + number, ways) for number in range(runs))
    p5, p50, p95 = (found[min(int(share * runs), runs - 1)] for share in (0.05, 0.5, 0.95))
    return Spread(sum(found) / runs, p5, p50, p95)


class _Run:
    def __init__(self, job: Job, end_s: float, random: Random, ways: Ways) -> None:
        self.job, self.random, self.ways = job, random, ways
        # Repairs are at their usual number only after a while.
        self.begin_s = 2 * job.repair.hardware * SECONDS_A_DAY
        self.end_s = self.begin_s + end_s
        self.away: list[float] = []  # ends of repairs, in order
        self.kept_s = 0.0

    def goodput(self) -> float:
        """Walk from failure to failure."""
        now = 0.0
        for failure_s in self._failures():
            stop = min(failure_s, self.end_s)
            begin = max(now, self.begin_s)
            if stop > begin:
                self.kept_s += self._progress(stop - begin)
            if failure_s >= self.end_s:
                break
            self._repair(failure_s)
            # A failure during a restart, or while nodes are awaited, begins it anew.
            now = failure_s + self._wait(failure_s) + self.job.restart_s
        return self.kept_s / (self.end_s - self.begin_s)

    def _failures(self) -> Iterator[float]:
        """Times, without end. Bursts keep the mean rate: each failure brings on average b / (1 − b) more."""
        share = self.ways.burst_share
        mean_s = self.job.mtbf_s / (1 - share) if share else self.job.mtbf_s
        now = 0.0
        queue: list[float] = []
        while True:
            now += self.random.expovariate(1 / mean_s)
            heapq.heappush(queue, now)
            follower = now
            while share and self.random.random() < share:
                follower += self.random.uniform(0, self.ways.burst_s)
                heapq.heappush(queue, follower)
            while queue and queue[0] <= now:
                yield heapq.heappop(queue)

    def _progress(self, length_s: float) -> float:
        """What of an uninterrupted stretch is kept: its whole segments."""
        segment = self.job.interval_s + self.job.cost_s
        return int(length_s / segment) * self.job.interval_s

    def _repair(self, now: float) -> None:
        """Send the nodes away that failed; with few hands a repair waits for the first that is free."""
        del self.away[: bisect_right(self.away, now)]
        hardware = self.random.random() < self.job.rates.hardware_share
        repair = self.job.repair
        takes = SECONDS_A_DAY * (repair.hardware if hardware else repair.software)
        failed = self.ways.leaf_nodes if self.random.random() < self._network_share() else 1
        hands = self.ways.repairs_at_once or 0
        for _ in range(min(failed, self.job.nodes + self.job.spares - len(self.away))):
            begin = self.away[-hands] if hands and len(self.away) >= hands else now
            insort(self.away, begin + takes)

    def _network_share(self) -> float:
        if self.ways.leaf_nodes == 1:
            return 0.0
        rates = self.job.rates
        return sum(rates.by_cause.get(cause, 0) for cause in ("link", "switch")) / rates.total

    def _wait(self, now: float) -> float:
        """Until enough nodes are back."""
        short = len(self.away) - self.job.spares
        if short <= 0 or not self.ways.spares_matter:
            return 0.0
        return self.away[short - 1] - now
