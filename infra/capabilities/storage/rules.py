"""Storage: clusters whose nodes, copies and disks are there, and exports that they can hold."""

import re
from collections.abc import Iterator
from typing import ClassVar

from infra.capabilities.storage import figures
from infra.declaration import (
    CephfsExport,
    CephSpec,
    ClusterSpec,
    DeviceBackingSpec,
    DeviceSpec,
    ExistingProvider,
    FileBackingSpec,
    NodePoolSpec,
    RgwExport,
    StorageSpec,
)
from infra.declaration.storage import NfsExport
from infra.ground.folders import SHARED, SYSTEM, shared_by
from infra.ground.problem import Problem, Severity, nearest, show
from infra.ground.rule import Rule, memory_gib, pools
from infra.ground.rules.names import LABEL

BY_ID = re.compile(r"/dev/disk/by-id/[A-Za-z0-9._:+-]+")
PART = re.compile(r"(.+)-part[0-9]+")
OWN_POOLS = ("meta", "files")
NOT_TO_CLEAN = SYSTEM | {"home", "var"}
WHOLE = re.compile(r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+")
LOCAL_LIMIT_MS = 10
"""What Ceph's stretch mode allows between sites (docs.ceph.com, "Stretch Clusters")."""


def storages(spec: ClusterSpec) -> Iterator[tuple[str, StorageSpec, tuple[figures.Node, ...]]]:
    """Every storage: (path, it, its nodes)."""
    for index, storage in enumerate(spec.storage):
        yield f"storage[{index}]", storage, figures.nodes(spec, storage)


def clusters(spec: ClusterSpec) -> Iterator[tuple[str, CephSpec, tuple[figures.Node, ...]]]:
    """Those of Ceph's."""
    for path, storage, members in storages(spec):
        if isinstance(storage, CephSpec):
            yield path, storage, members


class StorageHasNames:
    """Names of storages and exports are DNS labels, and belong to one thing each."""

    id: ClassVar[str] = "storage-names"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Names that are no labels, those that come twice, and those that come twice once they are joined."""
        yield from _labels([(path, storage.name) for path, storage, _ in storages(spec)])
        for path, storage, _ in storages(spec):
            named = [(f"{path}.exports[{number}]", one.name) for number, one in enumerate(storage.exports)]
            yield from _labels(named)
            if isinstance(storage, CephSpec):
                yield from self._pools(path, storage)
        yield from self._joined(spec)

    def _joined(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Exports that are called alike on nodes, whose units and servers' files join both names."""
        seen: dict[tuple[str, str, str], StorageSpec] = {}
        for path, storage, _ in storages(spec):
            for number, one in enumerate(storage.exports):
                if not isinstance(one, CephfsExport | NfsExport):
                    continue
                joined = f"{storage.name}-{one.name}"
                other = seen.setdefault((storage.region, storage.kind, joined), storage)
                if other.name != storage.name:
                    message = f"storage {other.name} has an export that nodes call {joined} as well"
                    hint = "give one of them a name without the dash"
                    yield Problem(f"{path}.exports[{number}].name", message, show(one.name), hint=hint)

    def _pools(self, path: str, storage: CephSpec) -> Iterator[Problem]:
        """Exports whose own pool would have the name of one of the cluster's."""
        for number, one in enumerate(storage.exports):
            if isinstance(one, CephfsExport) and one.name in OWN_POOLS and figures.has_own_pool(storage, one):
                message = f"{storage.name}.{one.name} is a pool of the cluster's, and this export has its own"
                yield Problem(f"{path}.exports[{number}].name", message, show(one.name))


def _labels(named: list[tuple[str, str]]) -> Iterator[Problem]:
    seen = set[str]()
    for path, name in named:
        if not LABEL.fullmatch(name) or len(name) > 40:
            message = f"{show(name)} is not a DNS label of at most 40 characters (a-z, 0-9 and - inside)"
            yield Problem(f"{path}.name", message, show(name))
        elif name in seen:
            yield Problem(f"{path}.name", f"{show(name)} is the name of another one already", show(name))
        seen.add(name)


class StorageHasAPlace:
    """A storage lies in one region, on pools that are for storage, and shares them with no other one."""

    id: ClassVar[str] = "storage-places"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Regions and pools that are not there, or are somebody else's."""
        taken: dict[tuple[str, str], str] = {}
        for path, storage, _ in storages(spec):
            regions = {region.name: {pool.name: pool for pool in region.pools} for region in spec.regions}
            if storage.region not in regions:
                yield unknown(f"{path}.region", storage.region, "a declared region", list(regions))
                continue
            for number, name in enumerate(storage.pools):
                place = f"{path}.pools[{number}]"
                pool = regions[storage.region].get(name)
                if pool is None:
                    yield self._elsewhere(place, storage, name, spec)
                    continue
                yield from self._one(place, storage, pool, taken)
            if not storage.pools:
                yield Problem(f"{path}.pools", "is empty: nothing would keep anything")

    def _elsewhere(self, place: str, storage: StorageSpec, name: str, spec: ClusterSpec) -> Problem:
        """A pool that the region does not have: another one's, or nobody's."""
        for region in spec.regions:
            if region.name != storage.region and any(pool.name == name for pool in region.pools):
                ends = {storage.region, region.name}
                rtt = next((link.rtt_ms for link in spec.wan_links if {link.a, link.b} == ends), None)
                away = f", {rtt:g} ms away" if rtt is not None else ""
                message = f"{show(name)} is a pool of {region.name}{away}: a storage stays in one region"
                hint = "declare another storage there"
                if isinstance(storage, CephSpec):
                    hint = f"Ceph's sites may be {LOCAL_LIMIT_MS} ms apart at most; {hint}"
                return Problem(place, message, show(name), hint=hint)
        declared = next(region for region in spec.regions if region.name == storage.region)
        names = [pool.name for pool in declared.pools if pool.role == "storage"]
        return unknown(place, name, f"a pool of {storage.region}", names)

    def _one(
        self, place: str, storage: StorageSpec, pool: NodePoolSpec, taken: dict[tuple[str, str], str]
    ) -> Iterator[Problem]:
        if pool.role != "storage":
            message = f"{show(pool.name)} is a pool of role {pool.role}, and other work is done there"
            yield Problem(place, message, show(pool.name), hint="its nodes need `role: storage`")
        elif (storage.region, pool.name) in taken:
            other = taken[storage.region, pool.name]
            yield Problem(place, f"{show(pool.name)} belongs to storage {other} already", show(pool.name))
        taken[storage.region, pool.name] = storage.name


def unknown(path: str, name: str, what: str, names: list[str]) -> Problem:
    """A name that nothing has: what it should be, and the nearest that is there."""
    listed = f" ({', '.join(names)})" if names else ""
    return Problem(path, f"{show(name)} is not {what}{listed}", show(name), suggestion=nearest(name, names))


class MonitorsHaveNodes:
    """Monitors decide by majority, each on a node of its own."""

    id: ClassVar[str] = "storage-mons"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Even numbers, and more monitors than nodes."""
        for path, storage, members in clusters(spec):
            if storage.mons and storage.mons % 2 == 0:
                message = f"{storage.mons} monitors bear no more failures than {storage.mons - 1}"
                yield Problem(f"{path}.mons", message, show(storage.mons), suggestion=str(storage.mons - 1))
            elif members and storage.mons and storage.mons > len(members):
                most = max(number for number in (1, 3, 5) if number <= len(members))
                message = f"there are {len(members)} nodes, and each takes one monitor"
                yield Problem(f"{path}.mons", message, show(storage.mons), suggestion=str(most))


class CopiesHaveDomains:
    """No two copies or parts share a failure domain."""

    id: ClassVar[str] = "storage-copies"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """More copies or parts than failure domains."""
        for path, storage, members in clusters(spec):
            if not members:
                continue
            count = figures.domains(members)
            if storage.replicas and storage.replicas > count:
                message = f"{self._there(storage, members, '')}, and each takes one copy"
                yield Problem(f"{path}.replicas", message, show(storage.replicas), suggestion=str(count))
            else:
                yield from self._copied(path, storage, members)
            for number, export in enumerate(storage.exports):
                coded = export.erasure if isinstance(export, CephfsExport) else None
                tier = figures.tier_of(storage, export)
                count = self._count(storage, members, tier)
                if coded is not None and coded.k + coded.m > count:
                    fits = f"what fits is k: {count - 1}, m: 1" if count >= 3 else ""
                    hint = fits or "erasure coding needs three at least; leave it out"
                    there = self._there(storage, members, tier)
                    message = f"{coded.k} + {coded.m} parts do not fit: {there}, and each takes one part"
                    yield Problem(f"{path}.exports[{number}].erasure", message, hint=hint)

    def _copied(self, path: str, storage: CephSpec, members: tuple[figures.Node, ...]) -> Iterator[Problem]:
        """Tiers that have fewer failure domains than copies; of those that nobody has another rule speaks."""
        copies = figures.replicas(storage, members)
        for place, tier, coded in _named_tiers(path, storage):
            if not coded and 0 < self._count(storage, members, tier) < copies:
                message = f"{copies} copies do not fit: {self._there(storage, members, tier)}"
                hint = "add disks of that class to other nodes, or declare fewer replicas"
                yield Problem(place, f"{message}, and each takes one copy", show(tier), hint=hint)

    def _count(self, storage: CephSpec, members: tuple[figures.Node, ...], tier: str) -> int:
        return figures.domains(members, figures.within(storage, members, tier)[0])

    def _there(self, storage: CephSpec, members: tuple[figures.Node, ...], tier: str) -> str:
        """How many failure domains there are, in words."""
        count, domain = self._count(storage, members, tier), figures.failure_domain(members)
        with_what = f" with OSDs of class {tier}" if tier else ""
        return f"there {'is' if count == 1 else 'are'} {count} {domain}{'' if count == 1 else 's'}{with_what}"


def _named_tiers(path: str, storage: CephSpec) -> Iterator[tuple[str, str, bool]]:
    """Each place that names a class of disks, the class, and whether what lies there is erasure-coded."""
    if storage.device_class:
        yield f"{path}.device_class", storage.device_class, False
    for number, export in enumerate(storage.exports):
        if not isinstance(export, RgwExport) and export.device_class:
            coded = isinstance(export, CephfsExport) and export.erasure is not None
            yield f"{path}.exports[{number}].device_class", export.device_class, coded


class TiersAreThere:
    """What names a class of disks finds some."""

    id: ClassVar[str] = "storage-tiers"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Classes that no OSD has, and lists of them that are not as long as a node's OSDs."""
        for path, storage, members in clusters(spec):
            backing, known = storage.osd_backing, figures.tiers(storage, members)
            listed = backing.device_classes if isinstance(backing, FileBackingSpec) else ()
            if listed and len(listed) != storage.osds_per_node:
                message = f"each node has {storage.osds_per_node} OSDs, and {len(listed)} classes are named"
                yield Problem(f"{path}.osd_backing.device_classes", message)
                continue
            for place, tier, _ in _named_tiers(path, storage):
                if members and tier not in known:
                    allowed = ", ".join(known) or "none has one declared"
                    message = f"no OSD of storage {storage.name} is of class {tier} ({allowed})"
                    hint = "say in osd_backing which disks are: device_class of each, or device_classes"
                    yield Problem(place, message, show(tier), hint=hint)


class OneCopyIsKnown:
    """What has one copy is lost with its disk."""

    id: ClassVar[str] = "storage-one-copy"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Clusters that keep one copy."""
        for path, storage, members in clusters(spec):
            if members and figures.replicas(storage, members) == 1:
                message = f"storage {storage.name} keeps one copy: the loss of any OSD loses data"
                yield Problem(path, message, hint="three nodes keep three")


class KeysAreKept:
    """The keys of encrypted disks are as safe as the monitors that keep them."""

    id: ClassVar[str] = "storage-keys"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Encrypted disks, and one monitor."""
        for path, storage, members in clusters(spec):
            if storage.is_encrypted and len(figures.monitors(storage, members)) == 1:
                message = "one monitor keeps the keys of all disks: with its data, all data is lost"
                yield Problem(
                    f"{path}.osd_backing.encrypted", message, hint="three nodes have three monitors"
                )


class DisksAreNamed:
    """A disk is known by what does not change, and given away by its serial number."""

    id: ClassVar[str] = "storage-devices"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Paths that move, disks given away blindly, strangers' disks, nodes with too many or too few."""
        for path, storage, members in clusters(spec):
            backing = storage.osd_backing
            if not isinstance(backing, DeviceBackingSpec) or not members:
                continue
            names = [node.name for node in members]
            yield from self._counted(path, storage, backing, names)
            for number, device in enumerate(backing.devices):
                place = f"{path}.osd_backing.devices[{number}]"
                if device.host not in names:
                    what = f"a node of storage {storage.name}"
                    yield unknown(f"{place}.host", device.host, what, names[:8])
                yield from self._one(place, device)
                before = backing.devices[:number]
                if any((one.host, one.path) == (device.host, device.path) for one in before):
                    yield Problem(f"{place}.path", f"{show(device.path)} of {device.host} comes twice")
                elif device.serial and any(one.serial == device.serial for one in before):
                    message = f"{show(device.serial)} is the serial number of another one already"
                    yield Problem(f"{place}.serial", message, show(device.serial))

    def _one(self, place: str, device: DeviceSpec) -> Iterator[Problem]:
        if not BY_ID.fullmatch(device.path):
            message = f"{show(device.path)} may be another disk after a boot, the system's as well"
            yield Problem(f"{place}.path", message, show(device.path), hint="name it below /dev/disk/by-id")
        elif part := PART.fullmatch(device.path):
            message = f"{show(device.path)} is a partition, and an OSD takes a whole disk"
            yield Problem(f"{place}.path", message, show(device.path), suggestion=part[1])
        if device.wipe and device.serial is None:
            message = "gives a disk away without its serial number"
            yield Problem(f"{place}.wipe", message, hint="add serial, as `lsblk --output SERIAL` says it")

    def _counted(
        self, path: str, storage: CephSpec, backing: DeviceBackingSpec, names: list[str]
    ) -> Iterator[Problem]:
        counts = {name: sum(device.host == name for device in backing.devices) for name in names}
        wrong = [f"{name} has {count}" for name, count in counts.items() if count != storage.osds_per_node]
        if wrong:
            more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
            message = f"each node needs {storage.osds_per_node}: {', '.join(wrong[:3])}{more}"
            yield Problem(f"{path}.osd_backing.devices", message, hint="the number is that of osds_per_node")


class FilesAreForTrials:
    """On machines that are somebody's, a file on the system's disk is a poor place for data."""

    id: ClassVar[str] = "storage-files"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Files in regions of existing machines."""
        providers = {region.name: region.provider for region in spec.regions}
        for path, storage, _ in clusters(spec):
            existing = isinstance(providers.get(storage.region), ExistingProvider)
            if existing and isinstance(storage.osd_backing, FileBackingSpec):
                message = "is a file on each node's system disk, whose speed and room it shares"
                yield Problem(f"{path}.osd_backing.kind", message, hint="declare the disks: kind: device")


class ExportsFit:
    """What is exported has room."""

    id: ClassVar[str] = "storage-exports"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Quotas above what there is, too many pools."""
        for path, storage, members in clusters(spec):
            for number, export in enumerate(storage.exports):
                usable = figures.usable_gib(storage, members, export) if members else 0.0
                if usable and export.quota_gib and export.quota_gib > usable:
                    message = f"storage {storage.name} has {usable:.1f} GiB for it"
                    yield Problem(f"{path}.exports[{number}].quota_gib", message, show(export.quota_gib))
            found = figures.groups_per_osd(storage, members) if members else 0.0
            if found > figures.MOST_GROUPS_PER_OSD:
                message = (
                    f"come to {found:.0f} placement groups an OSD; {figures.MOST_GROUPS_PER_OSD} is the most"
                )
                yield Problem(f"{path}.exports", message, hint="export less, or add OSDs")


class OsdsHaveMemory:
    """An OSD that the kernel ends for want of memory comes back and is ended again."""

    id: ClassVar[str] = "storage-memory"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Nodes whose memory is declared, and is less than their OSDs aim at."""
        for path, storage, _ in clusters(spec):
            asked = storage.osds_per_node * storage.osd_memory_gib
            for _, region, _, pool in pools(spec):
                if region.name != storage.region or pool.name not in storage.pools:
                    continue
                memory = memory_gib(spec, region, pool)
                if memory is not None and asked > memory:
                    message = (
                        f"{asked:g} GiB for the OSDs of a node, and one of pool {pool.name} has {memory:g}"
                    )
                    hint = "declare less, fewer osds_per_node, or nodes with more memory"
                    yield Problem(f"{path}.osd_memory_gib", message, show(storage.osd_memory_gib), hint=hint)


class DataIsAtHome:
    """Data lies where it may."""

    id: ClassVar[str] = "storage-residency"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Regions of residence that are not there, or not the storage's own."""
        regions = [region.name for region in spec.regions]
        for path, storage, _ in storages(spec):
            for number, export in enumerate(storage.exports):
                place = f"{path}.exports[{number}].residency"
                for one in export.residency:
                    if one not in regions:
                        yield unknown(place, one, "a declared region", regions)
                if export.residency and storage.region not in export.residency:
                    message = f"leaves out {storage.region}, where it lies"
                    yield Problem(place, message, hint=f"add {storage.region}, or move the export")


class ScratchIsItsOwn:
    """What is cleaned is nobody else's."""

    id: ClassVar[str] = "storage-scratch"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Folders of the system or of a storage's files, pools without jobs, marks in the wrong order."""
        for number, region in enumerate(spec.regions):
            for index, pool in enumerate(region.pools):
                if pool.scratch is None:
                    continue
                path = f"regions[{number}].pools[{index}].scratch"
                yield from self._path(f"{path}.path", pool.scratch.path, spec, region.name)
                if pool.role != "gpu":
                    message = f"{show(pool.name)} is a pool of role {pool.role}, where no jobs run"
                    yield Problem(path, message, hint="only pools of role gpu have one")
                if pool.scratch.low_pct >= pool.scratch.high_pct:
                    message = f"cleaning would begin at {pool.scratch.high_pct} % and end where it has begun"
                    yield Problem(f"{path}.low_pct", message, show(pool.scratch.low_pct))

    @staticmethod
    def _path(path: str, folder: str, spec: ClusterSpec, region: str) -> Iterator[Problem]:
        if not WHOLE.fullmatch(folder) or folder.split("/")[1] in NOT_TO_CLEAN or folder in SHARED:
            message = f"{show(folder)} may hold what is not to be cleaned"
            yield Problem(path, message, show(folder), suggestion="/scratch")
        elif mount := shared_by(spec, region, folder):
            message = f"{show(folder)} would be cleaned with what the region shares at {mount}"
            yield Problem(path, message, show(folder), suggestion="/scratch")


RULES: tuple[Rule, ...] = (
    StorageHasNames(),
    StorageHasAPlace(),
    MonitorsHaveNodes(),
    CopiesHaveDomains(),
    TiersAreThere(),
    OneCopyIsKnown(),
    KeysAreKept(),
    DisksAreNamed(),
    FilesAreForTrials(),
    ExportsFit(),
    OsdsHaveMemory(),
    DataIsAtHome(),
    ScratchIsItsOwn(),
)
