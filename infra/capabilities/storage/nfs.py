"""Storage of kind NFS: what is served by whom, for a site too small for a cluster."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from infra.capabilities.storage import figures
from infra.capabilities.storage.rules import WHOLE, storages, unknown
from infra.capabilities.storage.section import NfsShare, NfsStorage
from infra.declaration import ClusterSpec, NfsFilesSpec, NfsFolderSpec, NfsSpec, RegionSpec
from infra.ground.endpoint import Endpoint, HostSet, Ports
from infra.ground.folders import NOT_FOR_DATA
from infra.ground.nodes import pool_key
from infra.ground.problem import Problem, Severity, show
from infra.ground.rule import Rule

PORT = 2049
LEAST_FILES_GIB = 0.03125
"""ext4 with a journal takes 32 MiB and has room left."""


@dataclass(frozen=True)
class NfsOutlook:
    """What a storage serves, for people; `usable_gib` is None where folders share what the disk has."""

    storage: str
    region: str
    kind: str
    servers: dict[str, int]
    """Node → how many exports."""
    usable_gib: float | None


def storage_of(spec: ClusterSpec, declared: NfsSpec) -> NfsStorage:
    """The storage as roles are told of it."""
    first, *_ = figures.nodes(spec, declared)
    region = spec.region(declared.region)
    return NfsStorage(
        name=declared.name,
        region=declared.region,
        folder=declared.backing.path if isinstance(declared.backing, NfsFolderSpec) else None,
        shares=tuple(
            NfsShare(
                name=export.name,
                host=export.host or first.name,
                size_bytes=int((export.quota_gib or 0) * figures.GIB),
                data_class=export.data_class,
                residency=export.residency or (declared.region,),
            )
            for export in declared.exports
        ),
        clients=_clients(region),
    )


def _clients(region: RegionSpec) -> tuple[str, ...]:
    """The keys of the pools whose nodes use what is served."""
    return tuple(pool_key(region.name, pool.name) for pool in region.pools if pool.role == "gpu")


def endpoint(storage: NfsStorage) -> Endpoint:
    """Its port, for its clients alone."""
    return Endpoint(
        f"nfs-{storage.name}",
        HostSet(hosts=storage.servers),
        (Ports.one(PORT),),
        "management",
        sources=HostSet(pools=storage.clients),
    )


def outlook(storage: NfsStorage) -> NfsOutlook:
    """What it comes to."""
    counts = {host: sum(share.host == host for share in storage.shares) for host in storage.servers}
    sizes = sum(share.size_bytes for share in storage.shares) / figures.GIB
    return NfsOutlook(
        storage.name, storage.region, "nfs", counts, None if storage.folder is not None else sizes
    )


def in_words(one: NfsOutlook) -> str:
    """A storage: who serves how much."""
    served = ", ".join(f"{host} ({count})" for host, count in one.servers.items()) or "nobody"
    room = "what the folders' disk has" if one.usable_gib is None else f"{one.usable_gib:,.1f} GiB usable"
    return (
        f"Storage {one.storage} in {one.region}: NFS, exports on {served}\n"
        f"  {room}, one copy: the loss of a node's disk loses its exports"
    )


class NfsIsServed:
    """Each export by NFS has a node, and a size where it has a file system of its own."""

    id: ClassVar[str] = "storage-nfs"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Nodes of others, exports for nobody, quotas that nothing keeps, folders that are the system's."""
        for path, storage, members in storages(spec):
            if not isinstance(storage, NfsSpec) or not members:
                continue
            names = [node.name for node in members]
            of_files = isinstance(storage.backing, NfsFilesSpec)
            if storage.exports and not _clients(spec.region(storage.region)):
                message = f"{storage.region} has no nodes of role gpu, and a server lets in nobody else"
                yield Problem(f"{path}.exports", message, hint="declare a pool of GPU nodes, or no exports")
            if isinstance(storage.backing, NfsFolderSpec):
                yield from _no_system_folder(f"{path}.backing.path", storage.backing.path)
            for number, export in enumerate(storage.exports):
                place = f"{path}.exports[{number}]"
                if export.host is not None and export.host not in names:
                    yield unknown(
                        f"{place}.host", export.host, f"a node of storage {storage.name}", names[:8]
                    )
                if of_files and export.quota_gib is None:
                    message = "is missing: a file system in a file is as large as its quota"
                    yield Problem(f"{place}.quota_gib", message, hint="add quota_gib")
                elif of_files and export.quota_gib and export.quota_gib < LEAST_FILES_GIB:
                    message = f"is too small for a file system; {LEAST_FILES_GIB:g} GiB is the least"
                    yield Problem(f"{place}.quota_gib", message, show(export.quota_gib))
                elif not of_files and export.quota_gib:
                    hint = "leave it out, or declare `backing: {kind: file}`"
                    yield Problem(
                        f"{place}.quota_gib", "is kept by no folder", show(export.quota_gib), hint=hint
                    )


def _no_system_folder(place: str, path: str) -> Iterator[Problem]:
    if not WHOLE.fullmatch(path) or path.split("/")[1] in NOT_FOR_DATA:
        message = f"{show(path)} is no folder for data: a whole path outside the system's own folders"
        yield Problem(place, message, show(path), hint="such as /srv/data")


class OneCopyOnAServer:
    """What one node keeps is lost with its disk, and away while it is."""

    id: ClassVar[str] = "storage-one-server"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Everything that NFS exports."""
        for path, storage, members in storages(spec):
            if isinstance(storage, NfsSpec) and members and storage.exports:
                message = f"storage {storage.name} keeps one copy of each export, on one node's disk"
                yield Problem(
                    path, message, hint="keep what must not be lost elsewhere too, or use kind: ceph"
                )


RULES: tuple[Rule, ...] = (NfsIsServed(), OneCopyOnAServer())
