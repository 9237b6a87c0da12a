"""Logs as planned, handed on and asked for: whose store is where, what may stand in an answer."""

import argparse
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.capabilities import roles, variables
from infra.capabilities.logs import commands
from infra.capabilities.logs.languages import QUERIES, language
from infra.capabilities.logs.section import AUTHORITY, LogsSection
from infra.declaration import ClusterSpec
from infra.errors import HARMFUL, BadInputError, CausewayError, ExitCode
from infra.ground.contract import Contract
from infra.ground.remote import query_url
from infra.inventory.roles import role_hosts
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from tests.unit.test_monitoring import contract_of, spec_of

EXTERNAL = {
    "kind": "external",
    "protocol": "loki",
    "url": "https://logs.example.org/loki/api/v1/push",
    "username": "causeway",
    "password_secret": "log-store",
    "ca_file": "keys/ca.pem",
}
LOGS = {"kind": "victorialogs", "retention_days": 7, "size_gib": 2}


@given(control=st.integers(1, 5), regions=st.integers(1, 4))
def test_a_region_keeps_its_own_lines_beside_its_metrics_where_it_can(control: int, regions: int) -> None:
    names = [f"r{number}" for number in range(regions)]
    links = [("r0", name) for name in names[1:]]
    contract = contract_of(dict.fromkeys(names, (control, 1)), links, logs=LOGS)
    stores = contract.need(LogsSection).stores
    told = variables(contract)["log_shipper"]
    for name in names:
        assert contract.region_of(stores[name]) == name
        assert stores[name] == f"{name}-control-{min(control, 2) - 1}"
        assert told[f"region_{name}"]["log_shipper_store"] == str(contract.hosts[stores[name]].address)


@given(control=st.integers(1, 3), count=st.integers(1, 3), known=st.booleans())
def test_a_store_of_the_sites_own_is_sent_to_by_all_and_nothing_is_placed_for_it(
    control: int, count: int, known: bool
) -> None:
    names = [f"r{number}" for number in range(count)]
    links = [("r0", name) for name in names[1:]]
    declared = EXTERNAL if known else {**EXTERNAL, "username": None, "password_secret": None}
    spec = spec_of(dict.fromkeys(names, (control, 1)), links, logs=declared)
    plan = make_plan(spec)
    contract = build_contract(spec, plan, "s")
    assert not list(role_hosts(contract, "log_store"))
    assert set(role_hosts(contract, "log_shipper")) == set(contract.hosts)
    assert not [one.name for one in plan.endpoints if one.name.startswith("log")]
    assert AUTHORITY not in plan.secrets
    assert ("given-log-store" in plan.secrets) == known
    assert {("logs", "logs.example.org", 443)} == {
        (one.name, one.host, one.port) for one in plan.destinations
    }
    told = variables(contract)["log_shipper"]
    assert set(told) == {f"region_{name}" for name in names}
    for name in names:
        own = told[f"region_{name}"]
        assert (own["log_shipper_region"], own["log_shipper_url"]) == (name, EXTERNAL["url"])
        assert own["log_shipper_password_file"].endswith("/given-log-store" if known else "")
    kinds = roles()["log_shipper"].secrets(contract, "r0-gpu-0")
    assert kinds == ({"given-log-store": "given"} if known else {})
    assert list(roles()["log_shipper"].files(contract)) == ["keys/ca.pem"]


@pytest.mark.parametrize(
    ("url", "query", "understood"),
    [
        ("https://a/loki/api/v1/push", "https://a/loki/api/v1/query_range", "logql"),
        ("https://a/x/loki/api/v1/push", "https://a/x/loki/api/v1/query_range", "logql"),
        ("https://a/insert/loki/api/v1/push?_msg=x", "https://a/select/logsql/query", "logsql"),
        ("https://a:9428/insert/jsonline?_time_field=time", "https://a:9428/select/logsql/query", "logsql"),
        ("https://a/somewhere", "", None),
    ],
)
def test_where_a_store_is_asked_follows_from_where_it_takes_lines(
    url: str, query: str, understood: str | None
) -> None:
    assert query_url(url, "", QUERIES) == query
    assert language(query) == understood
    assert query_url(url, "https://b/select/logsql/query", QUERIES) == "https://b/select/logsql/query"


def test_a_store_of_the_sites_own_is_not_asked_by_the_command(asked: dict[str, Any]) -> None:
    asked["contract"].sections["logs"] = contract_of({"r0": (1, 1)}, [], logs=EXTERNAL).need(LogsSection)
    with pytest.raises(BadInputError, match=r"a store of your own, https://logs\.example\.org"):
        run()


def test_a_secret_that_several_name_is_counted_once() -> None:
    spec = spec_of({"r0": (1, 1)}, [], logs={**EXTERNAL, "password_secret": "hook"})
    plan = make_plan(spec)
    assert plan.secrets == {"monitoring-ca": "authority", "given-hook": "given"}
    assert plan.resources["monitoring"] + plan.resources.get("logs", 0) == len(plan.secrets)


def test_without_logs_nobody_is_told_of_them() -> None:
    contract = contract_of({"r0": (1, 1)}, [])
    assert contract.section(LogsSection) is None
    assert "log_store" not in variables(contract)


@given(
    st.dictionaries(
        st.sampled_from(["_msg", "_time", "node", "unit", "lines"]), st.text(max_size=60), min_size=1
    )
)
def test_a_line_is_one_line_and_no_command_of_a_terminals(fields: dict[str, str]) -> None:
    text = commands.shown(fields)
    assert not HARMFUL.search(text)
    assert "\n" not in text
    assert len(text) <= commands.LONGEST


@pytest.mark.parametrize(
    ("text", "value"), [("30s", 30), ("15m", 900), ("2h", 7200), ("7d", 604_800), ("1w", 604_800)]
)
def test_a_length_of_time(text: str, value: int) -> None:
    assert commands.seconds(text) == value


@pytest.mark.parametrize("text", ["", "5", "0m", "-1h", "1y", "1h30m", "1234567s"])
def test_no_length_of_time(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="no length of time"):
        commands.seconds(text)


@pytest.fixture(name="asked")
def _asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Answers by store, and the words that each was asked with; a stack of two regions stands."""
    contract = contract_of({"tokyo": (2, 1), "shanghai": (1, 1)}, [("tokyo", "shanghai")], logs=LOGS)
    found: dict[str, Any] = {"words": {}, "contract": contract}

    def answer(_contract: Contract, host: str, words: dict[str, str]) -> str:
        found["words"][host] = words
        if isinstance(said := found[host], Exception):
            raise said
        return str(said)

    monkeypatch.setattr(commands, "load_contract", lambda _path: contract)
    monkeypatch.setattr(commands, "_answer", answer)
    return found


def run(*words: str) -> ExitCode:
    parser = argparse.ArgumentParser()
    commands.add_arguments(parser)
    return commands.run(parser.parse_args(words))


def line(at: str, node: str, text: str) -> str:
    return json.dumps({"_time": at, "node": node, "unit": "a.service", "_msg": text}) + "\n"


def test_lines_of_all_regions_stand_in_order(
    asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    asked["tokyo-control-1"] = line("2026-01-02T00:00:03Z", "tokyo-gpu-0", "three") + "no json\n[]\n"
    asked["shanghai-control-0"] = line("2026-01-02T00:00:01Z", "shanghai-gpu-0", "one\x1b[2J")
    assert run() == ExitCode.OK
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("2026-01-02T00:00:01Z shanghai-gpu-0 a: one")
    assert "\x1b" not in first
    assert second == "2026-01-02T00:00:03Z tokyo-gpu-0 a: three"


@given(st.lists(st.integers(0, 3 * 10**9), min_size=2, max_size=6))
def test_a_time_is_compared_whatever_zeros_it_ends_with(times_ns: list[int]) -> None:
    """As Go's RFC3339Nano writes it: without a fraction's zeros at the end."""
    fractions = [f"{at / 10**9:.9f}".rstrip("0").rstrip(".") for at in sorted(times_ns)]
    compared = [commands._when({"_time": f"2026-01-02T00:00:0{fraction}Z"}) for fraction in fractions]
    assert compared == sorted(compared)


@pytest.mark.parametrize("mark", ["\x85", "\u2028", "\u2029", "\x7f", "\\u000b", "\\u001e", "\\r"], ids=ascii)
def test_no_character_of_a_line_hides_it(
    asked: dict[str, Any], capsys: pytest.CaptureFixture[str], mark: str
) -> None:
    """A store writes them as they are, or by their number; who logs one is seen all the same."""
    said = '{"_time":"2026-01-02T00:00:01Z","node":"tokyo-gpu-0","unit":"a","_msg":"before' + mark + 'after"}'
    asked["tokyo-control-1"] = f"{said}\n"
    asked["shanghai-control-0"] = ""
    assert run() == ExitCode.OK
    (shown,) = capsys.readouterr().out.split("\n")[:-1]
    assert re.search("before.+after$", shown)


def test_a_region_that_cannot_be_asked_is_named_and_the_others_answer(
    asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    asked["tokyo-control-1"] = CausewayError("no route")
    asked["shanghai-control-0"] = line("2026-01-02T00:00:01Z", "shanghai-gpu-0", "one")
    assert run() == ExitCode.FAILED
    said = capsys.readouterr()
    assert "one" in said.out
    assert "tokyo-control-1 cannot be asked: no route" in said.err


def test_a_query_that_no_store_understands_is_the_users_to_mend(asked: dict[str, Any]) -> None:
    refused = json.dumps({commands.REFUSED: "cannot parse query [error |]: unexpected pipe"})
    asked["tokyo-control-1"] = asked["shanghai-control-0"] = refused
    with pytest.raises(BadInputError, match="refuses the query: cannot parse") as caught:
        run("local", "error |")
    assert "LogsQL" in str(caught.value)


def test_a_field_may_be_called_as_the_query_likes(
    asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    asked["tokyo-control-1"] = asked["shanghai-control-0"] = json.dumps({"refused": "5"})
    assert run("local", "* | stats count() refused") == ExitCode.OK
    assert capsys.readouterr().out.splitlines().count("refused=5  region=tokyo") == 1


def test_the_program_on_the_store_says_what_is_read_here() -> None:
    assert f'{{"{commands.REFUSED}": said[' in commands.ASK


def test_a_node_is_asked_of_its_own_region_only(asked: dict[str, Any]) -> None:
    asked["shanghai-control-0"] = ""
    assert run("local", 'x" or *', "--node", "shanghai-gpu-0") == ExitCode.OK
    ((host, words),) = asked["words"].items()
    assert host == "shanghai-control-0"
    assert json.loads(words["extra_filters"]) == {"node": "shanghai-gpu-0"}
    assert words["query"] == 'x" or *'


@pytest.mark.usefixtures("asked")
def test_a_name_like_no_other_is_answered_with_those_there_are() -> None:
    with pytest.raises(BadInputError) as caught:
        run("--region", "xyzzy")
    assert "there are shanghai, tokyo" in str(caught.value)


@pytest.mark.parametrize(
    ("words", "text"),
    [(("--region", "tokio"), "is not a region"), (("--node", "tokyo-gpu-9"), "is not a node")],
)
@pytest.mark.usefixtures("asked")
def test_who_is_not_there_cannot_be_asked(words: tuple[str, str], text: str) -> None:
    with pytest.raises(BadInputError, match=text) as caught:
        run(*words)
    assert "did you mean tokyo" in str(caught.value)


def test_a_stack_without_logs_says_how_to_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ClusterSpec.model_validate(
        {
            "name": "p",
            "regions": [
                {"name": "r", "cidr": "10.1.0.0/16", "pools": [{"name": "c", "role": "control", "count": 1}]}
            ],
        }
    )
    contract = build_contract(spec, make_plan(spec), "s")
    monkeypatch.setattr(commands, "load_contract", lambda _path: contract)
    with pytest.raises(BadInputError, match="keeps no logs") as caught:
        run()
    assert "logs: {kind: victorialogs}" in str(caught.value)
