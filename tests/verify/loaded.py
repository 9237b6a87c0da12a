"""Whether a Prometheus runs with what is written, told by content: a time says only when it was touched."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import quote

import yaml

Asked = Callable[[str], Any]
"""Path of its API → what it answers."""
SECRET = "<secret>"  # noqa: S105 - what it shows in place of one
DURATION = re.compile(r"(?:\d+(?:ms|[ywdhms]))+")
PART = re.compile(r"(\d+)(ms|[ywdhms])")
SECONDS = {"y": 31536000.0, "w": 604800.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
"""As Prometheus reads a duration (model.ParseDuration in prometheus/common)."""
SIZE = re.compile(r"(\d+)([KMGTPE])i?B")
"""To it both are powers of 1024 (units.Base2Bytes)."""


OWN_CHOICE = ("alerting", "remote_read", "remote_write", "rule_files", "scrape_configs", "storage", "tracing")
"""Parts of its configuration of which it has nothing by itself: what is loaded there was written."""


def differences(written: Any, loaded: Any, place: str = "") -> Iterator[str]:
    """Where what is loaded is not what is written; what it has beside that are its defaults."""
    if isinstance(written, dict):
        for key, value in written.items():
            there = loaded.get(key) if isinstance(loaded, dict) else None
            if there is not None or value:  # it shows nothing that is empty
                yield from differences(value, there, f"{place}.{key}".lstrip("."))
    elif isinstance(written, list) and isinstance(loaded, list) and len(written) == len(loaded):
        for number, (one, other) in enumerate(zip(written, loaded, strict=True)):
            yield from differences(one, other, f"{place}[{number}]")
    elif loaded != SECRET and plain(written) != plain(loaded):
        yield place


def plain(value: Any) -> Any:
    """A value as it can be compared: durations as seconds, sizes as bytes, all others as text."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if text == "0":
        return 0.0  # of any unit
    if DURATION.fullmatch(text):
        return sum(float(number) * SECONDS[unit] for number, unit in PART.findall(text))
    if size := SIZE.fullmatch(text):
        return int(size[1]) << 10 * ("KMGTPE".index(size[2]) + 1)
    return text


def unlike_config(ask: Asked, text: str) -> list[str]:
    """Places of its configuration that are not loaded as they are written."""
    shown, written = yaml.safe_load(ask("/api/v1/status/config")["data"]["yaml"]), yaml.safe_load(text)
    gone = [part for part in OWN_CHOICE if shown.get(part) and not written.get(part)]
    return [*differences(written, shown), *gone]


def unlike_rules(ask: Asked, texts: dict[str, str]) -> list[str]:
    """Files of rules, by their paths, that are not loaded as they are written."""
    groups = ask("/api/v1/rules")["data"]["groups"]
    found = {path: [group for group in groups if group["file"] == path] for path in texts}
    written = {path: (yaml.safe_load(text) or {}).get("groups") or [] for path, text in texts.items()}
    return [path for path in texts if not alike(ask, written[path], found[path])]


def alike(ask: Asked, written: list[dict[str, Any]], loaded: list[dict[str, Any]]) -> bool:
    """Whether groups of rules are the same; it shows them in the order of their names."""
    written = sorted(written, key=lambda group: str(group["name"]))
    loaded = sorted(loaded, key=lambda group: str(group["name"]))
    if [of_group(group) for group in written] != [of_group(group) for group in loaded]:
        return False
    ours = [described(group["name"], rule) for group in written for rule in group.get("rules", ())]
    its = [shown(group["name"], rule) for group in loaded for rule in group["rules"]]
    if ours != its or not all(map(same_pace, written, loaded)):
        return False
    expressions = [rule["expr"] for group in written for rule in group.get("rules", ())]
    return formatted(ask, expressions) == formatted(
        ask, [rule["query"] for group in loaded for rule in group["rules"]]
    )


def of_group(group: dict[str, Any]) -> tuple[str, Any]:
    """A group but for its rules and its pace."""
    return str(group["name"]), group.get("limit") or 0


def same_pace(written: dict[str, Any], loaded: dict[str, Any]) -> bool:
    """Whether a group is evaluated as often as it says; if it says nothing, the server's setting counts."""
    return "interval" not in written or plain(written["interval"]) == float(loaded["interval"])


def described(group: str, rule: dict[str, Any]) -> tuple[Any, ...]:
    """A rule of a file but for its expression."""
    name = rule.get("alert") or rule["record"]
    lasting = plain(rule.get("for", 0)), plain(rule.get("keep_firing_for", 0))
    return group, name, lasting, texts_of(rule, "labels"), texts_of(rule, "annotations")


def shown(group: str, rule: dict[str, Any]) -> tuple[Any, ...]:
    """The same of a rule as its API shows it."""
    lasting = float(rule.get("duration", 0)), float(rule.get("keepFiringFor", 0))
    return group, rule["name"], lasting, texts_of(rule, "labels"), texts_of(rule, "annotations")


def texts_of(rule: dict[str, Any], part: str) -> dict[str, str]:
    return {key: str(plain(value)) for key, value in (rule.get(part) or {}).items()}


def formatted(ask: Asked, expressions: Iterable[str]) -> str:
    """Expressions in the one form that Prometheus writes them in, all of a file in one question."""
    joined = "+".join(f"(\n{one}\n)" for one in expressions)
    return str(ask(f"/api/v1/format_query?query={quote(joined)}")["data"]) if joined else ""
