"""The inventory: as a dictionary, and as Ansible itself reads it through the plugin."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from infra.checks.load import load_spec
from infra.declaration import ClusterSpec
from infra.ground.contract import Contract
from infra.inventory.groups import group_hosts, inventory_data
from infra.inventory.roles import role_order
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan

PROVES = ("inventory",)

ROOT = Path(__file__).resolve().parents[2]
ALWAYS = {f"role_{role}" for role in ("control", "gpu", "storage", "gateway")} | {
    f"feature_{feature}" for feature in role_order()
}


def contract_of(spec: ClusterSpec) -> Contract:
    return build_contract(spec, make_plan(spec), "local")


@pytest.fixture(name="contract")
def _contract() -> Contract:
    return contract_of(load_spec(ROOT / "Pulumi.local.yaml"))


@pytest.fixture(name="folder")
def _folder(contract: Contract, tmp_path: Path) -> Path:
    """An inventory folder as a user has it, with a contract of its own."""
    folder = tmp_path / "inventories" / "local"
    folder.mkdir(parents=True)
    (tmp_path / "contract.json").write_text(contract.model_dump_json())
    (folder / "causeway.yml").write_text(f"plugin: causeway\ncontract: {tmp_path / 'contract.json'}\n")
    return folder


def ansible_inventory(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PULUMI_")}
    environment |= {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "LC_ALL": "C.UTF-8"}
    environment.pop("PYTHONPATH", None)  # plain Ansible does not know the checkout
    return subprocess.run(
        ["ansible-inventory", "-i", str(folder), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        check=False,
    )


def listed(folder: Path) -> dict[str, Any]:
    answer = ansible_inventory(folder, "--list")
    assert answer.returncode == 0, answer.stderr
    assert not answer.stderr, answer.stderr
    inventory: dict[str, Any] = json.loads(answer.stdout, object_hook=literal)
    return inventory


def literal(value: dict[str, Any]) -> Any:
    """A text as it is, which ansible-inventory marks as one that is no template."""
    return value.get("__ansible_unsafe", value)


def test_all_groups_exist_also_when_they_are_empty(contract: Contract) -> None:
    inventory = inventory_data(contract, ROOT)
    assert inventory.keys() > ALWAYS
    assert inventory["feature_roce"] == {"hosts": [], "children": [], "vars": {}}


def test_a_cluster_without_links_still_has_the_feature_group() -> None:
    spec = load_spec(ROOT / "Pulumi.local.yaml").model_copy(update={"wan_links": ()})
    inventory = inventory_data(contract_of(spec), ROOT)
    assert group_hosts(inventory, ["feature_tcp_tuning"]) == set()
    assert len(group_hosts(inventory, ["feature_base"])) == 10


def test_a_feature_of_some_regions_takes_just_their_pools() -> None:
    spec = load_spec(ROOT / "Pulumi.local.yaml").model_dump()
    island = {**spec["regions"][1], "name": "island", "cidr": "10.83.0.0/16"}
    spec |= {"regions": [*spec["regions"], island]}
    inventory = inventory_data(contract_of(ClusterSpec.model_validate(spec)), ROOT)
    tuned = group_hosts(inventory, ["feature_tcp_tuning"])
    assert tuned == group_hosts(inventory, ["region_tokyo", "region_shanghai"])
    assert group_hosts(inventory, ["region_island"])


def test_dashes_become_underscores_in_groups_and_stay_in_values() -> None:
    spec = load_spec(ROOT / "Pulumi.local.yaml").model_dump()
    spec |= {"wan_links": [], "storage": [], "regions": [{**spec["regions"][0], "name": "new-york"}]}
    inventory = inventory_data(contract_of(ClusterSpec.model_validate(spec)), ROOT)
    assert inventory["region_new_york"]["vars"]["causeway_region"] == "new-york"
    assert inventory["pool_new_york_gpu"]["hosts"] == ["new-york-gpu-0", "new-york-gpu-1"]


def test_only_what_differs_from_host_to_host_stands_on_hosts(contract: Contract) -> None:
    hostvars = inventory_data(contract, ROOT)["_meta"]["hostvars"]
    for host, own in contract.hosts.items():
        if contract.pools[own.pool].role != "control":
            assert hostvars[host] == {"ansible_host": str(own.address)}
    assert {"alertmanager_members", "prometheus_jobs"} <= hostvars["tokyo-control-0"].keys()


def test_another_port_and_another_user_reach_ansible(contract: Contract) -> None:
    data = json.loads(contract.model_dump_json())
    data["hosts"]["tokyo-gpu-0"]["ssh_port"] = 2222
    data["regions"]["tokyo"] |= {"ssh_user": "admin", "ssh_private_key_file": "~/.ssh/id_ed25519"}
    inventory = inventory_data(Contract.model_validate(data), ROOT)
    assert inventory["_meta"]["hostvars"]["tokyo-gpu-0"]["ansible_port"] == 2222
    variables = inventory["region_tokyo"]["vars"]
    assert variables["ansible_become"] is True
    assert variables["ansible_ssh_private_key_file"] == str(Path.home() / ".ssh" / "id_ed25519")
    assert "ansible_become" not in inventory["region_shanghai"]["vars"]


def test_ansible_lists_what_the_dictionary_says(folder: Path, contract: Contract) -> None:
    inventory = listed(folder)
    host = inventory["_meta"]["hostvars"]["shanghai-gpu-1"]
    assert host["ansible_host"] == str(contract.hosts["shanghai-gpu-1"].address)
    assert host["ansible_port"] == 22
    assert (host["causeway_region"], host["causeway_pool"]) == ("shanghai", "gpu")
    assert (host["causeway_stack"], host["causeway_cluster"]) == ("local", "pacific")
    assert (host["base_timezone"], host["base_locale"]) == ("Asia/Shanghai", "zh_CN.UTF-8")
    assert inventory["role_gpu"]["children"] == ["pool_shanghai_gpu", "pool_tokyo_gpu"]


def test_every_connection_is_checked_against_known_hosts(folder: Path) -> None:
    for host in listed(folder)["_meta"]["hostvars"].values():
        arguments = host["ansible_ssh_common_args"]
        assert "-o StrictHostKeyChecking=yes" in arguments
        assert f"{ROOT}/.causeway/stacks/local/ssh/known_hosts" in arguments


def test_what_a_user_writes_beside_the_source_wins(folder: Path) -> None:
    for name, text in {
        "group_vars/all/time.yml": "base_timezone: Etc/UTC\nansible_port: 2200\n",
        "group_vars/region_tokyo.yml": "base_locale: C.UTF-8\n",
        "host_vars/tokyo-gpu-1.yml": "ansible_host: 192.0.2.7\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    hosts = listed(folder)["_meta"]["hostvars"]
    assert {host["base_timezone"] for host in hosts.values()} == {"Etc/UTC"}
    assert {host["ansible_port"] for host in hosts.values()} == {2200}
    assert hosts["tokyo-gpu-0"]["base_locale"] == "C.UTF-8"
    assert hosts["shanghai-gpu-0"]["base_locale"] == "zh_CN.UTF-8"
    assert hosts["tokyo-gpu-1"]["ansible_host"] == "192.0.2.7"


def test_no_secret_is_in_the_inventory(folder: Path, tmp_path: Path) -> None:
    key = tmp_path / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    data = json.loads((tmp_path / "contract.json").read_text())
    for region in data["regions"].values():
        region["ssh_private_key_file"] = str(key)
    (tmp_path / "contract.json").write_text(json.dumps(data))
    answer = ansible_inventory(folder, "--list")
    assert str(key) in answer.stdout  # by name, never by content
    assert "PRIVATE KEY" not in answer.stdout
    assert key.read_text().splitlines()[1] not in answer.stdout


def test_without_a_contract_one_line_names_the_next_step(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "contract.json").unlink()
    answer = ansible_inventory(folder, "--list")
    assert answer.returncode == 1
    assert answer.stdout == ""
    assert len(answer.stderr.splitlines()) == 1
    assert "no contract at" in answer.stderr
    assert "./run up" in answer.stderr


def test_the_stack_is_named_by_the_folder_unless_the_source_names_it(folder: Path) -> None:
    other = folder.parent / "no-such-stack"
    folder.rename(other)
    (other / "causeway.yml").write_text("plugin: causeway\n")
    assert "/stacks/no-such-stack/contract.json" in ansible_inventory(other, "--list").stderr
    (other / "causeway.yml").write_text("plugin: causeway\nstack: none-either\n")
    assert "/stacks/none-either/contract.json" in ansible_inventory(other, "--list").stderr
