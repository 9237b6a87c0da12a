"""What verification found: checks with their verdicts, counted, in words, and kept.

A check is *effective* (seen in behaviour), *rendered* (a file says so, nothing more), *unsupported* (cannot
be had on this node), *left out* (an experiment where none is wanted), *failed*, or its host is *unreachable*.
Only the first counts as verified; nothing verified at all is a failure.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from infra import ROOT
from infra.errors import shown
from infra.files import write_file
from infra.stack import stack_dir


class Verdict(StrEnum):
    """What a check shows."""

    EFFECTIVE = "effective"
    RENDERED = "rendered"
    UNSUPPORTED = "unsupported"
    LEFT_OUT = "left out"
    FAILED = "failed"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True)
class Check:
    """One check on one host. `role` is empty where no role's check could run."""

    host: str
    role: str
    name: str
    verdict: Verdict
    message: str = ""

    @classmethod
    def of(cls, data: dict[str, str]) -> "Check":
        """A check from its JSON object."""
        return cls(data["host"], data["role"], data["name"], Verdict(data["verdict"]), data["message"])


@dataclass(frozen=True)
class VerificationResult:
    """All checks of a run, in host order, and when it ended; None where nothing was looked at.

    `since` is when the oldest of them was run, where they are of more than one run.
    """

    checks: tuple[Check, ...] = field(default=())
    at: datetime | None = None
    since: datetime | None = None

    def counts(self) -> dict[Verdict, int]:
        """Number of checks by verdict, every verdict present."""
        found = Counter(check.verdict for check in self.checks)
        return {verdict: found[verdict] for verdict in Verdict}

    @property
    def failed(self) -> bool:
        """Whether anything failed, did not answer, or nothing at all was verified."""
        counts = self.counts()
        return bool(counts[Verdict.FAILED] or counts[Verdict.UNREACHABLE] or not counts[Verdict.EFFECTIVE])

    def good(self) -> set[tuple[str, str]]:
        """Host and role of which checks ran, and none of them failed; none of a host that did not answer."""
        bad = {(c.host, c.role) for c in self.checks if c.verdict in (Verdict.FAILED, Verdict.UNREACHABLE)}
        silent = {host for host, role in bad if not role}
        return {(c.host, c.role) for c in self.checks if c.role and c.host not in silent} - bad

    def report(self) -> str:
        """One line of counts, then one for all that is not effective; hosts with the same are together.

        What failed comes last, where a terminal stands when it is done.
        """
        counts = self.counts()
        lines = [", ".join(f"{count} {verdict}" for verdict, count in counts.items())]
        together: dict[tuple[Verdict, str, str, str], list[str]] = {}
        for check in self.checks:
            if check.verdict is not Verdict.EFFECTIVE:
                key = (check.verdict, check.role, check.name, check.message)
                together.setdefault(key, []).append(check.host)
        for verdict in Verdict:
            for (found, role, name, message), hosts in together.items():
                if found is verdict:
                    what = shown(": ".join(part for part in (role, name, message) if part))
                    lines.append(f"{verdict:<11} {_names(hosts)}: {what}")
        if not counts[Verdict.EFFECTIVE]:
            lines.append("nothing was verified: no check of tests/verify ran, or none passed")
        return "\n".join(lines)

    def dump(self) -> str:
        """As JSON: `{at, since, counts: {verdict: n}, checks: [{host, role, name, verdict, message}]}`."""
        checks = [asdict(check) for check in self.checks]
        times = {"at": self.at, "since": self.since}
        said = {name: time.isoformat(timespec="seconds") if time else None for name, time in times.items()}
        return json.dumps({**said, "counts": self.counts(), "checks": checks}, indent=1)

    def over(self, before: "VerificationResult") -> "VerificationResult":
        """This result of some hosts and roles, and of everything else what an earlier one found."""
        anew = {(check.host, check.role) for check in self.checks}
        silent = {check.host for check in self.checks if not check.role}
        kept = [c for c in before.checks if (c.host, c.role) not in anew and c.role and c.host not in silent]
        return VerificationResult((*kept, *self.checks), self.at, before.since or before.at if kept else None)

    def without(self, roles: Mapping[str, Collection[str]]) -> "VerificationResult":
        """Without the checks of some roles of hosts."""
        kept = (check for check in self.checks if check.role not in roles.get(check.host, ()))
        return replace(self, checks=tuple(kept))

    def of(self, roles: Mapping[str, Collection[str]]) -> "VerificationResult":
        """Only the checks of some roles of hosts; the rest may be of nodes that are gone."""
        kept = (check for check in self.checks if check.role in roles.get(check.host, ()))
        return replace(self, checks=tuple(kept))


def _names(hosts: Sequence[str], shown: int = 3) -> str:
    more = f" and {len(hosts) - shown} more" if len(hosts) > shown else ""
    return ", ".join(hosts[:shown]) + more


def kept_file(stack: str) -> Path:
    """Where the last verification of a stack is kept."""
    return ROOT / stack_dir(stack) / "verification.json"


def read_result(stack: str) -> VerificationResult:
    """The last verification of a stack; an empty one when there was none, or nobody can read it."""
    path = kept_file(stack)
    try:
        kept = json.loads(path.read_text())
        at, since = (datetime.fromisoformat(kept[key]) if kept.get(key) else None for key in ("at", "since"))
        return VerificationResult(tuple(map(Check.of, kept["checks"])), at, since)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return VerificationResult()


def forget(stack: str, roles: Mapping[str, Collection[str]]) -> None:
    """What is kept of these roles of hosts holds no more: they are about to run, or their host is silent.

    Before, not after: an update that is killed has the next one verify them.
    """
    kept = read_result(stack)
    left = kept.without(roles)
    if left != kept:
        write_file(kept_file(stack), left.dump())
