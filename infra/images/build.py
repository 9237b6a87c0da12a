"""Builds a pool's image: the baked tasks of its roles, on a root that nobody has used.

The builder is a container of the node image in which nothing runs: no systemd, no sshd, no key. What it
fetches is kept in a cache and checked against the package lists, which are those of the node image: they are
what pins every version.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra import ROOT
from infra.converge.runner import literal, run_playbook
from infra.errors import CausewayError
from infra.files import checksum, value_hash
from infra.ground.contract import Contract
from infra.images import mirrors
from infra.images.recipe import BUILDER, Recipe, recipe_of
from infra.images.sbom import sbom
from infra.inventory.groups import Inventory, inventory_data
from infra.inventory.roles import role_order
from infra.inventory.steps import TAG
from infra.process import EndedError, run
from infra.providers.local import baked, bridge, containers, image, names, root, signing
from infra.providers.local.baked import Baked
from infra.providers.local.image import Progress
from infra.providers.local.node import nameservers

LISTS = "/var/lib/apt/lists"
ARCHIVES = "/var/cache/apt/archives"
PROGRAMS = "/usr/lib/causeway-builder"
RUNS = ROOT / ".causeway" / "images" / "runs"
BUILDER_LABEL = f"{names.LABEL}image-builder"
POLICY = "/usr/sbin/policy-rc.d"
NEVER_START = r"#!/bin/sh\nexit 101\n"
"""Debian's way to say that an installed service is not to be started."""


@dataclass(frozen=True)
class Built:
    """What a build made, not yet taken in."""

    tar: Path
    known: Path
    """What is to be kept beside the root."""
    manifest: dict[str, Any]


def ensure(contract: Contract, pool: str, progress: Progress) -> Baked:
    """A pool's image for what is declared now, built first where it is missing."""
    recipe = recipe_of(contract, pool)
    with _only_build(progress):
        if found := baked.find(recipe.name):
            return found
        with _built(contract, recipe, progress) as made:
            baked.keep(recipe.name, made.tar, made.known)
    kept = baked.find(recipe.name)
    if kept is None:
        raise CausewayError(f"podman has not kept image {recipe.name} as it was given", "build it again")
    return kept


def compare(contract: Contract, pool: str, progress: Progress) -> list[str]:
    """Build a pool's image once more, and say what of it is not as in the one that is kept."""
    kept = ensure(contract, pool, progress)
    recipe = recipe_of(contract, pool)
    with (
        _only_build(progress),
        _built(contract, recipe, progress) as made,
    ):
        if made.manifest["root"] == kept.manifest["root"]:
            return []
        before, now = (folder / baked.FILES for folder in (kept.folder, made.known))
        return root.differing(before.read_text(), now.read_text()) or ["the order of the files"]


@contextmanager
def _only_build(progress: Progress) -> Iterator[None]:
    """One build at a time in a cache: they share what they fetch. Clears the builders of killed ones."""
    with baked.locked(progress):
        ours = [f"--filter=label={label}" for label in (BUILDER_LABEL, baked.own())]
        left = run(["podman", "ps", "--all", "--quiet", *ours]).split()
        containers.discard(*left)
        yield


@contextmanager
def _built(contract: Contract, recipe: Recipe, progress: Progress) -> Iterator[Built]:
    """One build; its folder is gone in the end, whatever came of it."""
    signing.require_working_key()
    asked = mirrors.asked(contract, recipe.pool)
    base = image.ensure_image(progress)
    work = baked.folders() / f".{recipe.name}{baked.PART}"
    image.require_space(baked.folders(), image.SCRATCH)
    known = work / "known"
    known.mkdir(parents=True, mode=0o700)
    try:
        with _builder(base, recipe) as container:
            source_date = int(_in(container, "stat", "-c", "%Y", LISTS))
            units = _prepare(container, recipe, asked)
            progress(f"image {recipe.name}: {', '.join(recipe.roles)} for the pool {recipe.pool}")
            _run_roles(contract, recipe, container, work, progress, [*asked.get("archives", {}).values()])
            said = (_in(container, "python3", f"{PROGRAMS}/packages.py", what) for what in ("list", "skew"))
            packages, skew = map(json.loads, said)
            if asked:
                _in(container, "python3", f"{PROGRAMS}/mirror.py", "back")
            _clean(container, recipe, units, source_date)
            tar = work / "root.tar"
            mounted = Path(run(["podman", "mount", container]).strip())
            root.pack(mounted, tar, source_date)
        manifest = _manifest(recipe, base, tar, source_date, packages) | {"skew": skew}
        manifest["beside"] = _write_beside(known, manifest, tar)
        (known / baked.MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
        yield Built(tar, known, manifest)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _builder(base: str, recipe: Recipe) -> Iterator[str]:
    """A container in which nothing runs."""
    container = f"cw-image-{recipe.name}-{baked.own()[-8:]}"
    archives = image.images_dir() / "archives"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    try:
        run(
            [
                *("podman", "run", "--detach", "--name", container, "--no-hosts", "--privileged"),
                *("--label", f"{BUILDER_LABEL}={recipe.name}", "--label", baked.own()),
                *(f"--dns={server}" for server in nameservers()),
                *("--volume", f"{archives}:{ARCHIVES}", "--env", "SYSTEMD_OFFLINE=1"),
                *(base, "sleep", "infinity"),
            ],
            timeout_s=300,
        )
        bridge.keep_address()
        yield container
    finally:
        containers.discard(container)


def _prepare(container: str, recipe: Recipe, asked: dict[str, Any]) -> list[str]:
    """Pin the package lists, check what is kept of packages, name the mirrors, and let no service start.

    Returns the units that are the roles' to enable: a node is reached by what the node image enables itself.
    """
    run(["podman", "cp", str(ROOT / BUILDER), f"{container}:{PROGRAMS}"])
    _in(container, "sh", "-c", f"printf '{NEVER_START}' >{POLICY}; chmod 755 {POLICY}")
    # Young enough for the roles: they take the versions that the node image's own lists name.
    _in(container, "touch", LISTS, "/var/lib/apt/periodic/update-success-stamp")
    _in(container, "sh", "-c", "printf 'APT::Keep-Downloaded-Packages \"1\";\\n' >/etc/apt/apt.conf.d/00keep")
    _in(container, "python3", f"{PROGRAMS}/packages.py", "check")
    if asked:
        use = ["podman", "exec", "--interactive", container, "python3", f"{PROGRAMS}/mirror.py", "use"]
        run(use, stdin=json.dumps(asked))
    look = "for unit; do systemctl is-enabled --quiet $unit || echo $unit; done"
    return _in(container, "sh", "-c", look, "sh", *recipe.inputs["units"]).split()


def _run_roles(
    contract: Contract, recipe: Recipe, container: str, work: Path, progress: Progress, asked: list[str]
) -> None:
    """ASKED: the mirrors of packages."""
    inventory = work / "inventory"
    inventory.mkdir()
    (inventory / "hosts.json").write_text(json.dumps(_inventory(contract, recipe, container)))
    beside = ROOT / "inventories" / contract.stack / "group_vars"
    if beside.exists():
        (inventory / "group_vars").symlink_to(beside)
    result = run_playbook(
        "playbooks/roles.yml",
        stack=contract.stack,
        inventory=inventory,
        limit=[recipe.host],
        tags={"--tags": [TAG], "--skip-tags": [role for role in role_order() if role not in recipe.roles]},
        run_dir=RUNS / recipe.name,
        on_progress=lambda now: progress(str(now)),
    )
    if result.failed:
        whom = f"; packages come from {' and '.join(asked)}" if asked else ""
        raise CausewayError(result.report(), f"mend it and build again: what was fetched is kept{whom}")


def _inventory(contract: Contract, recipe: Recipe, container: str) -> dict[str, Any]:
    """The pool's first host with its groups, reached in the builder; as a file that Ansible reads.

    Without the stack's name, under which what a run made true is sealed: no host was touched.
    """
    data: Inventory = inventory_data(contract, ROOT)
    own = data.pop("_meta")["hostvars"][recipe.host]
    data["all"]["vars"].pop("causeway_stack")
    reached = {"ansible_connection": "podman", "ansible_host": container, "ansible_user": "root"}
    groups: dict[str, Any] = {
        name: {
            "hosts": {recipe.host: {}} if recipe.host in group["hosts"] else {},
            "vars": literal(group["vars"]),
            "children": {child: {} for child in group["children"]},
        }
        for name, group in data.items()
    }
    groups["all"]["hosts"] = {recipe.host: literal(own) | reached | {"ansible_become": False}}
    return groups


def _clean(container: str, recipe: Recipe, units: list[str], source_date: int) -> None:
    """Leave what every node may have, and the image's name."""
    _in(container, "rm", "/etc/apt/apt.conf.d/00keep")
    _in(container, "env", f"SOURCE_DATE_EPOCH={source_date}", "sh", f"{PROGRAMS}/clean.sh", *units)
    try:
        _in(container, "python3", f"{PROGRAMS}/leaks.py", "/")
    except EndedError as error:
        raise CausewayError(
            f"the image of {recipe.pool} would hold what one machine alone may know: {error.said.strip()}",
            f"a baked task or a package made it: {BUILDER}/clean.sh takes away what each node makes itself",
        ) from None
    _in(container, "sh", "-ec", f"rm -r {PROGRAMS}; echo {recipe.name} >/usr/lib/causeway-image")


def _manifest(
    recipe: Recipe, base: str, tar: Path, source_date: int, packages: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "image": recipe.name,
        "pool": recipe.pool,
        "roles": list(recipe.roles),
        "node_image": base,
        "source_date": source_date,
        "inputs": {key: value_hash(value) for key, value in recipe.inputs.items()},
        "root": {"sha256": checksum(tar), "size_bytes": tar.stat().st_size},
        "packages": packages,
    }


def _write_beside(known: Path, manifest: dict[str, Any], tar: Path) -> dict[str, str]:
    """What is kept of an image beside its root and its manifest: each file → its SHA-256."""
    name, digest = manifest["image"], manifest["root"]["sha256"]
    bill = sbom(name, digest, manifest["packages"], manifest["source_date"])
    (known / baked.FILES).write_text("".join(f"{line}\n" for line in root.listing(tar)))
    (known / baked.SBOM).write_text(json.dumps(bill, indent=1) + "\n")
    return {name: checksum(known / name) for name in (baked.FILES, baked.SBOM)}


def _in(container: str, *argv: str) -> str:
    """What a command printed in the builder."""
    return run(["podman", "exec", container, *argv], timeout_s=image.BUILD_LIMIT_S)
