"""How often what fails: published rates, each with its source, or a site's own file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra import ROOT
from infra.errors import BadInputError

PUBLISHED = Path(__file__).with_name("published")
DEFAULT = "llama3"
CAUSES = ("gpu", "hbm", "nic", "link", "switch", "host", "software", "power", "unattributed")
NETWORK = ("link", "switch")
"""What a second plane tolerates."""
KEYS = ("source", "rates", "counts", "nodes", "days", "hardware_pct")
FORM = "a file has source, hardware_pct, and rates per 1,000 node-days by cause or counts, nodes and days"


@dataclass(frozen=True)
class Rates:
    """Failures per 1,000 node-days, by cause."""

    source: str
    by_cause: Mapping[str, float]
    hardware_share: float
    """Of failures that take a part or a hand; 0 to 1."""

    @property
    def total(self) -> float:
        """Of all causes."""
        return sum(self.by_cause.values())

    def without(self, *causes: str) -> "Rates":
        """Where these stop no job."""
        left = {cause: rate for cause, rate in self.by_cause.items() if cause not in causes}
        return Rates(self.source, left, self.hardware_share)


def load_rates(name: str) -> Rates:
    """The rates that a declaration names. BadInputError for a file that is none, with what it has to hold."""
    path = PUBLISHED / f"{DEFAULT if name == 'default' else name}.yaml"
    if "/" in name or not path.is_file():
        path = ROOT / Path(name).expanduser()
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(("default", *sorted(file.stem for file in PUBLISHED.glob("*.yaml"))))
        why = getattr(error, "strerror", None) or "it is no text"
        raise BadInputError(f"{name}: no such rates: {why}", hint=f"known are {known}, and files") from None
    except yaml.MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise BadInputError(f"{name}{where}: it is not YAML: {error.problem}", hint=FORM) from None
    if wrong := _wrong(found):
        raise BadInputError(f"{name}: {wrong}", hint=FORM)
    counted = found.get("counts")
    scale = 1000 / (found["nodes"] * found["days"]) if counted else 1
    rates = {cause: value * scale for cause, value in (counted or found["rates"]).items() if value}
    return Rates(found["source"], rates, found["hardware_pct"] / 100)


def _wrong(found: Any) -> str:
    """What is wrong with the content of a file; empty where nothing is."""
    if not isinstance(found, dict):
        return "it is no mapping (key: value)"
    if unknown := [str(key) for key in found if key not in KEYS]:
        return f"{unknown[0]} is not one of {', '.join(KEYS)}"
    if not isinstance(found.get("source"), str) or not found["source"].strip():
        return "source is missing: where the numbers are from"
    if not _is_number(found.get("hardware_pct")) or found["hardware_pct"] > 100:
        return "hardware_pct is no share from 0 to 100"
    if ("rates" in found) == ("counts" in found):
        return "it has rates and counts, or neither"
    if "counts" in found and not all(_is_number(found.get(key)) and found[key] for key in ("nodes", "days")):
        return "counts need nodes and days, both more than 0"
    return _wrong_rates(found.get("rates", found.get("counts")))


def _wrong_rates(rates: Any) -> str:
    if not isinstance(rates, dict):
        return "rates are no mapping of causes to numbers"
    if unknown := [str(cause) for cause in rates if cause not in CAUSES]:
        return f"{unknown[0]} is not one of the causes {', '.join(CAUSES)}"
    if odd := [cause for cause, rate in rates.items() if not _is_number(rate)]:
        return f"the rate of {odd[0]} is no number from 0 on"
    return "" if sum(rates.values()) > 0 else "nothing in it ever fails"


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < 1e12
