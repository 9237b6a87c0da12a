"""The contract: what goes in comes out, and nothing else is let in."""

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest

from infra.capabilities.base.section import BaseSection
from infra.capabilities.wan.section import WanSection
from infra.checks.load import load_spec
from infra.declaration import ClusterSpec
from infra.errors import CausewayError
from infra.ground.contract import Contract, Part, load_contract
from infra.planning.contract import build_contract
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


def test_declared_keys_are_in_the_contract() -> None:
    spec = load_spec(ROOT / "Pulumi.local.yaml").model_copy(
        update={"authorized_keys": ("ssh-ed25519 AAAA me",)}
    )
    base = build_contract(spec, make_plan(spec), "local").section(BaseSection)
    assert base
    assert base.authorized_keys == ("ssh-ed25519 AAAA me",)


def turned_around(value: Any) -> Any:
    """The same with every mapping in it in the other order, as Pulumi may hand it back."""
    if isinstance(value, dict):
        return {key: turned_around(part) for key, part in reversed(value.items())}
    return [turned_around(part) for part in value] if isinstance(value, list) else value


def test_a_contract_shuffled_and_stripped_of_nulls_writes_the_same_file(contract: Contract) -> None:
    shuffled = turned_around(json.loads(contract.model_dump_json(exclude_none=True)))
    assert Contract.model_validate(shuffled).model_dump_json() == contract.model_dump_json()


@pytest.mark.parametrize(
    "place",
    [
        (),
        ("regions", "tokyo"),
        ("hosts", "tokyo-gpu-0"),
        ("sections", "wan", "links", "trans-sea"),
        ("sections", "wan", "links", "trans-sea", "ends", "tokyo"),
        ("sections", "wan", "links", "trans-sea", "classes"),
        ("sections", "discovery"),
        ("sections", "discovery", "datacenters", "tokyo"),
    ],
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
    with pytest.raises(CausewayError, match="is not a contract of schema version 2") as raised:
        load_contract(file)
    assert raised.value.hint.startswith("run ./run up again")


def test_another_schema_version_is_refused(contract: Contract, tmp_path: Path) -> None:
    file = tmp_path / "contract.json"
    file.write_text(contract.model_dump_json().replace('"schema_version":2', '"schema_version":3'))
    with pytest.raises(CausewayError, match="schema version 2"):
        load_contract(file)


def test_a_missing_contract_names_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(CausewayError, match="no contract at") as raised:
        load_contract(tmp_path / "contract.json")
    assert "./run up" in raised.value.hint


def with_gateways(counts: tuple[int, int], provider: str = "local") -> Contract:
    """The embedded cluster with a pool of so many gateways at the end of each region instead of its own."""
    data = load_spec(ROOT / "Pulumi.local.yaml").model_dump(mode="json")
    for region, count in zip(data["regions"], counts, strict=True):
        region["provider"] = {"kind": provider}
        region["pools"] = [pool for pool in region["pools"] if pool["role"] != "gateway"]
        region["pools"] += [{"name": "edge", "role": "gateway", "count": count}] if count else []
    spec = ClusterSpec.model_validate(data)
    return build_contract(spec, make_plan(spec), "some")


@pytest.mark.parametrize(
    ("counts", "addresses"),
    [
        ((0, 0), ("10.81.0.1", "10.82.0.1")),  # the routers
        ((1, 0), ("10.81.64.0", "10.82.0.1")),  # the one gateway itself
        ((2, 3), ("10.81.0.2", "10.82.0.2")),  # an address they share
    ],
)
def test_nodes_send_traffic_for_other_regions_to_a_gateway(
    counts: tuple[int, int], addresses: tuple[str, str]
) -> None:
    contract = with_gateways(counts)
    wan = contract.need(WanSection)
    assert tuple(str(region.gateway_address) for region in wan.regions.values()) == addresses[::-1]
    assert [len(region.gateways) for region in wan.regions.values()] == [*counts[::-1]]
    ends = wan.links["trans-sea"].ends
    assert ends["tokyo"].gateway == ("tokyo-edge-0" if counts[0] else None)
    assert str(ends["tokyo"].address) == "100.100.0.1/30"
    assert str(ends["shanghai"].address) == "100.100.0.2/30"


def test_regions_that_stand_elsewhere_have_only_what_is_declared() -> None:
    wan = with_gateways((0, 0), "existing").need(WanSection)
    assert wan.regions["tokyo"].gateway_address is None
    assert wan.links["trans-sea"].ends["tokyo"].address is None


def test_regions_have_as_numbers_of_their_own(contract: Contract) -> None:
    assert {name: region.asn for name, region in contract.need(WanSection).regions.items()} == {
        "tokyo": 64512,
        "shanghai": 64513,
    }


def test_every_host_belongs_to_its_region(contract: Contract) -> None:
    names = ("control-0", "gateway-0", "gpu-0", "gpu-1", "storage-0")
    assert contract.region_hosts("shanghai") == tuple(f"shanghai-{name}" for name in names)
    assert {contract.region_of(host) for host in contract.hosts} == {"tokyo", "shanghai"}


def parts(model: type[Part] = Part) -> Iterator[type[Part]]:
    """Every model of the contract."""
    for part in model.__subclasses__():
        yield part
        yield from parts(part)


def test_what_may_be_none_has_a_default() -> None:
    """Pulumi drops inputs that are None: without a default the contract could not be read again."""
    for file in (ROOT / "infra" / "capabilities").glob("*/section.py"):
        import_module(f"infra.capabilities.{file.parent.name}.section")
    found = list(parts())
    assert len(found) > 20
    for part in found:
        for name, field in part.model_fields.items():
            may_be_none = type(None) in get_args(field.annotation)
            assert not (may_be_none and field.is_required()), f"{part.__name__}.{name}"
