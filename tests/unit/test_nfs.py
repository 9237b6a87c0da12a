"""NFS: servers let in exactly the clients that are declared, and both sides mean the same folder."""

import os
from importlib.machinery import SourceFileLoader
from ipaddress import ip_address, ip_network
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import ROOT
from infra.capabilities.storage import handoff
from infra.declaration import ClusterSpec
from infra.ground.contract import Contract
from infra.inventory.roles import role_hosts
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan

FILES = {"kind": "file"}
BACKINGS = (FILES, {"kind": "folder", "path": "/srv/data"})


def contract(gpu_nodes: int, backing: dict[str, str]) -> Contract:
    pools = [
        {"name": "control", "role": "control", "count": 3},
        {"name": "gpu", "role": "gpu", "count": gpu_nodes, "gpus": 8, "gpu_model": "h100-sxm"},
        {"name": "storage", "role": "storage", "count": 3},
    ]
    size = {"quota_gib": 1} if backing is FILES else {}
    exports = [
        {"kind": "nfs", "name": "users", **size},
        {"kind": "nfs", "name": "shared", "host": "tokyo-storage-1", **size},
    ]
    storage = {"name": "home", "region": "tokyo", "kind": "nfs", "pools": ["storage"], "backing": backing}
    tokyo = {"name": "tokyo", "cidr": "10.81.0.0/16", "pools": pools}
    data = {"name": "pacific", "regions": [tokyo], "storage": [{**storage, "exports": exports}]}
    spec = ClusterSpec.model_validate(data)
    return build_contract(spec, make_plan(spec), "test")


def exported(found: Contract) -> dict[str, list[dict[str, Any]]]:
    """Server → its exports."""
    return {
        host: own["nfs_server_exports"]
        for host, own in handoff.host_variables(found).items()
        if "nfs_server_exports" in own
    }


@given(st.integers(1, 300), st.sampled_from(BACKINGS))
def test_exactly_the_clients_are_let_in(gpu_nodes: int, backing: dict[str, str]) -> None:
    found = contract(gpu_nodes, backing)
    declared = {host.address for host in found.hosts.values() if host.pool == "tokyo-gpu"}
    for exports in exported(found).values():
        for export in exports:
            networks = [ip_network(client) for client in export["clients"]]
            assert sum(network.num_addresses for network in networks) == gpu_nodes
            assert {address for network in networks for address in network} == declared


@given(st.sampled_from(BACKINGS))
def test_clients_ask_for_what_is_served(backing: dict[str, str]) -> None:
    found = contract(2, backing)
    served = {
        (str(ip_address(found.hosts[host].address)), export["path"])
        for host, exports in exported(found).items()
        for export in exports
    }
    (mounts,) = handoff.variables(found)["nfs_client"].values()
    asked = {(mount["server"], mount["path"]) for mount in mounts["nfs_client_mounts"]}
    assert asked == served
    assert len({mount["mount"] for mount in mounts["nfs_client_mounts"]}) == 2


@pytest.mark.parametrize("grown", [False, True])
@pytest.mark.parametrize(("free", "refused"), [(159 << 20, True), (161 << 20, False)])
def test_file_systems_in_files_have_room_for_all_that_they_may_hold(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, *, refused: bool, grown: bool
) -> None:
    """A file that is there has taken of its part what was written; where all are there nothing is asked."""
    program = ModuleType("volumes")
    loader = SourceFileLoader("volumes", str(ROOT / "roles/nfs_server/files/causeway-nfs-volumes"))
    exec(loader.get_code("volumes"), program.__dict__)  # type: ignore[arg-type]  # noqa: S102 - ours
    there = SimpleNamespace(free=free)
    monkeypatch.setattr(program, "FILES", tmp_path)
    monkeypatch.setattr(program.shutil, "disk_usage", lambda _: there)
    (tmp_path / "srv-nfs-a-b.img").write_bytes(bytes(32 << 20))
    os.truncate(tmp_path / "srv-nfs-a-b.img", 64 << 20)
    volumes = [{"path": "/srv/nfs/a/b", "size_bytes": (192 if grown else 64) << 20}]
    volumes += [] if grown else [{"path": "/srv/nfs/a/c", "size_bytes": 128 << 20}]
    wanted = program.Volumes({"volumes": volumes, "folders": []}, dry_run=True)
    if refused:
        with pytest.raises(program.RefusedError, match=r"exports take 0\.16 GiB more"):
            wanted.up()
        assert wanted.changes == []
    else:
        wanted.require_room()
    there.free = 0
    kept = {"volumes": [{"path": "/srv/nfs/a/b", "size_bytes": 64 << 20}], "folders": []}
    program.Volumes(kept, dry_run=True).require_room()


def test_only_nodes_that_serve_are_servers_and_gpu_nodes_are_clients() -> None:
    found = contract(2, FILES)
    assert sorted(role_hosts(found, "nfs_server")) == ["tokyo-storage-0", "tokyo-storage-1"]
    assert sorted(role_hosts(found, "nfs_client")) == ["tokyo-gpu-0", "tokyo-gpu-1"]
