"""Figures of a Ceph cluster: where monitors stand, copies, placement groups, what is usable."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from infra.declaration import (
    CephfsExport,
    CephSpec,
    ClusterSpec,
    FileBackingSpec,
    RbdExport,
    RgwExport,
    StorageSpec,
)
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


def disks(storage: CephSpec, host: str) -> list[tuple[str, float]]:
    """Class and size in GiB of each OSD of a node, in their order; no class where that is Ceph's to say."""
    backing = storage.osd_backing
    if isinstance(backing, FileBackingSpec):
        named = backing.device_classes or ("",) * storage.osds_per_node
        return [(one, backing.size_gib) for one in named]
    devices = (one for one in backing.devices if one.host == host)
    return [(one.device_class or "", one.size_gib or backing.size_gib) for one in devices]


def tiers(storage: CephSpec, members: Sequence[Node]) -> list[str]:
    """The classes that OSDs have, in the order in which they come first; none where no class is declared."""
    found = (one for node in members for one, _ in disks(storage, node.name))
    return [one for one in dict.fromkeys(found) if one]


def tier_of(storage: CephSpec, export: CephfsExport | RbdExport | RgwExport | None = None) -> str:
    """The class that an export's data lies in, or what names none; empty for all OSDs."""
    own = None if export is None or isinstance(export, RgwExport) else export.device_class
    return own or storage.device_class or ""


def within(storage: CephSpec, members: Sequence[Node], tier: str) -> tuple[list[Node], int]:
    """The nodes that have OSDs of a tier, and how many OSDs that is; an empty TIER has them all."""
    if not tier:
        return [*members], len(members) * storage.osds_per_node
    counts = {node: sum(one == tier for one, _ in disks(storage, node.name)) for node in members}
    return [node for node, count in counts.items() if count], sum(counts.values())


def failure_domain(members: Sequence[Node]) -> str:
    """What no two copies share: `rack` from three racks up, else `host`."""
    return "rack" if len({node.rack for node in members}) >= RACKS_FROM else "host"


def domains(members: Sequence[Node], holding: Sequence[Node] | None = None) -> int:
    """How many failure domains there are, or those of HOLDING, some of the nodes."""
    by_rack = failure_domain(members) == "rack"
    nodes = members if holding is None else holding
    return len({node.rack if by_rack else node.name for node in nodes})


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
    device_class: str = ""
    """Its tier; empty for all OSDs."""

    @property
    def size(self) -> int:
        """Copies or parts."""
        return self.k + self.m if self.m else self.k


def pools(storage: CephSpec, members: Sequence[Node]) -> tuple[Pool, ...]:
    """Every pool: what is known of files, all copied files, each erasure-coded export, each RBD export, and
    those of object storage."""
    wanted = _wanted(storage, replicas(storage, members))

    def part(name: str, tier: str) -> float:
        """Of a tier's placement groups."""
        if name in OBJECTS_SMALL:
            return 0.0
        beside = [one.name for one in wanted if one.device_class == tier and one.name not in OBJECTS_SMALL]
        meta = sum(map(_is_meta, beside))
        return META_SHARE if _is_meta(name) else (1 - META_SHARE * meta) / max(len(beside) - meta, 1)

    return tuple(
        replace(
            one,
            pg_num=groups(
                within(storage, members, one.device_class)[1], one.size, part(one.name, one.device_class)
            ),
        )
        for one in wanted
    )


def _is_meta(name: str) -> bool:
    return (name.endswith(".meta") and name not in OBJECTS_SMALL) or name == OBJECTS_INDEX


def _wanted(storage: CephSpec, copies: int) -> list[Pool]:
    """All pools, without their placement groups."""
    files = [export for export in storage.exports if isinstance(export, CephfsExport)]
    others = tier_of(storage)
    found: list[Pool] = []
    if files:
        # A file system's first pool is never erasure-coded: it has every file's backtrace (docs.ceph.com).
        names = tuple(f"{storage.name}.{part}" for part in ("meta", "files"))
        found += [Pool(name, "cephfs", copies, 0, 0, device_class=others) for name in names]
    for export in storage.exports:
        tier = tier_of(storage, export)
        if isinstance(export, CephfsExport) and has_own_pool(storage, export):
            k, m = (export.erasure.k, export.erasure.m) if export.erasure else (copies, 0)
            found.append(Pool(files_pool(storage, export), "cephfs", k, m, 0, device_class=tier))
        elif isinstance(export, RbdExport):
            found.append(Pool(export.name, "rbd", copies, 0, 0, int((export.quota_gib or 0) * GIB), tier))
    if any(isinstance(export, RgwExport) for export in storage.exports):
        # The quota is a user's: all users share the pools.
        served = (*OBJECTS_SMALL, OBJECTS_INDEX, OBJECTS)
        found += [Pool(name, "rgw", copies, 0, 0, device_class=others) for name in served]
    return found


def has_own_pool(storage: CephSpec, export: CephfsExport) -> bool:
    """Whether an export's files lie otherwise than those of most."""
    return export.erasure is not None or tier_of(storage, export) != tier_of(storage)


def files_pool(storage: CephSpec, export: CephfsExport) -> str:
    """The pool that an export's files lie in."""
    return f"{storage.name}.{export.name if has_own_pool(storage, export) else 'files'}"


def data_pool(storage: CephSpec, export: CephfsExport | RbdExport | RgwExport) -> str:
    """The pool that an export's data lies in."""
    if isinstance(export, CephfsExport):
        return files_pool(storage, export)
    return OBJECTS if isinstance(export, RgwExport) else export.name


def groups_per_osd(storage: CephSpec, members: Sequence[Node]) -> float:
    """Placement groups that each OSD has a part of; of several tiers, in the one that has most."""
    found = pools(storage, members)

    def of(tier: str) -> float:
        parts = sum(pool.pg_num * pool.size for pool in found if pool.device_class == tier)
        return parts / max(within(storage, members, tier)[1], 1)

    return of("") + max((of(tier) for tier in tiers(storage, members)), default=0.0)


def full_ratio(storage: CephSpec) -> float:
    """The share of an OSD at which writes stop."""
    return round(min(FULL, 1 - KEPT_FREE_GIB / smallest_gib(storage)), 4)


def smallest_gib(storage: CephSpec) -> float:
    """The smallest OSD, which is full first."""
    backing = storage.osd_backing
    own = () if isinstance(backing, FileBackingSpec) else backing.devices
    return min((one.size_gib or backing.size_gib for one in own), default=backing.size_gib)


def nearfull_ratio(storage: CephSpec) -> float:
    """The share of an OSD up to which there is room to work with."""
    return full_ratio(storage) - BEFORE_FULL


def raw_gib(storage: CephSpec, members: Sequence[Node], tier: str = "") -> float:
    """All OSDs together, or those of a tier, in GiB."""
    return sum(size for node in members for one, size in disks(storage, node.name) if tier in ("", one))


def usable_gib(
    storage: CephSpec, members: Sequence[Node], export: CephfsExport | RbdExport | RgwExport | None = None
) -> float:
    """What clients may fill with an export's data, or with copied data, in GiB, if it is all there is.

    Below where warnings begin, with room to make the loss of the largest failure domain good; where there are
    no more domains than copies or parts, there is nowhere to make it good, and nothing is kept free for it.
    """
    coded = export.erasure if isinstance(export, CephfsExport) else None
    size, data = (coded.k + coded.m, coded.k) if coded else (replicas(storage, members), 1)
    rooms = sorted(domain_rooms_gib(storage, members, tier_of(storage, export)), reverse=True)
    staying = rooms[1:] if len(rooms) > size else rooms
    return each_gib(staying, size) * data * nearfull_ratio(storage)


def domain_rooms_gib(storage: CephSpec, members: Sequence[Node], tier: str) -> list[float]:
    """What each failure domain has of a tier, in GiB, where it has any."""
    by_rack = failure_domain(members) == "rack"
    found: dict[str, float] = {}
    for node in within(storage, members, tier)[0]:
        domain = node.rack if by_rack else node.name
        found[domain] = found.get(domain, 0) + raw_gib(storage, [node], tier)
    return list(found.values())


def each_gib(rooms: Sequence[float], parts: int) -> float:
    """How much each of PARTS may take where no two share a room. ROOMS: in GiB, the largest first.

    A room that is larger than its share is never filled: it has one part of everything, and the others share
    what the other rooms have. Fewer rooms than parts are refused elsewhere; here they have all there is.
    """
    if len(rooms) <= 1 or parts <= 1 or len(rooms) < parts or rooms[0] * parts <= sum(rooms):
        return sum(rooms) / parts
    return each_gib(rooms[1:], parts - 1)


def recovery_h(storage: CephSpec, members: Sequence[Node]) -> float | None:
    """Hours until a lost node's data has all its copies again, with each OSD that is left at 100 MB/s; None
    where there is nowhere to put them."""
    if domains(members) <= replicas(storage, members):
        return None
    left = (len(members) - 1) * storage.osds_per_node
    largest_gib = max(raw_gib(storage, [node]) for node in members)
    lost = largest_gib * GIB * nearfull_ratio(storage)
    return lost / (left * RECOVERY_BYTES_S) / 3600


def memory_gib(storage: CephSpec) -> float:
    """What a node's OSDs may come to, in GiB."""
    return storage.osds_per_node * storage.osd_memory_gib * MEMORY_HEADROOM
