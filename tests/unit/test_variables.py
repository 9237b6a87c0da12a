"""Which role variables a contract becomes, and on which groups they stand."""

import json
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from infra.capabilities import host_variables, roles
from infra.capabilities.wan.section import WanSection
from infra.checks import parse_spec
from infra.checks.load import load_spec
from infra.declaration import ClusterSpec
from infra.files import given_file
from infra.ground.contract import Contract
from infra.ground.groups import group_name
from infra.inventory.roles import role_hosts, role_order
from infra.inventory.variables import role_variables
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan

ROOT = Path(__file__).resolve().parents[2]
GOOD = ROOT / "tests" / "golden" / "good"


def contract_of(spec: ClusterSpec) -> Contract:
    return build_contract(spec, make_plan(spec), "test")


@pytest.fixture
def contract() -> Contract:
    return contract_of(load_spec(ROOT / "Pulumi.local.yaml"))


def test_regions_get_their_place_in_the_world(contract: Contract) -> None:
    tokyo = role_variables(contract)["region_tokyo"]
    assert tokyo["base_timezone"] == "Asia/Tokyo"
    assert tokyo["base_locale"] == "ja_JP.UTF-8"
    assert tokyo["base_ntp_allow"] == ["10.81.0.0/16"]
    assert tokyo["base_ntp_region_servers"] == [str(contract.hosts["tokyo-control-0"].address)]


def test_what_is_kept_is_told_to_the_role_and_nobody_keeps_time_for_others(contract: Contract) -> None:
    assert not [name for name in role_variables(contract)["region_tokyo"] if name.startswith("base_adopt")]
    adopting = contract_of(load_spec(GOOD / "existing-adopted.yaml"))
    munich = role_variables(adopting)["region_munich"]
    assert {name: how for name, how in munich.items() if name.startswith("base_adopt")} == {
        "base_adopt_hostname": "keep",
        "base_adopt_hosts_file": "managed_block",
        "base_adopt_time_servers": "keep",
        "base_adopt_passwords": "keep",
    }
    assert munich["base_ntp_region_servers"] == []
    spec = load_spec(GOOD / "existing-adopted.yaml")
    assert "ntp" not in {one.name for one in make_plan(spec).endpoints}
    assert "ntp" in {one.name for one in make_plan(load_spec(GOOD / "existing-names.yaml")).endpoints}


def test_mirrors_are_told_to_base_and_to_whoever_brings_large_files(contract: Contract) -> None:
    tokyo = role_variables(contract)["region_tokyo"]
    assert not [name for name in tokyo if "mirror" in name], (
        "where none is declared, roles have their own words"
    )
    spec = load_spec(GOOD / "mirrors.yaml")
    munich = role_variables(contract_of(spec))["region_munich"]
    authority = str(given_file("keys/mirrors.pem"))
    assert {name: value for name, value in munich.items() if "mirror" in name} == {
        "base_mirror_packages": "https://mirror.example.org/debian",
        "base_mirror_security": "https://mirror.example.org/security",
        "base_mirror_components": ["main", "non-free-firmware"],
        "base_mirror_proxy": "http://192.168.20.2:3128",
        "base_mirror_ca_file": authority,
        "artefact_mirror": {
            "url": "https://mirror.example.org/programs",
            "proxy": "http://192.168.20.2:3128",
            "ca_file": authority,
        },
    }


def test_nodes_ask_their_mirrors_or_the_proxy_alone() -> None:
    def asked(**other: str | None) -> set[tuple[str, str, int]]:
        tree = YAML(typ="safe").load(GOOD / "mirrors.yaml")
        tree["regions"][0]["mirrors"] |= other
        return {(one.name, one.host, one.port) for one in make_plan(parse_spec(tree)).destinations}

    assert asked() == {("proxy-munich", "192.168.20.2", 3128)}
    assert asked(proxy=None, security="http://mirror.example.org:8080/security") == {
        ("packages-munich", "mirror.example.org", 443),
        ("security-munich", "mirror.example.org", 8080),
        ("artefacts-munich", "mirror.example.org", 443),
    }


def test_routes_lead_to_the_other_region_only(contract: Contract) -> None:
    variables = role_variables(contract)
    settings = {"congestion_control": "bbr", "mtu_bytes": 1500}
    for region, far, via in (
        ("tokyo", "10.82.0.0/16", "10.81.48.0"),
        ("shanghai", "10.81.0.0/16", "10.82.48.0"),
    ):
        routes = variables[f"region_{region}"]["tcp_tuning_wan_routes"]
        assert routes == [{"cidr": far, "via": via, **settings}]
    assert variables["region_tokyo"]["tcp_tuning_buffer_max_bytes"] == 16 * 2**20


def test_gateways_get_no_routes_from_us() -> None:
    data = load_spec(ROOT / "Pulumi.local.yaml").model_dump(mode="json")
    data["regions"][0]["pools"].append({"name": "edge", "role": "gateway", "count": 2})
    contract = contract_of(ClusterSpec.model_validate(data))
    variables = role_variables(contract)
    assert variables["region_tokyo"]["tcp_tuning_wan_routes"][0]["via"] == "10.81.0.2"
    assert variables["pool_tokyo_edge"]["tcp_tuning_wan_routes"] == []
    assert "tokyo-edge-0" in role_hosts(contract, "tcp_tuning")


def test_a_region_without_links_is_not_tuned(contract: Contract) -> None:
    wan = contract.need(WanSection)
    alone = wan.regions["tokyo"].model_copy(update={"routes": (), "tcp_buffer_max_bytes": 0})
    changed_wan = wan.model_copy(update={"regions": {**wan.regions, "tokyo": alone}})
    changed = contract.model_copy(update={"sections": {**contract.sections, "wan": changed_wan}})
    assert not any(name.startswith("tcp_tuning") for name in role_variables(changed)["region_tokyo"])
    assert all(host.startswith("shanghai-") for host in role_hosts(changed, "tcp_tuning"))
    assert role_hosts(changed, "base") == tuple(contract.hosts)


def test_shared_memory_is_set_where_it_is_declared() -> None:
    data = load_spec(ROOT / "Pulumi.local.yaml").model_dump(mode="json")
    for pool in data["regions"][0]["pools"]:
        pool["shm_gib"] = 0.5 if pool["name"] == "gpu" else None
    variables = role_variables(contract_of(ClusterSpec.model_validate(data)))
    assert variables["pool_tokyo_gpu"]["base_shm_gib"] == 0.5
    assert "base_shm_gib" not in variables["pool_tokyo_control"]


def test_authorised_keys_go_to_every_region_and_none_leaves_the_file_alone(contract: Contract) -> None:
    assert "base_authorized_keys" not in role_variables(contract)["region_tokyo"]
    keys = ("ssh-ed25519 AAAA night@desk",)
    changed = contract_of(load_spec(ROOT / "Pulumi.local.yaml").model_copy(update={"authorized_keys": keys}))
    for region in ("region_tokyo", "region_shanghai"):
        assert role_variables(changed)[region]["base_authorized_keys"] == list(keys)


@pytest.fixture
def fabric() -> Contract:
    """A region with a control node and three nodes on a fabric, two to a leaf."""
    pools = [
        {"name": "control", "role": "control", "count": 1},
        {
            "name": "gpu",
            "role": "gpu",
            "count": 3,
            "gpus": 8,
            "gpu_model": "h100-sxm",
            "nics": 2,
            "nic_gbps": 400,
        },
    ]
    shape = {"kind": "rail_optimized", "radix": 4, "rails": 2, "link_gbps": 400, "mtu_bytes": 4200}
    marking = {"dscp": 24, "priority": 4}
    region = {"name": "r", "cidr": "10.1.0.0/16", "fabric": {**shape, "roce": marking}, "pools": pools}
    return contract_of(parse_spec({"name": "c", "regions": [region]}))


def test_a_fabric_says_how_its_hosts_mark(fabric: Contract, contract: Contract) -> None:
    found = {key: value for key, value in role_variables(fabric)["region_r"].items() if "roce" in key}
    priorities = {"roce_priority": 4, "roce_cnp_priority": 6}
    profile = {"NCCL_CROSS_NIC": "0"}
    assert found == {
        "roce_mtu_bytes": 4200,
        "roce_dscp": 24,
        "roce_cnp_dscp": 48,
        "roce_nccl_profile": profile,
        **priorities,
    }
    assert not any(name.startswith("roce") for name in role_variables(contract)["region_tokyo"])


def test_only_hosts_on_a_fabric_get_roce(fabric: Contract, contract: Contract) -> None:
    assert role_hosts(fabric, "roce") == ("r-gpu-0", "r-gpu-1", "r-gpu-2")
    assert role_hosts(contract, "roce") == ()
    assert "r-control-0" not in host_variables(fabric)


def test_every_fabric_interface_knows_its_rail(fabric: Contract) -> None:
    ports = {name: host_variables(fabric)[name]["roce_interfaces"] for name in role_hosts(fabric, "roce")}
    for name, interfaces in ports.items():
        assert [one["name"] for one in interfaces] == ["rail0", "rail1"]
        for one in interfaces:
            subnet, rail = IPv4Interface(one["address"]).network, IPv4Network(one["network"])
            assert IPv4Address(one["gateway"]) in subnet
            assert subnet.subnet_of(rail)
            assert [other for other, others in ports.items() if one in others] == [name]
    first, last = ports["r-gpu-0"][0], ports["r-gpu-2"][0]
    assert IPv4Interface(last["address"]).ip in IPv4Network(first["network"])
    assert IPv4Interface(last["address"]).ip not in IPv4Interface(first["address"]).network


def test_a_hosts_own_interfaces_count_when_it_is_asked_what_is_stale(fabric: Contract) -> None:
    own = host_variables(fabric)
    first, second = (own[name]["roce_interfaces"] for name in ("r-gpu-0", "r-gpu-1"))
    assert first != second


def test_every_variable_is_one_its_role_knows(contract: Contract, fabric: Contract) -> None:
    reader = YAML(typ="safe", pure=True)
    files = [ROOT / "roles" / feature / "defaults" / "main.yml" for feature in role_order()]
    known = {name for file in files for name in reader.load(file.read_text())}
    groups = [*role_variables(contract).values(), *role_variables(fabric).values()]
    assert {name for group in (*groups, host_variables(fabric)["r-gpu-0"]) for name in group} <= known


def test_group_names_have_no_dashes() -> None:
    assert group_name("pool", "us-west", "gpu-a") == "pool_us_west_gpu_a"


def test_an_unknown_feature_is_an_error(contract: Contract) -> None:
    with pytest.raises(ValueError, match="warp is not one of base, tcp_tuning"):
        role_hosts(contract, "warp")


def with_gateways(**second_link: object) -> Contract:
    """The default stack with two gateways in tokyo and one in shanghai, and a tunnel as backup."""
    data = load_spec(ROOT / "Pulumi.local.yaml").model_dump(mode="json")
    for number, region in enumerate(data["regions"]):
        region["pools"] = [pool for pool in region["pools"] if pool["role"] != "gateway"]
        region["pools"].append({"name": "edge", "role": "gateway", "count": 2 - number})
    backup = {"name": "tunnel", "kind": "vpn", "backup_of": "trans-sea", **second_link}
    data["wan_links"].append({**data["wan_links"][0], **backup})
    return contract_of(ClusterSpec.model_validate(data))


def test_a_gateway_is_told_its_region_s_links_and_whom_it_meets_there() -> None:
    contract = with_gateways()
    edge = role_variables(contract)["pool_tokyo_edge"]
    assert (edge["wan_gateway_asn"], edge["wan_gateway_far_cidrs"]) == (64512, ["10.82.0.0/16"])
    assert edge["wan_gateway_members"] == [
        str(contract.hosts[f"tokyo-edge-{number}"].address) for number in (0, 1)
    ]
    assert edge["wan_gateway_vip"] == "10.81.0.2"
    bare, tunnel = edge["wan_gateway_links"]
    assert [link["gateway"] for link in (bare, tunnel)] == edge["wan_gateway_members"]
    assert (bare["primary_for"], bare["standby_for"]) == (["10.82.0.0/16"], [])
    assert (tunnel["primary_for"], tunnel["standby_for"]) == ([], ["10.82.0.0/16"])
    assert (bare["peer"], bare["peer_asn"], bare["backup"]) == ("100.100.0.2", 64513, False)
    assert (tunnel["peer"], tunnel["tunnel"]["peer"]) == ("100.100.0.6", "100.101.0.6")
    assert tunnel["backup"]
    assert tunnel["mtu_bytes"] == tunnel["handover_mtu_bytes"] - 60
    assert set(role_hosts(contract, "wan_gateway")) == {"tokyo-edge-0", "tokyo-edge-1", "shanghai-edge-0"}


def test_gateways_you_have_are_told_what_the_carrier_hands_over() -> None:
    variables = role_variables(contract_of(load_spec(GOOD / "existing-gateways.yaml")))
    tokyo, shanghai = (variables[f"pool_{region}_edge"] for region in ("tokyo", "shanghai"))
    assert tokyo["wan_gateway_vip"] == variables["region_tokyo"]["tcp_tuning_wan_routes"][0]["via"]
    assert tokyo["wan_gateway_vip"] == "10.1.0.250"
    tunnel, line = tokyo["wan_gateway_links"]
    assert (line["gateway"], line["address"], line["peer"]) == ("10.1.0.11", "192.0.2.1/30", "192.0.2.2")
    assert (tunnel["gateway"], tunnel["address"], tunnel["peer"]) == (
        "10.1.0.12",
        "10.1.0.12/24",
        "203.0.113.7",
    )
    assert shanghai["wan_gateway_links"][0]["peer"] == "198.51.100.1", "behind address translation"


def test_one_gateway_shares_its_address_with_nobody() -> None:
    assert role_variables(with_gateways())["pool_shanghai_edge"]["wan_gateway_vip"] == ""


def test_each_end_of_a_tunnel_reads_its_own_key_and_the_other_s_public_one() -> None:
    variables = role_variables(with_gateways())
    tokyo, shanghai = (
        variables[f"pool_{region}_edge"]["wan_gateway_links"][1]["tunnel"] for region in ("tokyo", "shanghai")
    )
    assert tokyo["private_key_file"] + ".pub" == shanghai["peer_public_key_file"]
    assert shanghai["private_key_file"] + ".pub" == tokyo["peer_public_key_file"]
    assert tokyo["port"] == shanghai["port"]


def test_a_router_at_the_other_end_speaks_no_bgp() -> None:
    data = load_spec(ROOT / "Pulumi.local.yaml").model_dump(mode="json")
    data["regions"][1]["pools"] = [p for p in data["regions"][1]["pools"] if p["role"] != "gateway"]
    data["regions"][0]["pools"].append({"name": "edge", "role": "gateway", "count": 1})
    contract = contract_of(ClusterSpec.model_validate(data))
    (link,) = role_variables(contract)["pool_tokyo_edge"]["wan_gateway_links"]
    assert "peer_asn" not in link
    assert role_hosts(contract, "wan_gateway")[0].startswith("tokyo-")


def discovered(**discovery: object) -> Contract:
    data = load_spec(ROOT / "Pulumi.local.yaml").model_dump(mode="json")
    data["regions"][0]["pools"][0]["count"] = 4
    return contract_of(ClusterSpec.model_validate(data | {"discovery": {"kind": "consul", **discovery}}))


def test_each_region_is_a_datacenter_that_knows_the_others_servers() -> None:
    contract = discovered(datacenters={"shanghai": "east"})
    tokyo, shanghai = (role_variables(contract)[f"region_{name}"] for name in ("tokyo", "shanghai"))
    servers = [f"10.81.16.{number}" for number in range(3)]
    assert (tokyo["consul_datacenter"], shanghai["consul_datacenter"]) == ("tokyo", "east")
    assert tokyo["consul_primary_datacenter"] == shanghai["consul_primary_datacenter"] == "tokyo"
    assert tokyo["consul_server_addresses"] == servers
    assert tokyo["consul_wan_servers"] == {"east": ["10.82.16.0"]}
    assert shanghai["consul_wan_servers"] == {"tokyo": servers}
    assert role_hosts(contract, "consul") == tuple(contract.hosts)


@pytest.mark.parametrize("keeping", [(), ("munich",), ("tokyo",), ("munich", "tokyo")])
def test_where_the_resolver_is_kept_each_node_has_all_names_itself(keeping: tuple[str, ...]) -> None:
    data = load_spec(GOOD / "existing-names.yaml").model_dump(mode="json") | {"discovery": {"kind": "consul"}}
    (munich,) = data["regions"]
    tokyo = json.loads(json.dumps(munich).replace("munich", "tokyo").replace("192.168.20.", "192.168.21."))
    for pool in tokyo["pools"]:
        for host in pool["hosts"]:
            host["name"] = None
    data["regions"].append(tokyo)
    for region in data["regions"]:
        region["provider"]["adopt"] = {"resolver": "keep" if region["name"] in keeping else "set"}
    contract = contract_of(ClusterSpec.model_validate(data))
    for name in ("munich", "tokyo"):
        own = role_variables(contract)[f"region_{name}"]
        assert own.get("consul_dns") == ("none" if name in keeping else None)
        # Left out, the role takes every host of the inventory.
        assert ("base_hosts_entries" in own) is (name not in keeping)
        assert not [one for one in own if one.startswith("base_adopt")]
    base = roles()["base"]
    assert base.reads
    assert base.reads(contract) == {name: str(host.address) for name, host in contract.hosts.items()}
    readers = contract.members(base.readers(contract))
    assert {contract.region_of(host) for host in readers} == {*keeping}, "nodes that come are written there"


def test_without_a_discovery_the_first_control_nodes_answer_for_names() -> None:
    data = load_spec(ROOT / "Pulumi.local.yaml").model_dump(mode="json")
    data |= dict.fromkeys(("discovery", "monitoring", "acceptance"), None) | {"storage": []}
    tokyo, shanghai = data["regions"]
    tokyo["pools"] = [pool for pool in tokyo["pools"] if pool["role"] != "control"]
    shanghai["pools"][0]["count"] = 4
    contract = contract_of(ClusterSpec.model_validate(data))
    tokyo, shanghai = (role_variables(contract)[f"region_{name}"] for name in ("tokyo", "shanghai"))
    assert shanghai["names_servers"] == [f"10.82.16.{number}" for number in range(3)]
    assert shanghai["names_domain"] == "nodes.pacific.internal"
    assert set(shanghai["base_hosts_entries"]) == {f"shanghai-control-{number}" for number in range(4)}
    assert "names_servers" not in tokyo
    assert "base_hosts_entries" not in tokyo, "nobody answers there: its nodes have all names themselves"
    assert {contract.region_of(host) for host in role_hosts(contract, "names")} == {"shanghai"}
    assert role_hosts(contract, "consul") == ()


def test_a_kind_of_node_may_register_what_its_nodes_run() -> None:
    variables = role_variables(discovered())
    kinds = {kind["name"]: kind["services"] for kind in variables["region_shanghai"]["consul_node_kinds"]}
    assert kinds["tokyo-gpu"] == ["ssh"]
    assert kinds["shanghai-control"] == ["ssh", "ntp"]
    assert kinds["tokyo-control"] == ["ssh"], "not all of its nodes are time servers"
    for pool in ("shanghai_control", "tokyo_gpu"):
        offered = [service["name"] for service in variables[f"pool_{pool}"]["consul_services"]]
        assert offered == kinds[variables[f"pool_{pool}"]["consul_node_kind"]]


def test_without_discovery_there_is_none() -> None:
    contract = contract_of(load_spec(ROOT / "Pulumi.local.yaml").model_copy(update={"discovery": None}))
    assert role_hosts(contract, "consul") == ()
    assert not any(name.startswith("consul") for group in role_variables(contract).values() for name in group)
