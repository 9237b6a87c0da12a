"""The manifest: per host, what its roles made true, and the values that were sealed.

One JSON file per host under `.causeway/stacks/<stack>/drift/`, and a copy on the node. Texts of files that
every user may read are kept beside it, once each, so that a difference can be shown line by line.
"""

import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from infra import ROOT
from infra.errors import CausewayError, one_line
from infra.stack import stack_dir

SCHEMA_VERSION = 1
NODE_COPY = "/var/lib/causeway/manifest.json"
PARTS = ".parts"
"""Ends the name under which a record keeps what a role made and makes no more, until that has left."""


TEXT = re.compile(rb'"text": ?"([0-9a-f]{32})"')
"""How a manifest names a kept text; one that cannot be understood keeps its own."""
UNUSED_S = 24 * 3600


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class Entry(_Part):
    """One sealed fact. `want`: aspect → value; `how`: what the probe must know; `text`: a kept text.

    `tasks`: all that govern it, `task` is the last of them; empty where it was sealed before they were kept.
    `part`: it goes once the role makes it no more.
    """

    kind: str
    key: str
    task: str
    tasks: list[str] = Field(default_factory=list)
    want: dict[str, Any]
    how: dict[str, Any] = Field(default_factory=dict)
    handler: bool = False
    part: bool = False
    text: str | None = None


class UncoveredTask(_Part):
    """A task that changes the node in a way no record can express."""

    task: str
    module: str


class RoleManifest(_Part):
    """What one role made true on one host. `problems` say why it counts as not sealed.

    `declared`: the host had the role when anything was last sealed there; else it is orphaned.
    """

    inputs: str = ""
    """Hash of the role, its variables for this host and the contract's version, when it was sealed."""
    tasks: dict[str, str] = Field(default_factory=dict)
    """Task → hash of what it depends on, when the role was sealed; none by an older version."""
    sealed_at: str | None = None
    declared: bool = True
    stays: bool = False
    """It was to leave, and nobody knew what had been there before it."""
    entries: list[Entry] = Field(default_factory=list)
    uncovered: list[UncoveredTask] = Field(default_factory=list)
    problems: list[str] = Field(default_factory=list)


class Manifest(_Part):
    """Everything sealed on one host. `machine`: its /etc/machine-id; `salt`: goes into every content hash.

    `identity`: which machine it is by what the machine does not decide; empty in one of an older version.
    """

    schema_version: int = SCHEMA_VERSION
    host: str
    machine: str = ""
    identity: str = ""
    salt: str = Field(default_factory=lambda: secrets.token_hex(16))
    roles: dict[str, RoleManifest] = Field(default_factory=dict)

    @property
    def sealed(self) -> bool:
        """Whether anything ever was; then the node has a copy."""
        return any(part.entries for part in self.roles.values())

    def entry(self, kind: str, key: str) -> Entry | None:
        """What was sealed of a thing, by the first role that has it."""
        entries = (entry for part in self.roles.values() for entry in part.entries)
        return next((entry for entry in entries if (entry.kind, entry.key) == (kind, key)), None)

    def renewed(self, identity: str) -> bool:
        """Whether another machine has the name now. One that is not known makes no new machine."""
        return bool(self.identity and identity and self.identity != identity)

    def node_copy(self) -> bytes:
        """What the node keeps of it: enough to compare, nothing to show."""
        declared = {role: part for role, part in self.roles.items() if part.declared}
        of_part: dict[str, Any] = {
            "declared": True,
            "tasks": True,
            "entries": {"__all__": {"text", "tasks", "part"}},
        }
        kept = self.model_copy(update={"roles": declared})
        data = kept.model_dump(mode="json", exclude={"identity": True, "roles": {"__all__": of_part}})
        return json.dumps(data, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def drift_dir(stack: str) -> Path:
    """Where a stack's manifests and texts are."""
    return ROOT / stack_dir(stack) / "drift"


def manifest_path(stack: str, host: str) -> Path:
    """A host's manifest on the controller."""
    return drift_dir(stack) / f"{host}.json"


def taken_anew(stack: str, host: str) -> str:
    """How a host gets a new manifest: `up` converges none whose declaration it has taken."""
    playbook = f"./run exec ansible-playbook playbooks/site.yml -i inventories/{stack} --limit {host}"
    return f"delete it and converge the host again: {playbook}"


def load_manifest(stack: str, host: str) -> Manifest | None:
    """A host's manifest; None where nothing was ever sealed. CausewayError for one that cannot be read."""
    path = manifest_path(stack, host)
    try:
        manifest = Manifest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise CausewayError(
            f"{path} is no manifest: {error.errors()[0]['msg']}",
            hint=taken_anew(stack, host),
        ) from None
    if manifest.schema_version != SCHEMA_VERSION:
        raise CausewayError(
            f"{path} has schema version {manifest.schema_version}, not {SCHEMA_VERSION}",
            hint=taken_anew(stack, host),
        )
    return manifest


def save_manifest(stack: str, manifest: Manifest) -> None:
    """Write it whole or not at all, readable by its owner only."""
    _write(manifest_path(stack, manifest.host), manifest.model_dump_json(indent=1).encode() + b"\n")


def remember_identity(stack: str, host: str, identity: str) -> None:
    """Note which machine was sealed, where a manifest does not say it; a broken one is left alone."""
    manifest = None
    with suppress(CausewayError):
        manifest = load_manifest(stack, host)
    if manifest is not None and not manifest.identity:
        manifest.identity = identity
        save_manifest(stack, manifest)


def forget_host(stack: str, host: str) -> None:
    """Drop what is known of a host, for one that is gone."""
    for suffix in (".json", ".changed", ".owed"):
        manifest_path(stack, host).with_suffix(suffix).unlink(missing_ok=True)


def keep_text(stack: str, text: str) -> str:
    """Keep a text under its hash and return that name."""
    name = hashlib.sha256(text.encode()).hexdigest()[:32]
    path = drift_dir(stack) / "texts" / name
    try:
        os.utime(path)  # in use again, although no manifest says so yet
    except FileNotFoundError:
        _write(path, text.encode())
    return name


def sweep_texts(stack: str) -> None:
    """Delete kept texts that no manifest names any more, and what killed writers left; once a day at most.

    One that was kept within a day may be of a run that has not written its manifest yet.
    """
    folder, limit = drift_dir(stack) / "texts", time.time() - UNUSED_S
    swept = folder / ".swept"
    if not folder.is_dir() or (swept.exists() and swept.stat().st_mtime > limit):
        return
    used = {
        name.decode() for path in drift_dir(stack).glob("*.json") for name in TEXT.findall(path.read_bytes())
    }
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # another run sweeps as well
            if path.name not in used and path.stat().st_mtime < limit:
                path.unlink()
    swept.touch()


def kept_text(stack: str, name: str) -> str | None:
    """A kept text by its name; None when it is not there any more."""
    try:
        return (drift_dir(stack) / "texts" / name).read_text()
    except OSError:
        return None


def not_sealed(stack: str, hosts: Iterable[str]) -> Iterator[str]:
    """A line for every host of which a role was not sealed by its last converge."""
    for host in hosts:
        try:
            manifest = load_manifest(stack, host)
        except CausewayError as error:
            yield one_line(f"drift: {host}: nothing is sealed: {error}")
            continue
        for role, part in manifest.roles.items() if manifest else ():
            if part.sealed_at is None and part.declared:
                why = "; ".join(part.problems) or "it ran in part only"
                yield one_line(f"drift: {host}: {role} is not sealed: {why}")


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.touch(mode=0o600)
    part.write_bytes(data)
    part.replace(path)
