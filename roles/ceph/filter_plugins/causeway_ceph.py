"""The filters of role ceph: who may do what in a cluster, and where each identity lies on a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

DATA = "/var/lib/ceph"
RIGHTS: Mapping[str, Mapping[str, str]] = {
    "mon": {"mon": "allow *"},
    "admin": dict.fromkeys(("mds", "mgr", "mon", "osd"), "allow *"),
    "osd": {"mon": "profile bootstrap-osd"},
    "mgr": {"mds": "allow *", "mon": "profile mgr", "osd": "allow *"},
    "mds": {"mds": "allow", "mgr": "profile mds", "mon": "profile mds", "osd": "allow rw tag cephfs *=*"},
    "rgw": {"mgr": "allow rw", "mon": "allow rw", "osd": "allow rwx tag rgw *=*"},
}
"""By what a key is for, as Ceph's manual deployment has them (docs.ceph.com, "Manual Deployment")."""


def ceph_entities(plan: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Every identity of a cluster → `use`, what its key is for, and `caps`, its rights.

    `plan` has `mgrs`, `mdss`, `rgws` (names of hosts), `exports` and `filesystem` as the role's variables do.
    """
    found: dict[str, dict[str, Any]] = {
        name: {"use": use, "caps": RIGHTS[use]}
        for name, use in (("mon.", "mon"), ("client.admin", "admin"), ("client.bootstrap-osd", "osd"))
    }
    for use, kind in (("mgr", "mgr"), ("mds", "mds"), ("rgw", "client.rgw")):
        for host in plan[f"{use}s"]:
            found[f"{kind}.{host}"] = {"use": use, "caps": RIGHTS[use]}
    for export in plan["exports"]:
        caps = _export(export, plan["filesystem"])
        if caps:
            found[f"client.export.{export['name']}"] = {"use": f"export.{export['name']}", "caps": caps}
    return found


def _export(export: Mapping[str, Any], filesystem: Mapping[str, Any]) -> dict[str, str]:
    """What its clients may do: read and write it, and nothing beside it.

    docs.ceph.com: "CephFS Client Capabilities" (the right to set quotas, `p`, is not given; with a namespace
    of its own nobody reads a folder's files past the metadata server either), "Block Devices". By the file
    system's tag the namespace is its own in all its pools: files stay where they were written when their
    folder gets another pool, and who has it mounted goes on.
    """
    if export["kind"] == "cephfs":
        name, path = filesystem["name"], export["name"]
        return {
            "mds": f"allow rw fsname={name} path=/{path}",
            "mon": f"allow r fsname={name}",
            "osd": f"allow rw namespace={path} tag cephfs data={name}",
        }
    if export["kind"] == "rbd":
        pool = export["pool"]
        return {"mgr": f"profile rbd pool={pool}", "mon": "profile rbd", "osd": f"profile rbd pool={pool}"}
    return {}


def ceph_identity_files(plan: Mapping[str, Any], host: str) -> list[dict[str, Any]]:
    """Where identities lie on a host: path of a keyring, and who is in it.

    `plan` as for `ceph_entities`, with `mons` (names of hosts) and `osds` (of this host) besides.
    """
    found: list[tuple[str, list[str]]] = []
    if host in plan["mons"]:
        found.append(("/etc/ceph/ceph.mon.keyring", list(ceph_entities(plan))))
        found.append(("/etc/ceph/ceph.client.admin.keyring", ["client.admin"]))
    if plan["osds"]:
        found.append((f"{DATA}/bootstrap-osd/ceph.keyring", ["client.bootstrap-osd"]))
    if host in plan["mgrs"]:
        found.append((f"{DATA}/mgr/ceph-{host}/keyring", [f"mgr.{host}"]))
    if host in plan["mdss"]:
        found.append((f"{DATA}/mds/ceph-{host}/keyring", [f"mds.{host}"]))
    if host in plan["rgws"]:
        found.append((f"{DATA}/radosgw/ceph-rgw.{host}/keyring", [f"client.rgw.{host}"]))
    return [{"path": path, "folder": path.rsplit("/", 1)[0], "entities": names} for path, names in found]


class FilterModule:
    """The filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name → function."""
        return {"ceph_entities": ceph_entities, "ceph_identity_files": ceph_identity_files}
