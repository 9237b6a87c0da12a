"""What roles are told of storage."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from infra.ground.capability import SecretKind
from infra.ground.contract import Contract, Declared, Part, Section


class Osd(Part):
    """One OSD: `place` never changes, for it is known by it."""

    place: str
    kind: Literal["file", "device"]
    size_gib: float
    path: str | None = None
    serial: str | None = None
    wipe: bool = False
    encrypted: bool = False
    device_class: str | None = None
    """Its tier; None for what Ceph takes it for."""


class StoragePool(Part):
    """A pool of Ceph's: copies where `m` is 0, else `k` parts of data and `m` besides."""

    name: str
    application: str
    k: int
    m: int
    pg_num: int
    quota_bytes: int
    device_class: str = ""
    """Its tier; empty for all OSDs."""


class StorageExport(Part):
    """What clients use, and where it may lie."""

    kind: Literal["cephfs", "rbd", "rgw"]
    name: str
    pool: str
    quota_bytes: int
    data_class: str
    residency: tuple[str, ...]


class CephCluster(Part):
    """One region's cluster. Hosts in declared order."""

    name: str
    region: str
    mons: tuple[str, ...]
    mgrs: tuple[str, ...]
    mdss: tuple[str, ...]
    rgws: tuple[str, ...] = ()
    osds: dict[str, tuple[Osd, ...]]
    racks: dict[str, str]
    failure_domain: Literal["host", "rack"]
    replicas: int
    osd_memory_bytes: int
    full_ratio: float
    encrypt_wire: bool
    ceph_version: str = ""
    """How the packages' version begins; empty where none is declared."""
    pools: tuple[StoragePool, ...]
    exports: tuple[StorageExport, ...]
    clients: tuple[str, ...]
    """Keys of the pools whose nodes use the exports."""


class NfsShare(Part):
    """A folder, the node that serves it, and its file system's size; 0 where it has none of its own."""

    name: str
    host: str
    size_bytes: int
    data_class: str
    residency: tuple[str, ...]


class NfsStorage(Part):
    """One storage of kind NFS."""

    name: str
    region: str
    folder: str | None = None
    """Where folders are made; None where each has a file system of its own."""
    shares: tuple[NfsShare, ...]
    clients: tuple[str, ...]
    """Keys of the pools whose nodes use them."""

    @property
    def servers(self) -> tuple[str, ...]:
        """The nodes that serve anything."""
        return tuple(dict.fromkeys(share.host for share in self.shares))


class Scratch(Part):
    """Space on each node's own disk."""

    path: str
    days: int
    high_pct: int
    low_pct: int


class StorageSection(Section):
    """Every cluster, and what is served by NFS."""

    capability: ClassVar = "storage"
    version: Literal[1] = 1
    clusters: tuple[CephCluster, ...]
    nfs: tuple[NfsStorage, ...] = ()
    scratch: dict[str, Scratch] = Field(default_factory=dict)
    """By the key of the pool."""

    def declared(self, contract: Contract, region: str) -> Iterator[Declared]:
        """OSDs and monitors that there are to be, and the share of an OSD at which writes stop."""
        del contract
        for cluster in self.clusters:
            if cluster.region == region:
                labels = {"storage": cluster.name}
                yield Declared("storage_osds", sum(map(len, cluster.osds.values())), labels)
                yield Declared("storage_monitors", len(cluster.mons), labels)
                yield Declared("storage_full_ratio", cluster.full_ratio, labels)


GATEWAY = 7480
"""Object gateways' port, as Ceph's own is."""
OWN_KEYS = ("mon", "admin", "osd", "mgr", "mds")
"""What the keys of a cluster's own identities are for."""


def secret_name(storage: str, use: str) -> str:
    """The secret that is a key of a cluster."""
    return f"storage-{storage}-{use}"


def export_secret(cluster: CephCluster, export: StorageExport) -> str:
    """The secret that is the key of an export."""
    return secret_name(cluster.name, f"export.{export.name}")


def authority_secret(cluster: CephCluster) -> str:
    """The secret that signs what the cluster's gateways show."""
    return secret_name(cluster.name, "ca")


def export_kind(export: StorageExport) -> SecretKind:
    """What the secret of an export is: a key of Ceph's, or of S3's."""
    return "random" if export.kind == "rgw" else "cephx"


def cluster_secrets(cluster: CephCluster) -> dict[str, SecretKind]:
    """The names of all keys of a cluster, and what each is."""
    found: dict[str, SecretKind] = {secret_name(cluster.name, use): "cephx" for use in own_keys(cluster)}
    found |= {export_secret(cluster, export): export_kind(export) for export in cluster.exports}
    return found | ({authority_secret(cluster): "authority"} if cluster.rgws else {})


def own_keys(cluster: CephCluster) -> tuple[str, ...]:
    """What the keys of its own identities are for."""
    return OWN_KEYS + (("rgw",) if cluster.rgws else ())


SECTION = StorageSection
