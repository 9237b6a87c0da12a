"""Figures of a Ceph cluster: where monitors stand, copies, placement groups, what is usable."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from infra.declaration import CephfsExport, CephSpec, ClusterSpec, RbdExport, RgwExport, StorageSpec
from infra.ground.addresses import host_name

GROUPS_PER_OSD = 100
"""Ceph's aim, mon_target_pg_per_osd; MOST_GROUPS_PER_OSD is mon_max_pg_per_osd, where it refuses
(docs.ceph.com, "Placement Groups")."""
MOST_GROUPS_PER_OSD = 250
FEWEST_GROUPS = 8
META_SHARE = 0.04
"""Of all placement groups, for what is known of files, and for the index of buckets."""
OBJECTS = "default.rgw.buckets.data"
OBJECTS_INDEX = "default.rgw.buckets.index"
OBJECTS_SMALL = (
    ".rgw.root",
    "default.rgw.log",
    "default.rgw.control",
    "default.rgw.meta",
    "default.rgw.buckets.non-ec",
)
"""Pools of the gateways' default zone, by the names that they look for (docs.ceph.com, "Pools")."""
FULL = 0.95
"""mon_osd_full_ratio, where writes stop; warnings begin BEFORE_FULL of the whole below (docs.ceph.com,
"Storage Capacity")."""
BEFORE_FULL = 0.10
KEPT_FREE_GIB = 0.5
"""An OSD says every few seconds how full it is, and one whose last byte is written never starts again: of a
small one 5 % are written in that time."""
RACKS_FROM = 3
MEMORY_HEADROOM = 1.25
"""osd_memory_target is an aim, and not a limit."""
RECOVERY_BYTES_S = 100e6
"""Assumed for each OSD that takes part in a recovery: a hard disk's pace beside its clients."""
GIB = 1024**3


@dataclass(frozen=True)
class Node:
    """A node of a cluster, and the rack that it stands in; empty where racks are not known."""

    name: str
    rack: str


def nodes(spec: ClusterSpec, storage: StorageSpec) -> tuple[Node, ...]:
    """All nodes of a storage, in declared order; none where its region or pools are not declared."""
    found = []
    for region in spec.regions:
        for pool in region.pools:
            if region.name == storage.region and pool.name in storage.pools:
                for number in range(pool.count):
                    per_rack = storage.nodes_per_rack if isinstance(storage, CephSpec) else None
                    rack = f"{pool.name}-{number // per_rack}" if per_rack else ""
                    found.append(Node(host_name(region, pool, number), rack))
    return tuple(found)


def failure_domain(members: Sequence[Node]) -> str:
    """What no two copies share: `rack` from three racks up, else `host`."""
    return "rack" if len({node.rack for node in members}) >= RACKS_FROM else "host"


def domains(members: Sequence[Node]) -> int:
    """How many failure domains there are."""
    return len({node.rack if failure_domain(members) == "rack" else node.name for node in members})


def monitors(storage: CephSpec, members: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes of its monitors, in as many racks as there are."""
    count = storage.mons or (1 if len(members) < 3 else 3 if len(members) < 10 else 5)
    by_rack: dict[str, list[Node]] = {}
    for node in members:
        by_rack.setdefault(node.rack, []).append(node)
    rounds = max((len(rack) for rack in by_rack.values()), default=0)
    in_turn = [rack[number] for number in range(rounds) for rack in by_rack.values() if number < len(rack)]
    return tuple(in_turn[:count])


def replicas(storage: CephSpec, members: Sequence[Node]) -> int:
    """Copies of what is not erasure-coded."""
    return storage.replicas or max(min(3, domains(members)), 1)


def least(copies: int) -> int:
    """Copies that a write needs: one less than there are, for two a failure must not stop writes."""
    return max(copies - 1, 1)


def groups(osds: int, size: int, share: float) -> int:
    """Placement groups of a pool: a power of two, at most `osds` x 100 / `size` x `share`, but 8 at least.

    As Ceph's own calculation (docs.ceph.com, "Placement Groups", "Choosing the number of PGs").
    """
    wanted = osds * GROUPS_PER_OSD / size * share
    return max(2 ** int(math.log2(wanted)), FEWEST_GROUPS) if wanted >= 1 else FEWEST_GROUPS


@dataclass(frozen=True)
class Pool:
    """A pool of Ceph's: copies (`m` is 0), or `k` parts of data and `m` besides."""

    name: str
    application: str
    k: int
    m: int
    pg_num: int
    quota_bytes: int = 0

    @property
    def size(self) -> int:
        """Copies or parts."""
        return self.k + self.m if self.m else self.k


def pools(storage: CephSpec, members: Sequence[Node]) -> tuple[Pool, ...]:
    """Every pool: what is known of files, all copied files, each erasure-coded export, each RBD export, and
    those of object storage."""
    copies, osds = replicas(storage, members), len(members) * storage.osds_per_node
    wanted = _wanted(storage, copies)
    meta = [one for one in wanted if _is_meta(one[0])]
    data = [one for one in wanted if one not in meta and one[0] not in OBJECTS_SMALL]
    share = (1 - META_SHARE * len(meta)) / max(len(data), 1)

    def part(name: str) -> float:
        if name in OBJECTS_SMALL:
            return 0.0
        return META_SHARE if _is_meta(name) else share

    return tuple(
        Pool(name, application, k, m, groups(osds, k + m, part(name)), int(quota * GIB))
        for name, application, k, m, quota in wanted
    )


def _is_meta(name: str) -> bool:
    return (name.endswith(".meta") and name not in OBJECTS_SMALL) or name == OBJECTS_INDEX


def _wanted(storage: CephSpec, copies: int) -> list[tuple[str, str, int, int, float]]:
    files = [export for export in storage.exports if isinstance(export, CephfsExport)]
    found: list[tuple[str, str, int, int, float]] = []
    if files:
        # A file system's first pool is never erasure-coded: it has every file's backtrace (docs.ceph.com).
        found += [(f"{storage.name}.{part}", "cephfs", copies, 0, 0.0) for part in ("meta", "files")]
    for export in storage.exports:
        if isinstance(export, CephfsExport) and export.erasure:
            found.append((files_pool(storage, export), "cephfs", export.erasure.k, export.erasure.m, 0.0))
        elif isinstance(export, RbdExport):
            found.append((export.name, "rbd", copies, 0, export.quota_gib or 0.0))
    if any(isinstance(export, RgwExport) for export in storage.exports):
        # The quota is a user's: all users share the pools.
        found += [(name, "rgw", copies, 0, 0.0) for name in (*OBJECTS_SMALL, OBJECTS_INDEX, OBJECTS)]
    return found


def files_pool(storage: CephSpec, export: CephfsExport) -> str:
    """The pool that an export's files lie in."""
    return f"{storage.name}.{export.name}" if export.erasure else f"{storage.name}.files"


def data_pool(storage: CephSpec, export: CephfsExport | RbdExport | RgwExport) -> str:
    """The pool that an export's data lies in."""
    if isinstance(export, CephfsExport):
        return files_pool(storage, export)
    return OBJECTS if isinstance(export, RgwExport) else export.name


def groups_per_osd(found: Sequence[Pool], osds: int) -> float:
    """Placement groups that each OSD has a part of."""
    return sum(pool.pg_num * pool.size for pool in found) / max(osds, 1)


def full_ratio(storage: CephSpec) -> float:
    """The share of an OSD at which writes stop."""
    return round(min(FULL, 1 - KEPT_FREE_GIB / storage.osd_backing.size_gib), 4)


def nearfull_ratio(storage: CephSpec) -> float:
    """The share of an OSD up to which there is room to work with."""
    return full_ratio(storage) - BEFORE_FULL


def raw_gib(storage: CephSpec, members: Sequence[Node]) -> float:
    """All OSDs together, in GiB."""
    return len(members) * storage.osds_per_node * storage.osd_backing.size_gib


def usable_gib(
    storage: CephSpec, members: Sequence[Node], export: CephfsExport | RbdExport | RgwExport | None = None
) -> float:
    """What clients may fill with an export's data, or with copied data, in GiB, if it is all there is.

    Below where warnings begin, with room to make the loss of one failure domain good; where there are no more
    domains than copies or parts, there is nowhere to make it good, and nothing is kept free for it.
    """
    coded = export.erasure if isinstance(export, CephfsExport) else None
    copies = replicas(storage, members)
    size, share = (coded.k + coded.m, coded.k / (coded.k + coded.m)) if coded else (copies, 1 / copies)
    count = domains(members)
    spare = 1 - 1 / count if count > size else 1.0
    return raw_gib(storage, members) * share * nearfull_ratio(storage) * spare


def recovery_h(storage: CephSpec, members: Sequence[Node]) -> float | None:
    """Hours until a lost node's data has all its copies again, with each OSD that is left at 100 MB/s; None
    where there is nowhere to put them."""
    if domains(members) <= replicas(storage, members):
        return None
    left = (len(members) - 1) * storage.osds_per_node
    lost = storage.osds_per_node * storage.osd_backing.size_gib * GIB * nearfull_ratio(storage)
    return lost / (left * RECOVERY_BYTES_S) / 3600


def memory_gib(storage: CephSpec) -> float:
    """What a node's OSDs may come to, in GiB."""
    return storage.osds_per_node * storage.osd_memory_gib * MEMORY_HEADROOM
