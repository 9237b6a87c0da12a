"""Runs in the builder, by its own Python: what apt's lists say of packages.

packages.py check    removes from apt's cache what is not, byte for byte, what the lists name
packages.py list     every installed package, as JSON
"""

import hashlib
import json
import sys
from pathlib import Path

import apt  # type: ignore[import-not-found] # the node's own

ARCHIVES = Path("/var/cache/apt/archives")


def check(cache: "apt.Cache") -> None:
    """apt itself compares no more than the size of a file that is there already."""
    known = {
        version.sha256
        for package in cache
        for version in package.versions
        if version.origins and version.sha256
    }
    for file in ARCHIVES.glob("*.deb"):
        if hashlib.sha256(file.read_bytes()).hexdigest() not in known:
            file.unlink()
            print(f"{file.name} is not what the package lists name")


def listing(cache: "apt.Cache") -> None:
    """Sorted, so that the same packages are the same bytes."""
    installed = sorted(
        (package.installed for package in cache if package.installed), key=lambda it: it.package.name
    )
    rows = [
        {
            "name": version.package.shortname,
            "version": version.version,
            "architecture": version.architecture,
            "source": f"{version.source_name} {version.source_version}",
            "sha256": _checksum(version),
        }
        for version in installed
    ]
    json.dump(rows, sys.stdout, indent=1, sort_keys=True)


def _checksum(version: "apt.package.Version") -> "str | None":
    """None of a package that the lists have no more: a newer one has taken its place."""
    try:
        return str(version.sha256)
    except KeyError:
        return None


if __name__ == "__main__":
    {"check": check, "list": listing}[sys.argv[1]](apt.Cache())
