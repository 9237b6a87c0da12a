"""Baked images as this machine keeps them: podman's copy, and beside it what is known of each.

An image is there when its folder is, which gets its name last, podman's copy has the root that the manifest
names, and the manifest is signed by this machine's key. All else is half-made, or somebody else's, and is not
used. In the folder stand also the forms of it that machines boot from, once one has needed them.
"""

import fcntl
import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from infra.errors import BadInputError, CausewayError
from infra.files import checksum
from infra.process import EndedError, run
from infra.providers.local import image, names, root, signing, vm_notes

REPOSITORY = "localhost/causeway-baked"
CHANGES = (*image.CHANGES[:-1], "LABEL causeway.image=baked")
NAME = re.compile(r"[0-9a-f]{12}")
MANIFEST = "manifest.json"
SBOM = "sbom.spdx.json"
FILES = "files.txt"
PART = ".part"
"""How names end of what is not whole yet; the next build or look clears it away."""
GONE = ".gone"
"""How names end of what is being removed; where that was killed, the next build or look goes on with it."""
NAMED_IN_IT = {"beside", "packages", "pool", "root", "source_date"}
"""What all that read a manifest go by."""
NAMED = 5
"""How many paths an error names."""
IMAGES = ("podman", "images")
DAY_S = 86400


class DamagedError(CausewayError):
    """An image has not the bytes that were signed."""


@dataclass(frozen=True)
class Baked:
    """One image. Its name is the hash of what it is made of."""

    name: str
    manifest: dict[str, Any]
    made_at: float
    """Seconds since 1970."""
    signed: bool
    """By the key of this machine."""

    @property
    def tag(self) -> str:
        """What podman calls it."""
        return tag_of(self.name)

    @property
    def pool(self) -> str:
        """The pool that it was first built for; others of the same inputs share it."""
        return str(self.manifest["pool"])

    @property
    def root(self) -> str:
        """SHA-256 over its root file system, as a tar file."""
        return str(self.manifest["root"]["sha256"])

    @property
    def folder(self) -> Path:
        """Where what is known of it is kept."""
        return folder(self.name)

    @property
    def age_days(self) -> float:
        """Since it was built."""
        return (time.time() - self.made_at) / DAY_S


def tag_of(name: str) -> str:
    """The tag of an image, whether it is there or not."""
    return f"{REPOSITORY}:{name}"


def folder(name: str) -> Path:
    """Where what is known of an image is kept. BadInputError for what is no image's name."""
    if not NAME.fullmatch(name):
        raise BadInputError(f"{name!r} is no image's name", hint="causeway image list shows them")
    return folders() / name


def folders() -> Path:
    """The folder above those of all images."""
    path = image.images_dir() / "baked"
    path.mkdir(exist_ok=True)
    return path


def name_in(made_from: str) -> str | None:
    """The name in what a node was made from, a tag or a form's folder; None where that is no baked image."""
    tag = made_from.startswith(f"{REPOSITORY}:")
    name = made_from.rpartition(":")[2] if tag else Path(made_from).parent.name
    return name if NAME.fullmatch(name) else None


@contextmanager
def in_use(*wanted: str) -> Iterator[None]:
    """While it is held nobody removes these images, be they there or not: nodes are being made from them.

    Podman's copies are those of the whole machine, whichever cache an image is kept in: so is this.
    """
    with ExitStack() as held:
        for name in sorted({*wanted}):
            held.enter_context(_held(name, fcntl.LOCK_SH))
        yield


@contextmanager
def _held(name: str, how: int) -> Iterator[None]:
    """Hold an image's lock. BlockingIOError where it is not to be had at once and `how` says not to wait."""
    path = names.RUN_DIR / "images" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, how)
        yield


def find(name: str) -> Baked | None:
    """An image that is there whole and signed, else None."""
    found = _read(name, _roots())
    return found if found and found.signed else None


def stored() -> list[Baked]:
    """All images that are there whole, the youngest first."""
    roots = _roots()
    names = (path.name for path in folders().iterdir() if NAME.fullmatch(path.name))
    found = [baked for name in names if (baked := _read(name, roots))]
    return sorted(found, key=lambda one: one.made_at, reverse=True)


def no_use() -> list[tuple[str, float]]:
    """What has an image's name and is none that is there whole, with its age in days.

    Podman lost its copy, or its manifest is damaged; the forms of it that machines boot from may lie there.
    """
    whole = {one.name for one in stored()}
    left = (path for path in folders().iterdir() if NAME.fullmatch(path.name) and path.name not in whole)
    return sorted((path.name, (time.time() - path.stat().st_mtime) / DAY_S) for path in left if path.is_dir())


def keep(name: str, tar: Path, known: Path) -> None:
    """Take an image in: its root as `tar`, and the folder `known`, which is moved to where it is kept."""
    changes = [word for change in (*CHANGES, f"LABEL {own()}") for word in ("--change", change)]
    signing.sign(known / MANIFEST)
    with in_use(name):
        run(["podman", "import", "--quiet", *changes, str(tar), tag_of(name)], timeout_s=image.BUILD_LIMIT_S)
        # Of one that podman lost the folder stays: disks of machines that stand are overlays of its forms.
        if folder(name).exists():
            for file in sorted(known.iterdir(), key=lambda file: file.name == MANIFEST):
                file.replace(folder(name) / file.name)
        else:
            known.rename(folder(name))
    _prune()


def users(name: str) -> list[str]:
    """The containers and virtual machines of nodes that were made from an image, running or not."""
    asked = run(["podman", "ps", "--all", "--format", "{{.Names}}", f"--filter=ancestor={tag_of(name)}"])
    return sorted([*asked.split(), *vm_notes.made_from(folder(name))])


def unpack(one: Baked, work: Path) -> Path:
    """The root of an image as the tar file that was built, somewhere below `work`, which must not be there.

    Raises DamagedError where podman's copy has other bytes than the signed manifest names.
    """
    run(
        ["podman", "save", "--quiet", "--format=docker-dir", f"--output={work}", one.tag],
        timeout_s=image.BUILD_LIMIT_S,
    )
    tar = work / one.root
    if not (tar.is_file() and checksum(tar) == one.root):
        raise DamagedError(
            f"the root of image {one.name} is not the one that its manifest names",
            f"causeway image remove {one.name}, and build it again",
        )
    return tar


@contextmanager
def locked(progress: image.Progress) -> Iterator[None]:
    """While it is held nobody else builds an image or looks at a whole one. Clears what killed runs left."""
    with image.locked(folders() / "lock", progress):
        for part in folders().glob(f".*{PART}"):
            shutil.rmtree(part, ignore_errors=True)
        for gone in folders().glob(f".*{GONE}"):
            name = _name_of(gone)
            if folder(name).exists() or not users(name):  # built anew since, or nobody needs it
                _remove_rest(gone)
        for tag in run([*IMAGES, "--format={{.Repository}}:{{.Tag}}", f"--filter=label={own()}"]).split():
            left = name_in(tag)  # a build was killed before its folder had its name
            if left and not folder(left).exists() and not users(left):
                run(["podman", "rmi", "--ignore", tag])
        yield


def require_whole(one: Baked) -> None:
    """Read all of an image, as nodes start from it. DamagedError with what of it is not as it was signed."""
    require_beside(one)
    source_date = int(one.manifest["source_date"])
    with _mounted(one.tag) as tree:
        if root.packed_checksum(tree, source_date) == one.root:
            return
        with TemporaryDirectory(dir=image.SCRATCH) as work:
            root.pack(tree, Path(work, "root.tar"), source_date)
            now = "".join(f"{line}\n" for line in root.listing(Path(work, "root.tar")))
    said = "what was signed", "what is there"
    differing = root.differing((one.folder / FILES).read_text(), now, said) or ["the order of the files"]
    named, more = differing[:NAMED], len(differing) - NAMED
    raise DamagedError(
        f"the root of image {one.name} is not as it was signed: "
        + ", ".join(named)
        + (f", and {more} more" if more > 0 else ""),
        hint=f"causeway image remove {one.name}, and build it again",
    )


def require_beside(one: Baked) -> None:
    """DamagedError where the manifest, or a file that it names beside the root, is not what was signed."""
    if not (one.signed and signing.is_signed(one.folder / MANIFEST)):
        raise DamagedError(
            f"image {one.name} is not signed by {signing.public_file()}", "build it again, which signs it"
        )
    for name, digest in one.manifest["beside"].items():
        if not (one.folder / name).is_file() or checksum(one.folder / name) != digest:
            raise DamagedError(f"{one.folder / name} is not the file that was signed", "build it again")


@contextmanager
def _mounted(tag: str) -> Iterator[Path]:
    """The tree that containers start from. What podman packs of it would show neither files that were added
    nor modes: it has the names and rights by heart.
    """
    tree = Path(run(["podman", "image", "mount", tag]).strip())
    try:
        yield tree
    finally:
        run(["podman", "image", "unmount", tag])


def remove(name: str) -> None:
    """Forget an image. BadInputError while a node is made from it, or somebody is making one."""
    path = folder(name)
    gone = path.with_name(f".{name}{GONE}")
    try:
        with _held(name, fcntl.LOCK_EX | fcntl.LOCK_NB):
            if using := users(name):
                raise BadInputError(
                    f"nodes are made from image {name}: {', '.join(using)}",
                    hint="take their stacks down first",
                )
            if path.exists():  # first, so that what a killed run leaves is not taken for an image
                shutil.rmtree(gone, ignore_errors=True)
                path.rename(gone)
            _remove_rest(gone)
    except BlockingIOError:
        raise BadInputError(
            f"something is being made from image {name}",
            hint="wait for the `up` or `image` command that runs",
        ) from None
    _prune()


def _remove_rest(gone: Path) -> None:
    """Remove podman's copy of an image, unless it was built anew since, and then what was known of it."""
    name = _name_of(gone)
    if not folder(name).exists():
        run(["podman", "rmi", "--ignore", tag_of(name)])
    shutil.rmtree(gone, ignore_errors=True)


def own() -> str:
    """The label of what belongs to this cache, of all that podman has: others have caches of their own."""
    return f"{names.LABEL}cache={names.short_hash(str(image.images_dir().resolve()))}"


def _name_of(gone: Path) -> str:
    return gone.name.removeprefix(".").removesuffix(GONE)


def _prune() -> None:
    """Remove what podman still holds of images that have lost their names, unless a node is made from it."""
    run(["podman", "image", "prune", "--force", "--filter=label=causeway.image=baked"], timeout_s=600)


def _read(name: str, roots: dict[str, str]) -> Baked | None:
    try:
        path = folder(name) / MANIFEST
        baked = Baked(name, json.loads(path.read_text()), path.stat().st_mtime, signing.is_signed(path))
        return baked if roots.get(baked.tag) == baked.root and baked.manifest.keys() >= NAMED_IN_IT else None
    except (OSError, ValueError, KeyError, TypeError):  # whatever lies there, it is no image
        return None


def _roots() -> dict[str, str]:
    """Tag → SHA-256 of the root of each baked image that podman has."""
    asked = [*IMAGES, "--quiet", "--no-trunc", f"--filter=reference={REPOSITORY}"]
    ids = {*run(asked).split()}
    if not ids:
        return {}
    try:
        said = run(["podman", "image", "inspect", *sorted(ids)])
    except EndedError:
        if {*run(asked).split()} >= ids:
            raise
        return _roots()  # one was removed meanwhile
    found: dict[str, str] = {}
    for one in json.loads(said):
        layers = one["RootFS"]["Layers"]
        if len(layers) == 1:
            found |= dict.fromkeys(one["RepoTags"], layers[0].removeprefix("sha256:"))
    return found
