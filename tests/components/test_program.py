"""The program under Pulumi's own mocks: which resources it asks for, under whom, after whom, with what."""

import asyncio
import copy
import json
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import pulumi
import pytest
from pulumi.runtime import config, mocks, rpc, stack

from infra.providers.local.resources import NodePoolLifecycle

ROOT = Path(__file__).resolve().parents[2]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG1pbmltYWwta2V5LWZvci10aGUtdGVzdC1vbmx5LTEy"
STACK = "components"
NOTHING: Mapping[str, str] = MappingProxyType({})

Requests = dict[str, Any]
"""URN → what the program asked Pulumi to register, in order."""


class Answers(mocks.Mocks):
    """Gives every resource what its provider would."""

    ensured: ClassVar[dict[str, str]] = {}
    """Name → when it was last made, changed or repaired, where that is not the first time."""

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        named = args.inputs.get("nodes") or args.inputs.get("hosts")
        names = named if isinstance(named, dict) else {}
        instances = {name: {"id": f"id of {name}", "host_key": KEY} for name in names}
        made = {"instances": instances, "public_key": "public", "private_key": "private"}
        made |= {"image": "image:1", "vm_image": "/images/vm-1"}
        made |= {"ensured": self.ensured.get(args.name, "once")}
        return f"{args.name}-id", {**args.inputs, **made, "effective": 7}

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[Any, Any], None]:
        raise AssertionError(f"{args.token}: the program calls no function of a provider")


class Recorder(mocks.MockMonitor):
    """Keeps the requests themselves: parents, dependencies and options stand nowhere else."""

    def __init__(self) -> None:
        super().__init__(Answers())
        self.requests: Requests = {}

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - gRPC's name
        if request.type != "pulumi:pulumi:Stack":
            urn = self.make_urn(request.parent, request.type, request.name)
            assert urn not in self.requests, f"{urn} is registered twice"
            self.requests[urn] = request
        return super().RegisterResource(request)  # type: ignore[no-untyped-call]  # Pulumi gives it no types


def declaration(gpu_nodes: int = 2) -> dict[str, Any]:
    control = {"name": "control", "role": "control", "count": 1}
    gpu = {"name": "gpu", "role": "gpu", "count": gpu_nodes, "gpus": 8, "gpu_model": "h100-sxm"}
    host = {"address": "10.93.0.5", "host_key": KEY}
    return {
        "name": "pacific",
        "regions": [
            {"name": "tokyo", "cidr": "10.91.0.0/16", "timezone": "Asia/Tokyo", "pools": [control, gpu]},
            {"name": "shanghai", "cidr": "10.92.0.0/16", "pools": [control]},
            {
                "name": "old",
                "provider": {"kind": "existing"},
                "cidr": "10.93.0.0/16",
                "pools": [{**control, "hosts": [host]}],
            },
        ],
        "wan_links": [
            {"name": "near", "a": "tokyo", "b": "shanghai", "rtt_ms": 5, "bandwidth_mbps": 100},
            {"name": "far", "a": "shanghai", "b": "old", "rtt_ms": 50, "bandwidth_mbps": 100},
        ],
        "waves": [["shanghai"], ["tokyo", "old"]],
    }


class Program(Protocol):
    """Runs `__main__.py` on a declaration. `given` stands encrypted in the configuration, `plain` in text."""

    def __call__(
        self, cluster: dict[str, Any], given: Mapping[str, str] = ..., plain: Mapping[str, str] = ...
    ) -> Requests: ...


pytestmark = pytest.mark.filterwarnings("ignore:NotImplemented should not be used:DeprecationWarning:pulumi")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    """Runs `__main__.py` on a declaration."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])

    def run(
        cluster: dict[str, Any], given: Mapping[str, str] = NOTHING, plain: Mapping[str, str] = NOTHING
    ) -> Requests:
        asyncio.set_event_loop(asyncio.new_event_loop())
        recorder = Recorder()
        pulumi.runtime.settings.ROOT.set(None)
        mocks.set_mocks(Answers(), project="causeway", stack=STACK, monitor=recorder)
        values = {f"causeway:{name}": value for name, value in {**given, **plain}.items()}
        values["causeway:cluster"] = json.dumps(cluster)
        config.set_all_config(values, [f"causeway:{name}" for name in given])
        main = str(ROOT / "__main__.py")
        pulumi.runtime.test(lambda: runpy.run_path(main, run_name="program"))()  # type: ignore[no-untyped-call]  # no types
        return recorder.requests

    return run


def inputs(requests: Requests, name: str) -> dict[str, Any]:
    """The inputs of the one custom resource called `name`, without the pickled provider."""
    found = [r for r in requests.values() if r.name == name and r.custom]
    assert len(found) == 1, name
    plain = rpc.deserialize_properties(found[0].object)
    return {key: value for key, value in plain.items() if key != "__provider"}


def custom(requests: Requests) -> dict[str, dict[str, Any]]:
    return {r.name: inputs(requests, r.name) for r in requests.values() if r.custom}


def loud(requests: Requests) -> dict[str, dict[str, Any]]:
    quiet = NodePoolLifecycle.quiet
    found = custom(requests).items()
    return {name: {key: value for key, value in kept.items() if key not in quiet} for name, kept in found}


def differing(before: Requests, after: Requests) -> set[str]:
    """The resources that something is to be done to: inputs for what is made later on are no reason."""
    one, other = loud(before), loud(after)
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


def after(requests: Requests, name: str) -> set[str]:
    """The names of all resources that Pulumi makes before `name`, directly or not.

    To depend on a component is to depend on everything below it.
    """
    found: set[str] = set()
    queue = [urn for urn, request in requests.items() if request.name == name and request.custom]
    while queue:
        for urn in requests[queue.pop()].dependencies:
            if urn not in found:
                found.add(urn)
                queue.append(urn)
    return {requests[urn].name for urn in found}


def changed(**region_changes: Any) -> dict[str, Any]:
    """The declaration with keys of tokyo changed."""
    cluster = copy.deepcopy(declaration())
    cluster["regions"][0] |= region_changes
    return cluster


def test_resources_grow_with_pools_and_not_with_nodes(program: Program) -> None:
    few, many = program(declaration()), program(declaration(gpu_nodes=400))
    assert few.keys() == many.keys(), "the names do not depend on counts either"
    assert len(inputs(many, "tokyo-gpu-nodes")["nodes"]) == 400
    more = declaration()
    more["regions"][0]["pools"].append({"name": "extra", "role": "storage", "count": 1})
    assert len(program(more)) == len(few) + 2, "a pool is a component and its nodes"


def test_every_resource_stands_under_its_component(program: Program) -> None:
    parents = {r.name: r.parent.rsplit("::", 1)[1] for r in program(declaration()).values() if r.custom}
    assert parents == {
        "access": "pacific",
        "departure": "pacific",
        "machine": "pacific",
        "tokyo-network": "tokyo",
        "shanghai-network": "shanghai",
        "tokyo-control-nodes": "tokyo-control",
        "tokyo-gpu-nodes": "tokyo-gpu",
        "shanghai-control-nodes": "shanghai-control",
        "old-control-hosts": "old-control",
        "near-emulation": "near",
        "inventory": "pacific",
        "configure-shanghai": "pacific",
        "configure-tokyo+old": "pacific",
        "verification": "pacific",
    }


def test_components_stand_under_the_stack_and_pools_under_their_region(program: Program) -> None:
    for request in program(declaration()).values():
        if request.type == "causeway:region:NodePool":
            assert request.parent.endswith("::" + request.name.split("-")[0])
        elif not request.custom:
            assert "pulumi:pulumi:Stack" in request.parent


def test_waves_follow_each_other_as_declared_and_the_proof_comes_last(program: Program) -> None:
    requests = program(declaration())
    assert "configure-shanghai" in after(requests, "configure-tokyo+old")
    assert "configure-tokyo+old" not in after(requests, "configure-shanghai")
    assert {"configure-shanghai", "configure-tokyo+old"} <= after(requests, "verification")


NOT_PROVEN = {"access", "departure", "machine", "inventory", "verification"}
"""No check is about the controller's own files, and a new image is for nodes that do not stand yet."""


def test_whatever_is_made_changed_or_repaired_is_proven_in_the_same_update(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = program(declaration())
    proven = {r.name for r in before.values() if r.custom} - NOT_PROVEN
    assert {"tokyo-network", "near-emulation", "old-control-hosts", "configure-shanghai"} <= proven
    for name in sorted(proven):
        monkeypatch.setattr(Answers, "ensured", {name: "again"})
        assert differing(before, program(declaration())) == {"verification"}, name


def test_nothing_is_configured_before_all_nodes_and_links_stand(program: Program) -> None:
    requests = program(declaration())
    standing = {"tokyo-gpu-nodes", "shanghai-control-nodes", "old-control-hosts", "near-emulation"}
    assert standing <= after(requests, "inventory")
    assert "inventory" in after(requests, "configure-shanghai")


def test_nothing_is_made_before_this_machine_has_been_looked_at(program: Program) -> None:
    requests = program(declaration())
    for name in ("tokyo-network", "tokyo-gpu-nodes", "near-emulation", "shanghai-network"):
        assert "machine" in after(requests, name), name
    assert "tokyo-network" in after(requests, "tokyo-gpu-nodes")
    assert {"tokyo-control-nodes", "shanghai-network"} <= after(requests, "near-emulation")


def test_no_node_goes_before_the_others_have_taken_over(program: Program) -> None:
    requests = program(declaration())
    for name in ("tokyo-gpu-nodes", "shanghai-control-nodes", "old-control-hosts"):
        assert "departure" in after(requests, name), name
    assert set(inputs(requests, "departure")["hosts"]) == set(
        inputs(requests, "inventory")["contract"]["hosts"]
    )


def test_everything_is_taken_away_before_it_is_made_again(program: Program) -> None:
    """`pulumi up --replace` goes by the resource alone: the other way round, the new one would be deleted."""
    made = [r for r in program(declaration()).values() if r.custom]
    assert made
    assert [r.name for r in made if not (r.deleteBeforeReplace and r.deleteBeforeReplaceDefined)] == []


def test_the_private_key_is_a_secret_and_goes_nowhere(program: Program) -> None:
    requests = program(declaration())
    key = next(r for r in requests.values() if r.name == "access")
    assert list(key.additionalSecretOutputs) == ["private_key"]
    for name, values in custom(requests).items():
        assert name == "access" or "private" not in json.dumps(values).replace("ssh_private_key_file", "")


def test_the_same_declaration_gives_the_same_names_and_inputs(program: Program) -> None:
    first, second = program(declaration()), program(declaration())
    assert first.keys() == second.keys()
    assert custom(first) == custom(second), "something random would show as a change in every preview"
    providers = [
        {urn: r.object["__provider"] for urn, r in requests.items() if r.custom}
        for requests in (first, second)
    ]
    assert providers[0] == providers[1]


def test_a_changed_time_zone_touches_the_hand_off_and_its_regions_wave(program: Program) -> None:
    before, moved = program(declaration()), program(changed(timezone="Asia/Seoul"))
    assert differing(before, moved) == {"inventory", "configure-tokyo+old", "verification"}
    one, other = (inputs(r, "configure-tokyo+old")["hosts"] for r in (before, moved))
    assert {name for name in one if one[name] != other[name]} == {
        "tokyo-control-0",
        "tokyo-gpu-0",
        "tokyo-gpu-1",
    }, "the other region of the same wave is left alone"


def test_a_larger_pool_touches_no_other_pool_or_network(program: Program) -> None:
    found = differing(program(declaration()), program(declaration(gpu_nodes=3)))
    assert {name for name in found if name.endswith(("-nodes", "-network", "-emulation"))} == {
        "tokyo-gpu-nodes"
    }


def test_a_changed_link_touches_no_node(program: Program) -> None:
    slower = declaration()
    slower["wan_links"][0] |= {"rtt_ms": 80}
    found = differing(program(declaration()), program(slower))
    assert "near-emulation" in found
    assert not {name for name in found if name.endswith(("-nodes", "-hosts", "-network"))}


def test_routers_send_on_what_is_for_regions_beyond(program: Program) -> None:
    cluster = declaration()
    control = {"name": "control", "role": "control", "count": 1}
    cluster["regions"].append({"name": "osaka", "cidr": "10.94.0.0/16", "pools": [control]})
    link = {"a": "osaka", "b": "tokyo", "rtt_ms": 8, "bandwidth_mbps": 100}
    cluster["wan_links"] += [{"name": "land", **link}, {"name": "spare", **link, "backup_of": "land"}]
    cluster["waves"] = []
    requests = program(cluster)
    shanghai, tokyo, osaka = "10.92.0.0/16", "10.91.0.0/16", "10.94.0.0/16"
    near, land, spare = (inputs(requests, f"{name}-emulation") for name in ("near", "land", "spare"))
    assert near["a_routes"] == {shanghai: 1000}
    assert near["b_routes"] == {tokyo: 1000, osaka: 1000}
    assert land["a_routes"] == {shanghai: 1000, tokyo: 1000}, "no emulated link reaches old"
    assert spare["a_routes"] == {shanghai: 2000, tokyo: 2000}
    assert spare["b_routes"] == {osaka: 2000}


def test_existing_machines_get_no_network_and_need_no_machine_of_ours(program: Program) -> None:
    only = declaration()
    only |= {"regions": only["regions"][2:], "wan_links": [], "waves": []}
    names = {r.name for r in program(only).values() if r.custom}
    assert names == {"access", "departure", "old-control-hosts", "inventory", "configure-old", "verification"}


def test_the_contract_is_an_output_of_the_stack(program: Program) -> None:
    requests = program(declaration())
    root = pulumi.runtime.settings.ROOT.get()
    assert isinstance(root, stack.Stack)
    assert {"contract", "regions", "checks"} <= set(root.outputs)
    contract = inputs(requests, "inventory")["contract"]
    assert contract["stack"] == STACK
    assert set(contract["hosts"]) == {
        "tokyo-control-0",
        "tokyo-gpu-0",
        "tokyo-gpu-1",
        "shanghai-control-0",
        "old-control-0",
    }


def test_a_bad_declaration_ends_the_program_with_every_problem(program: Program) -> None:
    wrong = changed(cidr="10.92.0.0/16", timezone="Asia/Tokio")
    wrong["wan_links"][1]["b"] = "osaka"
    with pytest.raises(pulumi.RunError) as caught:
        program(wrong)
    assert "regions[0].timezone" in str(caught.value)
    valid = changed(cidr="10.92.0.0/16")
    valid["wan_links"][1]["b"] = "osaka"
    with pytest.raises(pulumi.RunError) as caught:
        program(valid)
    assert "osaka" in str(caught.value)
    assert "10.92.0.0/16" in str(caught.value), "all at once"


def test_virtual_machines_are_made_from_their_own_image_beside_containers(program: Program) -> None:
    cluster = changed(provider={"kind": "local", "node_kind": "vm", "vm_memory_mib": 2048})
    cluster["regions"][0]["pools"][0]["node_kind"] = "container"
    requests = program(cluster)
    memory = {"tokyo-gpu-0": 2048, "tokyo-gpu-1": 2048}
    assert inputs(requests, "machine")["vm_memory_mib"] == memory
    gpu, control = inputs(requests, "tokyo-gpu-nodes"), inputs(requests, "tokyo-control-nodes")
    assert (gpu["node_kind"], gpu["image"], gpu["memory_mib"]) == ("vm", "/images/vm-1", 2048)
    assert ("node_kind" in control, control["image"]) == (False, "image:1")


def test_fabric_ports_are_cabled_to_leafs_that_hold_their_gateways(program: Program) -> None:
    cluster = changed(fabric={"kind": "rail_optimized", "radix": 64, "rails": 2, "link_gbps": 400})
    cluster["regions"][0]["pools"][1] |= {"nics": 2, "nic_gbps": 400}
    requests = program(cluster)
    leafs = inputs(requests, "tokyo-network")["leafs"]
    assert set(leafs) == {"leaf-0", "leaf-1"}
    assert len({address for held in leafs.values() for address in held}) == 2
    assert inputs(requests, "tokyo-gpu-nodes")["fabric"] == {
        name: {"rail0": "leaf-0", "rail1": "leaf-1"} for name in ("tokyo-gpu-0", "tokyo-gpu-1")
    }
    assert "fabric" not in inputs(requests, "tokyo-control-nodes")
    assert "leafs" not in inputs(requests, "shanghai-network")


def told(*secrets: str) -> dict[str, Any]:
    """The declaration with receivers that name these secrets."""
    receivers = [{"name": f"r{n}", "kind": "webhook", "url_secret": name} for n, name in enumerate(secrets)]
    return declaration() | {"monitoring": {"kind": "prometheus", "receivers": receivers}}


def test_a_given_secret_reaches_its_resource_as_a_secret_and_nothing_else(program: Program) -> None:
    requests = program(told("hook"), {"hook": "https://example.org/T0P"})
    found = next(r for r in requests.values() if r.name == "given-hook")
    assert rpc.is_rpc_secret(rpc.deserialize_property(found.object["value"]))
    assert {"parts", "value"} <= set(found.additionalSecretOutputs)
    holding = {r.name for r in requests.values() if "T0P" in str(r.object)}
    assert holding == {"given-hook"}


def test_another_given_value_is_no_other_resource_and_no_more_than_that(program: Program) -> None:
    one, other = (program(told("hook"), {"hook": value}) for value in ("https://a", "https://b"))
    assert one.keys() == other.keys()
    assert differing(one, other) == {"given-hook"}, "the mocks' fingerprint is the same; the real one is not"


def test_a_secret_that_is_missing_or_plain_ends_the_program_with_what_to_type(program: Program) -> None:
    with pytest.raises(pulumi.RunError) as caught:
        program(told("gone", "plain", "there"), {"there": "x"}, {"plain": "https://example.org/T0P"})
    said = str(caught.value)
    assert "causeway secret gone components" in said
    assert "causeway secret plain components" in said
    assert "causeway secret there" not in said
    assert "T0P" not in said
