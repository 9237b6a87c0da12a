"""A signed repository of small packages, on the node.

    repository.py FOLDER KEY    makes it, and leaves its public key in a file
    repository.py FOLDER        adds a newer revision of a driver

Versions of the driver: 570.10.01; 580.10.01; 585.10.01, whose nvidia-smi says another one; 590.10.01, which
cannot be configured; 600.10.01, the newest, which a metapackage wants.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

SMI = '#!/bin/sh\n[ "$1" = --help ] && echo "NVIDIA System Management Interface -- v{}" && exit\nexit 9\n'
UNIT = "[Service]\nExecStart=/bin/false\n[Install]\nWantedBy=multi-user.target\n"
# As Debian's packages have it: an upgrade leaves a service as disabled as it was.
START = '#!/bin/sh\nsystemctl daemon-reload\n[ -n "$2" ] || systemctl enable {0}\nsystemctl start {0}\n'


def package(folder: Path, name: str, version: str, depends: str = "", **files: str) -> None:
    """Build one; `files` by what they are: program, unit, postinst."""
    root = folder / "build"
    control = root / "DEBIAN"
    control.mkdir(parents=True)
    lines = [
        f"Package: {name}",
        f"Version: {version}",
        "Architecture: all",
        "Maintainer: Test <test@example.org>",
    ]
    lines += [f"Depends: {depends}"] if depends else []
    (control / "control").write_text("\n".join([*lines, "Description: for a test", ""]))
    if "program" in files:
        put(root / "usr/bin" / name, files["program"])
    if "unit" in files:
        put(root / f"usr/lib/systemd/system/{files['unit']}.service", UNIT)
        put(control / "postinst", START.format(files["unit"]))
    if "postinst" in files:
        put(control / "postinst", files["postinst"])
    subprocess.run(("dpkg-deb", "--build", "-Znone", root, folder), check=True, stdout=subprocess.DEVNULL)
    subprocess.run(("rm", "--recursive", root), check=True)


def put(path: Path, text: str) -> None:
    """A file that may be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def driver(folder: Path, version: str, says: str = "", postinst: str = "") -> None:
    """All packages of one driver."""
    exact = f"libcuda1 (= {version})"
    own = version.partition("-")[0]
    package(folder, "libcuda1", version)
    package(folder, "nvidia-smi", version, exact, program=SMI.format(says or own))
    more = {"postinst": postinst} if postinst else {"unit": "nvidia-persistenced"}
    package(folder, "nvidia-persistenced", version, exact, **more)
    package(folder, "nvidia-fabricmanager", version, unit="nvidia-fabricmanager")
    package(folder, "cuda-drivers", version, f"nvidia-smi (>= {version}), nvidia-persistenced (>= {version})")


def index(folder: Path) -> None:
    """What apt reads of the packages."""
    stanzas = []
    for path in sorted(folder.glob("*.deb")):
        fields = subprocess.run(("dpkg-deb", "--field", path), check=True, capture_output=True, text=True)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        rest = f"Filename: ./{path.name}\nSize: {path.stat().st_size}\nSHA256: {digest}\n"
        stanzas.append(fields.stdout + rest)
    (folder / "Packages").write_text("\n".join(stanzas))
    data = (folder / "Packages").read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    head = "Origin: test\nLabel: test\nSuite: ./\nDate: Thu, 01 Jan 2026 00:00:00 UTC\n"
    (folder / "Release").write_text(f"{head}SHA256:\n {digest} {len(data)} Packages\n")


def gpg(folder: Path, *words: str) -> str:
    """What gpg prints, by a key that is made here and is on no other machine."""
    own = ("gpg", "--homedir", str(folder / "gnupg"), "--batch", "--yes", "--quiet", "--passphrase", "")
    return subprocess.run((*own, *words), check=True, capture_output=True, text=True).stdout


def publish(folder: Path) -> None:
    """Index it and sign that."""
    index(folder)
    gpg(folder, "--clearsign", "--output", str(folder / "InRelease"), str(folder / "Release"))


def make(folder: Path, key: Path) -> None:
    """The repository, with all but the newer revision."""
    folder.mkdir()
    for version in ("570.10.01-1", "580.10.01-1", "600.10.01-1"):
        driver(folder, version)
    driver(folder, "585.10.01-1", says="580.10.01")
    driver(folder, "590.10.01-1", postinst="#!/bin/sh\nexit 1\n")
    package(folder, "nvlsm", "2025.1-1")
    package(folder, "cuda-toolkit-13-0", "13.0.2-1")
    package(folder, "cuda-toolkit-13-0", "13.1.0-1")
    package(folder, "datacenter-gpu-manager-4-core", "1:4.6.0-1", unit="nvidia-dcgm")
    package(folder, "datacenter-gpu-manager-4-core", "1:4.7.0-1", unit="nvidia-dcgm")
    (folder / "gnupg").mkdir(mode=0o700)
    gpg(folder, "--quick-generate-key", "repository of a test", "ed25519", "sign")
    key.write_text(gpg(folder, "--armor", "--export"))
    publish(folder)


def add_revision(folder: Path) -> None:
    """What an archive's security fix would be."""
    driver(folder, "580.10.01-2")
    publish(folder)


if __name__ == "__main__":
    where, *left = map(Path, sys.argv[1:])
    if left:
        make(where, left[0])
    else:
        add_revision(where)
