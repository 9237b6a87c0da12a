"""What verification found: checks with their verdicts, counted, in words, and kept.

A check is *effective* (seen in behaviour), *rendered* (a file says so, nothing more), *unsupported* (cannot
be had on this node), *left out* (an experiment where none is wanted), *failed*, or its host is *unreachable*.
Only the first counts as verified; nothing verified at all is a failure.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from infra import ROOT
from infra.errors import shown
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
    """All checks of a run, in host order, and when it ended; None where nothing was looked at."""

    checks: tuple[Check, ...] = field(default=())
    at: datetime | None = None

    def counts(self) -> dict[Verdict, int]:
        """Number of checks by verdict, every verdict present."""
        found = Counter(check.verdict for check in self.checks)
        return {verdict: found[verdict] for verdict in Verdict}

    @property
    def failed(self) -> bool:
        """Whether anything failed, did not answer, or nothing at all was verified."""
        counts = self.counts()
        return bool(counts[Verdict.FAILED] or counts[Verdict.UNREACHABLE] or not counts[Verdict.EFFECTIVE])

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
        """As JSON: `{"at": …, "counts": {verdict: n}, "checks": [{host, role, name, verdict, message}]}`."""
        checks = [asdict(check) for check in self.checks]
        at = self.at.isoformat(timespec="seconds") if self.at else None
        return json.dumps({"at": at, "counts": self.counts(), "checks": checks}, indent=1)

    def over(self, before: "VerificationResult") -> "VerificationResult":
        """This result of some hosts and roles, and of everything else what an earlier one found.

        It is as old as its oldest part.
        """
        anew = {(check.host, check.role) for check in self.checks}
        silent = {check.host for check in self.checks if not check.role}
        kept = [c for c in before.checks if (c.host, c.role) not in anew and c.role and c.host not in silent]
        return VerificationResult((*kept, *self.checks), before.at if kept else self.at)


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
        at = datetime.fromisoformat(kept["at"]) if kept.get("at") else None
        return VerificationResult(tuple(map(Check.of, kept["checks"])), at)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return VerificationResult()
