"""Services of somebody's that run on a machine: no role sets one up anew unless the declaration says so."""

from types import SimpleNamespace
from typing import Any

from infra import ROOT
from infra.capabilities import roles
from infra.checks.load import load_spec
from infra.declaration import ClusterSpec
from infra.doctor.judge import judge
from infra.doctor.wanted import ports_of, requests_of
from infra.ground.machine import Grade, Machine
from infra.inventory.groups import inventory_data
from infra.inventory.roles import services_of_others
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from tests.loaded import load
from tests.unit.contracts import contract_of

GATEWAYS = ROOT / "tests" / "golden" / "good" / "existing-gateways.yaml"
HOST = "tokyo-control-0"
UNIT = "prometheus-node-exporter.service"


def stack(*taken: str, engine: str = "podman") -> Any:
    data = load_spec(GATEWAYS).model_dump(mode="json") | {"monitoring": {"kind": "prometheus"}}
    for region in data["regions"]:
        region["provider"]["take_over"] = list(taken)
        for pool in region["pools"]:
            pool["container_runtime"] = {"engine": engine}
    spec = ClusterSpec.model_validate(data)
    plan = make_plan(spec)
    return build_contract(spec, plan, "lab"), plan


def grades(*taken: str, begun: tuple[str, ...] = (), ours: bool = False) -> dict[str, Grade]:
    contract, plan = stack(*taken)
    unit = {"active": True, "enabled": True, "ours": ours}
    machine = Machine.model_validate(
        {
            "os_id": "debian",
            "python": "3.13.5",
            "root": True,
            "systemd": True,
            "units": {UNIT: unit},
            "begun": begun,
        }
    )
    found = judge(contract, HOST, ["node_exporter"], ports_of(contract, plan.endpoints)[HOST], [], machine)
    return {one.about: one.grade for one in found if UNIT in one.says}


def test_a_role_does_not_come_to_a_service_of_somebodys_unless_it_may() -> None:
    assert grades() == {"node_exporter": Grade.IMPOSSIBLE}
    assert grades("prometheus") == {"node_exporter": Grade.IMPOSSIBLE}
    assert grades("node_exporter") == {"node_exporter": Grade.IN_THE_WAY}
    assert grades(ours=True) == {}
    assert grades(begun=("node_exporter",)) == {}, "a run of ours was ended there"


def test_a_role_that_has_been_there_asks_for_what_it_is_to_set_up_as_well() -> None:
    contract, plan = stack(engine="containerd")
    unit = {"active": True, "enabled": True, "ours": False}

    def said(asked: dict[str, list[str]]) -> list[str]:
        machine = Machine.model_validate(
            {
                **{"os_id": "debian", "python": "3.13.5", "root": True, "systemd": True, "asked": asked},
                **{"units": {"containerd.service": unit}, "begun": ["container_runtime"]},
            }
        )
        ports = ports_of(contract, plan.endpoints)[HOST]
        found = judge(contract, HOST, ["container_runtime"], ports, [], machine)
        return [one.says for one in found if one.grade == Grade.IMPOSSIBLE and "containerd" in one.says]

    assert "containerd.service of somebody's runs" in "".join(said({"container_runtime": []}))
    assert said({"container_runtime": ["containerd.service"]}) == []
    assert said({}) == [], "a record that says nothing is from before, and all was asked for"


def test_a_node_is_asked_for_what_a_role_is_to_set_up_as_well() -> None:
    before = load(ROOT / "playbooks/library/causeway_before.py")
    index = SimpleNamespace(roles={"runtime": 1, "old": None}, asked={"runtime": ["a.service"]})
    services = {"runtime": ["a.service", "b.service"], "old": ["c.service"], "new": ["d.service"], "none": []}
    later = before.asked_later(index, [*services, "plain"], services)
    assert later == {"runtime": ["b.service"]}, "of a role that never said, all was asked for"
    units = {"a.service": ["enabled", "active"], "b.service": ["enabled", "active"]}
    assert before.somebodys(later, later, units) == {"runtime": ["b.service"]}
    assert before.somebodys(later, later, {"a.service": ["enabled", "active"]}) == {}


def test_machines_are_asked_for_what_runs_there() -> None:
    contract, plan = stack()
    asked = requests_of(contract, (HOST,), plan.endpoints, {})[HOST]["units"]
    assert UNIT in asked
    assert "containerd.service" not in asked, "no role of the stack sets it up"


def test_the_inventory_says_what_may_not_be_taken_over() -> None:
    contract, _ = stack("prometheus")
    told = inventory_data(contract, ROOT)["pool_tokyo_control"]["vars"]["causeway_services_of_others"]
    assert told["node_exporter"] == [UNIT]
    assert "prometheus" not in told
    mixed = contract_of()
    asked = {pool: bool(services_of_others(mixed, pool)) for pool in mixed.pools}
    made = {name for name, region in mixed.regions.items() if region.makes_nodes}
    assert made
    assert asked == {name: pool.region not in made for name, pool in mixed.pools.items()}, "ours are ours"
    assert {role for role in told if not roles()[role].may_take_over} == set()


def test_an_engine_is_taken_over_where_it_is_the_one_that_is_declared() -> None:
    for engine, services in (("podman", []), ("containerd", ["containerd.service"])):
        contract, _ = stack(engine=engine)
        assert services_of_others(contract, "tokyo-control")["container_runtime"] == services


def test_what_is_no_business_of_the_machines_roles_is_adopted() -> None:
    """Also where the capability that knows of it has nothing to do there."""
    contract, plan = stack()
    known = requests_of(contract, (HOST,), plan.endpoints, {})[HOST]["units"]
    unit = {"active": True, "enabled": True, "ours": False}
    strange = ("frr.service", "ceph-osd@1.service", "grafana-server.service")
    machine = Machine.model_validate(
        {
            **{"os_id": "debian", "python": "3.13.5", "root": True, "systemd": True},
            **{"units": dict.fromkeys(strange, unit), "wireguard": ["wg-office"]},
        }
    )
    found = {
        one.says for one in judge(contract, HOST, ["base"], [], [], machine) if one.grade == Grade.ADOPTED
    }
    assert {f"{name} runs, and stays as it is" for name in strange} <= found
    assert "tunnel wg-office stays" in found
    assert {"frr.service", "grafana-server.service", "ceph-*@*.service"} <= {*known}, "it is asked for"
