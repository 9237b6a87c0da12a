"""What a Prometheus shows of its configuration is held against what is written, however either is spelt."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.verify.loaded import SECONDS, differences, formatted, plain, unlike_config, unlike_rules

RULES = """
groups:
  - name: b
    rules:
      - {alert: Slow, expr: rtt > 3, for: 5m, labels: {severity: page}, annotations: {summary: slow}}
  - name: a
    rules:
      - {record: "region:up", expr: sum(up)}
"""
TREES = st.recursive(
    st.integers() | st.booleans() | st.sampled_from(["1m", "90s", "20MB", "text", "<secret>"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
)


def shown(text: str, **changed: Any) -> dict[str, Any]:
    """As the API shows rules, in the order of groups' names."""
    groups = [
        {
            "name": group["name"],
            "file": "/rules.yml",
            "interval": 60,
            "limit": 0,
            "rules": [
                {
                    "name": rule.get("alert") or rule["record"],
                    "query": rule["expr"],
                    "duration": 300 if "for" in rule else 0,
                    "keepFiringFor": 0,
                    "labels": rule.get("labels", {}),
                    "annotations": rule.get("annotations", {}),
                    **(changed if "alert" in rule else {}),
                }
                for rule in group["rules"]
            ],
        }
        for group in yaml.safe_load(text)["groups"]
    ]
    return {"data": {"groups": sorted(groups, key=lambda group: group["name"])}}


def unlike(**changed: Any) -> list[str]:
    def ask(path: str) -> Any:
        return {"data": path.replace("%20", "")} if "format_query" in path else shown(RULES, **changed)

    return unlike_rules(ask, {"/rules.yml": RULES})


def test_rules_that_are_loaded_as_written_are_alike() -> None:
    assert unlike() == []
    assert unlike(query="rtt>3") == [], "as Prometheus writes it"


@pytest.mark.parametrize(
    "changed",
    [
        {"query": "rtt > 4"},
        {"duration": 301},
        {"labels": {"severity": "info"}},
        {"annotations": {}},
        {"name": "Slower"},
        {"keepFiringFor": 60},
    ],
)
def test_rules_that_are_loaded_otherwise_are_named(changed: dict[str, Any]) -> None:
    assert unlike(**changed) == ["/rules.yml"]


def test_a_group_of_another_pace_or_limit_is_found() -> None:
    for said, alike in (("60s", True), ("1m", True), ("30s", False)):
        text = RULES.replace("name: a", f"name: a\n    interval: {said}")
        found = unlike_rules(
            lambda path: shown(RULES) if "rules" in path else {"data": path}, {"/rules.yml": text}
        )
        assert (found == []) == alike
    limited = RULES.replace("name: a", "name: a\n    limit: 3")
    assert unlike_rules(lambda _path: shown(RULES), {"/rules.yml": limited}) == ["/rules.yml"]
    nothing: dict[str, Any] = {"data": {"groups": []}}
    assert unlike_rules(lambda _path: nothing, {"/rules.yml": "# nothing yet\n"}) == []


def test_a_file_of_rules_that_is_not_loaded_is_named() -> None:
    nothing: dict[str, Any] = {"data": {"groups": []}}
    assert unlike_rules(lambda _path: nothing, {"/rules.yml": RULES}) == ["/rules.yml"]
    assert formatted(lambda _path: nothing, []) == ""


@given(TREES)
def test_what_is_loaded_with_defaults_beside_is_no_difference(written: Any) -> None:
    def with_defaults(value: Any) -> Any:
        if isinstance(value, dict):
            return {**{key: with_defaults(part) for key, part in value.items()}, "default": 1}
        return [with_defaults(part) for part in value] if isinstance(value, list) else value

    assert [*differences(written, with_defaults(written))] == []


@given(st.dictionaries(st.sampled_from("abc"), st.integers(1, 9), min_size=1), st.sampled_from("abc"))
def test_another_value_is_found_where_it_is(written: dict[str, int], key: str) -> None:
    loaded = {**written, key: 0}
    expected = [key] if key in written else []
    assert [*differences({"top": [written]}, {"top": [loaded]})] == [f"top[0].{one}" for one in expected]


@given(st.integers(1, 9999), st.sampled_from(sorted(SECONDS)))
def test_durations_are_alike_by_their_length(number: int, unit: str) -> None:
    assert plain(f"{number}{unit}") == pytest.approx(number * SECONDS[unit])
    assert plain("1h30m") == plain("90m") == 5400
    assert plain("20MB") == plain("20MiB") != plain("21MiB")
    assert plain(True) == "true" == plain("true")


def test_a_configuration_is_held_against_the_one_that_is_shown() -> None:
    loaded = {"data": {"yaml": "global: {scrape_interval: 1m, scrape_timeout: 10s}\nrule_files: [a]\n"}}
    assert unlike_config(lambda _path: loaded, "global: {scrape_interval: 60s}\nrule_files: [a]\n") == []
    sends = {"data": {"yaml": "global: {}\nremote_write: [{url: http://a}]\n"}}
    assert unlike_config(lambda _path: sends, "global: {}\n") == ["remote_write"], "it still sends"
    assert unlike_config(lambda _path: loaded, "global: {scrape_interval: 30s}\nrule_files: [a, b]\n") == [
        "global.scrape_interval",
        "rule_files",
    ]
