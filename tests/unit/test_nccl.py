"""What NCCL is told: of the plan's interfaces alone, and marked as the fabric expects."""

import importlib
import json
from typing import Any

import pytest
from ansible.plugins.filter.core import combine
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jinja2.nativetypes import NativeEnvironment
from ruamel.yaml import YAML

from infra import ROOT
from infra.capabilities.fabric.handoff import host_variables, variables
from infra.capabilities.wan.handoff import variables as wan_variables
from infra.checks import check, parse_spec
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from tests import loaded  # noqa: F401 - it lets Ansible find the roles' modules
from tests.unit.fabrics import cluster

ROCE = ROOT / "roles" / "roce"
host: Any = importlib.import_module("ansible.module_utils.causeway_roce_host")
FABRICS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["rail_optimized", "fat_tree", "spine_leaf"]),
        "radix": st.sampled_from([16, 32, 64, 128]),
        "rails": st.sampled_from([1, 2, 4, 8]),
        "link_gbps": st.just(400),
        "roce": st.fixed_dictionaries({"dscp": st.integers(0, 63), "cnp_dscp": st.just(48)}),
    },
    optional={
        "planes": st.integers(1, 2),
        "nccl": st.fixed_dictionaries(
            {},
            optional={
                "algo": st.sampled_from(["ring", "Ring,Tree", "^nvls", "allreduce:tree,nvls;broadcast:ring"]),
                "qps_per_connection": st.integers(1, 128),
                "net_gdr_level": st.sampled_from(["LOC", "SYS"]),
                "topo_file": st.just("/etc/topology.xml"),
            },
        ),
    },
)


def told(name: str, contract: Any, patch: pytest.MonkeyPatch, devices: dict[str, str]) -> dict[str, str]:
    """/etc/nccl.conf of a host with these RDMA devices (`mlx5_0/1` → interface), as the role writes it."""
    links = [
        {"ifname": device.split("/")[0], "port": int(device.split("/")[1]), "netdev": netdev}
        for device, netdev in devices.items()
    ]
    patch.setattr(host, "run", lambda *words: json.dumps(links) if words[0] == "rdma" else "[]")
    own = host_variables(contract)[name]
    (group,) = variables(contract)["roce"].values()
    ports = host.rdma_ports([one["name"] for one in own["roce_interfaces"]])
    yaml, jinja = YAML(typ="safe", pure=True), NativeEnvironment()
    jinja.filters["combine"] = combine
    values = {
        **yaml.load(ROCE / "defaults/main.yml"),
        **group,
        **own,
        "__roce": {"rdma_ports": ports, "management_interface": "eno1"},
        "ansible_managed": "made",
    }
    internal = yaml.load(ROCE / "vars/main.yml")
    for variable in ("__roce_tos", "__roce_nccl_found", "__roce_nccl"):
        values[variable] = jinja.from_string(internal[variable].strip()).render(values)
    text = jinja.from_string((ROCE / "templates/nccl.conf.j2").read_text()).render(values)
    lines = [line for line in str(text).splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


@settings(max_examples=40, deadline=None)
@given(fabric=FABRICS, nodes=st.integers(1, 40), lacking=st.integers(0, 3))
def test_a_profile_names_the_plans_interfaces_and_marks_as_declared(
    fabric: dict[str, Any], nodes: int, lacking: int
) -> None:
    spec = cluster(nodes, **fabric)
    # Of fabrics that cannot be built there is no plan; these nodes have no GPUs, which is no matter here.
    assume(not [one for one in check(spec) if one.severity == "error" and one.rule != "gpus"])
    contract = build_contract(spec, make_plan(spec), "lab")
    name, own = next(iter(host_variables(contract).items()))
    planned = [one["name"] for one in own["roce_interfaces"]]
    there = planned[lacking:]
    # Beside its fabric ports a node has others with RDMA, whose names begin alike.
    devices = {f"mlx5_{number}/1": port for number, port in enumerate(there)} | {
        "mlx5_99/1": "eno1",
        "mlx5_98/2": "rail77",
    }
    with pytest.MonkeyPatch.context() as patch:
        found = told(name, contract, patch, devices)
    hcas = found.get("NCCL_IB_HCA", "=")
    assert hcas[0] == "="
    assert [devices[hca.replace(":", "/")] for hca in hcas[1:].split(",") if hca] == there
    assert int(found["NCCL_IB_TC"]) >> 2 == fabric["roce"]["dscp"]
    assert int(found["NCCL_IB_TC"]) & 0b11 == host.ECT_0
    assert found["NCCL_SOCKET_IFNAME"] == "=eno1"
    cross = {"rail_optimized": "0"}.get(fabric["kind"], "1")
    assert found.get("NCCL_CROSS_NIC") == (cross if fabric["rails"] > 1 else None)
    hints = {
        "algo": "NCCL_ALGO",
        "qps_per_connection": "NCCL_IB_QPS_PER_CONNECTION",
        "net_gdr_level": "NCCL_NET_GDR_LEVEL",
        "topo_file": "NCCL_TOPO_FILE",
    }
    asked = {hints[name]: str(value) for name, value in fabric.get("nccl", {}).items()}
    assert {name: value for name, value in found.items() if name in hints.values()} == asked


def test_without_rdma_nccl_is_told_of_no_device() -> None:
    spec = cluster(2, kind="rail_optimized", radix=64, rails=2, link_gbps=400)
    contract = build_contract(spec, make_plan(spec), "lab")
    with pytest.MonkeyPatch.context() as patch:
        assert "NCCL_IB_HCA" not in told("r-gpu0-0", contract, patch, {})


@pytest.mark.parametrize("algo", ["", "rings", "ring;tree", "all:tree", "ring\n", "allreduce:", "ring,^tree"])
def test_what_is_no_choice_of_algorithms_is_refused(algo: str) -> None:
    with pytest.raises(Exception, match="is not a choice of NCCL's algorithms"):
        cluster(2, kind="fat_tree", radix=64, rails=2, link_gbps=400, nccl={"algo": algo})


@settings(max_examples=40, deadline=None)
@given(rtt_ms=st.floats(1, 300), bandwidth_mbps=st.floats(1, 400_000), loss_pct=st.floats(0, 5))
def test_between_regions_nccl_has_sockets_that_it_takes(
    rtt_ms: float, bandwidth_mbps: float, loss_pct: float
) -> None:
    pools = [
        {"name": "gpu", "role": "gpu", "count": 1, "gpus": 8, "gpu_model": "h100-sxm"},
        {"name": "control", "role": "control", "count": 1},
    ]
    line = {"rtt_ms": rtt_ms, "bandwidth_mbps": bandwidth_mbps, "loss_pct": loss_pct}
    spec = parse_spec(
        {
            "name": "c",
            "regions": [
                {"name": n, "cidr": f"10.{i}.0.0/16", "pools": pools} for i, n in enumerate("xy", 81)
            ],
            "wan_links": [{"name": "sea", "a": "x", "b": "y", **line}],
        }
    )
    contract = build_contract(spec, make_plan(spec), "lab")
    found = wan_variables(contract)["tcp_tuning"]
    asked = found["pool_x_gpu"]["tcp_tuning_nccl_sockets"]
    assert not [
        name for name, given in found.items() if "control" in name and "tcp_tuning_nccl_sockets" in given
    ]
    jinja, role = NativeEnvironment(), ROOT / "roles" / "tcp_tuning"
    internal = YAML(typ="safe", pure=True).load(role / "vars/main.yml")
    values = {
        "tcp_tuning_nccl_sockets": asked,
        "__tcp_tuning": {"devices": ["eno1"]},
        "ansible_managed": "made",
    }
    for variable in ("__tcp_tuning_nccl_per_thread", "__tcp_tuning_nccl_threads"):
        values[variable] = jinja.from_string(internal[variable]).render(values)
    text = str(jinja.from_string((role / "templates/nccl-wan.conf.j2").read_text()).render(values))
    options = dict(one.split("=", 1) for one in text.splitlines() if one and not one.startswith("#"))
    threads, each = int(options["NCCL_SOCKET_NTHREADS"]), int(options["NCCL_NSOCKS_PERTHREAD"])
    assert 1 <= threads <= 16
    assert 1 <= asked <= threads * each <= 64
    assert options["NCCL_SOCKET_IFNAME"] == "=eno1"
