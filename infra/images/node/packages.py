"""Runs in the builder, by its own Python: what apt's lists say of packages.

packages.py check    removes from apt's cache what is not, byte for byte, what the lists name; notes these
packages.py list     every installed package, as JSON
packages.py skew     of these, what was installed since and is not what the lists named, as JSON
"""

import hashlib
import json
import sys
from pathlib import Path

import apt  # type: ignore[import-not-found] # the node's own

ARCHIVES = Path("/var/cache/apt/archives")
PINS = Path(__file__).with_name("pins.json")


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
    PINS.write_text(json.dumps({package.fullname: pinned(package) for package in cache if package.versions}))


def pinned(package: "apt.Package") -> "dict[str, str | None]":
    """Version → checksum, of what is there of a package and of all that the lists name; the newest last."""
    return {version.version: _checksum(version) for version in sorted(package.versions)}


def skew(cache: "apt.Cache") -> None:
    """What a mirror had no more, so that a role fetched lists anew: an older image has another one."""
    pins = json.loads(PINS.read_text())
    rows = []
    for package in sorted(cache, key=lambda each: each.fullname):
        known, there = pins.get(package.fullname, {}), package.installed
        if known and there and not is_pinned(there.version, _checksum(there), known):
            rows.append({"name": package.fullname, "version": there.version, "listed": [*known][-1]})
    json.dump(rows, sys.stdout)


def is_pinned(version: str, checksum: "str | None", known: "dict[str, str | None]") -> bool:
    """Newer lists may say nothing of an older package's checksum."""
    return version in known and (not checksum or not known[version] or known[version] == checksum)


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
    {"check": check, "list": listing, "skew": skew}[sys.argv[1]](apt.Cache())
