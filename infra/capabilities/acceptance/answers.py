"""What nodes answer when they are asked for their verdict, and what is made of all of them together."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from infra.capabilities.acceptance.breaker import Domain, Ruling, Wish, ruled
from infra.capabilities.acceptance.section import AcceptanceSection
from infra.capabilities.energy.section import EnergySection
from infra.capabilities.fabric.section import FabricSection
from infra.ground.contract import Contract

Severity = Literal["good", "unsupported", "warning", "unknown", "waiting", "critical", "unreachable"]
Action = Literal["none", "watch", "drain", "reset", "reboot", "repair", "replace"]
Text = Annotated[str, Field(max_length=400)]
Moment = Annotated[int, Field(ge=0, le=253_402_300_799)]
FINE = ("good", "unsupported", "warning")
STAY = ("none", "watch")
LATE = 3
"""A verdict older than so many intervals tells nothing of today."""


class Verdict(BaseModel):
    """One node's, as it wrote it, or as the controller has to put it where the node did not."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)
    severity: Severity
    action: Action
    reasons: Annotated[list[Text], Field(max_length=100)] = []
    notes: Annotated[list[Text], Field(max_length=100)] = []
    since: Moment = 0
    at: Moment = 0
    boot_id: Annotated[str, Field(max_length=64)] = ""
    tier: Annotated[str, Field(max_length=16)] = ""
    accepted: bool = False

    @property
    def is_fine(self) -> bool:
        """Jobs may start there."""
        return self.severity in FINE

    @property
    def wants_out(self) -> bool:
        """It is bad, and not only untold of."""
        return self.action not in STAY


def unheard(severity: Literal["unknown", "unreachable"], reason: str) -> Verdict:
    """Of a node that tells nothing."""
    return Verdict(severity=severity, action="watch", reasons=[reason[:400]])


def read_answer(said: bytes, now: float, interval_min: int) -> Verdict:
    """The verdict in an answer; `unknown` where there is none, or one of another boot or another day."""
    try:
        answer: Any = json.loads(said)
        if answer["verdict"] is None:
            return unheard("unknown", "it has no verdict yet")
        verdict = Verdict.model_validate(answer["verdict"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else type(error).__name__
        return unheard("unknown", f"its verdict makes no sense: {what}")
    if verdict.boot_id != answer.get("boot_id"):
        return unheard("unknown", "its verdict is of before its last boot")
    late_s = now - verdict.at
    if abs(late_s) > LATE * interval_min * 60:
        when = "old" if late_s > 0 else "ahead: one of the clocks is wrong"
        return unheard("unknown", f"its verdict is {abs(late_s) / 60:.0f} min {when}")
    return verdict


@dataclass(frozen=True)
class Round:
    """All nodes' verdicts, and what the breaker says."""

    verdicts: Mapping[str, Verdict]
    ruling: Ruling

    @property
    def is_fine(self) -> bool:
        """Jobs may start on every node."""
        return all(verdict.is_fine for verdict in self.verdicts.values())


def weighed(contract: Contract, section: AcceptanceSection, verdicts: Mapping[str, Verdict]) -> Round:
    """Ask the breaker for every node that is bad. Those that are not heard of, or wait to join, are out."""
    gone = [host for host, verdict in verdicts.items() if verdict.severity in ("unreachable", "waiting")]
    wishes = [
        Wish(host, verdict.since)
        for host, verdict in verdicts.items()
        if verdict.wants_out and host not in gone
    ]
    return Round(verdicts, ruled(wishes, gone, domains(contract, section), section.breaker.model_dump()))


def domains(contract: Contract, section: AcceptanceSection) -> dict[str, list[Domain]]:
    """Host → its failure domains, of all hosts that are accepted so."""
    fabric, energy = contract.section(FabricSection), contract.section(EnergySection)
    places: dict[str, int] = {}
    found: dict[str, list[Domain]] = {}
    for host, node in contract.hosts.items():
        place = places[node.pool] = places.get(node.pool, -1) + 1
        if node.pool not in section.pools:
            continue
        its: list[Domain] = [("pool", node.pool), ("region", contract.region_of(host))]
        its += [("leaf", nic.leaf) for nic in (fabric.hosts.get(host, ()) if fabric else ())]
        figures = energy.pools.get(node.pool) if energy else None
        if figures and figures.nodes_per_rack:
            its.append(("rack", f"{node.pool}-{place // figures.nodes_per_rack}"))
        found[host] = list(dict.fromkeys(its))
    return found
