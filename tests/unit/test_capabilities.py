"""Capabilities: what each brings to plan, contract and inventory, and what none may."""

import json
from pathlib import Path

import pytest

from infra import capabilities
from infra.capabilities.base.section import BaseSection
from infra.capabilities.discovery.capability import CAPABILITY as DISCOVERY
from infra.capabilities.discovery.section import DiscoverySection
from infra.capabilities.monitoring.section import MonitoringSection
from infra.capabilities.wan.capability import CAPABILITY as WAN
from infra.checks.load import load_spec
from infra.declaration import ClusterSpec
from infra.errors import CausewayError
from infra.ground.capability import Planned
from infra.ground.contract import Contract, load_contract
from infra.ground.endpoint import EVERYONE, NOBODY, Endpoint, HostSet, Ports
from infra.inventory.roles import role_hosts, role_order, roles_within
from infra.inventory.variables import role_variables
from infra.planning.contract import build_contract
from infra.planning.plan import Plan, make_plan

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def plan() -> Plan:
    return make_plan(load_spec(ROOT / "Pulumi.local.yaml"))


@pytest.fixture
def contract(plan: Plan) -> Contract:
    return build_contract(load_spec(ROOT / "Pulumi.local.yaml"), plan, "local")


def test_what_is_needed_or_used_is_planned_before() -> None:
    seen: set[str] = set()
    for name, capability in zip(capabilities.NAMES, capabilities.capabilities(), strict=True):
        assert capability.name == name
        assert seen.issuperset((*capability.needs, *capability.uses)), f"{name} comes too early"
        seen.add(name)


def test_every_role_is_brought_by_one_capability() -> None:
    assert set(capabilities.roles()) == set(role_order())
    rooms = (path.parent for path in (ROOT / "infra" / "capabilities").glob("*/capability.py"))
    assert {path.name for path in rooms} == set(capabilities.NAMES)


def test_variables_carry_the_name_of_their_role(contract: Contract) -> None:
    used = {each for role in role_order() for each in roles_within(role, ROOT)}
    for role, groups in capabilities.variables(contract).items():
        assert role in used
        strangers = [name for group in groups.values() for name in group if not name.startswith(f"{role}_")]
        assert not strangers


def test_a_set_of_hosts_has_no_need_of_their_names(contract: Contract) -> None:
    everybody = tuple(contract.hosts)
    assert contract.members(EVERYONE) == everybody
    assert contract.members(NOBODY) == ()
    tokyo = contract.region_hosts("tokyo")
    assert contract.members(HostSet(regions=("tokyo",))) == tokyo
    mixed = HostSet(pools=("tokyo-gpu",), hosts=("shanghai-gpu-1", "nobody"))
    assert contract.members(mixed) == ("shanghai-gpu-1", *(name for name in tokyo if "-gpu-" in name))
    with pytest.raises(ValueError, match=r"warp is not one of base, .*, drift_watch"):
        role_hosts(contract, "warp")


def test_a_service_is_an_endpoint_that_has_a_check(plan: Plan) -> None:
    """Discovery knows no port but its own; where not every node of a pool listens, nothing is promised."""
    section = plan.sections["discovery"]
    assert isinstance(section, DiscoverySection)
    port, some = (Ports.one(9000),), ("tokyo-gpu-0",)
    found = (
        Endpoint("store", HostSet(pools=("tokyo-gpu",)), port, "replication", check="ssh"),
        Endpoint("unasked", EVERYONE, port, "replication"),
        Endpoint("partly", HostSet(hosts=some), port, "replication", check="ssh"),
    )
    services = DISCOVERY.finish(section, Planned(plan.nodes, plan.sections, found)).services
    assert {key for key, own in services.items() if own} == {"tokyo-gpu"}
    (store,) = services["tokyo-gpu"]
    assert (store.name, store.port, store.check) == ("store", 9000, "ssh")


def test_gateways_class_what_listens_by_what_its_owner_says(plan: Plan) -> None:
    wan = plan.of(WAN)
    assert wan
    section = wan.section
    monitoring = ("9093", "9094", "9095", "9100", "9283", "9428", "9429")
    assert section.ports["management"] == ("22", "123", "179", "3300", "6800-7300", *monitoring)
    assert section.ports["scheduler"] == ("8300", "8301", "8302", "8500-8503", "8600")
    assert section.ports["scavenger"] == ("9090",), "what a cut has left over may wait"
    ports = (Ports(6800, 7300), Ports.one(99))
    found = (
        Endpoint("backfill", EVERYONE, ports, "scavenger"),
        Endpoint("inside of it", EVERYONE, (Ports(7000, 7400), Ports.one(99)), "scavenger"),
        Endpoint("inside", EVERYONE, (Ports.one(4791),), "scavenger", ("udp",), network="fabric"),
        Endpoint("data", EVERYONE, (Ports.one(5000),), "replication"),
    )
    classed = WAN.finish(wan, Planned(plan.nodes, plan.sections, found)).section.ports
    assert classed == {"management": (), "scheduler": (), "scavenger": ("99", "6800-7400")}


def test_what_listens_is_declared_once(plan: Plan) -> None:
    names = [(endpoint.name, endpoint.on) for endpoint in plan.endpoints]
    assert len(names) == len(set(names))
    assert {endpoint.name for endpoint in plan.endpoints} >= {"ssh", "ntp", "consul-rpc"}


@pytest.mark.parametrize("others", [(), (1,), (0, 1)], ids=["none", "one of a pool", "a whole pool"])
def test_ssh_listens_where_each_host_says(others: tuple[int, ...]) -> None:
    """So say the ports that have to be open, what gateways class, and the service that others find."""
    data = load_spec(ROOT / "tests" / "golden" / "good" / "existing-gateways.yaml").model_dump(mode="json")
    region, pool = data["regions"][0], data["regions"][0]["pools"][0]
    pool |= {"count": 2, "hosts": [pool["hosts"][0], {**pool["hosts"][0], "address": "10.1.0.77"}]}
    for number in others:
        pool["hosts"][number]["ssh_port"] = 2222
    spec = ClusterSpec.model_validate({**data, "discovery": {"kind": "consul"}})
    plan = make_plan(spec)
    contract = build_contract(spec, plan, "lab")
    listens = [
        (host, one.ports[0].first)
        for one in plan.endpoints
        if one.name == "ssh"
        for host in contract.members(one.on)
    ]
    assert sorted(listens) == sorted((name, host.ssh_port) for name, host in contract.hosts.items())
    wan = plan.of(WAN)
    assert wan
    assert ("2222" in wan.section.ports["management"]) is bool(others)
    shared, own = role_variables(contract), capabilities.host_variables(contract)
    for name, host in contract.hosts.items():
        of_pool = shared[f"pool_{host.pool.replace('-', '_')}"]["consul_services"]
        services = own.get(name, {}).get("consul_services", of_pool)
        assert [one["port"] for one in services if one["name"] == "ssh"] == [host.ssh_port]
    differing = {name for name, variables in own.items() if "consul_services" in variables}
    assert differing == ({f"{region['name']}-{pool['name']}-1"} if others == (1,) else set())


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ({"warp": {}}, "warp is no capability of this version"),
        ({"drift_watch": {}}, "drift_watch is no capability of this version with a section"),
        ({"../base": {}}, "../base is no capability of this version"),
        ({"discovery": {"version": 9}}, "Input should be 1"),
    ],
)
def test_a_section_that_this_version_does_not_know_is_refused(
    contract: Contract, tmp_path: Path, sections: dict[str, object], why: str
) -> None:
    data = json.loads(contract.model_dump_json())
    data["sections"] |= sections
    (tmp_path / "contract.json").write_text(json.dumps(data))
    with pytest.raises(CausewayError, match="is not a contract of schema version") as raised:
        load_contract(tmp_path / "contract.json")
    assert why in str(raised.value)


def test_a_capability_that_is_not_declared_has_no_section() -> None:
    spec = load_spec(ROOT / "Pulumi.local.yaml").model_copy(update={"monitoring": None})
    bare = build_contract(spec, make_plan(spec), "local")
    assert bare.section(MonitoringSection) is None
    assert bare.section(BaseSection)


def test_without_a_discovery_there_are_names_alone(plan: Plan) -> None:
    spec = load_spec(ROOT / "Pulumi.local.yaml").model_copy(update={"discovery": None, "monitoring": None})
    bare = build_contract(spec, make_plan(spec), "local")
    assert bare.need(DiscoverySection).kind == "names"
    assert bare.need(DiscoverySection).services == {}
    assert "discovery" not in make_plan(spec).resources
    assert plan.resources["discovery"] == len([name for name in plan.secrets if "consul" in name]) == 3
