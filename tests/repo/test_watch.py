"""Alerts are complete: each says how bad it is, what helps and where to read on, and is tried both ways.

What the expressions say is promtool's to check, on a node: tests/integration/test_watch.py.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from infra.declaration.monitoring import MonitoringSpec

ROOT = Path(__file__).resolve().parents[2]
WATCHES = sorted(path.parent for path in ROOT.glob("infra/capabilities/*/watch/alerts.yaml"))
SEVERITIES = {"page", "ticket", "info"}
WATCHED = {"base", "discovery", "drift_watch", "energy", "fabric", "monitoring", "storage", "wan"}
OWN_REGION = {"Watchdog"}
"""Alerts that get their region from the Prometheus that sends them, and are of no use to count by region."""

UNRELATED = {
    "not MemoryUncorrectable: errors that were corrected",
    "not RegionCutOff: a region without links",
    "not ConsulWithoutLeader: a stack without Consul",
    "not FabricLinkErrors: bits that FEC corrected",
}
"""Silent cases that give other series on purpose."""

each_watch = pytest.mark.parametrize("watch", WATCHES, ids=lambda watch: watch.parent.name)


@cache
def read(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text())


def rules(watch: Path, kind: str) -> list[dict[str, Any]]:
    """The rules of a capability that are of one kind: `alert` or `record`."""
    groups = read(watch / "alerts.yaml")["groups"]
    assert [group["name"] for group in groups] == [watch.parent.name]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


def cases(watch: Path, kind: str) -> Iterator[dict[str, Any]]:
    """What its tests expect: of `alert_rule_test` or of `promql_expr_test`."""
    for test in read(watch / "tests.yaml")["tests"]:
        yield from test.get(kind, [])


def names(watch: Path) -> set[str]:
    return {rule["alert"] for rule in rules(watch, "alert")}


def test_every_capability_that_runs_something_is_watched() -> None:
    assert {watch.parent.name for watch in WATCHES} >= WATCHED


def test_no_two_alerts_have_the_same_name() -> None:
    """In the whole repository: silences and inhibitions go by the name. Case does not tell two apart."""
    found = Counter(rule["alert"].lower() for watch in WATCHES for rule in rules(watch, "alert"))
    assert [name for name, count in found.items() if count > 1] == []


@each_watch
def test_every_alert_says_how_bad_it_is_and_what_helps(watch: Path) -> None:
    for rule in rules(watch, "alert"):
        name, notes = rule["alert"], rule["annotations"]
        assert rule["labels"].get("severity") in SEVERITIES, name
        assert "for" in rule, f"{name}: for how long has it to be so"
        assert re.fullmatch(r".+\.", notes["summary"]), f"{name}: one sentence"
        assert notes["command"].startswith("./run "), name
        place = (watch / "runbook.md").relative_to(ROOT)
        assert notes["runbook"] == f"{place}#{name.lower()}", name
        assert set(notes) == {"summary", "command", "runbook"}, name


@each_watch
def test_the_runbook_has_a_section_for_each_alert_and_for_nothing_else(watch: Path) -> None:
    text = (watch / "runbook.md").read_text()
    sections = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)[1:]
    assert Counter(sections[::2]) == Counter(names(watch))
    for name, body in zip(sections[::2], sections[1::2], strict=True):
        sentences = re.findall(r"[.:](?= |\n|$)", body)
        assert len(sentences) >= 3, f"{name}: what it means, how to look, what to do"


@each_watch
def test_every_alert_fires_in_a_test_and_is_silent_in_another(watch: Path) -> None:
    """Watchdog is never silent."""
    fires: set[str] = set()
    silent: set[str] = set()
    for case in cases(watch, "alert_rule_test"):
        (fires if case["exp_alerts"] else silent).add(case["alertname"])
    assert fires == names(watch)
    assert silent == names(watch) - {"Watchdog"}


@each_watch
def test_what_has_to_last_is_silent_before_its_time(watch: Path) -> None:
    """With the same input, so that it is the duration that keeps it silent."""
    lasts = {rule["alert"] for rule in rules(watch, "alert") if rule["for"] != "0s"}
    for test in read(watch / "tests.yaml")["tests"]:
        *before, last = test.get("alert_rule_test") or [{"exp_alerts": []}]
        if last["exp_alerts"] and last["alertname"] in lasts:
            assert [case["exp_alerts"] for case in before] == [[]], test["name"]


@each_watch
def test_a_silent_case_lies_beside_one_that_fires(watch: Path) -> None:
    """Without any input every alert is silent: a case gives series that the rule asks for."""
    asked = {rule["alert"]: str(rule["expr"]) for rule in rules(watch, "alert")}
    recorded = {rule["record"]: str(rule["expr"]) for rule in rules(watch, "record")}
    for test in read(watch / "tests.yaml")["tests"]:
        given = {re.match(r"[\w:]+", series["series"])[0] for series in test["input_series"]}  # type: ignore[index]
        for case in test.get("alert_rule_test", []):
            about = with_recorded(asked[case["alertname"]], recorded)
            # A name, or the pattern of one; a range such as [5m:30s] is no part of it.
            wanted = re.findall(r"[A-Za-z_:](?:[\w:]|\[[0-9]-[0-9]\])*", about)
            met = {name for name in given for pattern in wanted if re.fullmatch(pattern, name)}
            assert met or case["alertname"] in OWN_REGION or test["name"] in UNRELATED, test["name"]


def with_recorded(expression: str, recorded: dict[str, str]) -> str:
    """The expression, and those that record what it reads, and what these read."""
    read = {name: text for name, text in recorded.items() if name in expression}
    if not read:
        return expression
    rest = {name: text for name, text in recorded.items() if name not in read}
    return expression + with_recorded("\n".join(read.values()), rest)


@each_watch
def test_an_alert_that_fires_names_its_region(watch: Path) -> None:
    """ALERTS is counted by region, and one that is inhibited has the region of what inhibits it."""
    for case in cases(watch, "alert_rule_test"):
        for alert in case["exp_alerts"]:
            assert "region" in alert["exp_labels"] or case["alertname"] in OWN_REGION, case["alertname"]


@each_watch
def test_every_recorded_series_is_tried_and_one_of_a_region_names_it(watch: Path) -> None:
    """Series that go to the global region come from all regions: without the label they would be one."""
    tried: dict[str, list[str]] = {}
    for case in cases(watch, "promql_expr_test"):
        tried.setdefault(case["expr"], []).extend(sample["labels"] for sample in case["exp_samples"])
    for rule in rules(watch, "record"):
        name = rule["record"]
        samples = tried.get(name, [])
        assert samples, f"no test of {name}"
        if name.startswith("region:"):
            assert all(re.search(r'[{ ,]region="\w+"', sample) for sample in samples), name


def test_no_two_rules_record_the_same_series() -> None:
    """They would write over each other, and the global region refuses the second."""
    found = Counter(rule["record"] for watch in WATCHES for rule in rules(watch, "record"))
    assert [name for name, count in found.items() if count > len(recorded_twice(name))] == []


def recorded_twice(name: str) -> set[str]:
    """The labels by which the rules that record one name differ; one where there are none."""
    same = [rule for watch in WATCHES for rule in rules(watch, "record") if rule["record"] == name]
    return {str(rule.get("labels")) for rule in same}


@each_watch
def test_a_region_judges_itself_only(watch: Path) -> None:
    """In the global region lie the recorded series of all others; who sent them is a label."""
    for rule in (*rules(watch, "alert"), *rules(watch, "record")):
        used = re.finditer(r"\b(?:region:[\w:]+|ALERTS)(?:\{[^}]*\})?", str(rule["expr"]))
        foreign = [found[0] for found in used if 'cluster=""' not in found[0]]
        assert foreign == [], f'{rule}: say {{cluster=""}}'


TOLD_BY_ANOTHER = {
    "causeway_deadman_last_seen_timestamp_seconds": "a target of its own: ExporterSilent",
    "causeway_ceph_monitor_asked_timestamp_seconds": "CephQuorumLost counts those that there should be",
    "causeway_gpu_read_timestamp_seconds": "the same program: AcceptanceSilent",
    "causeway_registry_retained_timestamp_seconds": "the same program: RegistrySilent",
}
"""Series that may be missing without an alert that asks whether they are there, and who tells then."""


def test_what_is_never_told_is_no_silence() -> None:
    """How old a series is nobody can say of one that is not there: another part asks what should have it."""
    asked = "\n".join(rule["expr"] for watch in WATCHES for rule in rules(watch, "alert"))
    aged = set(re.findall(r"time\(\) - \(?(causeway_\w+_timestamp_seconds)", asked))
    missed = set(re.findall(r"unless (?:on \([\w, ]+\) )?(causeway_\w+_timestamp_seconds)", asked))
    assert aged - missed == set(TOLD_BY_ANOTHER)


def test_rules_compare_with_what_somebody_declares() -> None:
    """By series of the server's, or by a role's file: by another name a rule is silent for ever."""
    asked = {
        name
        for watch in WATCHES
        for kind in ("alert", "record")
        for rule in rules(watch, kind)
        for name in re.findall(r"causeway_declared_(\w+)", rule["expr"])
    }
    code = "".join(path.read_text() for path in ROOT.glob("infra/capabilities/*/*.py"))
    files = "".join(path.read_text() for path in ROOT.glob("roles/*/templates/*.prom.j2"))
    said = set(re.findall(r'\b(?:Declared|add)\("(\w+)"', code)) | set(
        re.findall(r"causeway_declared_(\w+)", files)
    )
    assert asked == said


LARGEST_S: int = MonitoringSpec.model_json_schema()["properties"]["interval_s"]["maximum"]
WINDOW = re.compile(r"\[(\d+)([smhd])\]")
"""A window over what was scraped; a subquery looks as often as it says itself."""
UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@each_watch
def test_windows_hold_samples_at_the_largest_interval_that_can_be_declared(watch: Path) -> None:
    """One is enough to look at, two are needed for what grows between them, and one more may be missed."""
    for rule in (*rules(watch, "alert"), *rules(watch, "record")):
        for window in WINDOW.finditer(rule["expr"]):
            before = rule["expr"][: window.start()]
            function = max(re.findall(r"\w+(?=\()", before), key=lambda name: before.rindex(f"{name}("))
            needed = 1 if function.endswith("_over_time") else 3
            assert int(window[1]) * UNIT_S[window[2]] >= needed * LARGEST_S, (function, window[0])
