"""The image every container node of this machine starts from.

`ensure_image` returns the tag of an image that is there, and builds it when it is not. The tag carries a hash
of everything the image is made of (the files in `node_image/` and the sources below), so a changed package
list makes a new image and an unchanged one is never built twice. The root file system is kept as a tar file
in the cache that all checkouts share; podman's copy can be had back from it in seconds.

`python -m infra.providers.local.image` prints the tag.
"""

import fcntl
import hashlib
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.cached import cache_folder
from infra.errors import CausewayError
from infra.process import run

RECIPE = Path(__file__).parent / "node_image"
INDEX = "index.py"
REPOSITORY = "localhost/causeway-node"
SUITE = "trixie"
ARCHIVE, SECURITY = "http://deb.debian.org/debian", "http://deb.debian.org/debian-security"
# Image settings podman adds; the stop signal is the one that makes systemd shut down.
CHANGES = ('CMD ["/sbin/init"]', "STOPSIGNAL SIGRTMIN+3", "LABEL causeway.image=node")
# Measured: the unpacked root takes 0.4 GiB, the tar 0.4 GiB, podman's copy 0.4 GiB.
NEEDED_GIB = 2.0
SCRATCH = Path("/var/tmp")  # noqa: S108 - only mmdebstrap writes there, into a directory mktemp gives it
GIB = 1024**3
BUILD_LIMIT_S = 1800
"""A slow mirror is no error; one that hangs is."""

Progress = Callable[[str], None]


def sources(suite: str) -> tuple[str, ...]:
    """Where a release of Debian has its packages."""
    return (
        f"deb {ARCHIVE} {suite} main",
        f"deb {ARCHIVE} {suite}-updates main",
        f"deb {SECURITY} {suite}-security main",
    )


def image_hash(suite: str = SUITE) -> str:
    """The first 12 hex digits of a SHA-256 over all that decides what is in the image."""
    digest = hashlib.sha256("\n".join((*sources(suite), *CHANGES)).encode())
    for name in ("packages.txt", "setup.sh", INDEX, "index.txt"):
        digest.update(f"\0{name}\0".encode() + (RECIPE / name).read_bytes())
    return digest.hexdigest()[:12]


def image_tag(suite: str = SUITE) -> str:
    """The tag that the image of this checkout has, whether it exists or not."""
    return f"{REPOSITORY}:{image_hash(suite)}"


def packages(file: str = "packages.txt") -> list[str]:
    """The packages that a file of `node_image/` names, in its order: by default, those that are installed."""
    lines = [line.strip() for line in (RECIPE / file).read_text().splitlines()]
    return [name for line in lines if not line.startswith("#") for name in line.split()]


def ensure_image(progress: Progress, suite: str = SUITE) -> str:
    """Return the tag of the node image, building or importing it first where it is missing.

    Nodes are of one release; of another one tests make machines that somebody has. `progress` gets a line
    per step that takes time, and nothing when the image is there.
    Raises CausewayError when the disk is too full, or a tool is missing or fails.
    """
    tag = image_tag(suite)
    if _exists(tag):
        return tag
    tar = ensure_tar(progress, suite)
    with locked(tar.with_suffix(".lock"), progress):
        if not _exists(tag):
            progress(f"node image: importing {tag}")
            changes = [word for change in CHANGES for word in ("--change", change)]
            run(["podman", "import", "--quiet", *changes, str(tar), tag], timeout_s=BUILD_LIMIT_S)
    return tag


def ensure_tar(progress: Progress, suite: str = SUITE) -> Path:
    """Return the tar file of a node's root, building it where it is missing; raises as `ensure_image`."""
    tar = images_dir() / f"{image_hash(suite)}.tar"
    with locked(tar.with_suffix(".lock"), progress):
        if not tar.exists():
            require_space(tar.parent, SCRATCH)
            progress(
                f"node image: installing {len(packages())} packages of Debian {suite} (once; about 40 s)"
            )
            _build(tar, suite)
    return tar


def images_dir() -> Path:
    """Where the cache that all checkouts share keeps images."""
    cache = cache_folder()
    directory = cache / "images"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _exists(tag: str) -> bool:
    return bool(run(["podman", "images", "--quiet", "--filter", f"reference={tag}"]).strip())


def require_space(*directories: Path) -> None:
    """Raise CausewayError for the first of these folders that has too little room to build an image."""
    for directory in directories:
        free_gib = shutil.disk_usage(directory).free / GIB
        if free_gib < NEEDED_GIB:
            raise CausewayError(
                f"the node image needs {NEEDED_GIB:.1f} GiB to build; {directory} has {free_gib:.1f} free",
                hint="free some space there; CAUSEWAY_CACHE can point to a larger disk for the cache",
            )


def _build(tar: Path, suite: str) -> None:
    """Install the packages into a tar file; it gets its name only when it is complete."""
    part = tar.with_suffix(".tar.part")
    part.unlink(missing_ok=True)
    scripts = [shlex.quote(str(RECIPE / name)) for name in (INDEX, "setup.sh")]
    command = [
        *("mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "--format=tar"),
        f"--include={','.join(packages())}",
        # Roles install small packages without fetching the lists, or working them out, again on each node.
        *("--skip=cleanup/apt/lists,cleanup/apt/cache", '--aptopt=Acquire::Languages "none"'),
        # The second has apt work out what the lists say.
        f'--customize-hook=chroot "$1" python3 - {" ".join(packages("index.txt"))} < {scripts[0]}',
        f'--customize-hook=chroot "$1" sh -s < {scripts[1]}',
        *(suite, str(part), *sources(suite)),
    ]
    try:
        # The root is unpacked there first; /tmp may be a small tmpfs, and apt's own user cannot enter /root.
        hint = "check that http://deb.debian.org/debian/ answers"
        # No file of the image is younger than this; setup.sh has to know.
        env = {"TMPDIR": str(SCRATCH), "SOURCE_DATE_EPOCH": str(int(time.time()))}
        run(command, hint=hint, timeout_s=BUILD_LIMIT_S, env=env)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    part.rename(tar)


@contextmanager
def locked(path: Path, progress: Progress) -> Iterator[None]:
    """Hold an exclusive lock on `path`; a second builder waits for the first and then finds its image."""
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("images: waiting for another process that is building one")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Print the tag of the image, building it first where needed; progress goes to stderr."""
    try:
        print(ensure_image(lambda line: print(line, file=sys.stderr, flush=True)))
    except CausewayError as error:
        print(f"error: {error}", file=sys.stderr)
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
