"""The contract: what goes in comes out, and nothing else is let in."""

import json
from pathlib import Path

import pytest

from infra.checks.load import load_spec
from infra.errors import CausewayError
from infra.handoff.contract import Contract, build_contract, load_contract
from infra.planning.plan import make_plan

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(name="contract")
def _contract() -> Contract:
    spec = load_spec(ROOT / "Pulumi.local.yaml")
    return build_contract(spec, make_plan(spec), "local")


def test_a_written_contract_reads_back_the_same(contract: Contract, tmp_path: Path) -> None:
    file = tmp_path / "contract.json"
    file.write_text(contract.model_dump_json())
    assert load_contract(file) == contract


def test_a_contract_shuffled_and_stripped_of_nulls_writes_the_same_file(contract: Contract) -> None:
    shuffled = json.loads(contract.model_dump_json(exclude_none=True))
    for part in ("regions", "pools", "hosts", "links"):
        shuffled[part] = dict(reversed(shuffled[part].items()))
    assert Contract.model_validate(shuffled).model_dump_json() == contract.model_dump_json()


@pytest.mark.parametrize(
    "place", [(), ("regions", "tokyo"), ("hosts", "tokyo-gpu-0"), ("links", "trans-sea")]
)
def test_an_unknown_key_is_refused_at_every_level(
    contract: Contract, place: tuple[str, ...], tmp_path: Path
) -> None:
    data = json.loads(contract.model_dump_json())
    part = data
    for key in place:
        part = part[key]
    part["surprise"] = 1
    file = tmp_path / "contract.json"
    file.write_text(json.dumps(data))
    with pytest.raises(CausewayError, match="is not a contract of schema version 1") as raised:
        load_contract(file)
    assert raised.value.hint.startswith("run ./run up again")


def test_another_schema_version_is_refused(contract: Contract, tmp_path: Path) -> None:
    file = tmp_path / "contract.json"
    file.write_text(contract.model_dump_json().replace('"schema_version":1', '"schema_version":2'))
    with pytest.raises(CausewayError, match="schema version 1"):
        load_contract(file)


def test_a_missing_contract_names_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(CausewayError, match="no contract at") as raised:
        load_contract(tmp_path / "contract.json")
    assert "./run up" in raised.value.hint


def test_every_host_belongs_to_its_region(contract: Contract) -> None:
    assert contract.region_hosts("shanghai") == ("shanghai-control-0", "shanghai-gpu-0", "shanghai-gpu-1")
    assert {contract.region_of(host) for host in contract.hosts} == {"tokyo", "shanghai"}
