"""What roles are told of storage."""

from typing import ClassVar, Literal

from infra.ground.contract import Part, Section


class Osd(Part):
    """One OSD: `place` never changes, for it is known by it."""

    place: str
    kind: Literal["file", "device"]
    size_gib: float
    path: str | None = None
    serial: str | None = None
    wipe: bool = False


class StoragePool(Part):
    """A pool of Ceph's: copies where `m` is 0, else `k` parts of data and `m` besides."""

    name: str
    application: str
    k: int
    m: int
    pg_num: int
    quota_bytes: int


class StorageExport(Part):
    """What clients use, and where it may lie."""

    kind: Literal["cephfs", "rbd"]
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
    osds: dict[str, tuple[Osd, ...]]
    racks: dict[str, str]
    failure_domain: Literal["host", "rack"]
    replicas: int
    osd_memory_bytes: int
    full_ratio: float
    encrypt_wire: bool
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


class StorageSection(Section):
    """Every cluster, and what is served by NFS."""

    capability: ClassVar = "storage"
    version: Literal[1] = 1
    clusters: tuple[CephCluster, ...]
    nfs: tuple[NfsStorage, ...] = ()


OWN_KEYS = ("mon", "admin", "osd", "mgr", "mds")
"""What the keys of a cluster's own identities are for."""


def secret_name(storage: str, use: str) -> str:
    """The secret that is a key of a cluster."""
    return f"storage-{storage}-{use}"


def export_secret(cluster: CephCluster, export: StorageExport) -> str:
    """The secret that is the key of an export."""
    return secret_name(cluster.name, f"export.{export.name}")


def cluster_secrets(cluster: CephCluster) -> list[str]:
    """The names of all keys of a cluster."""
    own = [secret_name(cluster.name, use) for use in OWN_KEYS]
    return own + [export_secret(cluster, export) for export in cluster.exports]


SECTION = StorageSection
