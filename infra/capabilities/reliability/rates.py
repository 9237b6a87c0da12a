"""How often what fails: published rates, each with its source, or a site's own file."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from infra import ROOT
from infra.errors import BadInputError
from infra.files import given_file
from infra.ground.problem import DeclarationError
from infra.ground.yaml_source import read_yaml

PUBLISHED = Path(__file__).with_name("published")
DEFAULT = "llama3"
CAUSES = ("gpu", "hbm", "nic", "link", "switch", "host", "software", "power", "unattributed")
NETWORK = ("link", "switch")
"""What a second plane tolerates."""
KEYS = ("source", "rates", "counts", "nodes", "days", "hardware_pct")
MOST = 24_000
"""Failures per 1,000 node-days of a node that fails every hour."""
LONGEST = 100_000
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
    try:
        if "/" in name or not path.is_file():
            path = given_file(name, ROOT)
        return _rates(name, _text(path))
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(("default", *sorted(file.stem for file in PUBLISHED.glob("*.yaml"))))
        why = getattr(error, "strerror", None) or "it is no text"
        raise BadInputError(f"{name}: no such rates: {why}", hint=f"known are {known}, and files") from None


@lru_cache(maxsize=8)  # each rule asks, and YAML is slow
def _rates(name: str, text: str) -> Rates:
    try:
        tree = read_yaml(text, name)
    except DeclarationError as error:
        raise BadInputError(str(error.problems[0]), hint=FORM) from None
    if tree.problems:
        raise BadInputError(f"{name}: {tree.problems[0]}", hint=FORM)
    found = tree.value
    if wrong := _wrong(found):
        key, message = wrong
        line = tree.lines.get(key)
        raise BadInputError(f"{name}{'' if line is None else f':{line}'}: {message}", hint=FORM)
    counted = found.get("counts")
    scale = 1000 / (found["nodes"] * found["days"]) if counted else 1
    rates = {cause: value * scale for cause, value in (counted or found["rates"]).items() if value}
    if sum(rates.values()) > MOST:
        raise BadInputError(f"{name}: a node would fail more than once an hour", hint=FORM)
    return Rates(found["source"], rates, found["hardware_pct"] / 100)


def _text(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        text = file.read(LONGEST + 1)
    if len(text) > LONGEST:
        raise OSError(None, f"it is larger than {LONGEST:,} characters")
    return text


def _wrong(found: Any) -> tuple[str, str] | None:
    """The key that is wrong in a file, and what is wrong with it; None where nothing is."""
    if not isinstance(found, dict):
        return "", "it is no mapping (key: value)"
    if unknown := [str(key) for key in found if key not in KEYS]:
        return unknown[0], f"{unknown[0]} is not one of {', '.join(KEYS)}"
    if not isinstance(found.get("source"), str) or not found["source"].strip():
        return "source", "source is missing: where the numbers are from"
    if not _is_number(found.get("hardware_pct")) or found["hardware_pct"] > 100:
        return "hardware_pct", "hardware_pct is no share from 0 to 100"
    if ("rates" in found) == ("counts" in found):
        return "rates", "it has rates and counts, or neither"
    if "counts" in found:
        for key, least in (("nodes", 1), ("days", 0.01)):
            if not _is_number(found.get(key)) or found[key] < least:
                return key, f"counts need {key}, {least:g} at least"
    return _wrong_rates(found, "rates" if "rates" in found else "counts")


def _wrong_rates(found: dict[str, Any], key: str) -> tuple[str, str] | None:
    rates = found[key]
    if not isinstance(rates, dict):
        return key, f"{key} are no mapping of causes to numbers"
    for cause, rate in rates.items():
        if cause not in CAUSES:
            return f"{key}.{cause}", f"{cause} is not one of the causes {', '.join(CAUSES)}"
        if not _is_number(rate):
            return f"{key}.{cause}", f"the rate of {cause} is no number from 0 on"
    return None if sum(rates.values()) > 0 else (key, "nothing in it ever fails")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < 1e12
