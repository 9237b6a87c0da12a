"""Acceptance on the controller: floors, who is to blame, how many may be out, and what nodes answer."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import capabilities
from infra.capabilities.acceptance import commands
from infra.capabilities.acceptance.answers import Verdict, domains, read_answer, unheard, weighed
from infra.capabilities.acceptance.breaker import Domain, Wish, most_out, ruled
from infra.capabilities.acceptance.floors import SIZES, all_to_all_bound, floor, single
from infra.capabilities.acceptance.pairs import Tried, groups, judged
from infra.capabilities.acceptance.section import AcceptanceSection
from infra.checks.schema import parse_spec
from infra.errors import BadInputError, ExitCode
from infra.ground.contract import Contract
from infra.inventory.roles import role_hosts
from infra.inventory.variables import role_variables
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from tests.unit.acceptance_node import BOOT, NOW, nccl

FABRIC = {"kind": "rail_optimized", "radix": 16, "rails": 8, "link_gbps": 400, "leaf_down_ports": 8}
GPUS = {
    "name": "gpu",
    "role": "gpu",
    "count": 16,
    "gpus": 8,
    "gpu_model": "h100-sxm",
    "nics": 8,
    "nic_gbps": 400,
}
DECLARED: dict[str, Any] = {
    "name": "pacific",
    "regions": [
        {
            "name": "tokyo",
            "cidr": "10.81.0.0/16",
            "fabric": FABRIC,
            "pools": [{"name": "control", "role": "control", "count": 1}, GPUS],
        }
    ],
    "monitoring": {"kind": "prometheus"},
    "energy": {
        "regions": [{"region": "tokyo", "pue": 1.2}],
        "pools": [{"region": "tokyo", "pool": "gpu", "idle_w": 1800, "max_w": 10200, "nodes_per_rack": 4}],
    },
    "acceptance": {"breaker": {"leaf_pct": 25, "rack_pct": 50, "pool_pct": 25, "region_pct": 25}},
}
NODES = [f"tokyo-gpu-{number}" for number in range(16)]


@pytest.fixture(scope="module")
def contract() -> Contract:
    spec = parse_spec(DECLARED)
    return build_contract(spec, make_plan(spec), "pacific")


def section(contract: Contract) -> AcceptanceSection:
    return contract.need(AcceptanceSection)


# Floors.


@pytest.mark.parametrize(
    ("model", "nic_gbps", "nodes", "wanted"),
    [
        ("h100-sxm", 3200, 1, 440),
        ("h200-sxm", 3200, 1, 431),
        ("a100-sxm-80gb", 1600, 1, 185),
        ("h100-sxm", 3200, 2, 440),  # NVLink binds
        ("a100-sxm-80gb", 1600, 2, 180),
        ("h100-sxm", 1600, 2, 180),  # the NICs do
        ("h100-sxm", 3200, 4, 340),
        ("h100-sxm", 3200, 16, 340),
        ("a100-sxm-80gb", 1600, 8, 170),
        ("b300-sxm", 6400, 4, 700),  # published
        ("b300-sxm", 3200, 4, 340),
    ],
)
def test_the_floor_follows_model_nics_and_number_of_nodes(
    model: str, nic_gbps: float, nodes: int, wanted: float
) -> None:
    assert floor(model, 8, nic_gbps, nodes) == pytest.approx(wanted)


def test_where_nothing_is_known_there_is_no_floor() -> None:
    assert floor("l40s", 8, 400, 1) is None
    assert single("h100-sxm", 4) is None
    assert floor("h100-sxm", 8, 0, 2) is None
    assert floor("l40s", 8, 400, 4) == pytest.approx(42.5)


@given(st.sampled_from(["h100-sxm", "a100-sxm-80gb", "b200-sxm"]), st.sampled_from([800, 1600, 3200, 6400]))
def test_more_nodes_never_have_to_be_faster(model: str, nic_gbps: float) -> None:
    found = [floor(model, 8, nic_gbps, nodes) or 0 for nodes in (1, *SIZES)]
    assert found == sorted(found, reverse=True)
    assert found[-1] <= nic_gbps / 8


def test_all_to_all_is_bound_by_nics() -> None:
    assert [round(all_to_all_bound(8, 50, nodes)) for nodes in (2, 4, 1000)] == [94, 65, 50]


# Who is to blame.


def tried(*runs: tuple[str, bool]) -> list[Tried]:
    return [Tried(frozenset(nodes), passed) for nodes, passed in runs]


def test_a_failure_blames_nobody_before_another_peer_was_tried() -> None:
    found = judged(tried(("ab", False), ("cd", True)))
    assert found.blamed == ()
    assert found.suspects == ("a", "b")
    assert found.next == (("a", "c"), ("b", "d"))


def test_one_good_peer_is_not_enough_to_blame() -> None:
    found = judged(tried(("ab", False), ("bc", True)))
    assert (found.blamed, found.suspects, found.next) == ((), ("a",), (("a", "c"),))


def test_who_fails_with_two_good_peers_is_to_blame() -> None:
    found = judged(tried(("ab", False), ("cd", True), ("ac", True), ("bd", False)))
    assert (found.cleared, found.blamed, found.suspects, found.next) == (("a", "c", "d"), ("b",), (), ())


def test_two_that_are_good_apart_are_not_to_blame() -> None:
    found = judged(tried(("ab", False), ("ac", True), ("bd", True)))
    assert (found.blamed, found.paths) == ((), (("a", "b"),))


def test_where_nobody_passed_others_are_tried() -> None:
    found = judged(tried(("ab", False), ("cd", False)))
    assert found.blamed == ()
    assert found.next == (("a", "c"), ("b", "d"))


@given(st.sets(st.sampled_from("abcdefgh"), max_size=3), st.data())
def test_pairing_finds_the_bad_ones_and_no_other(bad: set[str], data: Any) -> None:
    """A pair with a bad node is slow. In any order, nobody good is blamed, and all bad ones are found."""
    order = data.draw(st.permutations("abcdefgh"))
    runs = [Tried(frozenset(pair), not bad & set(pair)) for pair in groups(order, 2)]
    for _ in range(20):
        found = judged(runs)
        assert set(found.blamed) <= bad
        if not found.next:
            break
        runs += [Tried(frozenset(pair), not bad & set(pair)) for pair in found.next]
    assert not found.next
    assert set(found.blamed) == bad


@given(st.integers(0, 40), st.sampled_from(SIZES))
def test_groups_have_everyone_once_or_twice(number: int, size: int) -> None:
    nodes = [str(one) for one in range(number)]
    found = groups(nodes, size)
    assert {node for group in found for node in group} == (set(nodes) if number >= size else set())
    assert all(len(set(group)) == size for group in found)


# The breaker.

SHARES = {"leaf": 25, "rack": 50, "pool": 25, "region": 25}


def test_half_a_leaf_failing_at_once_is_held() -> None:
    leaf: dict[str, list[Domain]] = {
        name: [("leaf", "leaf-0" if n < 8 else "leaf-1")] for n, name in enumerate(NODES)
    }
    found = ruled([Wish(name, NOW) for name in NODES[:4]], [], leaf, SHARES)
    assert found.allowed == ("tokyo-gpu-0", "tokyo-gpu-1")
    assert [(one.node, one.domain, one.out, one.most, one.nodes) for one in found.held] == [
        ("tokyo-gpu-2", ("leaf", "leaf-0"), 2, 2, 8),
        ("tokyo-gpu-3", ("leaf", "leaf-0"), 2, 2, 8),
    ]


def test_those_that_do_not_answer_count() -> None:
    pool: dict[str, list[Domain]] = {name: [("pool", "p")] for name in NODES[:8]}
    assert ruled([Wish(NODES[0], 1)], NODES[6:8], pool, SHARES).allowed == ()


def test_the_oldest_wish_comes_first_and_a_small_domain_may_lose_one() -> None:
    pool: dict[str, list[Domain]] = {name: [("pool", "p")] for name in NODES[:2]}
    found = ruled([Wish(NODES[0], 20), Wish(NODES[1], 10)], [], pool, SHARES)
    assert found.allowed == (NODES[1],)


PLACES = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["leaf", "rack", "pool", "region"]), st.sampled_from("abc")), max_size=4
    ),
    min_size=1,
    max_size=30,
)


@given(PLACES, st.data())
def test_no_domain_ever_has_more_out_than_its_share(places: list[list[Domain]], data: Any) -> None:
    nodes = {f"n{number}": its for number, its in enumerate(places)}
    gone = data.draw(st.lists(st.sampled_from(sorted(nodes)), unique=True))
    rest = sorted(set(nodes) - set(gone))
    wishing = data.draw(st.lists(st.sampled_from(rest), unique=True)) if rest else []
    wishes = [Wish(node, data.draw(st.integers(0, 5))) for node in wishing]
    found = ruled(wishes, gone, nodes, SHARES)
    assert sorted([*found.allowed, *(one.node for one in found.held)]) == sorted(wishing)
    for domain in {each for its in places for each in its}:
        size = sum(domain in its for its in places)
        gone_there = sum(domain in nodes[node] for node in gone)
        taken = sum(domain in nodes[node] for node in found.allowed)
        assert taken == 0 or taken + gone_there <= most_out(size, SHARES[domain[0]])


# What nodes answer, and all of them together.


def answer(severity: str = "good", action: str = "none", **more: Any) -> bytes:
    told = {"severity": severity, "action": action, "at": int(NOW), "since": int(NOW), "boot_id": BOOT} | more
    return json.dumps({"verdict": told, "boot_id": BOOT}).encode()


def test_a_verdict_is_read() -> None:
    found = read_answer(answer("critical", "reset", reasons=["GPU 3"], accepted=False), NOW, 15)
    assert (found.severity, found.action, found.reasons) == ("critical", "reset", ["GPU 3"])


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (answer("critical", "reboot", boot_id="another"), "before its last boot"),
        (answer(at=int(NOW) - 3600), "60 min old"),
        (answer(at=int(NOW) + 3600), "60 min ahead"),
        (answer("splendid"), "makes no sense"),
        (answer(reasons=["x" * 500]), "makes no sense"),
        (b'{"verdict": null, "boot_id": "x"}', "no verdict yet"),
        (b"[]", "makes no sense"),
        (b"no json", "makes no sense"),
    ],
)
def test_what_is_no_verdict_of_today_is_never_good(said: bytes, words: str) -> None:
    found = read_answer(said, NOW, 15)
    assert (found.severity, found.action) == ("unknown", "watch")
    assert words in found.reasons[0]


KEYS = st.sampled_from(["verdict", "boot_id", "severity", "action", "reasons"])
JSON = st.recursive(st.none() | st.text(), lambda part: st.dictionaries(KEYS, part) | st.lists(part))


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_a_node_may_answer_anything(said: bytes) -> None:
    assert not read_answer(said, NOW, 15).is_fine


def test_failure_domains_come_from_fabric_and_racks(contract: Contract) -> None:
    found = domains(contract, section(contract))
    assert set(found) == set(NODES)
    assert ("rack", "tokyo-gpu-1") in found["tokyo-gpu-4"]
    leafs = [name for kind, name in found["tokyo-gpu-9"] if kind == "leaf"]
    assert len(leafs) == 8
    assert ("leaf", leafs[0]) not in found["tokyo-gpu-1"]


def verdicts(**other: tuple[str, str]) -> dict[str, Verdict]:
    told = {f"tokyo-gpu-{name[1:]}": pair for name, pair in other.items()}
    return {name: read_answer(answer(*told.get(name, ("good", "none"))), NOW, 15) for name in NODES}


def test_half_a_leafs_nodes_failing_at_once_are_held_back(contract: Contract) -> None:
    bad = {f"n{number}": ("critical", "drain") for number in range(4)}
    found = weighed(contract, section(contract), verdicts(**bad))
    assert len(found.ruling.allowed) == 2
    assert {one.node for one in found.ruling.held} == {"tokyo-gpu-2", "tokyo-gpu-3"}
    assert not found.is_fine


def test_what_is_unknown_or_waits_is_not_taken_out(contract: Contract) -> None:
    found = weighed(contract, section(contract), verdicts(n1=("unknown", "watch"), n2=("waiting", "drain")))
    assert (found.ruling.allowed, found.ruling.held) == ((), ())
    assert not found.is_fine
    assert weighed(
        contract, section(contract), verdicts(n1=("unsupported", "none"), n2=("warning", "watch"))
    ).is_fine


# The command.


def run(
    contract: Contract, monkeypatch: pytest.MonkeyPatch, *words: str, told: Mapping[str, Verdict] = {}
) -> ExitCode:
    async def ask(*_: Any) -> Mapping[str, Verdict]:
        return told

    monkeypatch.setattr(commands, "load_contract", lambda _path: contract)
    monkeypatch.setattr(commands, "ask", ask)
    parser = argparse.ArgumentParser()
    commands.add_arguments(parser)
    return commands.run(parser.parse_args(["pacific", *words]))


def test_accept_says_who_is_good_and_who_is_held(
    contract: Contract, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = verdicts(**{f"n{number}": ("critical", "reboot") for number in range(3)})
    told["tokyo-gpu-9"] = unheard("unreachable", "no answer\x1b[2J")
    assert run(contract, monkeypatch, told=told) == ExitCode.FAILED
    said = capsys.readouterr().out
    assert "12 good: tokyo-gpu-3…8, tokyo-gpu-10…15" in said
    assert "May be taken out:\n  tokyo-gpu-0: reboot\n  tokyo-gpu-1: reboot\n" in said
    assert "tokyo-gpu-2: 2 of 8 nodes of leaf tokyo-leaf-0 are out, 2 may be" in said
    assert "\x1b" not in said
    assert run(contract, monkeypatch, "--json", told=told) == ExitCode.FAILED
    found = json.loads(capsys.readouterr().out)
    assert found["take_out"] == ["tokyo-gpu-0", "tokyo-gpu-1"]
    assert found["held"][0]["node"] == "tokyo-gpu-2"
    assert found["nodes"]["tokyo-gpu-9"]["severity"] == "unreachable"


def test_accept_is_ok_when_all_are_good(contract: Contract, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(contract, monkeypatch, told=verdicts()) == ExitCode.OK


def test_accept_needs_to_be_declared(contract: Contract, monkeypatch: pytest.MonkeyPatch) -> None:
    without = contract.model_copy(update={"sections": {}})
    with pytest.raises(BadInputError, match="accepts no nodes"):
        run(without, monkeypatch)


def write(folder: Path, hosts: Sequence[str], gbs: float, **more: Any) -> str:
    file = folder / ("-".join(hosts) + ".txt")
    file.write_text(nccl(hosts, gbs, **more))
    return str(file)


def test_outputs_of_nccl_are_judged(
    contract: Contract, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files = [
        write(tmp_path, ["tokyo-gpu-0", "tokyo-gpu-1.cluster.internal"], 320),
        write(tmp_path, ["tokyo-gpu-2", "tokyo-gpu-3"], 470),
    ]
    assert run(contract, monkeypatch, "--nccl", *files) == ExitCode.FAILED
    said = capsys.readouterr().out
    assert "FAILED: tokyo-gpu-0, tokyo-gpu-1, 320 of at least 440 GB/s" in said
    assert "To blame" not in said
    assert "Try next: tokyo-gpu-0 with tokyo-gpu-2" in said
    files += [
        write(tmp_path, ["tokyo-gpu-0", "tokyo-gpu-2"], 300),
        write(tmp_path, ["tokyo-gpu-1", "tokyo-gpu-3"], 460),
    ]
    assert run(contract, monkeypatch, "--nccl", *files) == ExitCode.FAILED
    assert "To blame: tokyo-gpu-0:" in capsys.readouterr().out
    assert run(contract, monkeypatch, "--nccl", *files[1:2]) == ExitCode.OK
    assert run(contract, monkeypatch, "--json", "--nccl", write(tmp_path, NODES[:4], 345)) == ExitCode.OK


def test_wrong_numbers_fail_however_fast(
    contract: Contract, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = write(tmp_path, ["tokyo-gpu-0", "tokyo-gpu-1"], 500, wrong="7")
    assert run(contract, monkeypatch, "--nccl", file) == ExitCode.FAILED


@pytest.mark.parametrize(
    ("hosts", "gpus", "words"),
    [
        (["elsewhere", "tokyo-gpu-1"], 8, "no node of stack"),
        (["tokyo-gpu-0", "tokyo-gpu-1"], 4, "of 8 declared GPUs"),
        (["tokyo-control-0", "tokyo-gpu-1"], 8, "one pool"),
    ],
)
def test_a_run_of_others_is_refused(
    hosts: list[str],
    gpus: int,
    words: str,
    contract: Contract,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    with pytest.raises(BadInputError, match=words):
        run(contract, monkeypatch, "--nccl", write(tmp_path, hosts, 500, gpus=gpus))


# What nodes are told.


def test_nodes_are_told_what_is_declared(contract: Contract) -> None:
    assert list(role_hosts(contract, "acceptance")) == NODES
    told = role_variables(contract)["pool_tokyo_gpu"]
    assert {name: value for name, value in told.items() if name.startswith("acceptance_")} == {
        "acceptance_gpus": 8,
        "acceptance_gpu_model": "h100-sxm",
        "acceptance_gpu_vendor": "nvidia",
        "acceptance_simulated": True,
        "acceptance_nic_count": 8,
        "acceptance_nic_gbps": 400,
        "acceptance_all_reduce_gbs": 440,
        "acceptance_clock_limit_ms": 10,
        "acceptance_interval_min": 15,
    }
    nics = capabilities.host_variables(contract)["tokyo-gpu-3"]["acceptance_nics"]
    assert nics == [{"name": f"rail{number}", "gbps": 400} for number in range(8)]


def test_figures_of_a_pool_go_to_its_nodes() -> None:
    own = {"region": "tokyo", "pool": "gpu", "memory_gib": 2048, "nvme_disks": 8, "all_reduce_gbs": 450}
    spec = parse_spec(DECLARED | {"acceptance": {"pools": [own]}})
    told = role_variables(build_contract(spec, make_plan(spec), "pacific"))["pool_tokyo_gpu"]
    assert told["acceptance_memory_gib"] == 2048
    assert told["acceptance_nvme_disks"] == 8
    assert told["acceptance_all_reduce_gbs"] == 450


def test_alerts_compare_with_what_is_declared(contract: Contract) -> None:
    declared = list(section(contract).declared(contract, "tokyo"))
    found = {one.name: (one.value, dict(one.labels)) for one in declared}
    assert found == {
        "acceptance_pool": (1, {"pool": "gpu"}),
        "acceptance_interval_seconds": (900, {}),
        "acceptance_region_out_ratio": (0.25, {}),
    }
