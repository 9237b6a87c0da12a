"""What runs containers: told from the declaration, with the devices that containers are given."""

from typing import Any

import pytest

from infra.capabilities.containers.section import ContainersSection
from infra.capabilities.gpu.packages import wanted
from infra.declaration import ClusterSpec, GpuStackSpec
from infra.ground.contract import Contract
from infra.inventory.variables import role_variables
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan

STACK = {"driver": "580.95.05", "cuda": "13.0", "container_toolkit": "1.18.0"}


def contract(runtime: dict[str, Any] | None, **pool: Any) -> Contract:
    gpu = {"name": "gpu", "role": "gpu", "count": 1, "gpus": 8, "gpu_model": "h100-sxm", **pool}
    pools = [{"name": "control", "role": "control", "count": 1}, gpu | {"container_runtime": runtime}]
    spec = ClusterSpec.model_validate(
        {"name": "c", "regions": [{"name": "tokyo", "cidr": "10.81.0.0/16", "pools": pools}]}
    )
    return build_contract(spec, make_plan(spec), "s")


def variables(runtime: dict[str, Any], **pool: Any) -> dict[str, Any]:
    return role_variables(contract(runtime, **pool))["pool_tokyo_gpu"]


def test_without_a_word_there_is_none() -> None:
    assert contract(None).section(ContainersSection) is None


@pytest.mark.parametrize("engine", ["podman", "containerd"])
def test_images_lie_in_a_declared_folder_or_where_the_role_has_them(engine: str) -> None:
    assert "container_runtime_storage_path" not in variables({"engine": engine})
    declared = variables({"engine": engine, "storage_path": "/srv/images"})
    assert declared["container_runtime_storage_path"] == "/srv/images"


@pytest.mark.parametrize(
    ("pool", "devices"),
    [
        ({}, 0),
        ({"gpu_stack": STACK | {"container_toolkit": None}}, 0),
        ({"gpu_stack": STACK}, 8),
        ({"gpu_stack": STACK | {"mig": {"profile": "1g.10gb", "count": 7}}}, 56),
    ],
)
def test_containers_get_gpus_or_their_parts_where_the_toolkit_describes_them(
    pool: dict[str, Any], devices: int
) -> None:
    assert variables({}, **pool)["container_runtime_gpus"] == devices


def test_an_authority_is_a_file_of_the_controllers() -> None:
    mirrored = {"name": "docker.io", "mirrors": ["mirror.example.org/hub"]}
    plain, own = (
        variables({"registries": [mirrored | more]})["container_runtime_registries"][0]
        for more in ({}, {"ca_file": "keys/ca.crt"})
    )
    assert (plain["authority"], plain["mirrors"]) == ("", ["mirror.example.org/hub"])
    assert own["authority"].endswith("/keys/ca.crt")
    assert own["authority"].startswith("/")


def test_the_toolkit_is_a_package_of_the_stack_at_its_own_version() -> None:
    packages, _ = wanted(GpuStackSpec.model_validate(STACK), "open", None, subnet=False)
    assert packages["nvidia-container-toolkit"] == "1.18.0"
    assert packages["nvidia-driver-cuda"] == "580.95.05"
