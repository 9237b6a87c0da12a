"""Folders of nodes that more than one capability knows of: what is shared there, and which holds which."""

from collections.abc import Iterator

from infra.declaration import CephfsExport, ClusterSpec
from infra.declaration.storage import NfsExport

SYSTEM = frozenset(("bin", "boot", "dev", "etc", "lib", "lib64", "proc", "root", "run", "sbin", "sys", "usr"))
"""Folders at the top that are the system's own."""
NOT_FOR_DATA = SYSTEM | {"tmp"}
SHARED = ("/media", "/mnt", "/opt", "/srv", "/tmp")  # noqa: S108 - nothing is written there
"""Where all that a machine holds has a folder of its own."""
CEPH = "/var/lib/ceph"
"""What Ceph's daemons keep; a disk that fills there stops them."""


def mount_of(storage: str, export: str) -> str:
    """Where nodes have an export's files."""
    return f"/mnt/{storage}/{export}"


def overlap(one: str, other: str) -> bool:
    """Whether a folder is another one, or one of them lies in the other."""
    one, other = f"{one.rstrip('/')}/", f"{other.rstrip('/')}/"
    return one.startswith(other) or other.startswith(one)


def mounts(spec: ClusterSpec, region: str) -> Iterator[str]:
    """Where the GPU nodes of a region have what is shared with others."""
    for storage in spec.storage:
        for export in storage.exports if storage.region == region else ():
            if isinstance(export, CephfsExport | NfsExport):
                yield mount_of(storage.name, export.name)


def shared_by(spec: ClusterSpec, region: str, folder: str) -> str | None:
    """The mount that a folder is, lies in or holds; None where there is no such."""
    return next((mount for mount in mounts(spec, region) if overlap(folder, mount)), None)
