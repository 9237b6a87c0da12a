"""A contract in which every role has a host, and a checkout whose roles a test may change."""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from infra import files
from infra.checks.load import load_spec
from infra.declaration import ClusterSpec
from infra.drift import inputs, task_inputs
from infra.ground.contract import Contract
from infra.inventory import overrides
from infra.inventory.roles import role_hosts
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan

ROOT = Path(__file__).resolve().parents[2]


@cache
def declared() -> dict[str, Any]:
    """The default stack, with fabric, GPUs, NFS, a registry, a Grafana in Tokyo, a tunnel; two machines."""
    data = load_spec(ROOT / "Pulumi.local.yaml").model_dump(mode="json", exclude_defaults=True)
    for region in data["regions"]:
        region["pools"].append({"name": "edge", "role": "gateway", "count": 1})
    tokyo = data["regions"][0]
    tokyo["fabric"] = {"kind": "rail_optimized", "radix": 64, "rails": 2, "link_gbps": 400}
    gpu = next(pool for pool in tokyo["pools"] if pool["role"] == "gpu")
    gpu |= {"nics": 2, "gpu_stack": {"driver": "580.95.05", "cuda": "13.0"}, "scratch": {"path": "/scratch"}}
    data["wan_links"][0]["kind"] = "vpn"
    tokyo["pools"].append({"name": "files", "role": "storage", "count": 1})
    exports = [{"kind": "nfs", "name": "users", "quota_gib": 1}]
    home = {"name": "home", "region": "tokyo", "kind": "nfs", "pools": ["files"], "backing": {"kind": "file"}}
    data["storage"].append({**home, "exports": exports})
    hub = {"name": "docker.io", "url": "https://registry-1.docker.io"}
    images = {"name": "images.tokyo", "region": "tokyo", "pool": "files", "caches": [hub]}
    data["registries"] = [images]
    data["monitoring"]["grafana"] = {"key_file": "grafana.asc"}
    machine = {"address": "10.99.0.10", "host_key": "ssh-ed25519 AAAA"}
    pools: list[dict[str, Any]] = [{"name": "control", "role": "control", "count": 1, "hosts": [machine]}]
    stack = {"driver": "580.95.05", "cuda": "13.0", "dcgm": "4.6", "dcgm_exporter": "4.8.3"}
    gpus = {
        "name": "train",
        "role": "gpu",
        "count": 1,
        "gpus": 8,
        "gpu_model": "h100-sxm",
        "gpu_stack": stack,
    }
    pools.append({**gpus, "hosts": [machine | {"address": "10.99.0.11"}]})
    hall = {"name": "hall", "provider": {"kind": "existing"}, "cidr": "10.99.0.0/16", "pools": pools}
    data["regions"].append(hall)
    return data


def contract_of(change: Callable[[dict[str, Any]], Any] = lambda _data: None) -> Contract:
    data = ClusterSpec.model_validate(declared()).model_dump(mode="json", exclude_defaults=True)
    change(data)
    spec = ClusterSpec.model_validate(data)
    return build_contract(spec, make_plan(spec), "s")


def taking(role: str, contract: Contract) -> Contract:
    """A contract in which some host takes a role: this one, or one without a discovery."""
    return contract if role_hosts(contract, role) else contract_of(lambda data: data.pop("discovery"))


def own_checkout(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Roles and playbooks that may be changed; secrets with what `up` would have written."""
    shutil.copytree(ROOT / "roles", folder / "roles", ignore=shutil.ignore_patterns("molecule"))
    shutil.copytree(ROOT / "playbooks", folder / "playbooks")
    shutil.copy(ROOT / "ansible.cfg", folder)
    (folder / "inventories" / "s").mkdir(parents=True)
    for module in (files, inputs, overrides, task_inputs):
        patch.setattr(module, "ROOT", folder)
    patch.setattr(inputs, "secret_file", lambda stack, name: folder / stack / name)
    return folder


@pytest.fixture(scope="module")
def contract() -> Contract:
    return contract_of()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return own_checkout(tmp_path, monkeypatch)
