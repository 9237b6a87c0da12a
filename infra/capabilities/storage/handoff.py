"""The variables of roles `ceph` and `ceph_client`, `nfs_server` and `nfs_client`, and `scratch`."""

from collections.abc import Mapping
from ipaddress import IPv4Network, collapse_addresses
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from infra.capabilities.monitoring.section import AUTHORITY, SECRETS, MonitoringSection
from infra.capabilities.storage.section import (
    GATEWAY,
    CephCluster,
    NfsShare,
    NfsStorage,
    Osd,
    Scratch,
    StorageExport,
    StoragePool,
    StorageSection,
    authority_secret,
    cluster_secrets,
    export_kind,
    export_secret,
    own_keys,
    secret_name,
)
from infra.ground.capability import Role, SecretKind, always, part_of
from infra.ground.contract import Contract
from infra.ground.endpoint import HostSet
from infra.ground.folders import mount_of
from infra.ground.groups import group_name
from infra.stack import secret_file


def _clusters(contract: Contract) -> tuple[CephCluster, ...]:
    section = contract.section(StorageSection)
    return section.clusters if section else ()


def _nodes(contract: Contract) -> HostSet:
    return HostSet(hosts=tuple(host for cluster in _clusters(contract) for host in cluster.osds))


def _clients(contract: Contract) -> HostSet:
    return HostSet(pools=tuple(key for cluster in _clusters(contract) for key in cluster.clients))


def _node_secrets(contract: Contract, host: str) -> Mapping[str, SecretKind]:
    keys = {
        name: kind
        for cluster in _clusters(contract)
        if host in cluster.osds
        for name, kind in cluster_secrets(cluster).items()
    }
    return {**keys, **(SECRETS if contract.section(MonitoringSection) else {})}


def _client_secrets(contract: Contract, host: str) -> Mapping[str, SecretKind]:
    key = contract.hosts[host].pool
    found: dict[str, SecretKind] = {}
    for cluster in _clusters(contract):
        if key in cluster.clients:
            found |= {export_secret(cluster, export): export_kind(export) for export in cluster.exports}
            found |= {authority_secret(cluster): "authority"} if cluster.rgws else {}
    return found


def _nfs(contract: Contract) -> tuple[NfsStorage, ...]:
    section = contract.section(StorageSection)
    return section.nfs if section else ()


def _nfs_servers(contract: Contract) -> HostSet:
    return HostSet(hosts=tuple(dict.fromkeys(host for one in _nfs(contract) for host in one.servers)))


def _nfs_clients(contract: Contract) -> HostSet:
    return HostSet(
        pools=tuple(dict.fromkeys(key for one in _nfs(contract) for key in one.clients if one.shares))
    )


def _scratch(contract: Contract) -> Mapping[str, Scratch]:
    section = contract.section(StorageSection)
    return section.scratch if section else {}


def _monitors(contract: Contract, host: str) -> tuple[str, ...]:
    """The monitors of the cluster that a host is of."""
    return tuple(mon for cluster in _clusters(contract) if host in cluster.osds for mon in cluster.mons)


ROLES = (
    Role(
        "ceph",
        _nodes,
        _node_secrets,
        leaves="the data that its daemons hold here",
        takers=_monitors,
        services=always("ceph-*@*.service"),
        needed=part_of("storage"),
    ),
    Role("ceph_client", _clients, _client_secrets, needed=part_of("storage")),
    Role(
        "nfs_server",
        _nfs_servers,
        leaves="the file systems that it serves",
        takers=lambda _contract, _host: (),
        # Whichever serves here, it masks what only older protocols need.
        services=always("nfs-ganesha.service", "nfs-server.service", "rpcbind.service", "rpc-statd.service"),
        needed=part_of("storage"),
    ),
    Role("nfs_client", _nfs_clients, needed=part_of("storage")),
    Role("scratch", lambda contract: HostSet(pools=tuple(_scratch(contract))), needed=part_of("scratch")),
)


def fsid(contract: Contract, cluster: CephCluster) -> str:
    """The same for every run of one stack, and no other stack's: whoever finds a disk knows whose it is."""
    return str(uuid5(NAMESPACE_URL, f"causeway:{contract.stack}/{cluster.name}"))


def variables(contract: Contract) -> dict[str, dict[str, dict[str, Any]]]:
    """By pool: of a cluster's nodes all that they share, of clients every cluster that they use."""
    nodes, clients = {}, {}
    for cluster in _clusters(contract):
        for key in dict.fromkeys(contract.hosts[host].pool for host in cluster.osds):
            nodes[group_name("pool", key)] = _shared(contract, cluster)
    for key in dict.fromkeys(key for cluster in _clusters(contract) for key in cluster.clients):
        used = [cluster for cluster in _clusters(contract) if key in cluster.clients]
        clients[group_name("pool", key)] = _used(contract, used)
    scratch = {
        group_name("pool", key): {f"scratch_{name}": value for name, value in one.model_dump().items()}
        for key, one in _scratch(contract).items()
    }
    return {"ceph": nodes, "ceph_client": clients, "nfs_client": _nfs_mounts(contract), "scratch": scratch}


def host_variables(contract: Contract) -> dict[str, dict[str, Any]]:
    """What is not the same on all nodes of a cluster: its disks, and where it stands."""
    found: dict[str, dict[str, Any]] = {}
    for cluster in _clusters(contract):
        for host, osds in cluster.osds.items():
            own = {} if _same_osds(cluster) else {"ceph_osds": _osds(osds)}
            found[host] = own | ({"ceph_rack": cluster.racks[host]} if host in cluster.racks else {})
    for host in _nfs_servers(contract).hosts:
        found.setdefault(host, {}).update(_nfs_server(contract, host))
    return found


def _nfs_server(contract: Contract, host: str) -> dict[str, Any]:
    storages = [one for one in _nfs(contract) if host in one.servers]
    shares = [(one, share) for one in storages for share in one.shares if share.host == host]
    return {"nfs_server_exports": [_nfs_export(contract, one, share) for one, share in shares]}


def _nfs_export(contract: Contract, storage: NfsStorage, share: NfsShare) -> dict[str, Any]:
    """By its addresses a client is known, in as few networks as hold no other."""
    addresses = [IPv4Network(one.address) for one in contract.hosts.values() if one.pool in storage.clients]
    return {
        "path": _nfs_path(storage, share),
        **({"size_bytes": share.size_bytes} if share.size_bytes else {}),
        "clients": [str(network) for network in collapse_addresses(addresses)],
    }


def _nfs_path(storage: NfsStorage, share: NfsShare) -> str:
    """Where it is, on its server and for its clients."""
    return f"{storage.folder or '/srv/nfs'}/{storage.name}/{share.name}"


def _nfs_mounts(contract: Contract) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for storage in _nfs(contract):
        mounts = [
            {
                "server": str(contract.hosts[share.host].address),
                "path": _nfs_path(storage, share),
                "mount": mount_of(storage.name, share.name),
                "size_bytes": share.size_bytes,
            }
            for share in storage.shares
        ]
        for key in storage.clients if mounts else ():
            own = found.setdefault(group_name("pool", key), {"nfs_client_mounts": []})
            own["nfs_client_mounts"] += mounts
    return found


def _same_osds(cluster: CephCluster) -> bool:
    return len(set(cluster.osds.values())) == 1


def _osds(osds: tuple[Osd, ...]) -> list[dict[str, Any]]:
    return [osd.model_dump(exclude_none=True) for osd in osds]


def _shared(contract: Contract, cluster: CephCluster) -> dict[str, Any]:
    uses = {use: secret_name(cluster.name, use) for use in own_keys(cluster)}
    uses |= {f"export.{export.name}": export_secret(cluster, export) for export in cluster.exports}
    addresses = [{"name": host, "address": str(contract.hosts[host].address)} for host in cluster.mons]
    return {
        "ceph_name": cluster.name,
        "ceph_fsid": fsid(contract, cluster),
        "ceph_network": str(contract.regions[cluster.region].cidr),
        "ceph_mons": addresses,
        "ceph_mgrs": list(cluster.mgrs),
        "ceph_mdss": list(cluster.mdss),
        "ceph_rgws": list(cluster.rgws),
        **({"ceph_rgw_authority": _authority(contract, cluster)} if cluster.rgws else {}),
        "ceph_osd_memory_bytes": cluster.osd_memory_bytes,
        "ceph_full_ratio": cluster.full_ratio,
        "ceph_failure_domain": cluster.failure_domain,
        "ceph_replicas": cluster.replicas,
        "ceph_encrypt_wire": cluster.encrypt_wire,
        **({"ceph_version": cluster.ceph_version} if cluster.ceph_version else {}),
        "ceph_pools": [_pool(pool) for pool in cluster.pools],
        "ceph_filesystem": _filesystem(cluster),
        **({"ceph_osds": _osds(next(iter(cluster.osds.values())))} if _same_osds(cluster) else {}),
        "ceph_exports": [_export(export) for export in cluster.exports],
        **_metrics(contract),
        "ceph_keys": {use: str(secret_file(contract.stack, name)) for use, name in uses.items()},
    }


def _metrics(contract: Contract) -> dict[str, Any]:
    if contract.section(MonitoringSection) is None:
        return {"ceph_metrics": False}
    return {"ceph_metrics_authority": str(secret_file(contract.stack, AUTHORITY))}


def _pool(pool: StoragePool) -> dict[str, Any]:
    copies = {"replicas": pool.k, "min_replicas": max(pool.k - 1, 1)}
    return {
        "name": pool.name,
        "application": pool.application,
        "pg_num": pool.pg_num,
        **({"k": pool.k, "m": pool.m} if pool.m else copies),
        **({"quota_bytes": pool.quota_bytes} if pool.quota_bytes else {}),
        **({"device_class": pool.device_class} if pool.device_class else {}),
    }


def _filesystem(cluster: CephCluster) -> dict[str, Any]:
    files = [export for export in cluster.exports if export.kind == "cephfs"]
    if not files:
        return {}
    data = [f"{cluster.name}.files", *(export.pool for export in files)]
    return {
        "name": cluster.name,
        "metadata_pool": f"{cluster.name}.meta",
        "data_pools": list(dict.fromkeys(data)),
        "folders": [
            {"name": export.name, "pool": export.pool, "quota_bytes": export.quota_bytes} for export in files
        ],
    }


def _authority(contract: Contract, cluster: CephCluster) -> str:
    return str(secret_file(contract.stack, authority_secret(cluster)))


def _export(export: StorageExport) -> dict[str, Any]:
    found = {"kind": export.kind, "name": export.name, "pool": export.pool}
    return found | ({"quota_bytes": export.quota_bytes} if export.kind == "rgw" else {})


def _used(contract: Contract, clusters: list[CephCluster]) -> dict[str, Any]:
    return {
        "ceph_client_clusters": [
            {
                "name": cluster.name,
                "fsid": fsid(contract, cluster),
                "mons": [str(contract.hosts[host].address) for host in cluster.mons],
                "encrypt_wire": cluster.encrypt_wire,
            }
            for cluster in clusters
        ],
        "ceph_client_exports": [
            _client_export(contract, cluster, export) for cluster in clusters for export in cluster.exports
        ],
    }


def _client_export(contract: Contract, cluster: CephCluster, export: StorageExport) -> dict[str, Any]:
    own: dict[str, dict[str, Any]] = {
        "cephfs": {"filesystem": cluster.name, "mount": mount_of(cluster.name, export.name)},
        "rbd": {},
        "rgw": {
            "gateways": [f"{contract.hosts[host].address}:{GATEWAY}" for host in cluster.rgws],
            "authority": _authority(contract, cluster) if cluster.rgws else "",
        },
    }
    return {
        **_export(export),
        "storage": cluster.name,
        "quota_bytes": export.quota_bytes,
        "key": str(secret_file(contract.stack, export_secret(cluster, export))),
        **own[export.kind],
    }
