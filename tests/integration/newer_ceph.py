"""On a node: the installed packages of Ceph once more, as a newer version, and a repository of them.

    newer_ceph.py FOLDER VERSION COMMIT NEW

VERSION is what they have now, and NEW what takes the place of its first numbers. COMMIT is what Ceph's
programs say that they were built from; the newer ones say the same the other way round, and are as they were
apart from that. (Their number is in their code, too: plugins of another one are refused.)
"""

import hashlib
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def said(*argv: str, cwd: Path | None = None) -> str:
    """What a program prints."""
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, cwd=cwd).stdout


def installed() -> list[str]:
    """The packages whose source is Ceph's."""
    rows = said("dpkg-query", "--show", "--showformat", "${source:Package} ${Package}\n").splitlines()
    return [row.split()[1] for row in rows if row.split()[0] == "ceph"]


def renew(archive: Path, old: str, commit: str, new: str) -> str:
    """Write an archive's newer version beside it; its paragraph in a repository's index."""
    tree = archive.with_suffix("")
    said("dpkg-deb", "--raw-extract", str(archive), str(tree))
    archive.unlink()
    control = tree / "DEBIAN/control"
    control.write_text(control.read_text().replace(old, new))
    for file in tree.rglob("*"):
        if file.is_file() and not file.is_symlink() and commit.encode() in (held := file.read_bytes()):
            file.write_bytes(held.replace(commit.encode(), commit[::-1].encode()))
    target = archive.with_name(archive.name.replace(old, new))
    said("dpkg-deb", "-Znone", "--root-owner-group", "--build", str(tree), str(target))
    shutil.rmtree(tree)
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    entry = f"Filename: ./{target.name}\nSize: {target.stat().st_size}\nSHA256: {digest}\n"
    return said("dpkg-deb", "--field", str(target)) + entry


def main(folder: str, version: str, commit: str, new: str) -> None:
    """The program."""
    place = Path(folder)
    place.mkdir(parents=True)
    said("apt-get", "--quiet", "download", *(f"{name}={version}" for name in installed()), cwd=place)
    old, archives = version.partition("+")[0], list(place.glob("*.deb"))
    with ThreadPoolExecutor() as threads:
        entries = list(threads.map(lambda archive: renew(archive, old, commit, new), archives))
    (place / "Packages").write_text("\n".join(entries))


if __name__ == "__main__":
    main(*sys.argv[1:])
