"""Storage: what the nodes of some pools keep for a region, and what of it is exported to whom."""

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, create_model

from infra.declaration.base import Bool, FilePath, Float, Int, ModelName, Spec, refusal

DataClass = Literal["core", "important", "sensitive_pi", "pi", "general"]


CEPH = re.compile(r"[1-9][0-9]{1,2}\.[0-9]{1,2}\.[0-9]{1,3}([+~-][A-Za-z0-9.+~-]{1,64})?")
"""A release, 2 for stable, a number; what a distribution adds may follow."""


def _version(value: str) -> str:
    if not CEPH.fullmatch(value):
        raise refusal("is not a version of Ceph, such as 18.2.7")
    return value


DeviceClass = Literal["hdd", "ssd", "nvme"]
"""A tier of disks, in Ceph's words."""


class FileBackingSpec(Spec):
    """A file on the node's own disk, for trials: what else is on that disk shares its speed and its fate."""

    what: ClassVar = "a file of an OSD"
    kind: Literal["file"]
    """A file, made by the OSD."""
    size_gib: Float = Field(ge=2, le=1_000_000)
    """Size of each, in GiB."""
    device_classes: tuple[DeviceClass, ...] = ()
    """What each OSD of a node counts as, in their order, to try tiers; unset means what Ceph takes it for."""


class DeviceSpec(Spec):
    """One disk of one node."""

    what: ClassVar = "a device"
    host: str
    """The node, such as `tokyo-storage-0`."""
    path: FilePath
    """Where it is found: a link below /dev/disk/by-id, for other names move from boot to boot."""
    serial: ModelName | None = None
    """Its serial number; another disk in its place is refused."""
    wipe: Bool = False
    """Whether what is on it may be lost; without it a disk that holds anything is refused."""
    device_class: DeviceClass | None = None
    """The tier that it belongs to; unset means what Ceph takes it for."""
    size_gib: Float | None = Field(default=None, ge=2, le=1_000_000)
    """Its size in GiB, for the plan; unset means the one of all."""


class DeviceBackingSpec(Spec):
    """Whole disks, one for each OSD."""

    what: ClassVar = "the devices of OSDs"
    kind: Literal["device"]
    """Disks."""
    size_gib: Float = Field(ge=2, le=1_000_000)
    """Size of each that says no other, in GiB, for the plan."""
    devices: tuple[DeviceSpec, ...]
    """Every disk of every node."""
    encrypted: Bool = False
    """Whether a disk that is taken away tells nobody what it held: LUKS 2, by keys that the monitors keep."""


class ErasureSpec(Spec):
    """Objects in k + m parts, of which any k are enough."""

    what: ClassVar = "erasure coding"
    k: Int = Field(ge=2, le=32)
    """Parts with data."""
    m: Int = Field(ge=1, le=16)
    """Parts besides, which may be lost."""


_CLASS = Field(default="general", description="What is in it; whatever copies it later obeys that.")
# A field may not be written down under this name, which Python keeps for itself.
_FIELDS: Any = {"class": (DataClass, _CLASS)}
_Classed: Any = create_model("_Classed", __base__=Spec, **_FIELDS)


class ExportSpec(_Classed):
    """What clients use of a storage."""

    what: ClassVar = "an export"
    name: str
    """A DNS label of its own within the storage."""
    quota_gib: Float | None = Field(default=None, ge=0.001, le=1_000_000_000)
    """What it may hold, in GiB; unset means as much as there is."""
    residency: tuple[str, ...] = ()
    """Names of the regions that it may lie in; unset means its own only."""

    @property
    def data_class(self) -> DataClass:
        """What is in it."""
        found: DataClass = getattr(self, "class")
        return found


class CephfsExport(ExportSpec):
    """A folder of the region's CephFS, mounted on its GPU nodes."""

    kind: Literal["cephfs"]
    """Files."""
    erasure: ErasureSpec | None = None
    """Erasure coding instead of copies."""
    device_class: DeviceClass | None = None
    """The tier that its files lie in; unset means the storage's `device_class`."""


class RbdExport(ExportSpec):
    """A pool of block devices, for librbd."""

    kind: Literal["rbd"]
    """Block devices."""
    device_class: DeviceClass | None = None
    """The tier that its blocks lie in; unset means the storage's `device_class`."""


class RgwExport(ExportSpec):
    """A user of the region's object storage, by the protocol of S3."""

    kind: Literal["rgw"]
    """Objects."""


Export = Annotated[CephfsExport | RbdExport | RgwExport, Field(discriminator="kind")]


class NfsExport(ExportSpec):
    """A folder that a node serves to the GPU nodes of its region by NFS."""

    kind: Literal["nfs"]
    """Files."""
    host: str | None = None
    """The node that serves it and keeps its files, such as `tokyo-storage-0`; unset means the first one."""


class NfsFilesSpec(Spec):
    """Each export has a file system of its own, in a file as large as its quota, on the node's own disk."""

    what: ClassVar = "the file systems of exports"
    kind: Literal["file"]
    """A file system in a file; the quota is its size."""


class NfsFolderSpec(Spec):
    """Each export is a folder of a file system that is there already."""

    what: ClassVar = "the folder of exports"
    kind: Literal["folder"]
    """A folder, without quotas."""
    path: FilePath
    """Where the folders are made, such as `/srv/data`; a disk mounted there is yours to look after."""


class NfsSpec(Spec):
    """NFS for a small site: each export on one node, without a second copy."""

    what: ClassVar = "a storage"
    name: str
    """A DNS label of its own."""
    kind: Literal["nfs"]
    """NFS 4."""
    region: str
    """The region that it lies in."""
    pools: tuple[str, ...]
    """Names of node pools of role `storage`."""
    backing: Annotated[NfsFilesSpec | NfsFolderSpec, Field(discriminator="kind")]
    """What the files lie on."""
    exports: tuple[NfsExport, ...] = ()
    """What clients use."""


class CephSpec(Spec):
    """A Ceph cluster in one region."""

    what: ClassVar = "a storage"
    name: str
    """A DNS label of its own."""
    kind: Literal["ceph"]
    """Ceph."""
    region: str
    """The region that it lies in: a cluster over several would wait for the WAN at every write."""
    pools: tuple[str, ...]
    """Names of node pools of role `storage`; all their nodes belong to it."""
    osds_per_node: Int = Field(default=1, ge=1, le=60)
    """OSDs on each node."""
    osd_backing: Annotated[FileBackingSpec | DeviceBackingSpec, Field(discriminator="kind")]
    """What each of them keeps its data on."""
    device_class: DeviceClass | None = None
    """The tier of all that names none of its own, and of what is known of files; unset means all OSDs."""
    osd_memory_gib: Float = Field(default=4, ge=0.875, le=128)
    """Memory that each OSD aims at, in GiB."""
    nodes_per_rack: Int | None = Field(default=None, ge=1)
    """Consecutive nodes of a pool stand in one rack; unset means that racks are not known."""
    version: Annotated[str, AfterValidator(_version)] | None = None
    """How the version of Ceph's packages begins, such as `18.2.7`: another one upgrades the cluster, daemon
    by daemon; unset means what is installed, or what the packages' sources have."""
    mons: Int | None = Field(default=None, ge=1, le=5)
    """Monitors, an odd number; unset means 3 from three nodes up, 5 from ten."""
    replicas: Int | None = Field(default=None, ge=1, le=5)
    """Copies of what is not erasure-coded; unset means 3, or as many as there are nodes or racks."""
    encrypt_wire: Bool = True
    """Whether nothing is sent between nodes that is not encrypted."""
    exports: tuple[Export, ...] = ()
    """What clients use."""

    @property
    def is_encrypted(self) -> bool:
        """Whether what lies on its disks is."""
        return isinstance(self.osd_backing, DeviceBackingSpec) and self.osd_backing.encrypted


StorageSpec = Annotated[CephSpec | NfsSpec, Field(discriminator="kind")]
