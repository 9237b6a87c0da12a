"""Runs in the builder, by its own Python: has apt ask mirrors for what the node image's lists name.

mirror.py use     standard input says which, as JSON: archives (URL → its mirror), conf (for apt), authority
mirror.py back    leaves apt as if there had been none

The lists stay those of the node image, by the names that apt gives to a mirror's. So a mirror's package is
taken only with the checksum that they name, and the image is the same whoever sent it.
"""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import apt_pkg  # type: ignore[import-not-found] # the node's own

SOURCES = Path("/etc/apt/sources.list")
LISTS = Path("/var/lib/apt/lists")
CONF = Path("/etc/apt/apt.conf.d/00causeway-mirrors")
OWN = Path("/usr/lib/causeway-builder/own-sources.json")
AUTHORITY = Path("/usr/lib/causeway-builder/mirrors.pem")
RELEASES = ("InRelease", "Release", "Release.gpg")


def use(archives: "Mapping[str, str]", conf: str, authority: str) -> None:
    """Name the mirrors in place of the archives."""
    own = SOURCES.read_text()
    OWN.write_text(json.dumps({"sources": own, "archives": archives}))
    SOURCES.write_text(" ".join(archives.get(word, word) for word in own.split(" ")))
    AUTHORITY.write_text(authority)
    CONF.write_text(conf)
    move_lists(own, archives)


def back() -> None:
    """Name the archives again; lists that a role has fetched from a mirror are theirs, too."""
    noted = json.loads(OWN.read_text())
    CONF.unlink()
    move_lists(SOURCES.read_text(), {mirror: archive for archive, mirror in noted["archives"].items()})
    SOURCES.write_text(noted["sources"])


def move_lists(sources: str, names: "Mapping[str, str]") -> None:
    """Call the lists of these sources as if they came from elsewhere."""
    for line in sources.splitlines():
        words = line.split()
        if len(words) > 3 and words[0] == "deb" and words[1] in names:
            urls = words[1], names[words[1]]
            before, after = (f"{apt_pkg.uri_to_filename(url)}_dists_{words[2]}_" for url in urls)
            move_release(before, after, words[3:])


def move_release(before: str, after: str, parts: "Sequence[str]") -> None:
    """Move the lists of a release, whose files begin so; another source may have more parts of it."""
    for part in parts:
        for file in LISTS.glob(f"{before}{part}_*"):
            file.replace(LISTS / file.name.replace(before, after, 1))
    shared = any(file.name[len(before) :] not in RELEASES for file in LISTS.glob(f"{before}*"))
    for name in RELEASES:
        file = LISTS / f"{before}{name}"
        if file.exists():
            (shutil.copy2 if shared else shutil.move)(str(file), str(LISTS / f"{after}{name}"))


if __name__ == "__main__":
    apt_pkg.init()
    if sys.argv[1] == "use":
        use(**json.load(sys.stdin))
    else:
        back()
