"""A root file system as one tar file, the same for the same content, and what differs between two of them."""

import hashlib
import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from infra.process import run
from infra.providers.local.image import BUILD_LIMIT_S

MOUNTED = ("etc/hostname", "etc/hosts", "etc/resolv.conf", "run/.containerenv")
"""Where podman mounts files into a container, it makes them in its root; a node is given its own."""
FORMAT = (
    *("--sort=name", "--numeric-owner", "--clamp-mtime", "--xattrs", "--xattrs-include=security.capability"),
    *("--format=posix", "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime"),
)


def pack(root: Path, tar: Path, source_date: int) -> None:
    """Write the tree `root`, in order, no file younger than `source_date` (seconds since 1970)."""
    hint = "is the disk full? df shows it"
    run(_packed(root, source_date, str(tar)), timeout_s=BUILD_LIMIT_S, hint=hint)


def packed_checksum(root: Path, source_date: int) -> str:
    """SHA-256 of the tar file that `pack` would write, which needs no room on a disk."""
    command = ["bash", "-c", 'set -o pipefail; "$@" | sha256sum', "pack", *_packed(root, source_date, "-")]
    return run(command, timeout_s=BUILD_LIMIT_S).split()[0]


def _packed(root: Path, source_date: int, tar: str) -> list[str]:
    left_out = [f"--exclude=./{path}" for path in MOUNTED]
    return ["tar", *FORMAT, f"--mtime=@{source_date}", *left_out, "-C", str(root), "-cf", tar, "."]


def listing(tar: Path) -> Iterator[str]:
    """A line for each path: what `differing` compares, and people can read."""
    with tarfile.open(tar) as opened:
        for member in opened:
            content = opened.extractfile(member) if member.isreg() else None
            digest = hashlib.sha256(content.read()).hexdigest() if content else "-"
            facts = [
                {tarfile.DIRTYPE: "d", tarfile.SYMTYPE: "l", tarfile.LNKTYPE: "h"}.get(member.type, "f"),
                *(f"{member.mode:04o}", f"{member.uid}:{member.gid}", str(member.size), digest),
                f"{int(member.mtime)}",
                member.pax_headers.get("SCHILY.xattr.security.capability", "-").encode().hex() or "-",
                json.dumps(member.name) + (f" -> {json.dumps(member.linkname)}" if member.linkname else ""),
            ]
            yield " ".join(facts)


def differing(one: str, other: str, said: tuple[str, str] = ("the first", "the second")) -> list[str]:
    """The paths of which two listings say different things, with what is different. SAID: what each is."""
    first, second = _by_path(one), _by_path(other)
    what = ("type", "mode", "owner", "size", "content", "time", "capabilities")
    found = []
    for path in sorted(first.keys() | second.keys()):
        if path not in first or path not in second:
            found.append(f"{path}: only in {said[path not in first]}")
        elif first[path] != second[path]:
            parts = zip(what, first[path], second[path], strict=True)
            found.append(f"{path}: {', '.join(name for name, a, b in parts if a != b)}")
    return found


def _by_path(text: str) -> Mapping[str, list[str]]:
    return {(words := line.split(" ", 7))[7]: words[:7] for line in text.splitlines() if line}
